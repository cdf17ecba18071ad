"""The command that says what a model of a table has learned."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelsieve.cli._common import (
    UserError,
    app,
    check_outputs,
    plan_lines,
    print_json,
    require_files,
)
from kernelsieve.cli.tables import JSON, _errors, _load

if TYPE_CHECKING:
    from kernelsieve.explanation import Explanation, Probe, ShapleyValues
    from kernelsieve.tables.model import TableModel

SHOWN_ROWS, SHOWN_COLUMNS = 20, 5


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File written by fit.")],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained page.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table whose rows are explained one by one."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with the target, for models that cannot be taken apart.",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", metavar="LABEL", help="Explain this class only.")
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="Number of parts to show.")] = 10,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the effects: png, svg, pdf.")
    ] = None,
    json: JSON = False,
) -> None:
    """Explain a model by effects of columns and of pairs of columns.

    A model is taken apart exactly, in the units of the table; no data are
    needed. A page shows values where you point at its plots. Models that are
    not sums of products of columns are explained by permutation importance,
    and need --data for more.

    [bold]Examples[/bold]

    kernelsieve explain rent.ks
    kernelsieve explain rent.ks --html rent.html
    kernelsieve explain rent.ks --html rent.html --rows new.csv
    """
    require_files(*(path for path in (model, rows, data) if path is not None))
    from kernelsieve.explanation import Probe
    from kernelsieve.explanation.words import printable
    from kernelsieve.tables.facts import column_lines, confusion_lines, summary_lines
    from kernelsieve.tables.writers import check_writable

    with _errors():
        if top < 1:
            raise UserError(f"--top {top}: it must be at least 1")
        if picture is not None:
            check_writable(picture, (".png", ".svg", ".pdf"))
        if html is not None:
            check_writable(html, (".html", ".htm"))
        check_outputs([html, picture], [model, rows, data])
        fitted = _load(model, strict=False)
        found, reason = _explanation(fitted, data, label)
        values = None
        if rows is not None:
            if found is None or isinstance(found, Probe):
                raise UserError(f"--rows {rows}: {reason}, so rows cannot be explained one by one")
            values = found.shapley(rows)
        facts = fitted.facts_
        plan = plan_lines(fitted)
        about = [summary_lines(facts), plan, confusion_lines(facts), column_lines(facts, top)]
        lines = [printable(line) for part in about if part for line in [*part, ""]]
        written = _write(found, html, picture, rows, top, lines, reason)
    if json:
        print_json({**facts, **_plain(found, values)})
        return
    said = _why_not(reason) if found is None else found.text(top)
    typer.echo("\n".join([*lines, said]))
    if values is not None:
        typer.echo("\n" + _row_text(values))
    for path in written:
        typer.echo(f"\nWrote:   {path}")


def _why_not(reason: str) -> str:
    said = f"This model cannot be taken apart: {reason}. Pass a table with the target as --data to "
    return "\n".join(wrap(f"{said}see accumulated local effects, or fit with --readable.", 80))


def _explanation(
    model: TableModel, data: Path | None, label: str | None
) -> tuple[Explanation | Probe | None, str]:
    """What can be said, or None and the reason."""
    from kernelsieve.explanation import Probe
    from kernelsieve.explanation import explain as explained
    from kernelsieve.explanation.sums import NotProductsError
    from kernelsieve.tables.facts import label_text
    from kernelsieve.tables.readers import read_table

    output: Any = label
    if label is not None:
        if model.task_ != "classification":
            raise UserError(f"--class {label}: {model.target_!r} is a number, without classes")
        known = {label_text(each): each for each in model.classes_.tolist()}
        if label not in known:
            raise UserError(f"--class {label}: the classes are {', '.join(known)}")
        output = known[label]
    table = None if data is None else read_table(data, readings=model.readings_)
    y = None if table is None else table.columns.get(model.target_)
    try:
        found = explained(model, table, y, output=output)
    except NotProductsError as error:
        return None, str(error).partition(";")[0]
    return found, found.reason if isinstance(found, Probe) else ""


def _write(
    found: Any,
    html: Path | None,
    picture: Path | None,
    rows: Path | None,
    top: int,
    lines: list[str],
    reason: str,
) -> list[Path]:
    """Write what is asked for; the paths that were written."""
    if html is None and picture is None:
        return []
    if not hasattr(found, "to_html"):
        raise UserError(f"there are no effects to draw: {reason}")
    from kernelsieve._files import replacing
    from kernelsieve.explanation.page import page

    try:
        if html is not None:
            text = page(found, rows, top, "\n".join(lines))
            with replacing(html) as file:
                file.write(text.encode())
        if picture is not None:
            figure = found.plot(min(top, 9))
            with replacing(picture) as file:
                figure.savefig(file, format=picture.suffix[1:].lower())
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise UserError("plots need matplotlib: pip install 'kernelsieve[plot]'") from error
    return [path for path in (html, picture) if path is not None]


def _plain(found: Any, values: ShapleyValues | None) -> dict[str, Any]:
    """An explanation as plain data."""
    content: dict[str, Any] = {}
    if hasattr(found, "parts"):
        content["parts"] = [
            {
                "columns": part.columns,
                "share": part.share,
                "standard error": part.error,
                "deviation": part.deviation,
            }
            for part in found.parts
        ]
        content["importance"] = found.importance
        content["importance errors"] = found.importance_errors
    elif found is not None:
        content["importance"] = found.importance
    if values is not None:
        content["shapley"] = {
            "columns": values.names,
            "base": values.base if isinstance(values.base, float) else values.base.tolist(),
            "values": values.values.tolist(),
        }
    return content


def _row_text(values: ShapleyValues) -> str:
    """The largest Shapley values of the first rows, a line or two for each."""
    from kernelsieve.explanation.words import number, percent, printable, value_text

    lines = ["Rows: the prediction, and the largest steps to it from the mean"]
    for row in range(len(values.values)):
        if row == SHOWN_ROWS:
            lines.append(f"  ... and {len(values.values) - SHOWN_ROWS} more")
            break
        one, said = values, ""
        if values.probabilities is not None and values.classes is not None:
            chances = values.probabilities[row]
            if values.values.ndim == 3:
                one = values.of_class(int(chances.argmax()))
            assert one.classes is not None
            place = one.classes.explained_place
            said = f"{one.classes.names[place]} {percent(chances[place])}, log-odds "
        phi = one.values[row]
        order = sorted(range(len(phi)), key=lambda i: -abs(phi[i]))[:SHOWN_COLUMNS]
        steps = [
            f"{one.names[i]}={value_text(one.data[row, i])} {number(phi[i], 3, '+')}" for i in order
        ]
        text = f"{row + 1:>3}: {said}{number(one.base + phi.sum())}: {', '.join(steps)}"
        lines += [printable(line) for line in wrap(text, 80, subsequent_indent=" " * 5)]
    return "\n".join(lines)
