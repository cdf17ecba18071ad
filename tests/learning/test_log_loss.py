"""The choice of a penalty and a kernel for the log loss, and scores of rows left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelsieve.kernels import Product
from kernelsieve.learning import Budget
from kernelsieve.learning.candidate import Candidate
from kernelsieve.learning.log_loss import (
    Held,
    calibrated,
    choose_loss,
    left_out_scores,
    matrix,
    spread,
    squares_are_better,
)
from kernelsieve.linalg.logistic import OnKernel, minimise, row_losses
from kernelsieve.sources.base import Block

WIDE, NARROW = Candidate(Product(0.5), 0.1), Candidate(Product(50.0, "laplacian"), 0.1)


def labelled(n: int, outputs: int = 1, noise: float = 0.5, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    places = np.digitize(X[:, 0] + noise * rng.normal(size=n), np.linspace(-0.7, 0.7, outputs))
    signs = np.where(places[:, None] == np.arange(outputs + 1), 1.0, -1.0)
    return Block(X, signs[:, 1:] if outputs == 1 else signs, rng.uniform(0.5, 2.0, n))


def minimum(K: Any, rows: Block, alpha: float) -> tuple[Any, Any]:
    problem = OnKernel(K, rows.y, rows.weights_or_ones, alpha, True)
    values = minimise(problem, np.zeros((len(rows) + 1, rows.y.shape[1])), 300, 1e-12).at.values
    return values[:-1], values[-1]


def refitted(K: Any, rows: Block, alpha: float) -> Any:
    """The scores of each row from all others, by a fit for each."""
    scores = np.empty_like(rows.y)
    for row in range(len(rows)):
        others = np.delete(np.arange(len(rows)), row)
        dual, intercepts = minimum(K[np.ix_(others, others)], rows.take(others), alpha)
        scores[row] = K[row, others] @ dual + intercepts
    return scores


@pytest.mark.parametrize("alpha", [10.0, 1.0, 0.1])
def test_scores_left_out_are_those_of_refits(alpha: float) -> None:
    """A Newton step errs by the change of the curvature: at most |f''' / f''| < 1 times the step.

    The intercept is held, so that it adds a step of 1 / n.
    """
    rows = labelled(50)
    K = matrix(WIDE.kernel, rows.X, rows.X)
    dual, intercepts = minimum(K, rows, alpha)
    fitted = K @ dual + intercepts
    near, truth = left_out_scores(K, rows, dual, intercepts, alpha), refitted(K, rows, alpha)
    steps = np.abs(truth - fitted)
    assert (np.abs(near - truth) <= np.maximum(steps, 0.1) * np.minimum(steps, 1.0) + 4 / 50).all()
    losses = [row_losses(scores, rows.y).mean() for scores in (fitted, near, truth)]
    assert abs(losses[1] - losses[2]) < 0.25 * (losses[2] - losses[0]) + 0.01


def test_scores_left_out_of_several_classes_are_close_to_refits() -> None:
    rows = labelled(60, outputs=2)
    K = matrix(WIDE.kernel, rows.X, rows.X)
    dual, intercepts = minimum(K, rows, 0.5)
    fitted = row_losses(K @ dual + intercepts, rows.y).mean()
    near = row_losses(left_out_scores(K, rows, dual, intercepts, 0.5), rows.y).mean()
    truth = row_losses(refitted(K, rows, 0.5), rows.y).mean()
    assert fitted < near
    assert abs(near - truth) < 0.4 * (truth - fitted)


def split(rows: Block, *candidates: Candidate) -> list[Held]:
    apart = np.arange(len(rows)) % 3 == 0
    return [Held(np.flatnonzero(~apart), np.flatnonzero(apart), candidates)]


def choice(rows: Block, held: list[Held], free: bool = True, n_jobs: int = 1) -> Any:
    return choose_loss(rows, held, Budget(), fit_intercept=True, free=free, seed=0, n_jobs=n_jobs)


def test_the_kernel_that_predicts_is_chosen() -> None:
    rows = labelled(300)
    found = choice(rows, split(rows, NARROW, WIDE))
    assert found.place == 1
    assert found.losses.shape == (100,)
    np.testing.assert_allclose(found.losses, row_losses(found.scores, rows.y[::3]))
    assert found.loss(np.full(100, 0.01)) < np.log(2.0)
    both = choice(rows, split(rows, WIDE, WIDE))  # as good: the one that is simpler
    assert both.place == 1


def test_labels_without_a_pattern_ask_for_a_large_penalty() -> None:
    rng = np.random.default_rng(0)
    rows = Block(rng.normal(size=(300, 2)), rng.choice([-1.0, 1.0], size=(300, 1)))
    found = choice(rows, split(rows, WIDE))
    assert found.penalty >= 1.0
    assert found.losses.mean() < np.log(2.0) + 0.05


def test_a_penalty_that_is_given_stays() -> None:
    rows = labelled(150)
    assert choice(rows, split(rows, WIDE), free=False).penalty == 1.0


def test_the_choice_is_the_same_for_any_threads_and_of_folds_in_any_order() -> None:
    rows = labelled(150)
    rng = np.random.default_rng(0)
    parts = np.array_split(rng.permutation(150), 3)
    held = [
        Held(np.setdiff1d(np.arange(150), part), np.sort(part), (WIDE, NARROW)) for part in parts
    ]
    one, two, turned = choice(rows, held), choice(rows, held, n_jobs=2), choice(rows, held[::-1])
    assert one.place == two.place == turned.place
    np.testing.assert_array_equal(one.scores, two.scores)
    np.testing.assert_allclose(one.scores, turned.scores)
    np.testing.assert_allclose(one.losses, row_losses(one.scores, rows.y))


@pytest.mark.parametrize("n_splits", [1, 3])
@pytest.mark.parametrize("free", [True, False])
def test_squares_are_taken_only_if_they_are_clearly_better(n_splits: int, free: bool) -> None:
    """The same kernel gives about the same probabilities; a far better one does not."""
    rows = labelled(240)
    parts = np.array_split(np.random.default_rng(0).permutation(240), 3)[:n_splits]

    def held(ridge: Candidate, other: Candidate) -> list[Held]:
        every = np.arange(240)
        return [Held(np.setdiff1d(every, part), np.sort(part), (ridge, other)) for part in parts]

    same = held(WIDE, WIDE)
    options = {"fit_intercept": True, "free": free}
    assert not squares_are_better(rows, same, choice(rows, same), WIDE, **options)
    poor = choice(rows, [Held(one.known, one.apart, (NARROW,)) for one in same])
    if len(same) == 1 or not free:  # all rows from all others look at the kernels again
        assert squares_are_better(rows, same, poor, WIDE, **options)


def test_calibrated_losses_do_not_depend_on_the_scale_of_the_scores() -> None:
    rows = labelled(100)
    scores = rows.X[:, :1]
    np.testing.assert_allclose(
        calibrated(scores, rows).mean(), calibrated(7.0 * scores, rows).mean(), rtol=1e-4
    )
    assert calibrated(scores, rows).mean() <= row_losses(scores, rows.y).mean() + 1e-6


def test_the_spread_of_a_kernel() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    assert spread(X @ X.T) == pytest.approx(X.var(axis=0).sum())
    assert spread(np.ones((5, 5))) > 0.0
