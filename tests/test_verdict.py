"""The verdict says what so many rows can tell: neither that noise is a signal, nor the reverse."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from kernelsieve.tables.predictions import Answers
from kernelsieve.tables.verdict import Ranking, row_losses, says_something, summary

Array = NDArray[np.float64]
NAMES = ("linear", "gradient boosting", "this model")


def sentence(losses: dict[str, Array], task: str, ranking: Ranking | None = None) -> str:
    found: str = summary(losses, dict.fromkeys(losses, 1.0), task, 0, ranking)["sentence"]
    return found


def regression(n: int, seed: int, explained: float) -> dict[str, Array]:
    """Losses of three models that have found all there is to find, but for a little noise."""
    rng = np.random.default_rng(seed)
    signal = np.sqrt(explained) * rng.normal(size=n)
    y = signal + np.sqrt(1.0 - explained) * rng.normal(size=n)
    losses = {"constant": y**2}
    for name in NAMES:
        losses[name] = (y - signal - 0.2 * rng.normal(size=n)) ** 2
    return losses


def classes(n: int, seed: int, shift: float) -> tuple[dict[str, Array], Ranking]:
    """Overconfident probabilities of a class that three rows of ten have."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < 0.3 * n).astype(int)
    losses = {
        "constant": row_losses(Answers.of_chances(np.arange(2), np.tile([0.7, 0.3], (n, 1))), y)
    }
    chances = {}
    for name in NAMES:
        chance = 1.0 / (1.0 + np.exp(0.5 - 3.0 * (rng.normal(size=n) + shift * y)))
        losses[name] = row_losses(
            Answers.of_chances(np.arange(2), np.column_stack([1.0 - chance, chance])), y
        )
        chances[name] = chance
    return losses, Ranking(y == 1, chances)


def test_a_signal_on_forty_rows_is_not_called_little() -> None:
    """Where models explain 45 % of the variance, forty rows may not show it; that is said."""
    said = [sentence(regression(40, seed, 0.45), "regression") for seed in range(100)]
    assert not any("say little" in each for each in said)
    unclear = [each for each in said if "clearly better than a constant" in each]
    assert all("40 rows are too few to tell" in each for each in unclear)
    assert len(unclear) < 70


def test_a_signal_on_many_rows_is_found() -> None:
    assert all(says_something(regression(1000, seed, 0.2)) for seed in range(50))


@pytest.mark.parametrize("n", [40, 400])
def test_noise_is_not_called_a_signal(n: int) -> None:
    """At most 5 %, with the bound of a binomial that exceeds it once in a thousand times."""
    most = binom.isf(1e-3, 400, 0.05)
    assert sum(says_something(regression(n, seed, 0.0)) for seed in range(400)) <= most
    rankings = [classes(n, seed, 0.0) for seed in range(400)]
    assert sum(says_something(*each) for each in rankings) <= most
    # Guesses that are no worse than a constant on average: chance has its best chance.
    lucky = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        constant = rng.exponential(size=n)
        tries = {name: constant + rng.normal(size=n) for name in NAMES}
        lucky += says_something({"constant": constant, **tries})
    assert lucky <= most


def test_little_is_said_of_many_rows_of_noise() -> None:
    said = [sentence(regression(3000, seed, 0.0), "regression") for seed in range(20)]
    assert sum("these columns say little about the target" in each for each in said) >= 18


def test_ranks_are_seen_where_probabilities_are_poor() -> None:
    """An AUC of .72 with a log loss above the constant's: the columns say something."""
    found = [classes(300, seed, 0.85) for seed in range(20)]
    areas = [ranking.area("linear")[0] for _, ranking in found]
    assert abs(np.mean(areas) - 0.72) < 0.02
    for losses, ranking in found:
        said = sentence(losses, "classification", ranking)
        assert said.startswith("The columns do rank the rows: the AUC of ")
        assert "say little" not in said


def test_the_standard_error_of_the_area() -> None:
    """DeLong's against the deviation over samples, and a ranking by hand."""
    by_hand = Ranking(np.array([True, True, False, False, False]),
                      {"a": np.array([0.9, 0.4, 0.5, 0.4, 0.1])})  # fmt: skip
    assert by_hand.area("a")[0] == pytest.approx((3 + 1.5) / 6)
    found = [classes(200, seed, 0.85)[1].area("linear") for seed in range(300)]
    areas, errors = np.transpose(found)
    # The deviation of 300 samples is known to 4 %.
    assert np.mean(errors) == pytest.approx(np.std(areas, ddof=1), rel=0.16)
    assert Ranking(np.array([True, False]), {"a": np.array([0.9, 0.1])}).area("a")[1] == np.inf


def test_losses_by_folds_are_judged_like_those_of_rows_set_aside() -> None:
    """More rows tell more: what forty leave open, 500 decide."""
    few = sum(says_something(regression(40, seed, 0.25)) for seed in range(60))
    many = sum(says_something(regression(500, seed, 0.25)) for seed in range(60))
    assert few < 30 < 58 <= many
