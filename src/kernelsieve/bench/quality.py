"""How well features approximate the kernel: spectral epsilon and spectrum on a sample of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._random import stream
from kernelsieve.diagnostics import KernelSample
from kernelsieve.diagnostics.spectral import sides
from kernelsieve.kernels import Gaussian

SAMPLE_ROWS = 600
SPECTRUM_POINTS = 80
SEED = 0


class Sample(KernelSample):
    """Some training rows and the eigenvectors of their kernel matrix, shared by all methods."""

    @cached_property
    def eigen(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Eigenvalues of the kernel matrix, the largest first, and eigenvectors."""
        values, vectors = scipy.linalg.eigh(self.K)
        return np.clip(values[::-1], 0.0, None), vectors[:, ::-1]

    def epsilon(self, transformer: Any) -> float:
        """The spectral epsilon of fitted features on the sample.

        The eigenvalues mu of (K + aI, ZZ^T + aI) are one over those of ZZ^T + aI whitened by
        K + aI. Whitening needs K's eigenvectors, which are here already.
        """
        Z = transformer.transform(self.rows)
        Z = np.asarray(Z.toarray() if sp.issparse(Z) else Z, dtype=np.float64)
        values, vectors = self.eigen
        ridged = values + self.alpha
        white = (vectors.T @ Z) / np.sqrt(ridged)[:, None]
        matrix = white @ white.T
        matrix[np.diag_indices_from(matrix)] += self.alpha / ridged
        inverse = scipy.linalg.eigvalsh(matrix)
        least, most = float(inverse[0]), float(inverse[-1])
        return sides(lower=1.0 / least - 1.0, upper=1.0 - 1.0 / most).epsilon

    def spectrum(self) -> Spectrum:
        """Eigenvalues, scaled to all training rows, and the statistical dimension."""
        values, _ = self.eigen
        last = max(1, int(np.count_nonzero(values > 1e-14 * values[0])))
        places = np.unique(np.geomspace(1, last, SPECTRUM_POINTS).round().astype(int))
        return Spectrum(
            places.tolist(),
            [float(f"{v:.4g}") for v in values[places - 1] / self.share],
            float(np.sum(values / (values + self.alpha))),
        )


@dataclass(frozen=True)
class Spectrum:
    """Some eigenvalues by their place (from 1), and the sum of l / (l + alpha) over all of them."""

    places: list[int]
    values: list[float]
    statistical_dimension: float


def take_sample(X: Any, gamma: float, alpha: float, n_rows: int = SAMPLE_ROWS) -> Sample:
    """Draw training rows."""
    chosen = np.sort(stream(SEED, "quality rows").permutation(X.shape[0])[:n_rows])
    return Sample(Gaussian(gamma=gamma), X[chosen], alpha, X.shape[0])
