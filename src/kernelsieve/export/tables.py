"""The table encoder as a graph: one input for each column of the table."""

from __future__ import annotations

import numpy as np

from kernelsieve.export.graph import ExportError, Graph
from kernelsieve.tables.columns import DAY, OTHER, Levels, Scaled
from kernelsieve.tables.encoder import CLIP, TableEncoder

NO_TEXT = ""  # stands for a missing text: ONNX has no other


def encoder_graph(graph: Graph, encoder: TableEncoder) -> str:
    """Add the inputs of a table; the matrix that the encoder makes of them.

    Numbers are of shape (n,), with NaN where they are missing; texts too, with "" there. Times are
    seconds since 1970 (UTC) in float64.
    """
    if encoder.matrix_columns_:
        raise ExportError(
            "the table has sparse columns, which ONNX does not have: fit the model to dense columns"
        )
    kinds = {
        name: "text" if isinstance(column, Levels) else "time" if column.is_time else "number"
        for column in encoder.columns_
        for name in column.sources
    }
    inputs = {
        name: graph.op("Unsqueeze", graph.input(name, ["n"], kind), np.array([1]))
        for name, kind in kinds.items()
    }
    return graph.join(
        [
            _levels(graph, column, inputs[column.name])
            if isinstance(column, Levels)
            else _scaled(graph, column, inputs)
            for column in encoder.columns_
        ]
    )


def _levels(graph: Graph, column: Levels, values: str) -> str:
    """0/1 columns, or the means that stand for categories."""
    filled = graph.op("Where", graph.op("Equal", values, np.array([[NO_TEXT]])),
                      np.array([[column.fill]]), values)  # fmt: skip
    same = graph.flags(graph.op("Equal", filled, np.array(column.levels)[None]))
    if OTHER in column.levels:
        rest = graph.op("Sub", 1.0, graph.row_sum(same))
        here = np.array([[float(level == OTHER) for level in column.levels]])
        same = graph.op("Add", same, graph.op("Mul", rest, here))
    return graph.op("MatMul", same, np.array(column.means)) if column.means else same


def _scaled(graph: Graph, column: Scaled, inputs: dict[str, str]) -> str:
    values = _time_part(graph, column, inputs) if column.is_time else inputs[column.name]
    missing = graph.op("IsNaN", values)
    values = graph.op("Where", missing, column.fill, values)
    standard = graph.op("Div", graph.op("Sub", values, column.mean), column.scale)
    standard = graph.op("Clip", standard, -CLIP, CLIP)
    return graph.join([standard, graph.flags(missing)]) if column.missing else standard


def _time_part(graph: Graph, column: Scaled, inputs: dict[str, str]) -> str:
    """The part of a time that a column holds; NaN stays NaN."""
    seconds = inputs[column.name]
    if column.part == "":
        return seconds
    if column.part == "since":
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
