"""Ridges of many alphas from one eigendecomposition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelsieve.linalg.normal_equations import Centred

Array = NDArray[np.float64]


class RidgePath:
    """The ridges of all alphas on some features, from one eigendecomposition of their Gram matrix.

    Parameters
    ----------
    problem : Centred
    alphas : ndarray of shape (n_alphas,)

    Attributes
    ----------
    largest : float
        The largest eigenvalue.
    """

    def __init__(self, problem: Centred, alphas: Array) -> None:
        values, self.vectors = np.linalg.eigh(problem.gram)
        self.problem, self.largest = problem, float(values[-1])
        self.shrunk = 1.0 / (np.maximum(values, 0.0)[:, None] + alphas)  # (s, n_alphas)
        moment = self.vectors.T @ problem.moment
        self.coefficients = self.shrunk[:, :, None] * moment[:, None, :]

    def coordinates(self, Z: Array) -> Array:
        """Features of some rows, centred and along the eigenvectors, of shape (rows, s)."""
        return (Z - self.problem.feature_mean) @ self.vectors

    def predict(self, coordinates: Array) -> Array:
        """Predictions of shape (rows, n_alphas, n_outputs)."""
        return np.tensordot(coordinates, self.coefficients, 1) + self.problem.target_mean

    def leverages(self, coordinates: Array, fit_intercept: bool) -> Array:
        """Leverages of shape (rows, n_alphas), of rows of weight 1."""
        leverages = coordinates**2 @ self.shrunk
        return leverages + 1.0 / self.problem.weight if fit_intercept else leverages
