"""Compare a file with its model: on rows that are given, or made of what an encoder knows."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import stream
from kernelsieve.export.graph import ExportError
from kernelsieve.tables.categories import Category
from kernelsieve.tables.cells import number_text
from kernelsieve.tables.columns import Number
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.model import TableModel
from kernelsieve.tables.table import Table, TableNotice, as_table, from_columns
from kernelsieve.tables.times import FIRST_SECOND, LAST_SECOND, time_text
from kernelsieve.tables.typed import TypedTable

LARGEST_DIFFERENCE = 1e-5  # of the deviation of the predictions
N_ROWS = 200
MISSING_SHARE = 0.1
# What real columns hold beside the categories themselves.
SPELLINGS = ("{}", "{}", "{}", " {}", "{} ", "\t{}\u00a0", "x{}", "", " ", "NA", "n/a ", "<NA>")


class ExportNotice(UserWarning):
    """A warning about what a file does otherwise than its model."""


def check_file(content: bytes, model: Any, rows: Any, dtype: str) -> None:
    """Raise an ExportError if a file differs from its model.

    Parameters
    ----------
    content : bytes
        The file.
    model : estimator
    rows : bool, or what the model takes
        True makes rows for a TableModel, if onnxruntime is there.
    dtype : "float32" or "float64"
    """
    given = not isinstance(rows, bool)
    if not given and not (rows and isinstance(model, TableModel)):
        return
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        if given:
            raise ImportError("check needs onnxruntime: pip install onnxruntime") from None
        return
    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    if isinstance(model, TableModel):
        sample = _given(model, rows) if given else _made(model.encoder_)
        exact, rounded = (_answers(model.model_, sample.encoded(t)) for t in ("float64", dtype))
        inputs = sample.inputs(dtype)
    else:
        inputs, again = _columns(names, rows, dtype)
        exact, rounded = _answers(model, rows), _answers(model, again)
    found = session.run(None, {name: inputs[name] for name in names})[-1]
    scale = _scale(model, exact)
    _refuse_difference(_difference(found, rounded) / scale)
    _note_rounding(_difference(rounded.astype(found.dtype).astype(float), exact) / scale)


def _refuse_difference(difference: float) -> None:
    if not difference <= LARGEST_DIFFERENCE:
        raise ExportError(
            f"the file differs from the model by {difference:.1e} standard deviations of the "
            "predictions, so it was not written: please report this with the model. check=False "
            "writes it nevertheless"
        )


def _note_rounding(difference: float) -> None:
    if difference > LARGEST_DIFFERENCE:
        warnings.warn(
            f"float32 can change predictions by {difference:.1e} of their standard deviation: it "
            "rounds columns, or predictions, that are large beside their deviation. Use "
            "dtype='float64'",
            ExportNotice,
            stacklevel=4,
        )


def _difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference beyond rounding; for labels the share that differs."""
    if expected.dtype.kind != "f":
        return float(np.mean(found != expected))
    rounding = 2.0 * np.finfo(found.dtype).eps * np.abs(expected)
    return max(float((np.abs(found - expected) - rounding).max()), 0.0)


def _scale(model: Any, predictions: NDArray[Any]) -> float:
    """What differences are compared with: 1 for probabilities and labels, else the deviation."""
    if hasattr(model, "classes_") or predictions.dtype.kind != "f":
        return 1.0
    return float(predictions.std()) or 1.0


def _answers(model: Any, rows: Any) -> NDArray[Any]:
    """The last output of a file."""
    for method in ("predict_proba", "predict", "transform"):
        if hasattr(model, method):
            return np.asarray(getattr(model, method)(rows))
    raise ExportError(f"{type(model).__name__} predicts nothing that could be compared")


def _columns(names: list[str], rows: Any, dtype: str) -> tuple[dict[str, NDArray[Any]], Any]:
    """The inputs of a file of an estimator or a pipeline, and its rows with rounded numbers."""
    if names == ["X"]:
        X = np.asarray(rows, dtype=dtype)
        return {"X": X}, X.astype(np.float64)
    again, inputs = rows.copy(), {}
    for i, name in enumerate(names):
        values = np.asarray(rows[name] if hasattr(rows, "columns") else rows[:, i])
        is_text = any(isinstance(value, str) for value in values.tolist())
        inputs[name] = values.astype(object if is_text else dtype)[:, None]
        if not is_text and hasattr(rows, "columns"):
            again[name] = inputs[name][:, 0].astype(np.float64)
        elif not is_text:
            again[:, i] = inputs[name][:, 0].astype(np.float64)
    return inputs, again


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Rows as a table, and as the inputs of a file: numbers, times in seconds, and texts."""

    encoder: TableEncoder
    table: Table
    numbers: dict[str, NDArray[np.float64]]
    times: dict[str, NDArray[np.float64]]
    texts: dict[str, NDArray[np.object_]]

    def inputs(self, dtype: str) -> dict[str, NDArray[Any]]:
        """The inputs of a file that takes numbers of a type."""
        numbers = {name: values.astype(dtype) for name, values in self.numbers.items()}
        return {**numbers, **self.times, **self.texts}

    def encoded(self, dtype: str) -> Any:
        """The rows as the encoder makes them of numbers that are rounded to a type."""
        numbers = {n: values.astype(dtype).astype(float) for n, values in self.numbers.items()}
        table = replace(self.table, columns={**self.table.columns, **numbers})
        encoder = copy.copy(self.encoder)
        encoder.strict = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableNotice)
            return encoder.transform(table)


def _given(model: TableModel, rows: Any) -> Sample:
    """A sample of rows that a user has."""
    table, encoder = as_table(rows, model.readings_), model.encoder_
    cells, kinds = TypedTable(table), _kinds(encoder)
    return Sample(
        encoder,
        table,
        {name: cells.numbers(name) for name, kind in kinds.items() if kind == "number"},
        {name: cells.seconds(name) for name, kind in kinds.items() if kind == "time"},
        {name: _texts(table, rows, name) for name, kind in kinds.items() if kind == "text"},
    )


def _kinds(encoder: TableEncoder) -> dict[str, str]:
    """Whether the columns of a table hold numbers, times or texts."""
    return {name: column.kind for column in encoder.columns_ for name in column.sources}


def _texts(table: Table, rows: Any, name: str) -> NDArray[np.object_]:
    """Texts as a user has them, with their spaces; "" where they are missing."""
    is_frame = isinstance(rows, Mapping) or hasattr(rows, "columns")
    given = list(rows[name]) if is_frame and not isinstance(rows, Table) else [None] * table.n_rows
    known = [text_of(value) for value in table.columns[name].tolist()]
    pairs = zip(given, known, strict=True)
    return np.array([raw if isinstance(raw, str) else text for raw, text in pairs], dtype=object)


def text_of(value: str | float | None) -> str:
    """A category as a file takes it."""
    if value is None or value != value:
        return ""
    return number_text(value) if isinstance(value, float) else value


def _made(encoder: TableEncoder) -> Sample:
    """A sample of rows like those that the encoder was fitted to, with odd spellings and holes."""
    rng = stream(0, "rows of a check")
    numbers, times, texts = {}, {}, {}
    for column in encoder.columns_:
        if isinstance(column, Category):
            texts[column.name] = _made_texts(column, rng)
        elif column.kind == "number":
            numbers[column.name] = _made_numbers(column, rng)
        elif column.is_whole:
            seconds = _made_numbers(column, rng)
            times[column.name] = np.floor(np.clip(seconds, FIRST_SECOND, LAST_SECOND))
    written = {name: [None if s != s else time_text(s) for s in seconds]
               for name, seconds in times.items()}  # fmt: skip
    table = from_columns("the rows of a check", {**numbers, **written, **texts}.items())
    return Sample(encoder, table, numbers, times, texts)


def _made_numbers(column: Number, rng: np.random.Generator) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        values = column.mean + column.scale * rng.normal(size=N_ROWS)
    values = np.where(np.isfinite(values), values, column.fill)
    values[rng.random(N_ROWS) < MISSING_SHARE] = np.nan
    return values


def _made_texts(column: Category, rng: np.random.Generator) -> NDArray[np.object_]:
    spellings, known = rng.choice(SPELLINGS, N_ROWS), list(column.spellings)
    texts = [spelling.format(known[i]) for spelling, i in
             zip(spellings, rng.integers(len(known), size=N_ROWS), strict=True)]  # fmt: skip
    return np.array(texts, dtype=object)
