"""TensorSketch (Pham and Pagh, 2013): CountSketches of the factors, convolved by FFT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_count
from kernelsieve.sketches._base import TensorPowerSketch
from kernelsieve.sketches.osnap import OSNAP, SampledOSNAP


@dataclass(frozen=True)
class TensorSketch:
    """The distribution of CountSketches of x^(x)degree that factor over the coordinates.

    Parameters
    ----------
    n_features, size, degree : int
        Coordinates in and out, and the number of factors.
    scale, constant : float, default 1 and 0
        What is sketched are the powers of (scale x, constant), which are not formed either.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.sketches import TensorSketch
    >>> TensorSketch(10, 64, degree=3).sample(0).apply(np.ones((2, 10))).shape
    (2, 64)
    """

    n_features: int
    size: int
    degree: int
    scale: float = 1.0
    constant: float = 0.0

    def __post_init__(self) -> None:
        check_count(self.degree, "degree", "it is the number of factors")
        OSNAP(self.n_features, self.size)  # checks them

    def sample(self, random_state: Any = None) -> SampledTensorSketch:
        """A matrix of this distribution."""
        seed = root_seed(random_state)
        factor = OSNAP(self.n_features + (self.constant != 0.0), self.size)
        leaves = [factor.sample(stream(seed, "factor", k)) for k in range(self.degree)]
        return SampledTensorSketch(
            self.n_features, self.size, self.degree, leaves, self.scale, self.constant
        )


@dataclass(frozen=True, eq=False)
class SampledTensorSketch(TensorPowerSketch):
    """A sampled TensorSketch.

    Attributes
    ----------
    leaves : list of SampledOSNAP
        The CountSketches of the factors. With a constant they have one coordinate more than X.
    """

    n_features: int
    size: int
    degree: int
    leaves: list[SampledOSNAP]
    scale: float = 1.0
    constant: float = 0.0

    @property
    def widest(self) -> int:
        return 4 * self.size  # a CountSketch, its spectrum, the product of spectra, the inverse

    def fill_product(self, factors: list[Any], out: NDArray[Any]) -> None:
        product: NDArray[Any] | None = None
        for leaf, X in zip(self.leaves, factors, strict=True):
            self._fill_factor(leaf, X, out)
            if self.degree == 1:
                return
            spectrum = rfft(out, axis=1)
            product = spectrum if product is None else np.multiply(product, spectrum, out=product)
        out[...] = irfft(product, n=self.size, axis=1)

    def _fill_factor(self, leaf: SampledOSNAP, X: Any, out: NDArray[Any]) -> None:
        """The CountSketch of (scale x, constant)."""
        leaf.fill(X, out)
        if self.scale != 1.0:
            # Here and not once at the end: powers of one large factor would overflow before.
            out *= out.dtype.type(self.scale)
        if self.constant:
            code = int(leaf.codes[-1, 0])
            out[:, max(code, ~code)] += out.dtype.type(
                self.constant if code >= 0 else -self.constant
            )
