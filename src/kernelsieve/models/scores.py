"""R2 of targets of any size: squares of huge ones overflow, and those of tiny ones vanish."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

SMALLEST, LARGEST = 1e-140, 1e150  # whose squares float64 holds


def unit_of(*arrays: NDArray[Any]) -> float:
    """A power of two in which all numbers can be squared: 1, unless they are huge or all tiny.

    Examples
    --------
    >>> unit_of(np.array([3.0, -5.0])), unit_of(np.array([2.0**1000, 0.0])) == 2.0**1000
    (1.0, True)
    """
    peak = max((float(np.abs(values).max(initial=0.0)) for values in arrays), default=0.0)
    if not np.isfinite(peak) or peak == 0.0 or SMALLEST <= peak <= LARGEST:
        return 1.0
    return float(2.0 ** (np.frexp(peak)[1] - 1))


class Regressor(RegressorMixin):
    """A regressor whose score does not depend on the unit of the target."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute R2, the share of the target's variance that the predictions explain.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
        y : array-like of shape (n,) or (n, n_outputs)
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        float
            At most 1; 0 for the mean of y.
        """
        y, predicted = np.asarray(y), np.asarray(self.predict(X))
        if y.dtype.kind == "f":
            unit = unit_of(y, predicted)
            if unit != 1.0:
                y, predicted = y / unit, predicted.astype(np.float64) / unit
        return float(r2_score(y, predicted, sample_weight=sample_weight))
