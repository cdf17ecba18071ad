"""Tests of the kernel that features stand for."""

from __future__ import annotations

from unittest import SkipTest

import numpy as np

from kernelsieve.testing.bias import (
    DETECTABLE_BIAS,
    PILOT_SEEDS,
    bias_directions,
    bias_report,
    critical_value,
    seeds_needed,
)
from kernelsieve.testing.data import Array, as_dense, points
from kernelsieve.testing.hooks import Hooks


class KernelTests(Hooks):
    """Whether Z Z^T is the kernel matrix, in the mean or at full size."""

    def gram_sample(self, X: Array, seed: int) -> Array:
        parameters = {"gamma": self.gamma, **self.unbiased_parameters, "random_state": seed}
        Z = as_dense(self.build_with(**parameters).fit_transform(X))
        return Z @ Z.T

    def test_unbiased(self) -> None:
        """E[Z Z^T] = K over seeds, with the power to see a relative bias of 5 %."""
        if not self.unbiased:
            raise SkipTest("the map is not unbiased: see test_exact_at_full_size")
        X = points(6, 3, seed=11)
        K = self.gram(X)
        # The pilot's seeds only choose how many of the others to use: no peeking.
        pilot = np.stack([self.gram_sample(X, 10**6 + seed) for seed in range(PILOT_SEEDS)])
        overall = np.tensordot(pilot, bias_directions(K)["overall scale"], axes=2)
        n_seeds = seeds_needed(float(overall.std(ddof=1)), len(bias_directions(K)))
        assert n_seeds <= self.maximum_seeds, (
            f"{n_seeds} seeds are needed to see a bias of {DETECTABLE_BIAS:.0%}: raise "
            "n_components in unbiased_parameters, or maximum_seeds"
        )
        samples = np.stack([self.gram_sample(X, seed) for seed in range(n_seeds)])
        report = bias_report(samples, K, self.negligible_bias)
        worst = max(report, key=lambda name: abs(report[name][1]))
        bias, z = report[worst]
        assert abs(z) <= critical_value(len(report)), (
            f"Z Z^T is biased: {worst} is off by {bias:+.3g}, {z:+.1f} standard errors over "
            f"{n_seeds} seeds; overall scale {1 + report['overall scale'][0]:.4f} instead of 1"
        )

    def test_exact_at_full_size(self) -> None:
        """Maps without the unbiasedness property are exact when nothing is left out."""
        if self.unbiased:
            raise SkipTest("the map is unbiased: see test_unbiased")
        X = points(12, 3, seed=11)
        K = self.gram(X)
        Z = as_dense(self.build_exact(X).fit(X).transform(X))
        error = np.abs(Z @ Z.T - K).max() / np.abs(K).max()
        assert error <= self.exact_tolerance, (
            f"at full size Z Z^T should be K, but differs by {error:.1e} of its largest entry"
        )
