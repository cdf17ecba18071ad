"""Products of one-dimensional kernels, with a rate for each column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.product_gram import GAUSSIAN
from kernelsieve._native.warps import IDENTITY, KNOTS, LOG, RAW, warp_columns
from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import Persistent, Rule, Sizes, choice, instance, list_of, number, optional
from kernelsieve._validation import check_choice, check_points
from kernelsieve.kernels.base import TILE_ROWS, Kernel, Tiles, empty_gram
from kernelsieve.kernels.distance import distances, manhattan
from kernelsieve.kernels.tiles import FAMILIES, PointTiles, family_codes, product_gram
from kernelsieve.kernels.warps import Warp

WARPS = {"identity": IDENTITY, "log": LOG, "knots": KNOTS}
SHOWN = 6  # rates in a repr
MOST_VALUES = 64  # that missing values of a numeric column are compared by
MOST_LEVELS = 1024  # the same for a categorical column


def log_distances(rates: NDArray[np.float64], families: Iterable[str]) -> NDArray[np.float64]:
    """The logarithms of the kernels at distance 1, or of two categories, negated."""
    s, t = np.sqrt(3.0) * rates, np.sqrt(5.0) * rates
    smooth = {
        "gaussian": rates**2,
        "matern32": s - np.log1p(s),
        "matern52": t - np.log1p(t + t * t / 3.0),
    }
    return np.array([smooth.get(family, rates)[i] for i, family in enumerate(families)])


@dataclass(frozen=True)
class Reference(Persistent):
    """Some values of a column, and the share of the rows that each stands for."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    _state_fields: ClassVar = {
        "values": list_of(number(), tuple),
        "weights": list_of(number(0.0, 1.0), tuple),
    }

    def __post_init__(self) -> None:
        total = sum(self.weights)
        if len(self.values) != len(self.weights) or not (total <= 1.0 + 1e-6):
            raise ValueError(
                f"{len(self.values)} values with {len(self.weights)} weights that sum to {total}: "
                "each value needs a weight, and they sum to 1"
            )

    @classmethod
    def of(cls, column: NDArray[Any], most: int) -> Reference:
        """The distinct values of a column if they are at most ``most``; else quantiles."""
        known = np.sort(column[~np.isnan(column)].astype(np.float64))
        values, counts = np.unique(known, return_counts=True)
        if len(values) > most:
            values = known[((np.arange(most) + 0.5) / most * len(known)).astype(np.int64)]
            values, counts = np.unique(values, return_counts=True)
        weights = counts / max(1, counts.sum())
        return cls(tuple(values.tolist()), tuple(weights.tolist()))


def _one_or_each(rule: Rule) -> Rule:
    """The rule of one value for all columns, or of a tuple of one for each."""
    each = list_of(rule, tuple)

    def check(value: Any, where: str, sizes: Sizes) -> Any:
        return (each if isinstance(value, tuple) else rule)(value, where, sizes)

    return check


@dataclass(frozen=True, repr=False)
class Product(Kernel):
    """A product of one-dimensional kernels: one rate, family and warp for each column.

    ``k(x, y) = prod_i k_i(r_i |w_i(x_i) - w_i(y_i)|)``

    Parameters
    ----------
    rates : float, or sequence of one for each column
        How fast the kernel falls along a column: inverse length scales. A column with rate 0 does
        not take part. One number is for every column.
    families : str, or sequence of one for each column, default "gaussian"
        With ``t = r |x - y|``:

        - "gaussian": exp(-t^2)
        - "laplacian": exp(-t)
        - "matern32": (1 + sqrt(3) t) exp(-sqrt(3) t)
        - "matern52": (1 + sqrt(5) t + 5 t^2 / 3) exp(-sqrt(5) t)
        - "categorical": 1 where x = y, else exp(-r)
    warps : sequence of Warp, one for each column, optional
        A monotone function of each column, applied first. Categorical columns ignore theirs.
    references : sequence of Reference, one for each column, optional
        What a missing value (NaN) is compared by: its kernel with a value is the mean kernel of
        these values with it, and its kernel with another missing value is 1. Feature maps take them
        from the rows of ``fit`` if some value is missing there; ``with_references`` does it for the
        exact kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Product
    >>> kernel = Product([1.0, 0.0, 0.5], ["gaussian", "gaussian", "laplacian"])
    >>> kernel
    Product(rates=[1, 0, 0.5], families=['gaussian', 'gaussian', 'laplacian'])
    >>> kernel(np.array([[0.0, 5.0, 0.0], [1.0, 7.0, 2.0]])).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    """

    rates: Any
    families: Any = "gaussian"
    warps: Any = None
    references: Any = None

    allows_missing: ClassVar[bool] = True
    _state_fields: ClassVar = {
        "rates": _one_or_each(number(0.0, 1e150)),
        "families": _one_or_each(choice(*FAMILIES)),
        "warps": optional(list_of(instance(Warp), tuple)),
        "references": optional(list_of(instance(Reference), tuple)),
    }

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "rates", _numbers(self.rates))
        if not isinstance(self.families, str):
            set_field(self, "families", _as_strings(self.families))
        for name in ("warps", "references"):
            if getattr(self, name) is not None:
                set_field(self, name, tuple(getattr(self, name)))
        for name, kind in (("families", str), ("warps", Warp), ("references", Reference)):
            value = getattr(self, name)
            if isinstance(value, tuple) and not all(isinstance(item, kind) for item in value):
                raise TypeError(f"{name}={value!r} must hold a {kind.__name__} for each column")
        for family in {self.families} if isinstance(self.families, str) else set(self.families):
            check_choice(family, "families", FAMILIES)
        lengths = {
            name: len(value)
            for name, value in self.get_params().items()
            if isinstance(value, tuple)
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{lengths} must be equal: each holds one value for each column")

    # --- what it is ------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments that make this kernel."""
        return {
            "rates": self.rates,
            "families": self.families,
            "warps": self.warps,
            "references": self.references,
        }

    def __repr__(self) -> str:
        if isinstance(self.rates, float):
            rates = f"{self.rates:g}"
        else:
            shown = [f"{rate:.4g}" for rate in self.rates]
            if len(shown) > SHOWN:
                active = sum(rate > 0 for rate in self.rates)
                rest = f"... ({active} of {len(shown)} columns active)"
                shown = [*shown[:SHOWN], rest]
            rates = f"[{', '.join(shown)}]"
        return f"Product(rates={rates}, families={self._shown_families()}{self._shown_warps()})"

    def _shown_families(self) -> str:
        if isinstance(self.families, str):
            return repr(self.families)
        if len(set(self.families)) == 1:
            return repr(self.families[0])
        return repr(list(self.families)) if len(self.families) <= SHOWN else _counted(self.families)

    def _shown_warps(self) -> str:
        if self.warps is None:
            return ""
        return f", warps={_counted(warp.kind for warp in self.warps)}"

    @property
    def n_columns(self) -> int | None:
        """The number of columns; None if the kernel takes any number of them."""
        for value in self.get_params().values():
            if isinstance(value, tuple):
                return len(value)
        return None

    def as_product(self) -> Product:
        return self

    def rates_for(self, n_columns: int) -> NDArray[np.float64]:
        """The rate of each column.

        Parameters
        ----------
        n_columns : int
            Number of columns of the rows.

        Returns
        -------
        ndarray of shape (n_columns,)
        """
        self._check_columns(n_columns)
        return np.broadcast_to(np.asarray(self.rates, dtype=np.float64), n_columns).copy()

    def families_for(self, n_columns: int) -> tuple[str, ...]:
        """The family of each column.

        Parameters
        ----------
        n_columns : int
            Number of columns of the rows.

        Returns
        -------
        tuple of str of length n_columns
        """
        self._check_columns(n_columns)
        several = isinstance(self.families, tuple)
        return self.families if several else (self.families,) * n_columns

    def relevances(self) -> NDArray[np.float64]:
        """The share of each column in the logarithm of the kernel of two typical rows.

        These rows lie one deviation apart in every column, with columns of deviation 1: scaled
        data, or warps that scale, as those of learned kernels do. Of the Laplacian it is the share
        in the sum of the rates, of the Gaussian that in the sum of their squares.

        Returns
        -------
        ndarray of shape (d,), or (1,) for a kernel with one rate
        """
        rates = np.atleast_1d(np.asarray(self.rates, dtype=np.float64))
        effects = log_distances(rates, self.families_for(len(rates)))
        total = float(effects.sum())
        return effects / total if total > 0 else effects

    def scaled(self, factor: float) -> Product:
        """The same kernel with all rates multiplied by a factor.

        Parameters
        ----------
        factor : float

        Returns
        -------
        Product
        """
        rates = np.asarray(self.rates, dtype=np.float64) * factor
        return replace(self, rates=rates if rates.ndim else float(rates))

    def of_column(self, column: int, n_columns: int) -> Product:
        """The factor of one of ``n_columns`` columns, as a kernel of one column."""
        return Product(
            (float(self.rates_for(n_columns)[column]),),
            (self.families_for(n_columns)[column],),
            None if self.warps is None else (self.warps[column],),
            None if self.references is None else (self.references[column],),
        )

    def with_categories(self, columns: Iterable[int], n_columns: int) -> Product:
        """The same kernel, with these of ``n_columns`` columns categorical; rates stay."""
        families = list(self.families_for(n_columns))
        for column in columns:
            families[column] = "categorical"
        return replace(self, families=tuple(families))

    def _check_columns(self, n_columns: int) -> None:
        if self.n_columns is not None and self.n_columns != n_columns:
            raise ValueError(
                f"{self!r} is a kernel of {self.n_columns} columns, but X has {n_columns}"
            )

    # --- points ----------------------------------------------------------------------------------

    def active(self, n_columns: int) -> NDArray[np.int64]:
        """Find the columns with a rate above 0.

        Parameters
        ----------
        n_columns : int
            Number of columns of the rows.

        Returns
        -------
        ndarray of int
        """
        return np.flatnonzero(self.rates_for(n_columns) > 0)

    def points(self, X: Any) -> Any:
        """Scaled coordinates u_i = r_i w_i(x_i) of all columns.

        The kernel is a product of functions of ``|u_i - v_i|``. Categorical columns with a rate
        above 0 are left as they are.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)

        Returns
        -------
        ndarray of shape (n, d) in float64, or CSR in the float type of X
        """
        d = X.shape[1]
        if sp.issparse(X):
            self._check_sparse(X)
            X = sp.csr_array(X)
            data = X.data * self.rates_for(d).astype(X.dtype)[X.indices]
            return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)
        points = np.zeros(X.shape)
        columns = self.active(d)
        points[:, columns] = self.columns(X, columns)
        return points

    def columns(self, X: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scaled coordinates of some columns, each with a rate above 0.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        columns : ndarray of int of shape (k,)

        Returns
        -------
        ndarray of shape (n, k)
        """
        width = X.shape[1]
        if width not in self._tables:  # made once: a server predicts one row at a time
            self._tables[width] = self._warp_tables(width)
        points = np.empty((X.shape[0], len(columns)))
        arguments = (X, np.asarray(columns, dtype=np.int64), *self._tables[width], points)
        warp_columns(*arguments)
        return points

    @cached_property
    def _tables(self) -> dict[int, tuple[Any, ...]]:
        """The warps as compiled code reads them, by number of columns."""
        return {}

    def _warp_tables(self, width: int) -> tuple[Any, ...]:
        rates, families = self.rates_for(width), self.families_for(width)
        warps = [Warp()] * width if self.warps is None else self.warps
        kinds = [
            RAW if family == "categorical" else WARPS[warp.kind]
            for family, warp in zip(families, warps, strict=True)
        ]
        settings = [(w.center, w.scale, w.slope, r) for w, r in zip(warps, rates, strict=True)]
        sizes = [len(warp.knots) for warp in warps]
        return (
            np.array(kinds, dtype=np.int64),
            np.array(settings, dtype=np.float64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.array([knot for warp in warps for knot in warp.knots], dtype=np.float64),
            np.array([value for warp in warps for value in warp.values], dtype=np.float64),
        )

    # --- Gram matrices ---------------------------------------------------------------------------

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X, missing=True)
        self._check_columns(X.shape[1])
        return np.ones(X.shape[0], dtype=X.dtype)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        if sp.issparse(X) or sp.issparse(Y):
            return self._sparse_gram(X, Y, symmetric, n_jobs)
        d, dtype = X.shape[1], np.result_type(X.dtype, Y.dtype)
        columns = self.active(d)
        if not len(columns):
            gram = empty_gram(X, Y, dtype)
            gram[...] = 1.0
            return gram
        left = self.columns(X, columns)
        right = left if symmetric else self.columns(Y, columns)
        whole = ~(np.isnan(left).any(axis=0) | np.isnan(right).any(axis=0))
        codes, rates = family_codes(self.families_for(d))[columns], self.rates_for(d)[columns]
        if whole.all() and (codes == GAUSSIAN).all():
            left = left.astype(dtype, copy=False)
            right = left if symmetric else right.astype(dtype, copy=False)
            gram = distances(left, right, -1.0, np.exp, n_jobs)
        else:
            parts = left[:, whole], right[:, whole], codes[whole], rates[whole]
            gram = product_gram(*parts, dtype, n_jobs)
        for place in np.flatnonzero(~whole):
            lines = left[:, place], right[:, place]
            self._multiply_missing(gram, int(columns[place]), d, *lines, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        d = X.shape[1]
        columns = self.active(d)
        left = self.columns(X, columns)
        right = left if Y is X else self.columns(Y, columns)
        if np.isnan(left).any() or np.isnan(right).any():
            return super().tiles(X, Y, dtype)
        codes = family_codes(self.families_for(d))[columns]
        return PointTiles(left, right, codes, self.rates_for(d)[columns], dtype)

    # --- missing values --------------------------------------------------------------------------

    def with_references(self, X: NDArray[Any]) -> Product:
        """The same kernel, with the columns of X to compare missing values by.

        Parameters
        ----------
        X : ndarray of shape (n, d)

        Returns
        -------
        Product
        """
        families = self.families_for(X.shape[1])
        most = [MOST_LEVELS if family == "categorical" else MOST_VALUES for family in families]
        columns = zip(X.T, most, strict=True)
        return replace(self, references=tuple(Reference.of(*column) for column in columns))

    def reference(
        self, column: int, n_columns: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scaled coordinates and weights of what missing values of a column are compared by."""
        if self.references is None:
            raise ValueError(
                f"X has missing values in column {column}, and {self!r} does not say what to "
                "compare them by: use kernel.with_references(X)"
            )
        reference = self.references[column]
        points = np.array(reference.values)
        if self.families_for(n_columns)[column] != "categorical":
            points = points if self.warps is None else self.warps[column](points)
            points = points * self.rates_for(n_columns)[column]
        return points, np.array(reference.weights)

    def _multiply_missing(
        self,
        gram: NDArray[Any],
        column: int,
        d: int,
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        n_jobs: int | None,
    ) -> None:
        """Multiply the kernel of a column with missing values into the kernels of the others."""
        code, rate = family_codes(self.families_for(d))[[column]], self.rates_for(d)[[column]]
        points, weights = self.reference(column, d)
        if not len(points):
            return  # a column without any values: nothing can be compared

        def kernel(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[Any]:
            pair = np.nan_to_num(u)[:, None], np.nan_to_num(v)[:, None]
            return product_gram(*pair, code, rate, gram.dtype, 1)

        absent, to_left = np.isnan(right), kernel(right, points) @ weights

        def multiply(rows: slice) -> None:
            factor, missing = kernel(left[rows], right), np.isnan(left[rows])
            factor[:, absent] = (kernel(left[rows], points) @ weights)[:, None]
            factor[missing] = np.where(absent, 1.0, to_left)
            gram[rows] *= factor

        map_row_blocks(multiply, len(left), TILE_ROWS, n_jobs)

    def _active_families(self, n_columns: int) -> set[str]:
        """The families of the columns with a rate above 0."""
        families = self.families_for(n_columns)
        return {families[column] for column in self.active(n_columns)}

    def needs_dense_rows(self, n_columns: int) -> bool:
        """Whether zeros have to be spelled out: for warps, and for categories.

        Parameters
        ----------
        n_columns : int

        Returns
        -------
        bool
        """
        return self.warps is not None or "categorical" in self._active_families(n_columns)

    def _check_sparse(self, X: Any) -> None:
        if self.needs_dense_rows(X.shape[1]):
            raise ValueError(
                f"{self!r} has warps or categories, which need dense rows: pass X.toarray()"
            )

    def _sparse_gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        families = self._active_families(X.shape[1])
        if len(families) > 1 or families - {"gaussian", "laplacian"}:
            raise ValueError(
                f"{self!r} has no Gram matrix of sparse rows: use one family for all columns, "
                "'gaussian' or 'laplacian', or pass X.toarray()"
            )
        X, Y = (self.points(sp.csr_array(rows)) for rows in (X, Y))
        if families == {"laplacian"}:
            return manhattan(X, Y, -1.0, n_jobs)
        gram = distances(X, Y, -1.0, np.exp, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram


def _numbers(rates: Any) -> float | tuple[float, ...]:
    """Valid rates; those that are numbers in a tuple already are returned as they are."""
    values = np.asarray(rates, dtype=np.float64)
    if values.ndim > 1 or values.size == 0:
        raise ValueError(f"rates of shape {values.shape}: pass one number, or one for each column")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        bad = values[~(np.isfinite(values) & (values >= 0))].flat[0]
        raise ValueError(f"rates must be finite and >= 0, and {bad} is not: 0 leaves a column out")
    if values.ndim == 0:
        return rates if type(rates) is float else float(values)
    if isinstance(rates, tuple) and all(type(rate) is float for rate in rates):
        return rates
    return tuple(values.tolist())


def _as_strings(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else tuple(str(value) for value in values)


def _counted(names: Iterable[str]) -> str:
    """'12 x laplacian, 3 x categorical', in order of appearance."""
    names = list(names)
    counts = {name: names.count(name) for name in names}
    return "<" + ", ".join(f"{count} x {name}" for name, count in counts.items()) + ">"
