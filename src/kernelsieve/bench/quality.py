"""How well features stand for the kernel: spectral epsilon and spectrum on a subsample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelsieve._random import stream
from kernelsieve.diagnostics import KernelSample
from kernelsieve.kernels import Gaussian

EPSILON_ROWS = 600
SPECTRUM_ROWS = 2000
SPECTRUM_POINTS = 80
SEED = 0


class Sample(KernelSample):
    """Some training rows, their kernel matrix, and alpha scaled to their number."""

    def epsilon(self, transformer: Any) -> float | None:
        """The spectral epsilon of the features on the sample; None if alpha is lost in rounding."""
        try:
            return float(self.sides(transformer.transform(self.rows)))
        except ValueError:
            return None


@dataclass(frozen=True)
class Spectrum:
    """Some eigenvalues by their place (from 1), and the sum of l / (l + alpha) over all of them."""

    places: list[int]
    values: list[float]
    statistical_dimension: float


def spectrum_of(X: Any, gamma: float, alpha: float) -> Spectrum:
    """Eigenvalues on a sample, scaled to all training rows, and the statistical dimension."""
    sample = take_sample(X, gamma, alpha, SPECTRUM_ROWS)
    eigenvalues = np.clip(np.linalg.eigvalsh(sample.K)[::-1], 0.0, None)
    dimension = float(np.sum(eigenvalues / (eigenvalues + sample.alpha)))
    last = max(1, int(np.count_nonzero(eigenvalues > 1e-14 * eigenvalues[0])))
    places = np.unique(np.geomspace(1, last, SPECTRUM_POINTS).round().astype(int))
    values = eigenvalues[places - 1] / sample.share
    return Spectrum(places.tolist(), [float(f"{v:.4g}") for v in values], dimension)


def take_sample(X: Any, gamma: float, alpha: float, n_rows: int = EPSILON_ROWS) -> Sample:
    """Random training rows."""
    chosen = np.sort(stream(SEED, "quality rows").permutation(X.shape[0])[:n_rows])
    return Sample(Gaussian(gamma=gamma), X[chosen], alpha, X.shape[0])
