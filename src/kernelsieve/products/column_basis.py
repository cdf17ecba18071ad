"""An orthonormal basis of one column's kernel, adapted to the column's values.

Points g carry the functions e(u) = K_gg^(-1/2) k(g, u), rotated so that the first ones hold most of
the kernel on the training values. For all u and v, |e(u).e(v) - k(u, v)| <= sqrt(loss(u) loss(v))
with loss(u) = 1 - |e(u)|^2. So the kernel between a training value, which loses nothing, and any
other value is exact; only k(u, u) of a value far from the training values is lost, and known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernelsieve.products.cells import MOST_POINTS, Cells, anchor_points, markov_knots

Reference = tuple[NDArray[np.float64], NDArray[np.float64]]  # points and their weights
ROOT2, ROOT3, ROOT5 = np.sqrt([2.0, 3.0, 5.0])
SMALLEST_EIGENVALUE = 1e-13  # of the largest: rounding
EVERYWHERE = 1e-7  # weight of all points together in a distribution: it orders what has no rows
LARGEST_LOSS = 1e-6  # of k(u, u) = 1 at any training value, by the functions that are not kept
ROUNDING = 1e-13
SMALLEST_RESIDUAL = 1e-9  # mean loss below which a column of the Laplacian needs no tents
CHECKED_VALUES = 128
MOMENT_CELLS = 512  # that stand for a column's distribution


@dataclass(frozen=True)
class Family:
    """A kernel k(t) of the distance t = |u - v| between scaled coordinates.

    Attributes
    ----------
    kernel : callable
        k of an array of distances.
    spacing : float
        Of grid points: what lies between them loses about 1e-14 of k(u, u) = 1 for the Gaussian,
        at most 3e-5 for Matern 3/2 and 2e-6 for Matern 5/2.
    margin : float
        How far the grid reaches beyond the values that it is for.
    reach : float
        Points further from each other than this have a kernel of (almost) 0.
    decay : float
        c where k(t) is exp(-c t) times a polynomial; 0 for the Gaussian.
    polynomial : tuple of float
        The coefficients of that polynomial of c t.
    """

    kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    spacing: float
    margin: float
    reach: float
    decay: float = 0.0
    polynomial: tuple[float, ...] = ()


def _matern32(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 + ROOT3 * t) * np.exp(-ROOT3 * t)


def _matern52(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 + ROOT5 * t + 5.0 / 3.0 * t * t) * np.exp(-ROOT5 * t)


# The Gaussian's lengths in units of its standard deviation are 0.35, 3 and 9; here it is exp(-t^2).
FAMILIES = {
    "gaussian": Family(lambda t: np.exp(-t * t), 0.35 / ROOT2, 3.0 / ROOT2, 9.0 / ROOT2),
    "laplacian": Family(lambda t: np.exp(-t), 0.0, 0.0, 40.0, 1.0, (1.0,)),
    "matern32": Family(_matern32, 0.05, 0.0, 40.0 / ROOT3, float(ROOT3), (1.0, 1.0)),
    "matern52": Family(_matern52, 0.1, 0.0, 40.0 / ROOT5, float(ROOT5), (1.0, 1.0, 1.0 / 3.0)),
}


@dataclass(frozen=True)
class ColumnBasis:
    """The basis of one column, as functions of its scaled coordinate.

    Attributes
    ----------
    family : str
        "constant" for a column that does not take part.
    points : ndarray of shape (n_points,)
        Rising; for a categorical column the codes of its levels.
    matrix : ndarray of shape (n_points, n_functions)
        e(u) = k(points, u) @ matrix. For a categorical column, of shape (n_points + 1,
        n_functions): the functions at each level, and at a level that is none of them.
    missing : ndarray of shape (n_functions,)
        The functions at a missing value.
    masses : ndarray of shape (n_functions,)
        Mean squares over the training values.
    tents : bool
        Whether the rest of the kernel is held by tents between the points (Laplacian).
    capped : bool
        Whether there were more points than the limit, so that training values lose something.
    """

    family: str
    points: NDArray[np.float64]
    matrix: NDArray[np.float64]
    missing: NDArray[np.float64]
    masses: NDArray[np.float64]
    tents: bool = False
    capped: bool = False

    @property
    def n_functions(self) -> int:
        return len(self.masses)

    def values(self, u: NDArray[np.floating]) -> NDArray[np.float64]:
        """e(u) of each value, NaN standing for a missing one: shape (n_functions, len(u))."""
        u = np.asarray(u, dtype=np.float64)
        known = ~np.isnan(u)
        out = np.empty((len(u), self.n_functions))
        out[~known] = self.missing
        out[known] = self._known(u[known])
        return np.ascontiguousarray(out.T)

    def _known(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.family == "constant":
            return np.ones((len(u), 1))
        if self.family == "categorical":
            return self.matrix[level_numbers(u, self.points)]
        return kernel_values(self.family, u, self.points) @ self.matrix

    def loss(self, u: NDArray[np.floating]) -> NDArray[np.float64]:
        """1 - |e(u)|^2: the part of k(u, u) = 1 that the functions do not hold."""
        return np.clip(1.0 - np.square(self.values(u)).sum(axis=0), 0.0, 1.0)

    def only(self, functions: NDArray[np.int64]) -> ColumnBasis:
        """The same basis with these functions only."""
        return replace(
            self,
            matrix=np.ascontiguousarray(self.matrix[:, functions]),
            missing=self.missing[functions],
            masses=self.masses[functions],
        )


CONSTANT = ColumnBasis("constant", np.zeros(1), np.ones((1, 1)), np.ones(1), np.ones(1))


def kernel_values(
    family: str, u: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """k(u, g) for all values and points: shape (len(u), len(points))."""
    with np.errstate(over="ignore"):
        return FAMILIES[family].kernel(np.abs(u[:, None] - points))


def level_numbers(u: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place of each value in the sorted levels; their number where it is none of them."""
    places = np.searchsorted(levels, u)
    found = levels[np.minimum(places, len(levels) - 1)] == u
    return np.where(found, places, len(levels))


def column_basis(
    family: str,
    cells: Cells,
    *,
    rate: float = 1.0,
    tol: float = ROUNDING,
    align: str = "variance",
    reference: Reference | None = None,
) -> ColumnBasis:
    """The basis adapted to a column with these values.

    Parameters
    ----------
    family : str
        "gaussian", "laplacian", "matern32", "matern52" or "categorical".
    cells : Cells
        The scaled coordinates of all rows; codes for a categorical column.
    rate : float
        Of a categorical column, whose kernel is exp(-rate) between different levels. A column with
        rate 0 has the constant alone.
    tol : float
        The mean loss on training values up to which functions of little mass are left out.
    align : "variance", "mean" or "zero"
        What the first function is: that of the largest mean square; that along the mean of e(u), so
        that all others have mean 0; or k(u, 0), so that all others are 0 at 0 (sparse columns).
    reference : (points, weights), optional
        The distribution that a missing value stands for; None takes that of the cells.
    """
    if rate == 0.0 or not len(cells):
        return CONSTANT
    if family == "categorical":
        return category_basis(cells, float(np.exp(-rate)), tol, align, reference)
    points = _points(family, cells, align)
    if family == "laplacian" and reference is not None:  # no tent may hold a part of their mean
        points = np.union1d(points, reference[0])
    plain = ColumnBasis(family, points, _whitening(family, points), *_nothing(len(points)))
    return _kept(_adapted(plain, cells, align, reference), cells, tol)


def category_basis(
    cells: Cells,
    rho: float,
    tol: float = ROUNDING,
    align: str = "variance",
    reference: Reference | None = None,
) -> ColumnBasis:
    """k = rho + (1 - rho) [u = v]: a constant and an indicator for each of the heaviest levels.

    A level that is none of them, because it is rare among more than ``MOST_POINTS`` or because it
    was not there in training, has the constant alone. Of its square rho, the part is lost that no
    training row has: with n levels, rho (1 - rho) / (1 + (n - 1) rho).
    """
    heaviest = np.sort(np.argsort(-cells.counts, kind="stable")[:MOST_POINTS])
    levels = cells.middles[heaviest]
    matrix = np.zeros((len(levels) + 1, len(levels) + 1))
    matrix[:, 0] = np.sqrt(rho)
    np.fill_diagonal(matrix[:, 1:], np.sqrt(1.0 - rho))
    plain = ColumnBasis("categorical", levels, matrix, *_nothing(len(matrix)))
    adapted = _kept(_adapted(plain, cells, align, reference), cells, tol)
    return replace(adapted, capped=len(levels) < len(cells) or not cells.distinct)


def _points(family: str, cells: Cells, align: str) -> NDArray[np.float64]:
    shape = FAMILIES[family]
    if family == "laplacian":
        points = markov_knots(cells)
    else:
        points = anchor_points(cells, shape.spacing, shape.margin)
    return np.union1d(points, [0.0]) if align == "zero" else points


def _nothing(n_functions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Functions at a missing value and masses, before there are any."""
    return np.zeros(n_functions), np.zeros(n_functions)


def _whitening(family: str, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """A matrix A with A A^T = K_gg^-1, one block for each run of points that see each other."""
    if family == "laplacian":
        return _markov_whitening(points)
    far = np.flatnonzero(np.diff(points) > FAMILIES[family].reach) + 1
    blocks = []
    for run in np.split(points, far):
        values, vectors = np.linalg.eigh(kernel_values(family, run, run))
        kept = values > SMALLEST_EIGENVALUE * values[-1]
        blocks.append(vectors[:, kept] / np.sqrt(values[kept]))
    whitening = np.zeros((len(points), sum(block.shape[1] for block in blocks)))
    row = column = 0
    for block in blocks:
        whitening[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whitening


def _markov_whitening(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for the Laplacian: what each point adds to the one before it."""
    step = np.diff(points)
    size = np.sqrt(-np.expm1(-2.0 * step))
    whitening = np.diag(np.concatenate([[1.0], 1.0 / size]))
    places = np.arange(len(step))
    whitening[places, places + 1] = -np.exp(-step) / size
    return whitening


def _adapted(
    plain: ColumnBasis, cells: Cells, align: str, reference: Reference | None
) -> ColumnBasis:
    """The same space with functions rotated to the distribution of the training values.

    A missing value is the mean of all others (or of those in ``reference``), and for the rest a
    function of its own, so that k(missing, missing) = 1.
    """
    plain = replace(plain, masses=np.zeros(plain.matrix.shape[1]))
    if plain.family in FAMILIES:  # these vary little within a cell; categories do not
        cells = cells.reduced(MOMENT_CELLS)
    values = plain._known(cells.middles)
    share = cells.missing_share
    # A little weight all over the range: new rows, too, must find few functions enough.
    inside = (plain.points >= cells.low[0]) & (plain.points <= cells.high[-1])
    between = plain._known(plain.points[inside]) if inside.any() else values
    trained = (values * cells.weights[:, None]).T @ values
    moment = (1.0 - EVERYWHERE) * trained + EVERYWHERE / len(between) * between.T @ between
    mean = cells.weights @ values
    missing = mean if reference is None else reference[1] @ plain._known(reference[0])
    matrix = plain.matrix
    if share > 0.0:
        own = np.sqrt(max(0.0, 1.0 - float(missing @ missing)))
        mean = np.append((1.0 - share) * mean + share * missing, share * own)
        missing = np.append(missing, own)
        own_part = share * np.outer(missing, missing)
        moment = (1.0 - share) * np.pad(moment, (0, 1)) + own_part
        trained = (1.0 - share) * np.pad(trained, (0, 1)) + own_part
        matrix = np.pad(matrix, ((0, 0), (0, 1)))
    first = None
    if align == "mean":
        first = mean
    elif align == "zero":
        first = np.zeros(len(moment))
        first[: values.shape[1]] = plain._known(np.zeros(1))[0]
    rotation = _rotation(moment, first, mean)
    masses = (rotation * (trained @ rotation)).sum(axis=0)
    return replace(
        plain, matrix=matrix @ rotation, missing=missing @ rotation, masses=np.clip(masses, 0, None)
    )


def _rotation(
    moment: NDArray[np.float64], first: NDArray[np.float64] | None, mean: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Eigenvectors of the moment, largest first; orthogonal to ``first`` after it, if given."""
    if first is None or not first.any():
        rotation = _descending_eigenvectors(moment)
        return rotation * np.where(
            np.arange(len(rotation)) == 0, _sign(float(mean @ rotation[:, 0])), 1.0
        )
    first = first / np.linalg.norm(first)
    # A reflection that takes the first axis to ``first``: its other columns span the rest.
    axis = first.copy()
    axis[0] += _sign(first[0])
    reflection = np.eye(len(first)) - 2.0 / (axis @ axis) * np.outer(axis, axis)
    rest = reflection[:, 1:]
    return np.column_stack([first, rest @ _descending_eigenvectors(rest.T @ moment @ rest)])


def _descending_eigenvectors(moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors with falling eigenvalues; the largest part of each is positive."""
    vectors = np.linalg.eigh(moment)[1][:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])


def _sign(x: float) -> float:
    return -1.0 if x < 0 else 1.0


def _kept(basis: ColumnBasis, cells: Cells, tol: float) -> ColumnBasis:
    """The first functions that lose no more than ``tol`` in the mean and little anywhere.

    The Laplacian keeps all where tents are to hold the rest: they begin where the points end.
    """
    chosen = np.unique(np.linspace(0, len(cells) - 1, CHECKED_VALUES).astype(np.int64))
    squares = np.square(basis.values(cells.middles[chosen]))
    held = squares.sum(axis=0)
    left = basis.masses.sum() - np.cumsum(basis.masses)
    left_anywhere = (held - np.cumsum(squares, axis=0)).max(axis=1)
    mean_loss = max(0.0, 1.0 - float(basis.masses.sum()))
    if basis.family == "laplacian" and mean_loss > SMALLEST_RESIDUAL:
        return replace(basis, tents=True)
    enough = (left <= max(tol, ROUNDING)) & (left_anywhere <= LARGEST_LOSS)
    kept = int(np.argmax(enough)) + 1 if enough.any() else basis.n_functions
    capped = bool((1.0 - held).max() > 1e-3)
    return replace(basis.only(np.arange(kept)), capped=capped)
