"""The errors of a grid of gammas and alphas, and going on where the best lies at its end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A search does not go on to alphas beyond these parts of the kernel's largest eigenvalue: below,
# rounding decides, and above nothing is left but the intercept.
ALPHA_RANGE = (1e-10, 10.0)
WORTH = 2e-3  # the relative gain of the last step to an end below which it does not matter
FEWEST_VALUES = 3  # of fewer the best is always at an end
ROUNDS = 2  # how many times a grid is continued


@dataclass(frozen=True)
class End:
    """The end of a grid of alphas or gammas at which the best value lies.

    Attributes
    ----------
    name : "alpha" or "gamma"
    value : float
    step : float
        The ratio to the value before it: below 1 at the lower end.
    bounds : tuple of float
        Of the values that make sense.
    """

    name: str
    value: float
    step: float
    bounds: tuple[float, float]

    def beyond(self, n_values: int) -> list[float]:
        """The next values, if there may be any."""
        values = [self.value * self.step ** (i + 1) for i in range(n_values)]
        return [value for value in values if self.bounds[0] <= value <= self.bounds[1]]

    @property
    def words(self) -> str:
        """What to tell the user."""
        which, more = ("smallest", "smaller") if self.step < 1.0 else ("largest", "larger")
        return (
            f"the best {self.name}, {self.value:.3g}, is the {which} that was tried, and errors "
            f"still fall there: pass {more} ones, too"
        )


@dataclass(frozen=True)
class SearchResult:
    """The errors of every pair of gamma and alpha.

    Attributes
    ----------
    gammas : list of float or None
        None is the map's own gamma.
    alphas : ndarray of shape (n_alphas,)
    rmse : ndarray of shape (n_gammas, n_alphas)
        On rows that the ridge did not see.
    largest : ndarray of shape (n_gammas,)
        The largest eigenvalue of the kernel matrix of each gamma.
    """

    gammas: list[Any]
    alphas: NDArray[np.float64]
    rmse: NDArray[np.float64]
    largest: NDArray[np.float64]

    @property
    def best(self) -> tuple[int, int]:
        """The place of the smallest error."""
        gamma, alpha = np.unravel_index(int(np.argmin(self.rmse)), self.rmse.shape)
        return int(gamma), int(alpha)

    @property
    def gamma(self) -> Any:
        """The best gamma."""
        return self.gammas[self.best[0]]

    @property
    def alpha(self) -> float:
        """The best alpha."""
        return float(self.alphas[self.best[1]])

    @property
    def ends(self) -> list[End]:
        """The ends of the grids at which the best pair lies, and towards which errors still fall.

        A grid of one or two values has no inside, and has no ends either; nor has one of alphas
        that reaches the bounds of what makes sense.
        """
        row, column = self.best
        low, high = (part * self.largest[row] for part in ALPHA_RANGE)
        grids = (
            ("alpha", self.alphas, self.rmse[row], (low, high)),
            ("gamma", self.gammas, self.rmse[:, column], (0.0, np.inf)),
        )
        found = []
        for name, values, errors, bounds in grids:
            if len(values) < FEWEST_VALUES:
                continue
            order = np.argsort(values)
            for last, before in (order[:2], order[:-3:-1]):
                if errors.argmin() == last and errors[last] < (1.0 - WORTH) * errors[before]:
                    value = float(values[last])
                    found.append(End(name, value, value / float(values[before]), bounds))
        return [end for end in found if end.beyond(1)]

    def joined(self, other: SearchResult) -> SearchResult:
        """The errors of two grids that share their gammas, or their alphas."""
        if other.gammas == self.gammas:
            alphas = np.append(self.alphas, other.alphas)
            order, rmse = np.argsort(alphas), np.hstack([self.rmse, other.rmse])
            return SearchResult(self.gammas, alphas[order], rmse[:, order], self.largest)
        rmse, largest = np.vstack([self.rmse, other.rmse]), np.append(self.largest, other.largest)
        return SearchResult([*self.gammas, *other.gammas], self.alphas, rmse, largest)

    def table(self) -> dict[str, NDArray[Any]]:
        """Columns "gamma", "alpha" and "rmse", a row for every pair."""
        return {
            "gamma": np.repeat(np.array(self.gammas, dtype=object), len(self.alphas)),
            "alpha": np.tile(self.alphas, len(self.gammas)),
            "rmse": self.rmse.ravel(),
        }


def search_on(
    errors: Callable[[Any, Sequence[Any]], SearchResult],
    alphas: Any,
    gammas: Sequence[Any],
    may_go_on: Sequence[str],
) -> SearchResult:
    """Search a grid, and go on where the best value lies at its end.

    Parameters
    ----------
    errors : callable
        Searches some alphas and gammas.
    alphas : array-like of float
    gammas : sequence
    may_go_on : sequence of str
        "gamma" and "alpha", if these grids may be continued, in that order: an alpha at an end may
        be due to a gamma at an end.

    Returns
    -------
    SearchResult
    """
    found = errors(alphas, gammas)
    for name in ROUNDS * tuple(may_go_on):
        end = next((end for end in found.ends if end.name == name), None)
        if end is None:
            continue
        if name == "alpha":
            other = errors(end.beyond((len(found.alphas) + 1) // 2), found.gammas)
        else:
            other = errors(found.alphas, end.beyond((len(found.gammas) + 1) // 2))
        found = found.joined(other)
    return found


def warn_of_ends(found: SearchResult, stacklevel: int) -> None:
    """Warn of best values that lie at the end of what was tried."""
    for end in found.ends:
        warnings.warn(end.words, UserWarning, stacklevel=stacklevel)
