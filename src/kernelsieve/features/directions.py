"""The best few directions of many whitened landmarks, from sums over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._validation import check_positive
from kernelsieve.kernels import Kernel
from kernelsieve.linalg.eigenvalues import leading_eigenvectors, orthonormal
from kernelsieve.linalg.normal_equations import NormalEquations, solve_ridge
from kernelsieve.linalg.whitening import times_upper
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.summaries import TargetSummary, target_summary

MOMENT_ROWS = 2048  # of many features each; every block makes one matrix of all their products


@dataclass(frozen=True)
class WhitenedSums:
    """The sums over a block of Z^T Z, Z^T y and their like, for the features of all landmarks.

    Attributes
    ----------
    kernel : Kernel
    landmarks : {ndarray, CSR} of shape (m, d)
    whitening : ndarray of shape (m, m)
        Upper triangle.
    targets : TargetSummary or None
        How targets become columns; None takes none.
    """

    kernel: Kernel
    landmarks: Any
    whitening: NDArray[Any]
    targets: TargetSummary | None

    def __call__(self, block: Block) -> NormalEquations:
        C = self.kernel.between(block.X, self.landmarks, n_jobs=1)
        Z = np.empty_like(C)
        times_upper(C, self.whitening, Z)
        y = np.empty((len(block), 0)) if self.targets is None else self.targets.columns(block.y)
        return NormalEquations.of_block(Z, y, single=Z.dtype == np.float32)


def best_directions(sums: WhitenedSums, rows: Source, size: int, n_jobs: int | None) -> Any:
    """The ``size`` directions in which the rows' features are longest: orthonormal columns.

    Z V V^T Z^T is the best approximation of Z Z^T of this rank on the rows (Eckart and Young).
    """
    equations = rows.reduce(sums, MOMENT_ROWS, n_jobs)
    return leading_eigenvectors(equations.gram, size)[1]


def target_directions(
    sums: WhitenedSums, rows: Source, size: int, alpha: float, n_jobs: int | None
) -> Any:
    """The ridge solution of each target, then the best directions, as orthonormal columns.

    The ridge of all landmarks lies in their span, and lengths are the same there, so that the
    ridge on these few features is the ridge on all landmarks, with the same alpha.
    """
    check_positive(alpha, "alpha", "it is added to the kernel's diagonal")
    equations = rows.reduce(sums, MOMENT_ROWS, n_jobs)
    solutions = orthonormal(solve_ridge(equations, alpha, fit_intercept=True).coefficients)
    solutions = solutions[:, :size]
    leading = leading_eigenvectors(equations.gram, size)[1]
    others = orthonormal(leading, against=solutions)[:, : size - solutions.shape[1]]
    return np.hstack([solutions, others])


def summary_of_targets(rows: Source) -> TargetSummary:
    """The summary of the targets that directions are to serve."""
    summary = target_summary(rows)
    if summary is None:
        raise ValueError(
            "target_directions=True needs a target: pass y to fit, or set target_directions=False"
        )
    return summary
