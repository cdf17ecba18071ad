"""Products of one-dimensional kernels, with a rate for each column."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.product_gram import GAUSSIAN
from kernelsieve._state import choice, instance, list_of, number, optional
from kernelsieve._validation import check_choice, check_points, check_sparse
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.distance_gram import distances, gaussian_against, manhattan
from kernelsieve.kernels.families import FAMILIES, family_codes, family_frequencies, log_distances
from kernelsieve.kernels.gram import empty_gram
from kernelsieve.kernels.missing import MOST_LEVELS, MOST_VALUES, Reference, multiply_missing
from kernelsieve.kernels.per_column import as_strings, checked_rates, one_or_each
from kernelsieve.kernels.tiles import PointTiles, Tiles, product_gram
from kernelsieve.kernels.warps import CompiledWarps, Warp
from kernelsieve.kernels.words import product_text


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
    bounded: ClassVar[bool] = True
    has_rates: ClassVar[bool] = True
    has_frequencies: ClassVar[bool] = True
    _state_fields: ClassVar = {
        "rates": one_or_each(number(0.0, 1e150)),
        "families": one_or_each(choice(*FAMILIES)),
        "warps": optional(list_of(instance(Warp), tuple)),
        "references": optional(list_of(instance(Reference), tuple)),
    }

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "rates", checked_rates(self.rates))
        if not isinstance(self.families, str):
            set_field(self, "families", as_strings(self.families))
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
        return product_text(self.rates, self.families, self.warps)

    @property
    def n_columns(self) -> int | None:
        """The number of columns; None if the kernel takes any number of them."""
        for value in self.get_params().values():
            if isinstance(value, tuple):
                return len(value)
        return None

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

    def product_factors(self) -> Product:
        return self

    def frequencies(
        self, n_columns: int, count: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        families, rates = self.families_for(n_columns), self.rates_for(n_columns)
        return family_frequencies(families, rates, count, rng)

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
            X = sp.csr_array(check_sparse(X))
            data = X.data * self.rates_for(d).astype(X.dtype)[X.indices]
            return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)
        points = np.zeros(X.shape)
        columns = self.active(d)
        points[:, columns] = self.columns(X, columns)
        return points

    def columns(self, X: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        width = X.shape[1]
        if width not in self._compiled:  # made once: a server predicts one row at a time
            families, rates = self.families_for(width), self.rates_for(width)
            self._compiled[width] = CompiledWarps.of(self.warps, families, rates)
        return self._compiled[width].points(X, columns)

    @cached_property
    def _compiled(self) -> dict[int, CompiledWarps]:
        """The warps as compiled code reads them, by number of columns."""
        return {}

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
            references = self.reference(int(columns[place]), d)
            lines = left[:, place], right[:, place], codes[[place]], rates[[place]]
            multiply_missing(gram, *lines, *references, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def against(self, points: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        if self.references is not None:
            return super().against(points)
        d = points.shape[1]
        active = self.active(d)
        right, codes = self.columns(points, active), family_codes(self.families_for(d))[active]
        rates = self.rates_for(d)[active]
        if len(active) and (codes == GAUSSIAN).all():
            return gaussian_against(lambda rows: self.columns(rows, active), right)
        return lambda rows: product_gram(
            self.columns(rows, active), right, codes, rates, np.float64, 1
        )

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

    @property
    def compares_missing(self) -> bool:
        return self.references is not None

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

    def _active_families(self, n_columns: int) -> set[str]:
        """The families of the columns with a rate above 0."""
        families = self.families_for(n_columns)
        return {families[column] for column in self.active(n_columns)}

    def needs_dense_rows(self, n_columns: int) -> bool:
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
