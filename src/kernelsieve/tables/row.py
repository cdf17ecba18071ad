"""One row of a table at a time: encode and predict it without tables, notices and thread pools."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.models.predictor import Predictor
from kernelsieve.tables.cells import is_number
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.notices import Column
from kernelsieve.tables.table import TableError, cell_text, listed
from kernelsieve.tables.texts import TEXT, Reading
from kernelsieve.tables.times import seconds_of


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
        self._places: list[tuple[Column, slice]] = []
        start = 0
        for column in encoder.columns_:
            stop = start + len(column.labels)
            self._places.append((column, slice(start, stop)))
            start = stop

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
            cells = _Cells(row, self._readings)
            for column, place in self._places:
                value = column.read(cells)
                if self._strict:
                    self._refuse_doubtful(column, value)
                column.encode_one(value, encoded[place])
        except KeyError:
            absent = [name for name in self._sources if name not in row]
            raise TableError(f"the row lacks {listed(absent)}") from None
        return encoded

    def _refuse_doubtful(self, column: Column, value: Any) -> None:
        doubt = column.doubt(value)
        if doubt is not None:
            raise TableError(f"the row: {doubt} (strict mode)")


class _Cells:
    """The cells of a row by the type that a column needs."""

    def __init__(self, row: Any, readings: Mapping[str, Reading]) -> None:
        self._row, self._readings = row, readings
        self._seconds: dict[str, float] = {}

    def numbers(self, name: str) -> float:
        """A finite number; NaN if it is missing."""
        number = self._number(name, self._row[name])
        if math.isinf(number):
            raise TableError(f"the row: column {name!r} is {number}: replace it by a finite "
                             "number, or leave it empty")  # fmt: skip
        return number

    def _number(self, name: str, value: Any) -> float:
        number = _plain(value)
        if number is not None:
            return number
        text, reading = cell_text("the row", name, value), self._readings.get(name, TEXT)
        if text is None:
            return math.nan
        if reading.kind == "number" and isinstance(value, str | bytes):
            found = reading.value(text)
            return math.nan if found is None else float(found)
        if is_number(text):
            return float(text)
        raise _held(name, text, "numbers")

    def seconds(self, name: str) -> float:
        """A time in seconds since 1970; NaN if it is missing."""
        if name not in self._seconds:
            self._seconds[name] = self._time(name, self._row[name])
        return self._seconds[name]

    def _time(self, name: str, value: Any) -> float:
        number, reading = _plain(value), self._readings.get(name, TEXT)
        if number is not None and math.isnan(number):
            return math.nan
        text = cell_text("the row", name, value) if number is None else f"{number:.0f}"
        if text is None:
            return math.nan
        seconds = None if number is not None else seconds_of(text)
        if seconds is None and reading.kind == "time":
            seconds = seconds_of(reading.value(text))
            return math.nan if seconds is None else seconds
        if seconds is None:
            raise _held(name, value, "times")
        return seconds

    def categories(self, name: str) -> str | float | None:
        """A category: a text, or a number; None or NaN if it is missing."""
        value = self._row[name]
        number = _plain(value)
        if number is not None:
            return number
        text = cell_text("the row", name, value)
        if text is None or isinstance(value, str | bytes):
            return text
        return float(text) if is_number(text) else text


def _held(name: str, value: Any, what: str) -> TableError:
    return TableError(f"the row: column {name!r} is {value!r}, and in training it held {what}")


def _plain(value: Any) -> float | None:
    """A number, as Python and numpy have them; None for anything else."""
    if isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return float(value)
    return None
