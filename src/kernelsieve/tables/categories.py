"""What the encoder makes of a column of categories: 0/1 columns, or means of the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._state import Persistent, list_of, number, text, wrong
from kernelsieve.tables.cells import number_of, number_text
from kernelsieve.tables.columns import ABSENT, Array, Cells
from kernelsieve.tables.means import level_means

MOST_LEVELS = 1_000  # categories of a column that are told apart; the others share one
MEANS_ABOVE = 20  # categories: with more, the mean of the target stands for each
MOST_MEANS = 20  # outputs that means are taken of
LARGEST_MEAN = 1e6  # standard deviations of the target
OTHER = "(other)"


@dataclass(frozen=True)
class Category(Persistent):
    """A column of categories, with a 0/1 column for each.

    Attributes
    ----------
    name : str
    levels : tuple of str
        The categories, "(other)" for the rare ones and "(missing)" where needed.
    fill : str
        Replaces missing values: "(missing)" if there were some in training, else the most frequent
        category.
    means : tuple of tuple of float
        If not empty, numbers that stand for each category, in place of the 0/1 columns: the mean
        of each output in it, drawn towards the mean of all rows, and standardised.
    """

    name: str
    levels: tuple[str, ...]
    fill: str
    means: tuple[tuple[float, ...], ...] = ()

    kind: ClassVar = "text"
    _state_fields: ClassVar = {
        "name": text,
        "levels": list_of(text, tuple),
        "fill": text,
        "means": list_of(list_of(number(-LARGEST_MEAN, LARGEST_MEAN), tuple), tuple),
    }

    def _complete(self) -> None:
        if len(self.levels) > MOST_LEVELS + 2:
            wrong("levels", f"are {len(self.levels):,}, more than {MOST_LEVELS + 2:,}")
        if self.fill not in self.levels:
            wrong("fill", "is not one of the levels")
        if self.means and len(self.means) != len(self.levels):
            wrong("means", f"are {len(self.means):,} for {len(self.levels):,} levels")
        if len({len(row) for row in self.means}) > 1 or () in self.means:
            wrong("means", "have different lengths, or none")

    @classmethod
    def fit(
        cls, name: str, counts: Mapping[str, int], missing: bool, most: int = MOST_LEVELS
    ) -> Self:
        """Tell apart the most frequent of the texts, which occur so often; ``missing``: or not."""
        by_count = sorted(counts, key=lambda level: (-counts[level], level))
        kept = sorted(by_count[:most])
        extra = {OTHER: len(kept) < len(counts), ABSENT: missing}
        kept += [level for level, needed in extra.items() if needed and level not in kept]
        return cls(name, tuple(kept), ABSENT if missing else by_count[0])

    def with_means(self, values: NDArray[Any], outputs: Array | None) -> Self:
        """With means of the outputs in place of 0/1 columns, if there are many categories."""
        few = len(self.levels) <= MEANS_ABOVE
        if few or outputs is None or outputs.shape[1] > MOST_MEANS:
            return self
        means = level_means(self.places(values), outputs, len(self.levels))
        return replace(self, means=tuple(map(tuple, means[:-1].tolist())))

    @property
    def title(self) -> str:
        """What is used of the column."""
        return self.name

    @property
    def sources(self) -> list[str]:
        """Columns of the table that it is made of."""
        return [self.name]

    @property
    def labels(self) -> list[str]:
        """Names of the columns of the matrix."""
        if not self.means:
            return [f"{self.name}={level}" for level in self.levels]
        if len(self.means[0]) == 1:
            return [f"{self.name} (mean target)"]
        return [f"{self.name} (mean target {i})" for i in range(len(self.means[0]))]

    def used_as(self, missing: bool) -> str:
        """What becomes of the column; ``missing``: whether values are missing in a table."""
        return "mean target by category" if self.means else f"{len(self.levels):,} columns of 0/1"

    def read(self, cells: Cells) -> Any:
        """The categories of rows: texts with None, or numbers with NaN where they are missing."""
        return cells.categories(self.name)

    @cached_property
    def spellings(self) -> dict[str, int]:
        """The place of every text that stands for a category.

        A category that is a number has the usual texts of the number too, where no other category
        has them: "01067" is also "1067" and "1067.0", and "True" is "1".
        """
        found = {level: place for place, level in enumerate(self.levels)}
        for place, level in enumerate(self.levels):
            number = number_of(level)
            if number is not None and math.isfinite(number):
                for text in (number_text(number), repr(number)):
                    found.setdefault(text, place)
        return found

    def place(self, value: str | float | None) -> int:
        """The place of a category among the levels, -1 if it is not known."""
        if value is None or value != value:
            return self.spellings[self.fill]
        text = number_text(value) if isinstance(value, float) else value
        return self.spellings.get(text, self._other)

    def places(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The places of categories: of texts with None, or of numbers with NaN."""
        if values.dtype.kind == "f":
            distinct, inverse = np.unique(values, return_inverse=True)
            return self.places(distinct.astype(object))[inverse]
        return np.array([self.place(value) for value in values.tolist()], dtype=np.int64)

    def unseen(self, values: NDArray[Any]) -> list[str | float]:
        """The values that have no place."""
        return [value for value in values.tolist() if self.place(value) < 0]

    @cached_property
    def _other(self) -> int:
        return self.spellings.get(OTHER, -1)

    @cached_property
    def _means(self) -> Array:
        """The numbers that stand for the categories, and zeros at place -1."""
        return np.vstack([np.array(self.means), np.zeros((1, len(self.means[0])))])

    def codes(self, values: NDArray[Any]) -> Array:
        """The places as numbers, NaN for categories that are not known."""
        places = self.places(values)
        return np.where(places < 0, np.nan, places)

    def encode(self, values: NDArray[Any], out: Array) -> None:
        """Write the columns of the matrix, ``out`` of shape (n_rows, n_labels) and zero."""
        places = self.places(values)
        if self.means:
            out[:] = self._means[places]
        else:
            known = np.flatnonzero(places >= 0)
            out[known, places[known]] = 1.0

    def encoded_sparse(self, values: NDArray[Any]) -> sp.csr_array:
        """The columns of the matrix."""
        places = self.places(values)
        if self.means:
            return sp.csr_array(self._means[places])
        known = np.flatnonzero(places >= 0)
        entries = np.ones(len(known)), (known, places[known])
        return sp.csr_array(entries, shape=(len(values), len(self.levels)))

    def encode_one(self, value: str | float | None, out: Array) -> None:
        """Write a row of the matrix, ``out`` of shape (n_labels,) and zero."""
        place = self.place(value)
        if self.means:
            out[:] = self._means[place]
        elif place >= 0:
            out[place] = 1.0

    def doubt(self, value: str | float | None) -> str | None:
        """What is wrong with the value of a row, where all have to be known."""
        if value is None or value != value:
            return f"column {self.name!r} is missing"
        unknown = self.place(value) < 0
        return f"column {self.name!r}: {value!r} was not in training" if unknown else None
