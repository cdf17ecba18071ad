"""The engine's one entry: from rows and a kernel to weighted product features.

The walk of a fit: list the candidate spaces (a basis, rotated or not), compare them on a few rows,
and let a selector draw features of the best one (docs/how-features-are-chosen.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernelsieve._random import root_seed, stream
from kernelsieve.diagnostics import Estimate, KernelSample
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.engine.scores import Selection, Selector
from kernelsieve.engine.space import (
    CentredSpace,
    MonomialSpace,
    RowPlan,
    Space,
    SparseTableSpace,
    TableSpace,
)
from kernelsieve.kernels import Gaussian, Kernel, Laplacian, Product, SeriesKernel
from kernelsieve.kernels.series import Series, SeriesTooLongError
from kernelsieve.products.local_basis import LocalBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import Frame, ProductFeatures
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sources.base import ArraySource, Block, Source

NO_FACTOR = Multisets.from_tuples([()])


@dataclass(frozen=True)
class Request:
    """What a fit asks for.

    Attributes
    ----------
    n_components : int or "auto"
    alpha : float
        The ridge that the features are for.
    eps : float
        The spectral error to aim at.
    center, rotate : "auto", True or False
    basis : "auto", "monomial" or "mercer"
    max_order : int or None
        The most columns of a product; None sets no limit.
    """

    n_components: Any
    alpha: float = 1.0
    eps: float = 0.5
    center: Any = "auto"
    rotate: Any = "auto"
    basis: str = "auto"
    max_order: int | None = None


@dataclass(frozen=True)
class HeldOut:
    """Rows that are kept to judge features on.

    Attributes
    ----------
    rows : {ndarray, CSR} of shape (n_held_out, d)
    kernel : Kernel
    alpha : float
        The ridge on the kernel matrix of all rows.
    n_rows : int
        How many rows there are in all.
    """

    rows: Any
    kernel: Kernel
    alpha: float
    n_rows: int

    def sample(self, n_jobs: int | None) -> KernelSample:
        """The kernel matrix of these rows, to judge features by."""
        return KernelSample(self.kernel, self.rows, self.alpha, self.n_rows, n_jobs)

    def spectral_epsilon(self, features: ProductFeatures, n_jobs: int | None) -> Estimate:
        """The spectral epsilon of features on these rows."""
        return self.sample(n_jobs).spectral_epsilon(features.values(self.rows, n_jobs))


@dataclass(frozen=True)
class Choice:
    """What a fit remembers.

    Attributes
    ----------
    features : ProductFeatures
        In the frame and basis of the best space.
    missed_leverage : float
        The share of the kernel's ridge leverage that the pool did not hold; NaN if not measured.
    held_out : HeldOut
        Rows to judge the features on.
    """

    features: ProductFeatures
    missed_leverage: float
    held_out: HeldOut


def choose(
    rows: Source,
    kernel: Kernel,
    request: Request,
    selector: Selector,
    seed: int,
    *,
    options: EngineOptions = DEFAULTS,
    n_jobs: int | None = None,
) -> Choice:
    """Choose weighted product features whose Z Z^T has expectation K.

    Parameters
    ----------
    rows : Source
    kernel : SeriesKernel
    request : Request
        How many features, and what they are for.
    selector : Selector
        How they are chosen.
    seed : int
    options : EngineOptions
    n_jobs : int, default all cores

    Returns
    -------
    Choice
    """
    if isinstance(kernel, Laplacian):
        kernel = Product(kernel.gamma, "laplacian")
    if not isinstance(kernel, SeriesKernel | Product):
        raise ValueError(
            f"{kernel!r} is neither a product over columns nor a Taylor series: use NystromFeatures"
        )
    candidates = _candidates(rows, kernel, request, selector, options)
    plan = RowPlan.of(rows, seed, options)
    if not rows.resident:
        rows.expect(plan.everything(anchors=selector.uses_anchors))
    if not isinstance(kernel, Gaussian):
        _check_diagonal(kernel, rows)
    spaces = _Spaces.of(rows, kernel, candidates, request, plan, selector.monomials_only)
    # After the first pass over the rows, which brings those that are expected along.
    held_out = HeldOut(rows[plan.held_out()], kernel, request.alpha, rows.shape[0])
    size = request.n_components
    tried = options.trial_components if size == "auto" else min(size, options.trial_components)
    space: Any
    if request.max_order is None:
        space = spaces.space(rows, *spaces.best(tried, n_jobs))
    else:
        space = spaces.centred_space(rows, request.max_order)
    select = partial(_some_of, selector, space)
    if size == "auto":
        size = _sufficient_size(select, held_out, request.eps, seed, n_jobs)
    selection = select(size, seed)
    return Choice(selection.features, selection.missed_leverage, held_out)


def _some_of(selector: Selector, space: Any, size: int, seed: int) -> Selection:
    """A selection; where the kernel is 0 on all rows, the constant, which is then 0, too."""
    selection = selector.select(space, size, seed)
    if len(selection.features):
        return selection
    return Selection(space.features(NO_FACTOR, np.ones(1)), selection.missed_leverage)


def _sufficient_size(
    select: Callable[[int, int], Selection],
    held_out: HeldOut,
    eps: float,
    seed: int,
    n_jobs: int | None,
) -> int:
    """The first size of a doubling series that meets eps on held-out rows.

    Each size is judged on a pilot of its own; the map itself is then drawn anew, because a draw
    that was looked at is no longer unbiased.
    """
    dimension = max(1.0, held_out.sample(n_jobs).statistical_dimension().value)
    largest = int(np.ceil(4.0 * dimension * np.log(dimension + 2.0) / eps**2))
    size = min(int(np.ceil(2.0 * dimension)), largest)
    while size < largest:
        pilot = select(size, root_seed(stream(seed, "pilot", size))).features
        if float(held_out.spectral_epsilon(pilot, n_jobs)) <= eps or len(pilot) < size:
            break
        size = min(2 * size, largest)
    return size


# --- candidate spaces ----------------------------------------------------------------------------


def _candidates(
    rows: Source, kernel: Kernel, request: Request, selector: Selector, options: EngineOptions
) -> list[tuple[str, bool]]:
    """The bases and rotations to compare."""
    dense, n_columns = not rows.sparse, rows.shape[1]
    product = isinstance(kernel, Product)
    tables = isinstance(kernel, Product) or (dense and isinstance(kernel, Gaussian))
    if request.max_order is not None:
        if not (tables and dense) or selector.monomials_only:
            raise ValueError(
                f"max_order={request.max_order} is for the Gaussian and product kernels on dense "
                "data, and the default sampler"
            )
        return [("mercer", False)]
    if request.basis == "mercer" and selector.monomials_only:
        raise ValueError(f"{selector.name} samples products of columns: use basis='monomial'")
    if request.basis == "mercer" and not tables:
        raise ValueError(
            "basis='mercer' is for the Gaussian kernel on dense data, sparse input is not "
            "supported: use basis='monomial'"
        )
    if product and (selector.monomials_only or request.basis == "monomial"):
        raise ValueError(
            f"{kernel!r} has no Taylor series, and its products of one-dimensional functions are "
            "for basis='mercer' and the default sampler: use those, or NystromFeatures"
        )
    if product and request.rotate is True:
        raise ValueError(f"rotate=True would mix columns, which have their own rates in {kernel!r}")
    if product:
        return [("mercer", False)]
    if request.rotate is True and not dense:
        raise ValueError("rotate=True would fill a sparse X: densify it, or use rotate='auto'")
    rotations, bases = [request.rotate], [request.basis]
    if request.rotate == "auto":
        looks = dense and selector.may_rotate and 1 < n_columns <= options.largest_rotation
        rotations = [False, True] if looks else [False]
    if request.basis == "auto":
        both = tables and not selector.monomials_only and n_columns <= options.largest_mercer
        bases = ["monomial", "mercer"] if both else ["monomial"]
    return [(basis, rotate) for basis in bases for rotate in rotations]


@dataclass(frozen=True)
class _Spaces:
    """The candidate spaces of some rows, and what they share."""

    rows: Source
    candidates: list[tuple[str, bool]]
    series: Series | None
    frame: Any
    rotated: Frame | None
    kernel: Kernel
    tolerance: float
    plan: RowPlan

    @classmethod
    def of(
        cls,
        rows: Source,
        kernel: Any,
        candidates: list[tuple[str, bool]],
        request: Request,
        plan: RowPlan,
        monomials_only: bool,
    ) -> _Spaces:
        """Those of the candidates whose Taylor series is not too long for the rows."""
        tolerance = 0.5 * plan.options.truncation * request.eps * request.alpha
        series = None
        if any(basis == "monomial" for basis, _ in candidates):
            try:
                series = kernel.series_of(rows, tolerance, request.center)
            except SeriesTooLongError:
                # Local functions need no series, whatever the data.
                if request.basis != "auto" or not isinstance(kernel, Gaussian) or monomials_only:
                    raise
                turns = dict.fromkeys(rotate for _, rotate in candidates)
                candidates = [("mercer", rotate) for rotate in turns]
        if series is None and rows.sparse and isinstance(kernel, Gaussian):
            kernel = Product(float(np.sqrt(kernel.gamma)))  # the same, by its columns
        if isinstance(kernel, Product):
            frame: Any = ProductFrame(kernel, rows.shape[1])
        elif series is not None:
            frame = Frame.of_series(series)
        else:
            assert isinstance(kernel, Gaussian)
            frame = Frame.of_gaussian(kernel.gamma, rows, request.center)
        turn = any(rotate for _, rotate in candidates)
        rotated = frame.rotated(rows, plan.rotation()) if turn else None
        return cls(rows, candidates, series, frame, rotated, kernel, tolerance, plan)

    def space(self, rows: Source, basis: str, rotate: bool) -> Space:
        """A candidate, with draws from these rows (all, or those of the trial)."""
        options, seed = self.plan.options, self.plan.seed
        plan = self.plan if rows is self.rows else RowPlan.of(rows, seed, options)
        loss = self.tolerance / self.rows.size
        if isinstance(self.kernel, Product):
            d = rows.shape[1]
            families, rates = self.kernel.families_for(d), self.kernel.rates_for(d)
            if rows.sparse:
                anchored = SparseBasis.of_rows(families, self.frame, rows, loss)
                return SparseTableSpace(self.frame, anchored, rows, plan)
            references = None
            if self.kernel.references is not None:
                references = [self.kernel.reference(i, d) for i in range(d)]
            tables = LocalBasis.of_rows(families, rates, self.frame, rows, loss, references)
            return TableSpace(self.frame, tables, rows, plan)
        frame = self.rotated if rotate else self.frame.along_columns(rows)
        assert frame is not None
        if basis == "monomial":
            assert self.series is not None
            return MonomialSpace(self.series, frame, rows, plan)
        frame = frame.rescaled(np.sqrt(0.5))  # from exp(-t^2 / 2) to exp(-t^2)
        d = frame.n_coordinates
        tables = LocalBasis.of_rows(("gaussian",) * d, np.ones(d), frame, rows, loss)
        return TableSpace(frame, tables, rows, plan)

    def centred_space(self, rows: Source, max_order: int) -> CentredSpace:
        """Products of at most ``max_order`` functions with mean 0."""
        frame, d = self.frame, rows.shape[1]
        if isinstance(self.kernel, Product):
            families, rates = self.kernel.families_for(d), self.kernel.rates_for(d)
        else:
            frame = frame.along_columns(rows).rescaled(np.sqrt(0.5))
            families, rates = ("gaussian",) * d, np.ones(d)
        loss = self.tolerance / self.rows.size
        return CentredSpace(frame, families, rates, rows, loss, max_order, self.plan.options)

    def best(self, size: int, n_jobs: int | None) -> tuple[str, bool]:
        """The candidate whose first features hold most of the kernel's trace, on the trial rows."""
        if len(self.candidates) == 1:
            return self.candidates[0]
        rows = ArraySource(self.rows[self.plan.trial()])
        # With draws of its own: a draw that was judged must not be drawn again.
        seed, gain = root_seed(stream(self.plan.seed, "trial")), self.plan.options.rotation_gain
        missed = []
        for basis, rotate in self.candidates:
            trace = self.space(rows, basis, rotate).captured_trace(size, seed, n_jobs)
            missed.append((1.0 - trace) / (gain if rotate else 1.0))
        return self.candidates[int(np.argmin(missed))]


def _check_diagonal(kernel: Kernel, rows: Source) -> None:
    """Refuse rows on which the kernel overflows their float type."""

    def of_block(block: Block) -> int:
        try:
            kernel.diag(block.X)
        except ValueError as error:
            before = f"among the rows from {block.start} on: " if block.start else ""
            raise ValueError(f"{before}{error}") from error
        return 0

    rows.reduce(of_block)
