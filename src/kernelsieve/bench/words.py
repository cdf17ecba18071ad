"""Numbers and facts in words, for the tables and the report alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kernelsieve.bench.methods import METHODS
from kernelsieve.bench.metrics import NAMES
from kernelsieve.bench.paper import PUBLISHED
from kernelsieve.bench.records import NEGLIGIBLE, Comparison, Setup, Summary


def size(n_bytes: int | None) -> str:
    """A size in memory.

    Examples
    --------
    >>> size(2_500_000), size(3_200_000_000), size(None)
    ('2.5 MB', '3.2 GB', '-')
    """
    if n_bytes is None:
        return "-"
    megabytes = n_bytes / 1e6
    if megabytes < 1:
        return "< 1 MB"
    return f"{megabytes:.3g} MB" if megabytes < 999.5 else f"{megabytes / 1000:.3g} GB"


def number(value: float | None) -> str:
    """Three digits, short.

    Examples
    --------
    >>> number(0.01234), number(1234567.0), number(None)
    ('0.0123', '1.2e+06', '-')
    """
    if value is None:
        return "-"
    return f"{value:.3g}" if 1e-4 <= abs(value) < 1e4 else f"{value:.1e}"


def decimals(rows: Iterable[Summary]) -> int:
    """Decimals that show four digits of the smallest error."""
    smallest = min((row.error for row in rows), default=0.0)
    return max(0, 3 - math.floor(math.log10(smallest))) if smallest > 0 else 3


def error(row: Summary, digits: int, plus_minus: str = "±") -> str:
    """Mean and standard deviation; no deviation where there is only one seed."""
    mean = f"{row.error:.{digits}f}"
    return f"{mean} {plus_minus} {row.spread:.{digits}f}" if row.n_seeds > 1 else mean


def features(comparison: Comparison, row: Summary) -> str:
    """s=500, with a + if the error was still falling there; nothing for a method without s."""
    if row.n_components is None:
        return ""
    return f"s={row.n_components}" + ("+" if comparison.still_falling(row.method) else "")


def label(method: str) -> str:
    """What a method is called in tables."""
    return METHODS[method].label if method in METHODS else method


def metric(setup: Setup) -> str:
    """What the errors of a dataset are.

    Examples
    --------
    >>> sorted(NAMES.values())
    ['1 - AUC', 'RMSE', 'log loss']
    """
    return NAMES[setup.metric]


def plural(count: int, noun: str) -> str:
    """1 seed, 2 seeds."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sizes(setup: Setup) -> str:
    """Rows and columns of a dataset, as in the paper's table."""
    rows = setup.n_train + setup.n_validation + setup.n_test
    return f"n={rows:,} d={setup.n_inputs:,}"


def conditions(comparison: Comparison) -> str:
    """What all methods had in common on a dataset."""
    setup = comparison.setup
    return (
        f"{metric(setup)} on {setup.n_test:,} test rows; {setup.n_train:,} training rows, "
        f"{setup.n_validation:,} validation rows, gamma {setup.gamma:.2g}, "
        f"alpha {setup.alpha:.2g}, s_alpha {setup.statistical_dimension:.0f}, {setup.float_type}, "
        f"{plural(setup.n_threads, 'thread')}, {plural(comparison.n_seeds, 'seed')}"
    )


def failures(comparison: Comparison) -> list[str]:
    """One line for each method and reason."""
    found: dict[str, list[str]] = {}
    for result in comparison.failures:
        where = f"s={result.n_components}" if result.n_components else ""
        places = found.setdefault(f"{label(result.method)}: {result.failure}", [])
        if where and where not in places:
            places.append(where)
    return [f"{text} ({', '.join(places)})" if places else text for text, places in found.items()]


def has_paper(comparisons: Sequence[Comparison]) -> bool:
    """Whether the paper has numbers for any of these."""
    return any((c.setup.dataset, m) in PUBLISHED for c in comparisons for m in c.methods)


def remarks(comparisons: Sequence[Comparison]) -> str:
    """What the numbers in the table are."""
    names = list(dict.fromkeys(metric(c.setup) for c in comparisons))
    return (
        f"{', '.join(names)} on the test rows (mean ± standard deviation over the seeds), "
        "training time (features and regression, median), and the number of features s, chosen on "
        f"validation rows: the smallest s within {NEGLIGIBLE:.0%} of the lowest error there. "
        "A + means that the error was still falling at the largest s."
    )


FAIRNESS = (
    "Every method gets the same training, validation and test rows and the same number of threads. "
    "Kernel methods share one gamma and one alpha, chosen by leave-one-out error of Fourier "
    "features on the training rows. Trees get the columns as they come, with missing values and "
    "categories; all others get scaled numbers and 0/1 columns. Peers have their own defaults. At "
    "each s methods and seeds take turns in shuffled order. A small fit of each method comes first "
    "and is not counted."
)
