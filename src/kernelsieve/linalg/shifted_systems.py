"""(K + b D) x = y for many shifts b from few Cholesky factors.

With L L^T = K + a D the solution for another b is x = L^-T u, where (I + (b - a) M) u = L^-1 y and
M = L^-1 D L^-T. Krylov spaces do not change with the shift: one, of M and L^-1 y, holds u for every
b near a. A step of Lanczos takes two triangular solves, some fifty steps as long as a factor.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kernelsieve.linalg.cholesky import regularised_cholesky, solve_triangle

Array = NDArray[np.float64]

TOL = 1e-7  # of residuals, relative to L^-1 y
STEPS_BETWEEN_CHECKS = 4
# n / (STEP + COLUMN m) steps with m right sides take about as long as a factor.
STEP, COLUMN = 25, 6


class ShiftedSystems:
    """Solves (K + b D) x = y for any b.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        K, positive semidefinite up to rounding.
    diagonal : ndarray of shape (n,)
        D, positive.
    right : ndarray of shape (n, m)
        y.
    """

    def __init__(self, matrix: Array, diagonal: Array, right: Array) -> None:
        self.matrix, self.diagonal = matrix, diagonal
        self.right = np.ascontiguousarray(right.T)  # LAPACK reads rows as columns
        self.n_factors = 0
        self._space: _KrylovSpace | None = None

    def solve(self, shifts: Iterable[float]) -> list[Array]:
        """Solutions of shape (n, m), one for each shift, all of them positive."""
        asked = [float(shift) for shift in shifts]
        found: dict[float, Array] = {}
        while missing := sorted(set(asked) - found.keys()):
            if self._space is not None:
                for shift in missing:
                    solution = self._space.solve(shift)
                    if solution is not None:
                        found[shift] = solution
            far = [shift for shift in missing if shift not in found]
            if far:
                self._space = self._around(far[len(far) // 2])
        return [found[shift] for shift in asked]

    def _around(self, shift: float) -> _KrylovSpace:
        shifted = self.matrix.copy()
        shifted.flat[:: len(shifted) + 1] += shift * self.diagonal
        self.n_factors += 1
        lower, _ = regularised_cholesky(shifted, 0.0)
        return _KrylovSpace(lower, shift, self.diagonal, self.right)


class _KrylovSpace:
    """Lanczos's vectors of M from L^-1 y on, for each right side, as many as were needed so far."""

    def __init__(self, lower: Array, center: float, diagonal: Array, right: Array) -> None:
        self.lower, self.center, self.diagonal = lower, center, diagonal
        m, n = right.shape
        self.most = n // (STEP + COLUMN * m)
        start = solve_triangle(lower, right)
        self.size = np.linalg.norm(start, axis=1)
        self.basis = np.empty((m, self.most + 1, n))
        self.basis[:, 0] = start / np.where(self.size > 0, self.size, 1.0)[:, None]
        self.diagonals, self.beside = np.zeros((m, self.most)), np.zeros((m, self.most))
        self.steps = 0
        self._decompose()

    def solve(self, shift: float) -> Array | None:
        """The solution, or None if that would take as long as another factor."""
        while True:
            coordinates = self._coordinates(shift)
            if coordinates is not None or self.steps == self.most:
                break
            for _ in range(min(STEPS_BETWEEN_CHECKS, self.most - self.steps)):
                self._extend()
            self._decompose()
        if coordinates is None:
            return None
        inside = np.einsum("mk,mkn->mn", coordinates, self.basis[:, : coordinates.shape[1]])
        return solve_triangle(self.lower, inside, transposed=True).T

    def _coordinates(self, shift: float) -> Array | None:
        """Of the solution in the basis, of shape (m, steps); None if it is not near enough."""
        if shift == self.center:
            return self.size[:, None]
        if not self.steps:
            return None
        change = shift - self.center
        stretched = 1.0 + change * self.values
        # K + shift D has no eigenvalue below shift D; if it seems to, only rounding is left of it.
        if stretched.min() < 0.5 * min(1.0, shift / self.center):
            return None
        inside = np.einsum("mki,mi->mk", self.vectors, self.vectors[:, 0] / stretched)
        residuals = abs(change) * self.beside[:, self.steps - 1] * np.abs(inside[:, -1])
        return self.size[:, None] * inside if (residuals <= TOL).all() else None

    def _extend(self) -> None:
        """One more vector, orthogonal to all before."""
        k, here = self.steps, np.ascontiguousarray(self.basis[:, self.steps])
        between = self.diagonal * solve_triangle(self.lower, here, transposed=True)
        image = solve_triangle(self.lower, between)
        self.diagonals[:, k] = np.einsum("mn,mn->m", here, image)
        before = np.linalg.norm(image, axis=1)
        for _ in range(2):  # twice is enough
            for vectors, one in zip(self.basis[:, : k + 1], image, strict=True):
                one -= (vectors @ one) @ vectors
        length = np.linalg.norm(image, axis=1)
        length[length <= 1e-14 * before] = 0.0  # the space holds the solution
        self.beside[:, k] = length
        self.basis[:, k + 1] = image / np.where(length > 0, length, 1.0)[:, None]
        self.basis[length == 0, k + 1] = 0.0
        self.steps = k + 1

    def _decompose(self) -> None:
        """Eigenvalues and eigenvectors of M in the basis."""
        k = self.steps
        tridiagonal = np.zeros((len(self.size), k, k))
        places = np.arange(k)
        tridiagonal[:, places, places] = self.diagonals[:, :k]
        tridiagonal[:, places[1:], places[:-1]] = self.beside[:, : max(0, k - 1)]
        self.values, self.vectors = np.linalg.eigh(tridiagonal)  # reads the lower triangle
