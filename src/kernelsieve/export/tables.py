"""The table encoder as a graph: one input for each column of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernelsieve.export.graph import ExportError, Graph
from kernelsieve.export.texts import missing_texts, numbers_of_texts
from kernelsieve.tables.categories import OTHER, Category
from kernelsieve.tables.columns import CLIP, Number, Time
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.times import DAY, SINCE

Inputs = Mapping[str, str]


def encoder_graph(graph: Graph, encoder: TableEncoder) -> str:
    """Add the inputs of a table; the matrix that the encoder makes of them.

    Numbers are of shape (n,), with NaN where they are missing; texts too, with "" there (or another
    text that means it in a table). Times are seconds since 1970 (UTC) in float64.
    """
    if encoder.matrix_columns_:
        raise ExportError(
            "the table has sparse columns, which ONNX does not have: fit the model to dense columns"
        )
    kinds = {name: column.kind for column in encoder.columns_ for name in column.sources}
    inputs = {
        name: graph.op("Unsqueeze", graph.input(name, ["n"], kind), np.array([1]))
        for name, kind in kinds.items()
    }
    return graph.join([GRAPHS[type(column)](graph, column, inputs) for column in encoder.columns_])


def _category(graph: Graph, column: Category, inputs: Inputs) -> str:
    """0/1 columns, or the means that stand for categories."""
    texts, count = inputs[column.name], len(column.levels)
    numbers = {text: place + 1 for text, place in column.spellings.items()}
    found = numbers_of_texts(graph, texts, numbers)
    if OTHER in numbers:
        other = graph.op("Equal", found, 0.0)
        found = graph.op("Where", other, float(numbers[OTHER]), found)
    missing = missing_texts(graph, texts)
    found = graph.op("Where", missing, float(numbers[column.fill]), found)
    same = graph.flags(graph.op("Equal", found, np.arange(1.0, count + 1.0)[None]))
    return graph.op("MatMul", same, np.array(column.means)) if column.means else same


def _number(graph: Graph, column: Number, inputs: Inputs) -> str:
    return _standardised(graph, column, inputs[column.name])


def _time(graph: Graph, column: Time, inputs: Inputs) -> str:
    return _standardised(graph, column, _time_part(graph, column, inputs))


def _standardised(graph: Graph, column: Number, values: str) -> str:
    missing = graph.op("IsNaN", values)
    values = graph.op("Where", missing, column.fill, values)
    standard = graph.op("Div", graph.op("Sub", values, column.mean), column.scale)
    standard = graph.op("Clip", standard, -CLIP, CLIP)
    return graph.join([standard, graph.flags(missing)]) if column.missing else standard


GRAPHS: dict[type, Callable[[Graph, Any, Inputs], str]] = {
    Category: _category,
    Number: _number,
    Time: _time,
}


def _time_part(graph: Graph, column: Time, inputs: Inputs) -> str:
    """The part of a time that a column holds; NaN stays NaN."""
    seconds = inputs[column.name]
    if column.part == "":
        return seconds
    if column.part == SINCE:
        return graph.op("Div", graph.op("Sub", seconds, inputs[column.other]), 3600.0)
    days = _whole(graph, seconds, DAY)
    if column.part == "hour":
        return graph.op("Div", graph.op("Sub", seconds, graph.op("Mul", days, DAY)), 3600.0)
    if column.part == "weekday":
        shifted = graph.op("Add", days, 3.0)  # 1970 began on a Thursday
        return graph.op("Sub", shifted, graph.op("Mul", _whole(graph, shifted, 7.0), 7.0))
    return _day_of_year(graph, days)


def _whole(graph: Graph, values: str, divisor: float) -> str:
    """How often a number is in the values."""
    return graph.op("Floor", graph.op("Div", values, divisor))


def _day_of_year(graph: Graph, days: str) -> str:
    """Days since 1 January, from days since 1970, by the rules of the Gregorian calendar.

    Years that begin in March have their leap day at the end.
    """
    shifted = graph.op("Add", days, 719468.0)  # since 1 March of the year 0
    era = _whole(graph, shifted, 146097.0)  # 400 years
    inside = graph.op("Sub", shifted, graph.op("Mul", era, 146097.0))
    corrected = graph.op("Sub", inside, _whole(graph, inside, 1460.0))
    corrected = graph.op("Add", corrected, _whole(graph, inside, 36524.0))
    corrected = graph.op("Sub", corrected, _whole(graph, inside, 146096.0))
    year = _whole(graph, corrected, 365.0)
    begin = graph.op("Add", graph.op("Mul", year, 365.0), _whole(graph, year, 4.0))
    begin = graph.op("Sub", begin, _whole(graph, year, 100.0))
    since_march = graph.op("Sub", inside, begin)
    leap = _leap(graph, year)
    after = graph.op("Add", graph.op("Add", since_march, 59.0), leap)
    before = graph.op("Sub", since_march, 306.0)  # January and February of the next year
    return graph.op("Where", graph.op("Less", since_march, 306.0), after, before)


def _leap(graph: Graph, year: str) -> str:
    """1.0 for years (from 0 to 399) with 366 days, else 0.0."""

    def divides(divisor: float) -> str:
        rest = graph.op("Sub", year, graph.op("Mul", _whole(graph, year, divisor), divisor))
        return graph.flags(graph.op("Equal", rest, 0.0))

    return graph.op("Add", graph.op("Sub", divides(4.0), divides(100.0)), divides(400.0))
