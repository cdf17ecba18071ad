"""What the sampled maps share: they ask the engine for products, and evaluate them."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from kernelsieve._state import instance, wrong
from kernelsieve._validation import check_choice, check_positive, column_numbers
from kernelsieve.diagnostics import Estimate
from kernelsieve.engine.choose import Choice, Request, choose
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.engine.scores import Selector
from kernelsieve.features.base import BOUNDED, FeatureMap
from kernelsieve.features.sphere import directions, polar
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.resolve import with_categories
from kernelsieve.kernels.zonal import SphericalKernel
from kernelsieve.products.monomial_basis import MonomialBasis
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.products.tents import FIRST_TENT
from kernelsieve.sources.base import Source

SWITCH = ("auto", True, False)


class SampledFeatures(FeatureMap):
    """Base of the maps whose features are sampled products of coordinates.

    A map names its ``samplers`` and makes a Selector of the one that was asked for; the engine
    chooses the space and calls it.
    """

    unbiased: ClassVar[bool] = True
    sizes_itself: ClassVar[bool] = True
    samplers: ClassVar[tuple[str, ...]]
    _options: ClassVar[EngineOptions] = DEFAULTS
    _rows_at_once: ClassVar[int] = 2048  # evaluation has its own, smaller tiles

    alpha: float | None
    eps: float
    degree: int
    coef0: float
    sampler: str
    center: Any
    rotate: Any
    basis: str
    categorical_features: Any

    features_: ProductFeatures
    basis_: str
    rotate_: bool
    truncation_degree_: int | None
    weights_: NDArray[np.float64]
    capped_columns_: NDArray[np.int64]
    _choice: Choice

    # The two estimates stand for the held-out rows, which a model file does not hold.
    _state_fields: ClassVar = {
        "features_": instance(ProductFeatures),
        "statistical_dimension_": instance(Estimate),
        "spectral_epsilon_": instance(Estimate),
    }
    _not_stored: ClassVar = {
        "_choice": "of the training rows",
        **dict.fromkeys(
            ("basis_", "rotate_", "truncation_degree_", "weights_", "capped_columns_"), "computed"
        ),
    }

    def _complete(self) -> None:
        super()._complete()
        frame, basis = self.features_.frame, self.features_.basis
        if frame.n_features != self.n_features_in_:
            wrong("features_", f"are of {frame.n_features} columns, not {self.n_features_in_}")
        series = basis.series if isinstance(basis, MonomialBasis) else None
        self.n_components_ = len(self.features_)
        self.basis_ = "mercer" if series is None else "monomial"
        self.rotate_ = frame.rotation is not None
        self.truncation_degree_ = None if series is None else series.degree
        self.weights_ = self.features_.weights
        self.capped_columns_ = getattr(basis, "capped", np.empty(0, dtype=np.int64))

    def _resolve_kernel(self, X: Source) -> Kernel:
        if self.categorical_features is None:
            return super()._resolve_kernel(X)
        names = getattr(self, "feature_names_in_", None)
        columns = column_numbers(self.categorical_features, X.shape[1], names)
        return with_categories(self.kernel, self.gamma, X, columns)

    @abstractmethod
    def _selector(self, rows: Source, alpha: float) -> Selector:
        """How features of a space are chosen."""

    def _fit_rows(self, rows: Source, seed: int) -> None:
        check_choice(self.sampler, "sampler", self.samplers)
        alpha = 1.0 if self.alpha is None else self.alpha
        request = Request(
            self.n_components,
            check_positive(alpha, "alpha", "it is added to the kernel's diagonal"),
            check_positive(self.eps, "eps", "it is the spectral error to aim at"),
            check_choice(self.center, "center", SWITCH),
            check_choice(self.rotate, "rotate", SWITCH),
            check_choice(self.basis, "basis", ("auto", "monomial", "mercer")),
            getattr(self, "max_order", None),
        )
        if isinstance(self.kernel_, SphericalKernel):
            rows = directions(rows)
        selector = self._selector(rows, request.alpha)
        choice = choose(
            rows, self.kernel_, request, selector, seed, options=self._options, n_jobs=self.n_jobs
        )
        self._choice, self.features_ = choice, choice.features
        self._complete()
        for estimate in ("spectral_epsilon_", "statistical_dimension_"):
            self.__dict__.pop(estimate, None)

    @cached_property
    def spectral_epsilon_(self) -> Estimate:
        """Spectral epsilon of the features on held-out rows: an estimate, not a bound."""
        check_is_fitted(self)
        return self._choice.held_out.spectral_epsilon(self.features_, self.n_jobs)

    @cached_property
    def statistical_dimension_(self) -> Estimate:
        """Statistical dimension of the kernel at alpha, estimated on held-out rows."""
        check_is_fitted(self)
        return self._choice.held_out.sample(self.n_jobs).statistical_dimension()

    @property
    def monomials_(self) -> list[tuple[int, ...]]:
        """The multiset of coordinates of every feature; a tent counts its column once."""
        return self.features_.multisets.capped(FIRST_TENT).tuples()

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        if not isinstance(self.kernel_, SphericalKernel):
            self.features_.fill(X, out)
            return
        points, amplitudes = polar(self.kernel_, X)
        assert amplitudes is not None
        self.features_.fill(points, out)
        out *= amplitudes[:, None]

    def _csr(self, X: Any) -> sp.csr_array | None:
        if not self.features_.keeps_sparse:
            return None
        points, amplitudes = polar(self.kernel_, X)
        with np.errstate(over="ignore", invalid="ignore"):
            Z = self.features_.csr(points)
            if amplitudes is not None:
                Z.data *= np.repeat(amplitudes, np.diff(Z.indptr))
        self._check_finite(Z.data, X)
        return Z

    def _check_finite(self, values: NDArray[Any], X: Any) -> None:
        if not isinstance(self.kernel_, BOUNDED) and self.features_.overflows(X, values.dtype):
            super()._check_finite(values, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        rotates = not isinstance(self.rotate, str) and bool(self.rotate)
        tags.input_tags.sparse = self.basis != "mercer" and not rotates
        return tags

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names such as "alcohol^2 pH": products of scaled, centred columns.

        For the Gaussian kernel each is also times exp(-‖x'‖^2 / 2); for kernels of the angle the
        rows are first divided by their lengths. In a rotated frame the columns
        are principal components, pc0, pc1, ...; in the Mercer basis x(k) is the k-th adapted
        function of column x.

        Parameters
        ----------
        input_features : array-like of str of shape (d,), optional
            Names of the columns; None takes those seen in ``fit``, or "x0", "x1", ...

        Returns
        -------
        ndarray of str of shape (n_components,)
        """
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        if self.rotate_:
            columns = [f"pc{i}" for i in range(self.features_.frame.n_coordinates)]
        pattern = "{}({})" if self.basis_ == "mercer" else "{}^{}"
        multisets = self.features_.multisets
        atoms = [
            str(columns[i])
            if k == 1 and self.basis_ == "monomial"
            else pattern.format(columns[i], k)
            for i, k in zip(multisets.coordinates.tolist(), multisets.orders.tolist(), strict=True)
        ]
        bounds = zip(multisets.starts.tolist(), multisets.ends.tolist(), strict=True)
        return np.array([" ".join(atoms[a:b]) or "1" for a, b in bounds], dtype=object)
