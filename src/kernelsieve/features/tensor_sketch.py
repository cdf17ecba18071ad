"""TensorSketch features of the polynomial kernel (Pham and Pagh, 2013)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from numpy.typing import NDArray

from kernelsieve._random import stream
from kernelsieve._state import instance
from kernelsieve._validation import check_matrix
from kernelsieve.features.base import FeatureMap
from kernelsieve.kernels import Polynomial
from kernelsieve.sketches import TensorSketch
from kernelsieve.sketches.base import FEWEST_ROWS
from kernelsieve.sketches.tensor_sketch import SampledTensorSketch


class TensorSketchFeatures(FeatureMap):
    """Convolved CountSketches of the coordinates, for the polynomial kernel.

    They take time O(nnz(X) + n s log s) for each degree, without forming monomials. E[Z Z^T] = K,
    and the variance grows like 3^degree: for degrees above four, use ``ObliviousFeatures``.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features; powers of two and other numbers with small factors are the fastest.
    kernel : "poly" or Polynomial, default "poly"
        The kernel is (gamma <x, y> + coef0)^degree.
    gamma : "scale", "auto" or float, default "scale"
        For kernel="poly": "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        For kernel="poly".
    coef0 : float, default 1.0
        For kernel="poly".
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    sketch_ : SampledTensorSketch
        The sampled sketch.
    n_components_ : int
        Number of features.
    kernel_ : Kernel
        The kernel in use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import TensorSketchFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> TensorSketchFeatures(n_components=64, degree=2, random_state=0).fit_transform(X).shape
    (100, 64)
    """

    unbiased: ClassVar[bool] = True
    _state_fields: ClassVar = {"sketch_": instance(SampledTensorSketch, d="n_features")}

    def _complete(self) -> None:
        super()._complete()
        self.n_components_ = self.sketch_.size

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "poly",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        kernel = self.kernel_
        if not isinstance(kernel, Polynomial):
            raise ValueError(
                f"kernel={kernel!r} is not a polynomial kernel: use ObliviousFeatures, which takes "
                "every kernel with a Taylor series"
            )
        kernel.diag(X)  # says so if it overflows X's float type
        self.n_components_ = int(self.n_components)
        check_matrix(
            FEWEST_ROWS * (kernel.degree + 1),
            self.n_components_,
            X.dtype,
            f"a block of {FEWEST_ROWS} rows of {self.n_components_:,} features, with "
            f"{kernel.degree} factors",
            "at most {fits} features would fit: lower n_components",
        )
        self.sketch_ = TensorSketch(
            X.shape[1],
            self.n_components_,
            kernel.degree,
            scale=math.sqrt(kernel.gamma),
            constant=math.sqrt(kernel.coef0),
        ).sample(stream(seed, "tensor sketch"))

    def _block_rows(self, dtype: Any) -> int:
        return self.sketch_.block_rows(dtype)

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        self.sketch_.fill(X, out)
