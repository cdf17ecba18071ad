"""Fork many times while other threads predict; every child predicts, too.

    python tests/support/forking.py --forks 1000 [--first]

With ``--first`` the threads' first prediction, which compiles, is under way when the forks begin.
A child that does not answer within a minute is killed. Prints how many did not answer, or answered
differently, and exits with 1 if any did.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

from kernelsieve import FourierFeatures, KernelRidge, NystromFeatures

PATIENCE = 60.0  # seconds that a child may take


def fitted() -> tuple[list[Any], np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3))
    maps = (FourierFeatures(64, random_state=0), NystromFeatures(64, random_state=0))
    return [KernelRidge(map_, n_jobs=2).fit(X, X[:, 0] ** 2) for map_ in maps], X


def child(models: list[Any], X: np.ndarray, expected: list[np.ndarray] | None) -> int:
    """Predict in a fork; its process number."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            found = [model.predict(X) for model in models]
            same = expected is None or all(map(np.array_equal, found, expected))
            code = 0 if same else 2
        finally:
            os._exit(code)
    return number


def answered(number: int) -> bool:
    """Whether a child ended well in time; one that did not is killed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.002)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--first", action="store_true")
    options = parser.parse_args()
    models, X = fitted()
    if options.first:  # other loops than those of the fit
        X = X.astype(np.float32)
    expected = None if options.first else [model.predict(X) for model in models]
    stop = threading.Event()

    def predict() -> None:
        while not stop.is_set():
            for model in models:
                model.predict(X)

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    failed = 0
    for _ in range(options.forks):
        failed += not answered(child(models, X, expected))
        if failed > 2:
            break
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{failed} of {options.forks} children did not answer as they should")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
