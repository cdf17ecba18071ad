"""The uncertainty of a ridge: the variance of the noise, of coefficients and of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from kernelsieve._state import Persistent, array, flag, number, optional, whole, wrong
from kernelsieve.linalg.cholesky import inverse_of_lower, regularised_cholesky
from kernelsieve.linalg.operators import dense

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Posterior(Persistent):
    """The part of a ridge solution that determines its uncertainty.

    Weights count observations: an integer weight is a row that occurs so many times. But no row is
    less than one observation, so weights whose mean is below 1 cannot be counts. They are relative,
    and their scale means nothing: the uncertainty is that of weights and alpha divided by the mean
    weight, where rows and observations are as many.

    Attributes
    ----------
    factor : ndarray of shape (s, s) or None
        The lower Cholesky factor of G + shift I, where G = Z^T W Z of centred features.
    shift : float
        alpha, or slightly more if rounding required it.
    feature_mean : ndarray of shape (s,)
    residual_squares : ndarray of shape (n_outputs,)
        The weighted sum of squared residuals.
    weight : float
        The sum of the weights.
    n_rows : int
        The number of rows whose weight is positive.
    fit_intercept : bool
    """

    factor: Array | None
    shift: float
    feature_mean: Array
    residual_squares: Array
    weight: float
    n_rows: int
    fit_intercept: bool

    _state_fields: ClassVar = {
        "factor": optional(array(None)),  # the lower triangle, line by line
        "by_columns": optional(flag),  # its order in memory, which decides the last bits
        "shift": number(0.0, 1e300),
        "feature_mean": array("s"),
        "residual_squares": array("outputs"),
        "weight": number(1e-300, 1e300),
        "n_rows": whole(1),
        "fit_intercept": flag,
        "degrees_of_freedom": number(-1e300, 1e300),
    }
    _for_variance: ClassVar = ("factor", "by_columns")

    def _state_values(self) -> dict[str, Any]:
        values = {name: getattr(self, name, None) for name in self._state_fields}
        if self.factor is None:
            return values
        lines = [line[: i + 1] for i, line in enumerate(self.factor)]
        by_columns = self.factor.flags.f_contiguous
        return values | {"factor": np.concatenate(lines), "by_columns": by_columns}

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        packed, by_columns = values.pop("factor"), values.pop("by_columns")
        freedom, size = values.pop("degrees_of_freedom"), len(values["feature_mean"])
        factor = None
        if packed is not None:
            if len(packed) != size * (size + 1) // 2:
                wrong("factor", f"has {len(packed)} entries, not a triangle of {size} lines")
            factor = np.zeros((size, size), order="F" if by_columns else "C")
            for i in range(size):
                factor[i, : i + 1] = packed[i * (i + 1) // 2 :][: i + 1]
        posterior = cls(factor=factor, **values)
        posterior.__dict__["degrees_of_freedom"] = freedom
        return posterior

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of features and of outputs."""
        return len(self.feature_mean), len(self.residual_squares)

    def _known_factor(self) -> Array:
        if self.factor is None:
            raise ValueError(
                "this model was saved without the Cholesky factor that return_std needs: fit it "
                "again and save it with kernelsieve.save(model, path, variance=True), or use "
                "kernelsieve fit --std"
            )
        return self.factor

    @cached_property
    def degrees_of_freedom(self) -> float:
        """tr G (G + shift I)^-1, and 1 for the intercept."""
        root = inverse_of_lower(self._known_factor())
        trace = float(np.vdot(root, root))  # of the inverse root^T root
        return len(root) - self.shift * trace + self.fit_intercept

    @cached_property
    def noise_variance(self) -> Array:
        """The variance of an observation (of mean weight), of shape (n_outputs,).

        The mean squared residual times m / (m - degrees of freedom) for m observations; NaN where
        a single row leaves nothing to estimate it from.
        """
        if self.n_rows <= self.fit_intercept:
            return np.full_like(self.residual_squares, np.nan)
        observations = max(self.weight, float(self.n_rows))
        free = max(observations - self.degrees_of_freedom, 1e-12 * observations)
        return self.residual_squares / self.weight * (observations / free)

    def leverages(self, Z: Any) -> Array:
        """Leverages of rows of weight 1.

        (z - mean)^T (G + shift I)^-1 (z - mean), and 1 / weight for the intercept.

        Parameters
        ----------
        Z : {ndarray, CSR} of shape (n, s)

        Returns
        -------
        ndarray of shape (n,)
        """
        centred = (dense(Z) - self.feature_mean).T
        halves = solve_triangular(self._known_factor(), centred, lower=True, check_finite=False)
        return np.einsum("ij,ij->j", halves, halves) + self.fit_intercept / self.weight

    def coefficient_variances(self, vectors: Array) -> Array:
        """a^T (G + shift I)^-1 a for each column a: variances of a . coef, over that of the noise.

        Parameters
        ----------
        vectors : ndarray of shape (s, m)

        Returns
        -------
        ndarray of shape (m,)
        """
        halves = solve_triangular(self._known_factor(), vectors, lower=True, check_finite=False)
        return min(1.0, self.weight / self.n_rows) * np.einsum("ij,ij->j", halves, halves)

    def solve(self, right: Array) -> Array:
        """(G + shift I)^-1 times columns, of shape (s, m)."""
        return cho_solve((self._known_factor(), True), right, check_finite=False)

    def with_shift(self, shift: float) -> Array:
        """The lower Cholesky factor of G + shift I for another shift."""
        factor = np.tril(self._known_factor())
        if shift == self.shift:
            return factor
        gram = factor @ factor.T
        gram.flat[:: len(gram) + 1] -= self.shift
        return regularised_cholesky(gram, shift)[0]

    def pulls(self, Z: Any) -> Array:
        """(G + shift I)^-1 (z - mean), of shape (s, n): derivatives of predictions by Z^T W y."""
        return self.solve((dense(Z) - self.feature_mean).T)

    def relative_variances(self, Z: Any, unseen: Array | float = 0.0) -> Array:
        """The variance of a new observation, in units of the noise variance, of shape (n,).

        ``unseen`` is the part of k(x, x) that the features leave out. It keeps its prior variance,
        because no row says anything about it.
        """
        uncertain = self.leverages(Z) + unseen / self.shift
        return 1.0 + min(1.0, self.weight / self.n_rows) * uncertain
