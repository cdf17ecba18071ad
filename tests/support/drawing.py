"""Are multisets drawn from a distribution?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from scipy import stats

from kernelsieve.products.multisets import (
    Multisets,
)

Index = tuple[int, ...]


LEVEL = 1e-5  # of every goodness-of-fit test; the seeds are fixed


def assert_drawn_from(
    drawn: Sequence[Any], probabilities: dict[Any, float], size: int | None = None
) -> None:
    """Chi-square; cells with fewer than 10 expected draws are put together."""
    counts = Counter(drawn)
    n = len(drawn)
    strange = [m for m in counts if not probabilities.get(m, 0.0) > 0]
    assert not strange, f"drawn, but of probability zero: {strange[:3]}"
    large = [m for m, p in probabilities.items() if n * p >= 10]
    observed = [counts[m] for m in large]
    expected = [n * probabilities[m] for m in large]
    rest = n - sum(expected)
    if rest > 1e-6 * n:
        observed.append(n - sum(observed))
        expected.append(rest)
    else:
        assert n == sum(observed)
        expected = [e * n / sum(expected) for e in expected]
    if len(expected) > 1:
        pvalue = stats.chisquare(observed, expected).pvalue
        worst = max(large, key=lambda m: abs(counts[m] - n * probabilities[m]))
        assert pvalue > LEVEL, (
            f"chi-square p = {pvalue:.1e}; {worst} came {counts[worst]} times, "
            f"{n * probabilities[worst]:.1f} expected"
        )


DRAWS = 60_000


def multisets_of(draws: Any) -> list[Index]:
    _, ends, coordinates, orders = draws
    return Multisets(ends, coordinates, orders).tuples()
