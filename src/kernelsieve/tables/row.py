"""One row of a table at a time: encode and predict it without tables, notices and thread pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.models.predictor import Predictor
from kernelsieve.tables.columns import OTHER, Levels, Scaled, seconds_of, time_part
from kernelsieve.tables.encoder import CLIP, TableEncoder
from kernelsieve.tables.table import TableError, cell_text, is_number, listed
from kernelsieve.tables.texts import TEXT, Reading

Fill = Callable[[Any, dict[str, NDArray[np.float64]], NDArray[np.float64]], None]


class TablePredictor:
    """What ``TableModel.predictor()`` returns: call it with a row.

    No call changes it, so threads may share it. Missing values and categories not seen in training
    are treated as in ``predict``, but without a notice.

    Parameters
    ----------
    encoder : TableEncoder
    readings : mapping of str to Reading
        How texts in the columns are understood.
    predict : Predictor
        Of an encoded row.

    Examples
    --------
    >>> from kernelsieve import TableModel
    >>> sizes = [40.0, 55.0, 62.0, 70.0, 83.0, 91.0] * 5
    >>> flats = {"size": sizes, "town": ["Ulm", "Bonn"] * 15, "rent": [9.01 * s for s in sizes]}
    >>> predict = TableModel("rent").fit(flats).predictor()
    >>> bool(abs(predict({"size": 60.0, "town": "Ulm"}) - 540) < 30)
    True
    """

    def __init__(
        self, encoder: TableEncoder, readings: Mapping[str, Reading], predict: Predictor
    ) -> None:
        if encoder.sparse_:
            raise TableError(
                "predictor() is for dense columns, and this model has sparse ones: use predict"
            )
        self._predict = predict
        self._sources, self._width = encoder.sources, encoder.width
        self._readings, self._strict = dict(readings), bool(encoder.strict)
        times = (c for c in encoder.columns_ if isinstance(c, Scaled) and c.is_time)
        self._times = list(dict.fromkeys(name for c in times for name in c.sources))
        self._fills: list[Fill] = []
        start = 0
        for column in encoder.columns_:
            if isinstance(column, Scaled):
                self._fills.append(self._number(column, start))
            else:
                self._fills.append(self._level(column, start))
            start += len(column.labels)

    def __call__(self, row: Any) -> Any:
        """Predict one row.

        Parameters
        ----------
        row : mapping of str to value, or sequence
            The columns by name, as a dict, a named tuple's ``_asdict()`` or a row of a frame;
            others than those of the training table are ignored. A sequence holds the columns that
            the model uses, in the order of ``columns``.

        Returns
        -------
        float, or the label of a class
        """
        return self._predict(self.encode(row))

    def probabilities(self, row: Any) -> NDArray[np.float64]:
        """Predict the probabilities of the classes of one row; for classifiers only.

        Parameters
        ----------
        row : mapping of str to value, or sequence

        Returns
        -------
        ndarray of shape (n_classes,)
        """
        return self._predict.probabilities(self.encode(row))

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the model uses."""
        return list(self._sources)

    def encode(self, row: Any) -> NDArray[np.float64]:
        """Encode a row as ``TableEncoder.transform`` does.

        Parameters
        ----------
        row : mapping of str to value, or sequence

        Returns
        -------
        ndarray of shape (width,)
        """
        if not hasattr(row, "keys"):
            if len(row) != len(self._sources):
                raise TableError(
                    f"the row has {len(row)} values, and the model uses {len(self._sources)} "
                    f"columns: {listed(self._sources)}"
                )
            row = dict(zip(self._sources, row, strict=True))
        encoded = np.zeros(self._width)
        try:
            times = {name: np.array([self._seconds(name, row[name])]) for name in self._times}
            for fill in self._fills:
                fill(row, times, encoded)
        except KeyError:
            absent = [name for name in self._sources if name not in row]
            raise TableError(f"the row lacks {listed(absent)}") from None
        return encoded

    # --- a column --------------------------------------------------------------------------------

    def _number(self, column: Scaled, start: int) -> Fill:
        def fill(row: Any, times: dict[str, Any], out: NDArray[np.float64]) -> None:
            if column.is_time:
                value = float(time_part(times, column)[0])
            else:
                value = self._float(column.name, row[column.name])
            if math.isnan(value):
                if not column.part:
                    self._refuse_if_strict(f"column {column.name!r} is missing")
                value = column.fill
                if column.missing:
                    out[start + 1] = 1.0
            out[start] = min(max((value - column.mean) / column.scale, -CLIP), CLIP)

        return fill

    def _level(self, column: Levels, start: int) -> Fill:
        known = {level: place for place, level in enumerate(column.levels)}
        other, missing = known.get(OTHER, -1), known[column.fill]
        means = np.array(column.means) if column.means else None

        def fill(row: Any, times: dict[str, Any], out: NDArray[np.float64]) -> None:
            level = self._category(column.name, row[column.name])
            if level is None:
                self._refuse_if_strict(f"column {column.name!r} is missing")
                place = missing
            else:
                place = known.get(level, other)
            if place < 0:
                self._refuse_if_strict(f"column {column.name!r}: {level!r} was not in training")
            elif means is None:
                out[start + place] = 1.0
            else:
                out[start : start + means.shape[1]] = means[place]

        return fill

    # --- a value ---------------------------------------------------------------------------------

    def _float(self, name: str, value: Any) -> float:
        """A number; NaN if it is missing."""
        number = _plain(value)
        if number is None:
            text = cell_text("the row", name, value)
            reading = self._readings.get(name, TEXT)
            if text is None:
                return math.nan
            if reading.kind == "number" and isinstance(value, str | bytes):
                found = reading.value(text)
                number = math.nan if found is None else float(found)
            elif is_number(text):
                number = float(text)
            else:
                raise TableError(f"the row: column {name!r} is {text!r}, and in training it held "
                                 "numbers")  # fmt: skip
        if math.isinf(number):
            raise TableError(f"the row: column {name!r} is {number}: replace it by a finite "
                             "number, or leave it empty")  # fmt: skip
        return number

    def _seconds(self, name: str, value: Any) -> float:
        """A time in seconds since 1970; NaN if it is missing."""
        number, reading = _plain(value), self._readings.get(name, TEXT)
        text = cell_text("the row", name, value) if number is None else f"{number:.0f}"
        if text is None or (number is not None and math.isnan(number)):
            return math.nan
        seconds = None if number is not None else seconds_of(text)
        if seconds is None and reading.kind == "time":
            seconds = seconds_of(reading.value(text))
            return math.nan if seconds is None else seconds
        if seconds is None:
            raise TableError(f"the row: column {name!r} is {value!r}, and in training it held "
                             "times")  # fmt: skip
        return seconds

    def _category(self, name: str, value: Any) -> str | None:
        number = _plain(value)
        if number is None:
            text = cell_text("the row", name, value)
            if text is None or isinstance(value, str | bytes):
                return text
            number = float(text) if is_number(text) else None
            if number is None:
                return text
        return None if math.isnan(number) else f"{number:g}"

    def _refuse_if_strict(self, what: str) -> None:
        if self._strict:
            raise TableError(f"the row: {what} (strict mode)")


def _plain(value: Any) -> float | None:
    """A number, as Python and numpy have them; None for anything else."""
    if isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return float(value)
    return None
