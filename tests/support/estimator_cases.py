"""Random data and options for every estimator; prints what came of them.

    python tests/fuzz_estimators.py --cases 5000 --seed 1

A case is refused with a ValueError, or all answers are finite, of the right shape and float type,
without a warning. What is neither is printed, the smallest of its kind, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import time
import traceback
from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

from support.hardening import ESTIMATORS, Case, cases


@dataclass
class Failure:
    """Cases that failed at the same place, and the smallest of them."""

    count: int
    case: Case
    error: BaseException

    def __str__(self) -> str:
        trace = "".join(traceback.format_exception(self.error, limit=-8))
        return f"{self.count} cases failed here:\n{trace}{self.case!r}\n"


def place(error: BaseException) -> str:
    """Where an error was raised, and its type."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"


def fuzz(
    name: str, n_cases: int, start: int, refusals: Counter[str]
) -> tuple[Counter[str], dict[str, Failure]]:
    """How many cases of one estimator ended how, and the failures by their place."""
    counts: Counter[str] = Counter()
    failures: dict[str, Failure] = {}

    @seed(start)
    @settings(
        max_examples=n_cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(name))
    def run(case: Case) -> None:
        counts["cases"] += 1
        try:
            words = case.run()
            counts["refused" if words else "finite"] += 1
            if words:
                refusals[re.sub(r"[-+.\d]*\d(e[-+]?\d+)?", "#", words)] += 1
        except (Exception, SystemError) as error:
            counts["failed"] += 1
            failure = failures.setdefault(place(error), Failure(0, case, error))
            failure.count += 1
            if case.X.shape < failure.case.X.shape:
                failure.case, failure.error = case, error

    run()
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Random data and options for every estimator")
    parser.add_argument("--cases", type=int, default=1000, help="over all estimators together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="estimators whose name has this in it")
    parser.add_argument("--refusals", action="store_true", help="print why cases were refused")
    options = parser.parse_args()
    names = [name for name in ESTIMATORS if options.only in name]
    total: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for number, name in enumerate(names):
        begin = time.perf_counter()
        share = 0.1 if "paper" in name else 1.0  # the paper's own samplers are the slow ones
        n_cases = int(np.ceil(share * options.cases / len(names)))
        counts, failures = fuzz(name, n_cases, 1000 * options.seed + number, refusals)
        total += counts
        seconds = time.perf_counter() - begin
        said = ", ".join(f"{counts[k]} {k}" for k in ("cases", "finite", "refused", "failed"))
        print(f"{name}: {said} ({seconds:.1f} s)", flush=True)
        for failure in failures.values():
            print(failure, flush=True)
    if options.refusals:
        print("refused, with numbers left out:")
        for words, count in refusals.most_common():
            print(f"{count:6}  {words[:300]}")
    print("total: " + ", ".join(f"{value} {key}" for key, value in total.items()))
    return 1 if total["failed"] else 0
