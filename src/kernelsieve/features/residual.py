"""Landmarks, and random features of what they leave: unbiased, with the error of the rest alone."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import root_seed, stream
from kernelsieve._state import FLOATS, INT64, array, instance, optional, plain, wrong
from kernelsieve._validation import check_count
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.binning import BinningFeatures
from kernelsieve.features.fourier import FourierFeatures
from kernelsieve.features.network import NetworkFeatures
from kernelsieve.features.nystrom import NystromFeatures
from kernelsieve.features.oblivious import ObliviousFeatures
from kernelsieve.kernels import (
    ArcCosine,
    Kernel,
    NeuralTangent,
    SmoothLaplacian,
)
from kernelsieve.sketches import SRHT
from kernelsieve.sketches.base import power_of_two
from kernelsieve.sketches.srht import SampledSRHT
from kernelsieve.sources.base import Source

# Random features for each column that they are mixed into. Those that the landmarks explain, such
# as exact low degrees, then cost nothing.
WIDER = 4
RANDOM_BYTES = 2**23  # of the random features of a block of rows


class ResidualFeatures(FeatureMap):
    """The best directions of landmarks, beside random features of the rest: unbiased.

    With orthonormal functions z_1, ..., z_r of the landmarks and random features phi with
    E[phi(x) phi(y)] = k(x, y), the features phi(x) - sum_j z_j(x) <z_j, phi> stand for the rest,
    k(x, y) - sum_j z_j(x) z_j(y). Together they have E[Z Z^T] = K, on any rows, and the error of
    random features for a kernel with the trace that the landmarks leave. The neural tangent kernel
    is the exception: the series of its random features ends, with at most half a per cent of
    k(x, x) left (``unbiased_`` is False).

    Parameters
    ----------
    n_components : int, default 1000
        Number of features.
    kernel : Kernel or str, default "gaussian"
        A kernel that has random features: Gaussian, Laplacian, Matern, Product, SmoothLaplacian,
        or one with a Taylor series; or the name of one.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        Degree of kernel="poly".
    coef0 : float, default 1.0
        Constant of kernel="poly".
    landmark_share : float, default 0.5
        The share of the features for the landmarks, from 0 to 1. At least one feature is random.
    landmarks : str, array-like or CSR of shape (n_landmarks, d), default "uniform"
        As in `NystromFeatures`.
    oversample : int, default 4
        Landmarks for each feature that they get, as in `NystromFeatures`.
    alpha : float, default None
        Ridge that the features will be used with, for landmarks="leverage" and the truncation of
        a Taylor series. None takes that of the model, or 1.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    landmark_map_ : NystromFeatures or None
        The features of the landmarks; None if they get none.
    random_map_ : FeatureMap
        The random features, four for each column that they are mixed into.
    coefficients_ : ndarray of shape (n_landmark_features, n_random)
        The products of the landmarks' functions with the mixed random features.
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
    >>> from kernelsieve import ResidualFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> features = ResidualFeatures(64, kernel="poly", degree=5, random_state=0).fit(X)
    >>> features.landmark_map_.n_components_, features.transform(X).shape
    (32, (200, 64))
    """

    unbiased: ClassVar[bool] = True

    _state_parameters: ClassVar = {
        "landmarks": plain(str, list, tuple, np.ndarray, sp.csr_array, sp.csr_matrix)
    }
    _state_fields: ClassVar = {
        "landmark_map_": optional(instance(NystromFeatures, fitted=True, d="n_features_in_")),
        "random_map_": instance(FeatureMap, fitted=True, d="n_features_in_"),
        "coefficients_": array("r", "m", dtype=FLOATS),
        "_signs": optional(array("wide", dtype=(np.int8,), low=-1, high=1)),
        "_places": optional(array("m", dtype=INT64, low=0)),
    }
    _not_stored: ClassVar = {"mixture_": "in _signs and _places"}

    mixture_: SampledSRHT | None

    def _complete(self) -> None:
        super()._complete()
        wide = self.random_map_.n_components_
        n_listed, n_random = self.coefficients_.shape
        if n_listed != (0 if self.landmark_map_ is None else self.landmark_map_.n_components_):
            wrong("coefficients_", f"are for {n_listed} features of landmarks")
        self.mixture_ = None
        if self._signs is not None and self._places is not None:
            if len(self._signs) != wide or self._places.max(initial=0) >= power_of_two(wide):
                wrong("_signs", f"are not for {wide} random features")
            self.mixture_ = SampledSRHT(wide, n_random, self._signs, self._places)
        elif wide != n_random:
            wrong("coefficients_", f"are for {n_random} of {wide} random features")
        self.n_components_ = n_listed + n_random

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        landmark_share: float = 0.5,
        landmarks: Any = "uniform",
        oversample: int = 4,
        alpha: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmark_share = landmark_share
        self.landmarks = landmarks
        self.oversample = oversample
        self.alpha = alpha
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(self, X: Source, seed: int) -> None:
        size, share = int(self.n_components), _checked_share(self.landmark_share)
        check_count(self.oversample, "oversample", "it is the number of landmarks for each feature")
        n_listed = min(size - 1, round(share * size))
        self.landmark_map_ = self._landmarks(X, n_listed, seed) if n_listed else None
        n_random = size - (self.landmark_map_.n_components_ if self.landmark_map_ else 0)
        options: dict[str, Any] = {"n_jobs": self.n_jobs}
        options["random_state"] = root_seed(stream(seed, "random"))
        self.random_map_ = random_map(self.kernel_, WIDER * n_random, self.alpha, options).fit(X)
        self.mixture_ = None
        # If there are no more random features than columns, they are the whole kernel.
        if (wide := self.random_map_.n_components_) > n_random:
            self.mixture_ = SRHT(wide, n_random).sample(stream(seed, "mixture"))
        self._signs = None if self.mixture_ is None else self.mixture_.signs
        self._places = None if self.mixture_ is None else self.mixture_.places
        self.coefficients_ = self._products()
        self.n_components_ = sum(self.coefficients_.shape)

    @property
    def unbiased_(self) -> bool:
        """Whether E[Z Z^T] = K: whether the random features are unbiased."""
        check_is_fitted(self)
        return self.random_map_.unbiased_

    def mixture(self) -> NDArray[np.float64] | None:
        """Return the matrix that mixes the random features, or None if they are used as they are.

        Returns
        -------
        ndarray of shape (n_random, n_mixed), or None
        """
        if self.mixture_ is None:
            return None
        wide = self.random_map_.n_components_
        matrix = np.empty((wide, self.mixture_.size))
        self.mixture_.fill(np.eye(wide), matrix)
        return matrix

    def _landmarks(self, X: Source, size: int, seed: int) -> NystromFeatures:
        return NystromFeatures(
            size,
            kernel=self.kernel_,
            landmarks=self.landmarks,
            oversample=self.oversample,
            alpha=self.alpha,
            random_state=root_seed(stream(seed, "landmarks")),
            n_jobs=self.n_jobs,
        ).fit(X)

    def _products(self) -> NDArray[np.float64]:
        """<z_j, phi>: z_j is the sum over landmarks l of whitening[l, j] k(l, .)."""
        if self.landmark_map_ is None:
            size = self.mixture_.size if self.mixture_ else self.random_map_.n_components_
            return np.zeros((0, size))
        points = self.landmark_map_.landmarks_.astype(np.float64)
        whitening = self.landmark_map_.whitening_.astype(np.float64)
        return np.ascontiguousarray(whitening.T @ self._random(points))

    def _random(self, X: Any) -> NDArray[Any]:
        """The mixed random features of rows, before the landmarks' part is taken off."""
        wide = np.empty((X.shape[0], self.random_map_.n_components_), dtype=X.dtype)
        self.random_map_._fill(X, wide)
        if self.mixture_ is None:
            return wide
        out = np.empty((X.shape[0], self.mixture_.size), dtype=X.dtype)
        self.mixture_.fill(wide, out)
        return out

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        n_listed = len(self.coefficients_)
        random = self._random(X)
        if self.landmark_map_ is not None:
            listed = np.empty((X.shape[0], n_listed), dtype=X.dtype)
            self.landmark_map_._fill(X, listed)
            random -= listed @ self.coefficients_.astype(X.dtype)
            out[:, :n_listed] = listed
        out[:, n_listed:] = random

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (
            isinstance(self.landmarks, str) and self.landmarks == "kmeans"
        )
        return tags

    def _block_rows(self, dtype: Any) -> int:
        row_bytes = max(1, 2 * self.random_map_.n_components_) * np.dtype(dtype).itemsize
        return int(np.clip(RANDOM_BYTES // row_bytes, 32, 2048))


def random_map(
    kernel: Kernel, size: int, alpha: float | None, options: dict[str, Any]
) -> FeatureMap:
    """The unbiased random features of a kernel."""
    if kernel.radial and kernel.has_frequencies:
        return FourierFeatures(size, kernel=kernel, frequencies="orthogonal", **options)
    if kernel.has_frequencies:
        return FourierFeatures(size, kernel=kernel, **options)
    if isinstance(kernel, SmoothLaplacian):
        return BinningFeatures(size, kernel=kernel, **options)
    if isinstance(kernel, ArcCosine | NeuralTangent):
        return NetworkFeatures(size, kernel=kernel, **options)
    if kernel.has_series:
        return ObliviousFeatures(size, kernel=kernel, alpha=alpha, **options)
    raise ValueError(
        f"kernel={kernel!r} has no unbiased random features for what landmarks leave: use "
        "NystromFeatures"
    )


def _checked_share(share: Any) -> float:
    if not (isinstance(share, numbers.Real) and 0.0 <= float(share) <= 1.0):
        raise ValueError(
            f"landmark_share={share!r} must be from 0 to 1: it is a share of the features"
        )
    return float(share)
