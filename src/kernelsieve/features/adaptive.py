"""Sampled products: what the maps share that ask the engine for them, and the one that adapts.

AdaptiveFeatures chooses products by ridge leverage, usefulness for the target, and norm.
"""

from __future__ import annotations

import numbers
from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from kernelsieve._state import instance, number, plain, wrong
from kernelsieve._validation import check_choice, check_count, check_positive, column_numbers
from kernelsieve.diagnostics import Estimate
from kernelsieve.engine.choose import Choice, Request, choose
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.engine.scores import Selector, two_phase_selector
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.sphere import directions, polar
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.resolve import with_categories
from kernelsieve.paper.leverage import leverage_pool
from kernelsieve.paper.selectors import recursive_selector
from kernelsieve.products.product_features import MonomialBasis, ProductFeatures
from kernelsieve.products.tents import FIRST_TENT
from kernelsieve.sources.base import Source
from kernelsieve.sources.summaries import checked_targets

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

    _state_parameters: ClassVar = {"categorical_features": plain(list, tuple, np.ndarray, None)}
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
        if self.kernel_.spherical:
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

    def as_products(self) -> ProductFeatures | None:
        # On a sphere they are products of columns of rows that are divided by their lengths.
        return None if self.kernel_.spherical else self.features_

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        if not self.kernel_.spherical:
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
        if not self.kernel_.bounded and self.features_.overflows(X, values.dtype):
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


class AdaptiveFeatures(SampledFeatures):
    """Products of coordinates, chosen by leverage, by usefulness for the target, and by norm.

    A large pool of distinct features is drawn by row norm, scored on a few thousand anchor rows and
    thinned to ``n_components``. Weights are exact: E[Z Z^T] = K, with or without y.

    Parameters
    ----------
    n_components : int or "auto", default 1000
        The number of features. If fewer exist, all of them are used and Z Z^T = K. "auto" doubles
        the number until the spectral error on held-out rows is below ``eps``.
    kernel : Kernel or str, default "gaussian"
        A kernel with a Taylor series, a `Product` of one-dimensional kernels (on dense data), what
        ``kernels.learn`` returned (its alpha is left out), the name of one, or "learned" for the
        product kernel that explains the target best. With a `Product`, NaN stands for a missing
        value.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        The degree of kernel="poly".
    coef0 : float, default 1.0
        The constant of kernel="poly".
    alpha : float, default None
        The ridge that the features are for. None takes that of the model, or 1.
    eps : float, default 0.5
        The spectral error to aim at.
    sampler : "two-phase", "leverage" or "paper"
        Where the features come from. "two-phase" draws a pool by row norm and thins it. "leverage"
        adds features found by ridge leverage paths to the pool: slower, for kernels whose pool
        misses much (see ``missed_leverage_``). "paper" is the published recursion with independent
        draws, for comparison. The last two use products of columns only, no Mercer basis. "paper"
        has heavy tails at a small alpha: a feature that the others explain is drawn rarely, with a
        large weight. E[Z Z^T] = K still, but a mean over few seeds often falls short.
    target_share : float or "auto", default 1/3
        Weight of the target in the choice of features, if ``fit`` gets one; 0 ignores it. "auto"
        compares ridges with three shares on rows that chose nothing, and takes the best: twice the
        time, for noisy targets, whose noise would choose the features.
    center : "auto", True or False
        Whether to subtract the column means. "auto" does so for the Gaussian on dense data.
    rotate : "auto", True or False
        Whether to use products of principal components instead of columns. "auto" compares both
        on dense data.
    basis : "auto", "monomial" or "mercer"
        Powers of the coordinates, or functions adapted to their distributions (for the Gaussian and
        product kernels on dense data). "auto" compares both where both are possible.
    categorical_features : sequence of int, str or bool, optional
        Numbers or names of columns that hold codes of categories, or a mask of all columns. They
        get the family "categorical" of ``kernels.Product``: 1 where two codes are equal, else
        exp(-rate). For kernel="gaussian" and "laplacian" that rate is the exponent of two columns
        at their typical distance, if they have variance 1.
    max_order : int, optional
        The most columns of a product. With 2, a model has effects of single columns and of pairs
        only, and is easy to read (``kernelsieve.explain``): the functions of each column have mean
        0, and the kernel is cut after the pairs, which the estimates of its error do not know. For
        the Gaussian and product kernels on dense data. None sets no limit.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.
    verbose : int, default 0
        1 shows a progress bar over the rounds of sampler="paper".

    Attributes
    ----------
    monomials_ : list of tuple
        The multiset of coordinates of every feature: (0, 0, 3) is x_0^2 x_3.
    weights_ : ndarray of shape (n_components,)
        Factor of every feature: 1 / sqrt(its inclusion probability).
    capped_columns_ : ndarray
        Coordinates with so many values that their functions lose some of them, also in training.
    features_ : ProductFeatures
        The weighted products, as they are evaluated.
    kernel_ : Kernel
        The kernel that was used.
    n_components_ : int
        The number of features; fewer than ``n_components`` if no more exist.
    basis_ : "monomial" or "mercer"
        The basis that was used.
    rotate_ : bool
        Whether the coordinates are principal components.
    truncation_degree_ : int or None
        The degree of the truncated Taylor series; None for the Mercer basis.
    statistical_dimension_ : Estimate
        The statistical dimension of the kernel at alpha, estimated on held-out rows on first use.
    spectral_epsilon_ : Estimate
        The spectral error of the features at alpha, estimated on held-out rows on first use.
    missed_leverage_ : float
        The share of the kernel's ridge leverage that the pool did not hold. NaN for
        sampler="paper", which has no pool.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AdaptiveFeatures
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> AdaptiveFeatures(50, random_state=0).fit_transform(X, X[:, 0] * X[:, 1]).shape
    (300, 50)
    """

    samplers: ClassVar = ("two-phase", "leverage", "paper")
    _state_fields: ClassVar = {"missed_leverage_": number()}

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        alpha: float | None = None,
        eps: float = 0.5,
        sampler: str = "two-phase",
        target_share: Any = 1 / 3,
        center: Any = "auto",
        rotate: Any = "auto",
        basis: str = "auto",
        categorical_features: Any = None,
        max_order: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.alpha = alpha
        self.eps = eps
        self.sampler = sampler
        self.target_share = target_share
        self.center = center
        self.rotate = rotate
        self.basis = basis
        self.categorical_features = categorical_features
        self.max_order = max_order
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _selector(self, rows: Source, alpha: float) -> Selector:
        if self.max_order is not None:
            check_count(self.max_order, "max_order", "it is the most columns of a product")
        share = checked_share(self.target_share)
        if self.sampler == "paper":
            return recursive_selector(rows, alpha, self.eps, self.n_jobs, self.verbose)
        name = f"sampler={self.sampler!r}"
        common = (name, rows, self.kernel_, alpha, share, self.n_jobs)
        if self.sampler == "leverage":
            return two_phase_selector(*common, draw_pool=leverage_pool, monomials_only=True)
        return two_phase_selector(*common)

    def _fit_rows(self, rows: Source, seed: int) -> None:
        super()._fit_rows(rows, seed)
        self.missed_leverage_ = self._choice.missed_leverage

    def _source(self, X: Any, y: Any) -> Source:
        rows = super()._source(X, y)
        if y is not None and checked_share(self.target_share) != 0:
            checked_targets(y, rows.shape[0])
        return rows


def checked_share(share: Any) -> float | None:
    """A number in [0, 1], or None for "auto"."""
    if isinstance(share, str) and share == "auto":
        return None
    if not (isinstance(share, numbers.Real) and 0.0 <= float(share) <= 1.0):
        raise ValueError(
            f"target_share={share!r} must be from 0 to 1, or 'auto': it is a share of the choice"
        )
    return float(share)
