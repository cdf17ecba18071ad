"""Kernels that scikit-learn or the user evaluates for pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels
from sklearn.utils.validation import check_non_negative

from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import LARGEST, choice, instance, wrong
from kernelsieve._validation import check_points
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.gram import TILE_ROWS, empty_gram

DIAGONAL_ROWS = 16
INDEFINITE = {
    "sigmoid": "use 'exponential' or 'poly'",
    "additive_chi2": "use 'chi2', its exponential",
}
# The parameters that a model file may hold, by metric.
STORED_PARAMETERS = {
    "chi2": ("gamma",),
    "cosine": (),
    "laplacian": ("gamma",),
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
}


@dataclass(frozen=True)
class Pairwise(Kernel):
    """A kernel of ``sklearn.metrics.pairwise``, or a function of two rows.

    It has no Taylor series; ``NystromFeatures`` accepts any of them.

    Parameters
    ----------
    metric : str or callable
        A name that ``sklearn.metrics.pairwise.pairwise_kernels`` knows, or a function that gets
        two rows (1-d arrays; 1 x d sparse ones for sparse data) and returns a number. It must be
        positive semi-definite, which "sigmoid" and "additive_chi2" are not.
    parameters : mapping, optional
        Passed on to the metric.

    Examples
    --------
    >>> import numpy as np
    >>> Pairwise("cosine")(np.array([[1.0, 0.0], [1.0, 1.0]])).round(3)
    array([[1.   , 0.707],
           [0.707, 1.   ]])
    """

    metric: str | Callable[..., float]
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _state_fields: ClassVar = {
        "metric": lambda value, where, sizes: _stored_metric(value, where),
        "parameters": lambda value, where, sizes: dict(instance(Mapping)(value, where, sizes)),
    }

    def _complete(self) -> None:
        known = STORED_PARAMETERS[str(self.metric)]
        for name, value in self.parameters.items():
            if name not in known or not _is_number(value, name == "gamma"):
                wrong("parameters", f"have {name!r}={value!r}, which {self.metric!r} does not take")

    def __post_init__(self) -> None:
        if callable(self.metric):
            return
        if self.metric in INDEFINITE:
            raise ValueError(
                f"kernel={self.metric!r} is not positive semi-definite, so no features can "
                f"represent it: {INDEFINITE[self.metric]}"
            )
        if self.metric not in PAIRWISE_KERNEL_FUNCTIONS:
            known = sorted(set(PAIRWISE_KERNEL_FUNCTIONS) - set(INDEFINITE))
            raise ValueError(
                f"metric={self.metric!r} is unknown to scikit-learn: use one of "
                f"{', '.join(known)}, or a function of two rows"
            )

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        gram = empty_gram(X, Y, np.result_type(X.dtype, Y.dtype))
        if sp.issparse(X) != sp.issparse(Y):  # scikit-learn wants both of one kind
            X, Y = sp.csr_array(X), sp.csr_array(Y)

        def fill(rows: slice) -> None:
            gram[rows] = self._values(X[rows], Y)

        map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
        return gram

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        values = np.empty(X.shape[0], dtype=X.dtype)
        # A function is called for the pairs that are wanted; for names a small Gram is quicker.
        size = 1 if callable(self.metric) else DIAGONAL_ROWS
        for start in range(0, X.shape[0], size):
            rows = X[start : start + size]
            values[start : start + size] = np.diag(self._values(rows, rows))
        return values

    def _values(self, X: Any, Y: Any) -> NDArray[Any]:
        if self.metric == "chi2":
            X, Y = _for_chi2(X), _for_chi2(Y)
        values = pairwise_kernels(X, Y, metric=self.metric, n_jobs=1, **self.parameters)
        return values.toarray() if sp.issparse(values) else values


def _stored_metric(value: Any, where: str) -> Any:
    if callable(value):
        wrong(
            where,
            f"is a function, {value!r}, and a model file holds no code: use a kernel of "
            "kernelsieve.kernels",
        )
    return choice(*STORED_PARAMETERS)(value, where, {})


def _is_number(value: Any, or_none: bool) -> bool:
    if type(value) is int:
        return abs(value) <= LARGEST  # numpy makes objects of larger ones
    return (value is None and or_none) or (type(value) is float and abs(value) <= 1e300)


def _for_chi2(X: Any) -> Any:
    """Check that rows are dense and non-negative, and make them writeable for scikit-learn."""
    if sp.issparse(X):
        raise ValueError("the chi2 kernel does not take sparse rows: pass X.toarray()")
    check_non_negative(X, "the chi2 kernel")
    return np.require(X, requirements="W")
