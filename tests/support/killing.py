"""Kill a command at random moments.

    python tests/support/killing.py --moments 50 -- fit a.csv ...

Everything is imported once; every run is a fork of this process, killed by SIGKILL after a random
part of the time that an undisturbed run took. Prints how many were killed, how many ended first.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable


def child(arguments: list[str]) -> int:
    """Start the command; its process number."""
    number = os.fork()
    if number == 0:
        from kernelsieve import cli

        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            cli.main(arguments)
        except SystemExit as exit_:
            os._exit(int(exit_.code or 0))
        finally:
            os._exit(99)
    return number


def kill_at_random(
    arguments: list[str], moments: int, seed: int, check: Callable[[], None]
) -> tuple[int, int]:
    """(killed, ended before); ``check`` is called after each."""
    rng, lengths = random.Random(seed), []
    for _ in range(2):  # the first one may wait for a file, or for other work on the machine
        start = time.perf_counter()
        assert os.waitpid(child(arguments), 0)[1] == 0, "the undisturbed run failed"
        lengths.append(time.perf_counter() - start)
    length = min(lengths)
    killed = ended = 0
    for _ in range(moments):
        number = child(arguments)
        time.sleep(rng.uniform(0.0, 1.1) * length)
        os.kill(number, signal.SIGKILL)
        status = os.waitpid(number, 0)[1]
        killed, ended = killed + os.WIFSIGNALED(status), ended + os.WIFEXITED(status)
        length *= 0.95 if os.WIFEXITED(status) else 1.0  # runs have become shorter
        check()
    return killed, ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    from kernelsieve import load
    from kernelsieve.bench import Store, runner

    command = options.command
    if command[0] == "fit":
        path = command[command.index("-o") + 1]

        def check() -> None:
            load(path)

    else:
        from pathlib import Path

        runner.tuned = lambda *_: (0.02, 1.0)  # the search would take all the time
        folder = Path(command[command.index("--out") + 1])

        def check() -> None:
            Store(folder / "results.jsonl")
            for name, end in (("table.md", "\n"), ("report.html", "</html>\n")):
                assert (folder / name).read_text().endswith(end)

    killed, ended = kill_at_random(command, options.moments, options.seed, check)
    print(f"{killed} killed, {ended} ended before, all files whole")


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork
    sys.exit(main())
