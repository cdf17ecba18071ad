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

    def __post_init__(self) -> None:
        check_count(self.degree, "degree", "it is the number of factors")
        OSNAP(self.n_features, self.size)  # checks them

    def sample(self, random_state: Any = None) -> SampledTensorSketch:
        """A matrix of this distribution."""
        seed = root_seed(random_state)
        factor = OSNAP(self.n_features, self.size)
        leaves = [factor.sample(stream(seed, "factor", k)) for k in range(self.degree)]
        return SampledTensorSketch(self.n_features, self.size, self.degree, leaves)


@dataclass(frozen=True)
class SampledTensorSketch(TensorPowerSketch):
    """A sampled TensorSketch; ``leaves`` are the CountSketches of the factors."""

    n_features: int
    size: int
    degree: int
    leaves: list[SampledOSNAP]

    def fill_product(self, factors: list[Any], out: NDArray[Any]) -> None:
        product: NDArray[Any] | None = None
        for leaf, X in zip(self.leaves, factors, strict=True):
            leaf.fill(X, out)
            if self.degree == 1:
                return
            spectrum = rfft(out, axis=1)
            product = spectrum if product is None else np.multiply(product, spectrum, out=product)
        out[...] = irfft(product, n=self.size, axis=1)
