"""Random Fourier features (Rahimi and Recht, 2008), plain and orthogonal."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import stream
from kernelsieve._validation import check_choice
from kernelsieve.features._base import FeatureMap
from kernelsieve.kernels import Gaussian


class FourierFeatures(FeatureMap):
    """Cosines and sines of random projections, for the Gaussian kernel.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features.
    kernel : "gaussian" or Gaussian, default "gaussian"
    gamma : "scale", "auto" or float, default "scale"
        exp(-gamma |x - y|^2); "scale" is 1 / (d var(X)).
    variant : "cos+sin" or "phase", default "cos+sin"
        A cosine and a sine for every frequency, or one cosine with a random phase. The first has
        the lower variance and |z(x)| = 1.
    orthogonal : bool, default False
        Draw the frequencies in orthogonal blocks (Yu et al., 2016): lower error, same features.
    random_state : int, RandomState, Generator or None
    n_jobs : int, default all cores

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features_in_, n_frequencies)
    phases_ : ndarray, one for each feature that is a cosine with a phase

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import FourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> FourierFeatures(n_components=64, random_state=0).fit_transform(X).shape
    (100, 64)
    """

    unbiased: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        variant: str = "cos+sin",
        orthogonal: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.variant = variant
        self.orthogonal = orthogonal
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        check_choice(self.variant, "variant", ("cos+sin", "phase"))
        if not isinstance(self.kernel_, Gaussian):
            raise ValueError(
                f"kernel={self.kernel_!r} has no Fourier features here: use the Gaussian"
            )
        self.n_components_ = int(self.n_components)
        # An odd number of features leaves one frequency without its sine: it gets a phase.
        pairs = self.n_components_ // 2 if self.variant == "cos+sin" else 0
        singles = self.n_components_ - 2 * pairs
        draw = _orthogonal_directions if self.orthogonal else _normal_directions
        directions = draw(X.shape[1], pairs + singles, stream(seed, "frequencies"))
        self.frequencies_ = directions * np.sqrt(2.0 * self.kernel_.gamma)
        self.phases_ = stream(seed, "phases").uniform(0.0, 2.0 * np.pi, size=singles)

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        pairs = self.frequencies_.shape[1] - len(self.phases_)
        angles = X @ self.frequencies_.astype(X.dtype, copy=False)
        np.cos(angles[:, :pairs], out=out[:, :pairs])
        np.sin(angles[:, :pairs], out=out[:, pairs : 2 * pairs])
        singles = out[:, 2 * pairs :]
        np.add(angles[:, pairs:], self.phases_.astype(X.dtype), out=singles)
        np.cos(singles, out=singles)
        # Each pair stands for 2 / s of the kernel, each single cosine (mean square 1/2) for 1 / s.
        out *= out.dtype.type(np.sqrt(2.0 / self.n_components_))


def _normal_directions(d: int, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.standard_normal((d, count))


def _orthogonal_directions(d: int, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Blocks of at most d orthogonal directions, with the lengths of normal vectors."""
    directions = np.empty((d, count))
    for start in range(0, count, d):
        size = min(d, count - start)
        basis, triangle = np.linalg.qr(rng.standard_normal((d, size)))
        # Signs as QR leaves them are not Haar distributed.
        directions[:, start : start + size] = basis * np.sign(np.diag(triangle))
    return directions * np.sqrt(rng.chisquare(d, size=count))
