"""What becomes of each column of a table, in one line."""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.facts import printable
from kernelsieve.tables.leaks import note_leaks
from kernelsieve.tables.table import TableNotice, as_table, is_missing
from kernelsieve.tables.target import ridge_targets, rows_with_target, task_and_targets
from kernelsieve.tables.times import as_times

LONGEST_NAME = 20  # characters that are shown
LONGEST_OF_ALIKE = 32  # where shorter ones are alike
LETTERS_MORE = 4


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a table.

    Attributes
    ----------
    name : str
    kind : "number", "time", "category", "sparse" or "empty"
    missing : int
        How many values are missing.
    levels : int
        How many distinct values there are.
    used_as : str
        What becomes of it.
    """

    name: str
    kind: str
    missing: int
    levels: int
    used_as: str


def inspected(
    data: Any,
    target: str | None = None,
    *,
    task: str = "auto",
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> list[ColumnFacts]:
    """Say what a TableModel would do with every column of a table.

    Parameters
    ----------
    data : path, frame or mapping of columns
    target : str, optional
        The column to predict.
    task : "auto", "regression" or "classification"
    drop, keep : sequence of str
        As in TableModel.

    Returns
    -------
    list of ColumnFacts

    Examples
    --------
    >>> found = inspected({"size": [50.0, None, 60.0], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> found[0].used_as
    'standardised; missing: median 55'
    >>> found[1].used_as
    '2 columns of 0/1'
    """
    table, outputs, learned_as = as_table(data), None, ""
    whole = table
    if target is not None:
        table, target = rows_with_target(table, target, drop, strict=False)
        learned_as, y = task_and_targets(table, target, task)
        outputs = ridge_targets(y, learned_as)
        outputs = outputs[:, 1] if outputs.shape[1:] == (2,) else outputs
    left_out = [*drop, *([] if target is None else [target])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)  # the lines say it
        encoder = TableEncoder(left_out, keep=keep).fit(table, outputs)
    if target is not None:
        note_leaks(table, target, y, learned_as, encoder.sources)
    found = []
    for name, values in whole.columns.items():
        missing = is_missing(values)
        present = values[~missing]
        levels = len(np.unique(present if values.dtype.kind == "f" else present.astype(str)))
        if name == target:
            used = f"target: {learned_as}"
        elif name in drop:
            used = "ignored: dropped"
        elif name in encoder.ignored_:
            used = f"ignored: {encoder.ignored_[name]}"
        else:
            used = _used_as(encoder, name, bool(missing.any()))
        kind = _kind(values, present)
        found.append(ColumnFacts(name, kind, int(missing.sum()), levels, used))
    if whole.matrix is not None:
        width = whole.matrix.shape[1]
        found.append(ColumnFacts(f"{width:,} columns", "sparse", 0, 0, "unchanged"))
    return found


def _kind(values: Any, present: Any) -> str:
    if len(present) == 0:
        return "empty"
    if values.dtype.kind == "f":
        return "number"
    return "category" if as_times(values) is None else "time"


def _used_as(encoder: TableEncoder, name: str, missing: bool) -> str:
    return "; ".join(column.used_as(missing) for column in encoder.columns_ if column.name == name)


def as_lines(columns: list[ColumnFacts], width: int = 80) -> list[str]:
    """Format columns in lines of at most ``width`` characters."""
    names = shortened([printable(column.name, 200) for column in columns])
    room = max([6, *map(len, names)])
    lines = [f"{'column':<{room}}  {'kind':<8}  {'missing':>7}  {'levels':>7}  what becomes of it"]
    for name, column in zip(names, columns, strict=True):
        start = f"{name:<{room}}  {column.kind:<8}  {column.missing:>7,}  {column.levels:>7,}  "
        parts = wrap(printable(column.used_as, 200), max(width - len(start), 20))
        lines.append(start + parts[0])
        lines += [" " * len(start) + part for part in parts[1:]]
    return [printable(line, width) for line in lines]


def shortened(names: list[str]) -> list[str]:
    """Long names without their middles, as much of them as tells them apart.

    Examples
    --------
    >>> shortened(["listed_until_the_end_of_month", "listed_until_the_start_of_month"])
    ['listed_until…end_of_month', 'listed_until…art_of_month']
    """
    for length in range(LONGEST_NAME, LONGEST_OF_ALIKE):
        if len({_shortened(name, length) for name in names}) == len(set(names)):
            break
    if length > LONGEST_NAME:  # one letter tells them apart, a few more can be read
        length += LETTERS_MORE
    return [_shortened(name, length) for name in names]


def _shortened(name: str, length: int) -> str:
    if len(name) <= length:
        return name
    return f"{name[: length // 2]}…{name[len(name) - (length - 1) // 2 :]}"


def as_html(where: str, n_rows: int, columns: list[ColumnFacts]) -> str:
    """Format columns as a page."""
    heads = ("column", "kind", "missing", "levels", "what becomes of it")
    rows = [(c.name, c.kind, f"{c.missing:,}", f"{c.levels:,}", c.used_as) for c in columns]
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    head = "".join(f"<th>{name}</th>" for name in heads)
    title = html.escape(f"{where}: {n_rows:,} rows")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em }}
table {{ border-collapse: collapse }}
td, th {{ border-bottom: 1px solid #ccc; padding: .3em .8em; text-align: left }}
</style></head><body>
<h1>{title}</h1>
<table><tr>{head}</tr>
{body}
</table></body></html>
"""
