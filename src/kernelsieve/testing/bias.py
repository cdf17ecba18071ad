"""Is E[Z Z^T] = K? A test over seeds with known power and a known rate of false alarms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[Any]

#: The consistent relative bias that the test must not miss, and how surely.
DETECTABLE_BIAS = 0.05
FALSE_ALARM = 1e-6
MISS = 1e-4
PILOT_SEEDS = 100
MINIMUM_SEEDS = 300


def bias_directions(K: Array) -> dict[str, Array]:
    """Linear functionals <A, G> of a symmetric G = Z Z^T, scaled so that <A, K> = 1 where it can.

    The entries one by one find a bias somewhere; the scales add up what every entry has a little
    of (they are what finds a small consistent bias); the eigenvectors look at the directions of
    small eigenvalue, which entries hide and a solver meets.
    """
    n = len(K)
    directions: dict[str, Array] = {}
    for i in range(n):
        for j in range(i, n):
            A = np.zeros((n, n))
            A[i, j] = 1.0
            directions[f"entry ({i}, {j})"] = A
    off_diagonal = K - np.diag(np.diag(K))
    directions["overall scale"] = K / np.vdot(K, K)
    directions["scale of the diagonal"] = np.eye(n) / np.trace(K)
    directions["scale off the diagonal"] = off_diagonal / np.vdot(off_diagonal, off_diagonal)
    values, vectors = np.linalg.eigh(K)
    for k, (value, u) in enumerate(zip(values, vectors.T, strict=True)):
        directions[f"eigenvector {k} (eigenvalue {value:.3g})"] = np.outer(u, u) / max(value, 1e-8)
    return directions


def critical_value(n_tests: int) -> float:
    """Two-sided normal quantile of FALSE_ALARM, with Bonferroni's correction for n_tests."""
    return float(norm.isf(FALSE_ALARM / (2 * n_tests)))


def seeds_needed(scale_deviation: float, n_tests: int) -> int:
    """Seeds for which a relative bias of DETECTABLE_BIAS is missed with probability < MISS.

    The overall scale is a mean over seeds of values with standard deviation `scale_deviation`. It
    is called biased beyond the critical value, in standard errors, so the bias must be worth that
    and the quantile of MISS together. Half as many again: the pilot's deviation is an estimate.
    """
    errors = critical_value(n_tests) + norm.isf(MISS)
    return max(MINIMUM_SEEDS, int(np.ceil(1.5 * (errors * scale_deviation / DETECTABLE_BIAS) ** 2)))


def bias_report(
    samples: Array, K: Array, negligible: float = 1e-10
) -> dict[str, tuple[float, float]]:
    """Bias and z-score of every direction; samples has shape (seeds, n, n).

    A functional that the map gets exactly (|z|^2 = 1, or the trace under row-norm sampling) has no
    variance, only rounding: a bias below `negligible`, relative to the functional of K, is none.
    """
    report = {}
    for name, A in bias_directions(K).items():
        deviations = np.tensordot(samples - K, A, axes=2)
        bias = float(deviations.mean())
        floor = negligible * float(np.abs(A).sum() * np.abs(K).max())
        error = max(float(deviations.std(ddof=1) / np.sqrt(len(samples))), floor)
        report[name] = (bias, 0.0 if abs(bias) <= floor else bias / error)
    return report
