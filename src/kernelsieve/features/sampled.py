"""What the sampled maps share: the choice of a space, evaluation, names."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from kernelsieve._parallel import map_row_blocks
from kernelsieve._random import keyed_rows, root_seed, stream
from kernelsieve._state import instance, wrong
from kernelsieve._validation import check_choice, check_positive
from kernelsieve.diagnostics import Estimate, KernelSample
from kernelsieve.engine.space import MercerSpace, MonomialSpace, Space, proposal_rows
from kernelsieve.features.base import BOUNDED, FeatureMap
from kernelsieve.kernels import Gaussian, Kernel, SeriesKernel
from kernelsieve.kernels.base import Series, SeriesTooLongError
from kernelsieve.products.frame import ROTATION_ROWS, Frame
from kernelsieve.products.monomial_basis import MonomialBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sources.base import ArraySource, Block, Source

TRUNCATION = 1e-3  # the share of its allowance that the truncation uses
TRIAL_ROWS = 1024
# A rotation must miss less than this share of the trace that columns miss: columns have names, and
# targets that depend on few of them or on their products are lost on principal components. Data
# without principal directions show ratios of 0.96 to 1.04, those that gain by them 0.6 to 0.85.
ROTATION_GAIN = 0.9
TRIAL_COMPONENTS = 500
HELD_OUT_ROWS = 1500
LARGEST_ROTATION = 2048  # columns; beyond, "auto" does not look for principal directions
LARGEST_MERCER = 256  # columns; beyond, "auto" stays with monomials: hardly worse, made quicker
DENSE_BLOCK_ROWS = 2048
SPARSE_BLOCK_ROWS = 2048
NO_FACTOR = Multisets.from_tuples([()])


class SampledFeatures(FeatureMap):
    """Base of the maps whose features are sampled products of coordinates."""

    unbiased: ClassVar[bool] = True
    samplers: ClassVar[dict[str, bool]]  # and whether each can use the Mercer basis

    alpha: float | None
    eps: float
    degree: int
    coef0: float
    sampler: str
    center: Any
    rotate: Any
    basis: str

    features_: ProductFeatures
    truncation_degree_: int | None

    # The two estimates stand for the held-out rows, which a model file does not hold.
    _state_fields: ClassVar = {
        "features_": instance(ProductFeatures),
        "statistical_dimension_": instance(Estimate),
        "spectral_epsilon_": instance(Estimate),
    }
    _not_stored: ClassVar = {
        **dict.fromkeys(("_alpha", "_held_out", "_held_out_alpha"), "of the training rows"),
        **dict.fromkeys(("_log_scale", "_degree"), "computed"),
        **dict.fromkeys(("basis_", "rotate_", "truncation_degree_"), "computed"),
    }

    def _complete(self) -> None:
        super()._complete()
        frame, basis = self.features_.frame, self.features_.basis
        if frame.n_features != self.n_features_in_:
            wrong("features_", f"are of {frame.n_features} columns, not {self.n_features_in_}")
        self._adopt(self.features_)
        series = basis.series if isinstance(basis, MonomialBasis) else None
        self.basis_ = "mercer" if series is None else "monomial"
        self.rotate_ = frame.rotation is not None
        self.truncation_degree_ = None if series is None else series.degree

    @abstractmethod
    def _choose(self, space: Space, X: Source, n_components: int, seed: int) -> ProductFeatures:
        """About ``n_components`` weighted features of this space."""

    def _fit_rows(self, X: Source, seed: int) -> None:
        check_choice(self.sampler, "sampler", tuple(self.samplers))
        check_choice(self.rotate, "rotate", ("auto", True, False))
        check_choice(self.basis, "basis", ("auto", "monomial", "mercer"))
        check_choice(self.center, "center", ("auto", True, False))
        self._alpha = (
            1.0
            if self.alpha is None
            else check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")
        )
        check_positive(self.eps, "eps", "it is the spectral error to aim at")
        if not isinstance(self.kernel_, SeriesKernel):
            raise ValueError(
                f"{self.kernel_!r} has no Taylor series to sample from: use NystromFeatures"
            )
        candidates = self._candidates(X)
        if not X.resident:
            X.expect(self._rows_to_take(X, seed))
        if not isinstance(self.kernel_, Gaussian):
            check_diagonal(self.kernel_, X)
        candidates, series = self._possible(candidates, X)
        self._hold_out(X, seed)
        space = self._choose_space(X, candidates, series, seed)
        size = self._size(space, X, seed)
        self._adopt(self._some(space, X, size, seed))

    def _some(self, space: Space, X: Source, size: int, seed: int) -> ProductFeatures:
        """``_choose``; where the kernel is 0 on all rows, the constant, which is then 0, too."""
        chosen = self._choose(space, X, size, seed)
        return chosen if len(chosen) else space.features(NO_FACTOR, np.ones(1))

    def _rows_to_take(self, X: Source, seed: int) -> NDArray[np.int64]:
        """The rows that this fit will look at one by one, so that one pass can bring them all."""
        n = X.shape[0]
        return np.unique(
            np.concatenate(
                [
                    keyed_rows(n, HELD_OUT_ROWS, seed, "anchors"),
                    keyed_rows(n, TRIAL_ROWS, seed, "trial"),
                    keyed_rows(n, ROTATION_ROWS, seed, "rotation"),
                    proposal_rows(X, seed),
                ]
            )
        )

    def _adopt(self, features: ProductFeatures) -> None:
        self.features_, self.n_components_ = features, len(features)
        scales = features.basis.log_scales(features.multisets)
        self._log_scale = float(scales.max() + np.log(features.weights.max(initial=1.0)))
        self._degree = int(features.multisets.degrees().max())

    def _check_finite(self, values: NDArray[Any], X: Any) -> None:
        """A look at the rows, which are fewer numbers, says for most that no product overflows."""
        if isinstance(self.kernel_, BOUNDED):
            return
        entries = X.data if sp.issparse(X) else X
        largest = float(max(entries.max(initial=0.0), -entries.min(initial=0.0)))
        radius = max(1.0, self.features_.frame.scale * np.sqrt(X.shape[1]) * largest)
        log_bound = max(0.0, self._log_scale) + self._degree * np.log(radius)
        if not log_bound < np.log(np.finfo(values.dtype).max) - 1.0:
            super()._check_finite(values, X)

    def _size(self, space: Space, X: Source, seed: int) -> int:
        """``n_components``, or for "auto" the first of a doubling series that meets eps.

        Each size is judged on a pilot of its own; the map itself is then drawn anew, because a
        draw that was looked at is no longer unbiased.
        """
        if self.n_components != "auto":
            return int(self.n_components)
        dimension = max(1.0, self.statistical_dimension_.value)
        largest = int(np.ceil(4.0 * dimension * np.log(dimension + 2.0) / self.eps**2))
        size = min(int(np.ceil(2.0 * dimension)), largest)
        while size < largest:
            pilot = root_seed(stream(seed, "pilot", size))
            self._adopt(self._some(space, X, size, pilot))
            if float(self._estimate_spectral_epsilon()) <= self.eps or self.n_components_ < size:
                break
            size = min(2 * size, largest)
        return size

    def _hold_out(self, X: Source, seed: int) -> None:
        """Keep a few rows that are no anchors (where there are enough), to judge the choice on."""
        self._held_out = X[keyed_rows(X.shape[0], HELD_OUT_ROWS, seed, "anchors")]
        self._held_out_alpha = self._alpha * self._held_out.shape[0] / X.shape[0]
        self.__dict__.pop("spectral_epsilon_", None)
        self.__dict__.pop("statistical_dimension_", None)

    @cached_property
    def spectral_epsilon_(self) -> Estimate:
        """Spectral epsilon on held-out rows with alpha scaled: an estimate, not a bound."""
        check_is_fitted(self)
        return self._estimate_spectral_epsilon()

    def _estimate_spectral_epsilon(self) -> Estimate:
        return self._sample().spectral_epsilon(self._transform(self._held_out))

    @cached_property
    def statistical_dimension_(self) -> Estimate:
        """Statistical dimension of the kernel at alpha, estimated on held-out rows."""
        return self._sample().statistical_dimension()

    def _sample(self) -> KernelSample:
        return KernelSample(self.kernel_, self._held_out, self._held_out_alpha, n_jobs=self.n_jobs)

    def _choose_space(
        self, X: Source, candidates: list[tuple[str, bool]], series: Series | None, seed: int
    ) -> Space:
        """The candidate space whose features hold most of the kernel's trace, on a subsample."""
        frame = self._frame(X, series)
        rotated = frame.rotated(X, seed) if any(rotate for _, rotate in candidates) else None

        def space(rows: Source, basis: str, rotate: bool) -> Space:
            chosen = rotated if rotate else frame.along_columns(rows)
            assert chosen is not None
            if basis == "mercer":
                return MercerSpace(chosen, rows, self._tolerance / X.size, seed)
            assert series is not None
            return MonomialSpace(series, chosen, rows, seed)

        if len(candidates) > 1:
            rows = ArraySource(X[keyed_rows(X.shape[0], TRIAL_ROWS, seed, "trial")])
            size = min(self._trial_components(), TRIAL_COMPONENTS)
            # With draws of its own: a draw that was judged must not be drawn again.
            trial = root_seed(stream(seed, "trial"))
            traces = [space(rows, *c).captured_trace(size, trial, self.n_jobs) for c in candidates]
            missed = [
                (1.0 - trace) / (ROTATION_GAIN if rotate else 1.0)
                for trace, (_, rotate) in zip(traces, candidates, strict=True)
            ]
            candidates = [candidates[int(np.argmin(missed))]]
        ((self.basis_, self.rotate_),) = candidates
        chosen = space(X, self.basis_, self.rotate_)
        self.truncation_degree_ = series.degree if series and self.basis_ == "monomial" else None
        return chosen

    def _frame(self, X: Source, series: Series | None) -> Frame:
        """Centre and scale: for the Gaussian they are the same with and without a series."""
        if series is not None:
            return Frame.of_series(series)
        assert isinstance(self.kernel_, Gaussian)
        return Frame.of_gaussian(self.kernel_.gamma, X, self.center)

    def _possible(
        self, candidates: list[tuple[str, bool]], X: Source
    ) -> tuple[list[tuple[str, bool]], Series | None]:
        """The candidates whose series is not too long for X, and the series."""
        if not any(basis == "monomial" for basis, _ in candidates):
            return candidates, None
        try:
            return candidates, self._series(X)
        except SeriesTooLongError:
            others = [candidate for candidate in candidates if candidate[0] == "mercer"]
            if not others:
                raise
            return others, None

    def _series(self, X: Source) -> Series:
        assert isinstance(self.kernel_, SeriesKernel)
        return self.kernel_.series_of(X, self._tolerance, self.center)

    @property
    def _tolerance(self) -> float:
        # Theorem 2 gives half of eps to the truncation; a higher degree costs nothing here.
        return 0.5 * TRUNCATION * self.eps * self._alpha

    def _candidates(self, X: Source) -> list[tuple[str, bool]]:
        dense = not X.sparse
        gaussian = isinstance(self.kernel_, Gaussian)
        any_basis = self.samplers[self.sampler]
        if self.basis == "mercer" and not any_basis:
            raise ValueError(
                f"sampler={self.sampler!r} samples products of columns: use basis='monomial'"
            )
        if self.basis == "mercer" and not (dense and gaussian):
            raise ValueError(
                "basis='mercer' is for the Gaussian kernel on dense data, sparse input is not "
                "supported: use basis='monomial'"
            )
        if self.rotate is True and not dense:
            raise ValueError("rotate=True would fill a sparse X: densify it, or rotate='auto'")
        rotations = (
            [self.rotate]
            if self.rotate != "auto"
            else ([False, True] if self._may_rotate(X) else [False])
        )
        bases = (
            [self.basis]
            if self.basis != "auto"
            else (
                ["monomial", "mercer"]
                if any_basis and dense and gaussian and X.shape[1] <= LARGEST_MERCER
                else ["monomial"]
            )
        )
        return [(basis, rotate) for basis in bases for rotate in rotations]

    def _may_rotate(self, X: Source) -> bool:
        """Whether "auto" looks at a rotation; the published sampler has none."""
        dense = not X.sparse
        return dense and self.sampler != "paper" and 1 < X.shape[1] <= LARGEST_ROTATION

    def _check_n_components(self) -> None:
        if self.n_components != "auto":
            super()._check_n_components()

    def _trial_components(self) -> int:
        return TRIAL_COMPONENTS if self.n_components == "auto" else int(self.n_components)

    def _block_rows(self, dtype: Any) -> int:
        return DENSE_BLOCK_ROWS  # evaluation has its own, smaller tiles

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        self.features_.fill(X, out)

    def _transform_block(self, X: Any) -> Any:
        if sp.issparse(X) and self._takes_sparse():
            with np.errstate(over="ignore", invalid="ignore"):
                Z = self.features_.csr(X)
            self._check_finite(Z.data, X)
            return Z
        return super()._transform_block(X.toarray() if sp.issparse(X) else X)

    def _transform(self, X: Any) -> Any:
        if not sp.issparse(X):
            return super()._transform(X)
        if self._takes_sparse():
            blocks = map_row_blocks(
                lambda rows: self._transform_block(X[rows]),
                X.shape[0],
                SPARSE_BLOCK_ROWS,
                self.n_jobs,
            )
            return sp.vstack(blocks, format="csr")
        Z = self._empty(X.shape[0], X.dtype)

        def fill(rows: slice) -> None:
            Z[rows] = self._transform_block(X[rows])

        map_row_blocks(fill, X.shape[0], SPARSE_BLOCK_ROWS, self.n_jobs)
        return Z

    def _takes_sparse(self) -> bool:
        """Whether zeros of a row stay zeros in this map's frame and basis."""
        frame = self.features_.frame
        return self.basis_ == "monomial" and frame.center is None and frame.rotation is None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.basis != "mercer" and self.rotate is not True
        return tags

    @property
    def monomials_(self) -> list[tuple[int, ...]]:
        """The multiset of coordinates of every feature."""
        return self.features_.multisets.tuples()

    @property
    def weights_(self) -> NDArray[np.float64]:
        """What every feature is multiplied by: 1 / sqrt(its inclusion probability)."""
        return self.features_.weights

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names such as "alcohol^2 pH": products of scaled, centred columns.

        For the Gaussian kernel each is also times exp(-‖x'‖^2 / 2). In a rotated frame the columns
        are principal components, pc0, pc1, ...; in the Mercer basis x(k) is the k-th adapted
        function of column x.
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


def check_diagonal(kernel: Kernel, X: Source) -> None:
    """Say so where the kernel overflows the float type of X."""

    def of_block(block: Block) -> int:
        try:
            kernel.diag(block.X)
        except ValueError as error:
            before = f"among the rows from {block.start} on: " if block.start else ""
            raise ValueError(f"{before}{error}") from error
        return 0

    X.reduce(of_block)
