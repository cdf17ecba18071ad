"""TensorSketch (Pham and Pagh, 2013): CountSketches of the factors, convolved by FFT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from kernelsieve._native.count_sketch import multiply_spectra
from kernelsieve._random import root_seed, stream
from kernelsieve._state import (
    MOST_COLUMNS,
    MOST_FACTORS,
    Persistent,
    instance,
    list_of,
    number,
    scaling,
    whole,
    wrong,
)
from kernelsieve._validation import check_count
from kernelsieve.sketches.base import TensorPowerSketch
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
        for name, value in (("scale", self.scale), ("constant", self.constant)):
            if not math.isfinite(value):
                raise ValueError(f"{name}={value!r} is not a finite number")

    def sample(self, random_state: Any = None) -> SampledTensorSketch:
        """Draw a sketch of this distribution.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None, default None
            Seed of the draw; None draws a new one.

        Returns
        -------
        SampledTensorSketch
            Its ``apply(X)`` sketches rows.
        """
        seed = root_seed(random_state)
        factor = OSNAP(self.n_features + (self.constant != 0.0), self.size)
        leaves = [factor.sample(stream(seed, "factor", k)) for k in range(self.degree)]
        return SampledTensorSketch(
            self.n_features, self.size, self.degree, leaves, self.scale, self.constant
        )


@dataclass(frozen=True, eq=False)
class SampledTensorSketch(TensorPowerSketch, Persistent):
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

    _state_fields: ClassVar = {
        "n_features": whole(1),
        "size": whole(1, MOST_COLUMNS),
        "degree": whole(1),
        "leaves": list_of(instance(SampledOSNAP)),
        "scale": scaling,
        "constant": number(0.0, 1e153),
    }

    def _complete(self) -> None:
        if len(self.leaves) != self.degree or self.widest > MOST_FACTORS:
            wrong("leaves", f"sketch {len(self.leaves)} factors to {self.size} columns each")
        shape = self.n_features + (self.constant != 0.0), self.size
        if any((leaf.n_features, leaf.size) != shape for leaf in self.leaves):
            wrong("leaves", f"are not all from {shape[0]} to {shape[1]} coordinates")

    @property
    def widest(self) -> int:
        return (self.degree + 1) * self.size  # CountSketches and the result; spectra replace them

    def fill_product(self, factors: list[Any], out: NDArray[Any]) -> None:
        if self.degree == 1:
            self.leaves[0].fill_with(factors[0], self.scale, self.constant, out)
            return
        # All factors in one array and few calls: threads that work on small blocks would
        # otherwise spend their time in handing the interpreter's lock to each other. The scale is
        # in every factor, not at the end: powers of one large factor would overflow before.
        sketches = np.empty((self.degree, *out.shape), dtype=out.dtype)
        for leaf, X, sketch in zip(self.leaves, factors, sketches, strict=True):
            leaf.fill_with(X, self.scale, self.constant, sketch)
        spectra = rfft(sketches, axis=2, overwrite_x=True)
        multiply_spectra(spectra)
        out[...] = irfft(spectra[0], n=self.size, axis=1, overwrite_x=True)
