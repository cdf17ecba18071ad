"""The scoreboard in the terminal, in Markdown, in HTML, and as a critical-difference picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kernelsieve._progress import duration
from kernelsieve.bench import plots, words
from kernelsieve.bench.methods import METHODS
from kernelsieve.bench.metrics import NAMES
from kernelsieve.bench.report import ALT_CRITICAL, document
from kernelsieve.bench.scoreboard import Line, Scoreboard

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = ("", "mean rank", "norm. error", "wins", "to best trees", "time", "no result")
EXPLANATION = (
    "Mean rank over the tables, 1 is best; methods without a result share the last places. "
    "Norm. error: (error - lowest) / (median - lowest) of each table, cut at 1. Wins: tables "
    "with the lowest error. To best trees: by how much the error exceeds that of the best "
    "tree model, geometric mean over the tables with a result; negative is better. Time: processor "
    "time of all fits together. Errors are RMSE; 1 - AUC for two classes, log loss for more."
)
FAIRNESS = (
    "Every method has its own defaults, and the same training and test rows. Kernel methods choose "
    "gamma and alpha as a part of their fit, and have 1,000 features. Trees get the columns as "
    "they come, with missing values and categories; all others get scaled numbers and 0/1 columns."
)


def cells(line: Line, n_tables: int) -> tuple[str, ...]:
    """A line of the scoreboard as texts."""
    trees = "-" if line.behind_trees is None else f"{100 * line.behind_trees:+.0f} %"
    return (
        words.label(line.method),
        f"{line.rank:.1f}",
        f"{line.normalised:.2f}",
        f"{line.wins:.0%}",
        trees,
        duration(line.seconds),
        f"{line.failures} of {n_tables}" if line.failures else "",
    )


def terminal(board: Scoreboard) -> Group:
    """What is printed."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, name in enumerate(HEADER):
        table.add_column(name, justify="right" if i else "left")
    for line in board.lines():
        table.add_row(*cells(line, len(board.tables)))
    notes = [Text(f"{note}", style="yellow") for note in failures(board)]
    critical = f"Mean ranks closer than {board.critical_difference:.1f} cannot be told apart."
    return Group(table, Text(), *notes, Text(f"{critical} {EXPLANATION}", style="dim"))


def failures(board: Scoreboard) -> list[str]:
    """One line for each method and reason."""
    found: dict[str, list[str]] = {}
    for method in board.methods:
        for table in board.tables:
            reason = board.failure(table, method)
            if reason:
                found.setdefault(f"{words.label(method)}: {reason}", []).append(table)
    return [f"{text} (on {_listed(tables, board)})" for text, tables in found.items()]


def _listed(tables: list[str], board: Scoreboard) -> str:
    return "all tables" if len(tables) == len(board.tables) > 1 else ", ".join(tables)


def error_text(board: Scoreboard, table: str, method: str) -> str:
    """The error with four digits; a dash where there is none."""
    error = board.error(table, method)
    return "-" if error is None else f"{error:.4g}"


def _best(board: Scoreboard, table: str) -> float:
    errors = [board.error(table, method) for method in board.methods]
    return min((error for error in errors if error is not None), default=float("nan"))


def markdown(board: Scoreboard, heading: str = "##") -> str:
    """Ranks, and the error of every method on every table."""
    order = [line.method for line in board.lines()]
    parts = [
        _pipes(HEADER, [cells(line, len(board.tables)) for line in board.lines()]),
        f"{len(board.tables)} tables. Mean ranks closer than {board.critical_difference:.1f} "
        f"cannot be told apart (Nemenyi's test). {EXPLANATION} {FAIRNESS}",
        f"{heading} Errors",
        _pipes(
            ("table", "rows", "columns", "", *map(words.label, order)),
            [
                (
                    s.dataset, f"{s.n_train + s.n_test:,}", f"{s.n_inputs}", NAMES[s.metric],
                    *(_marked(board, s.dataset, m) for m in order),
                )
                for s in board.setups
            ],
        ),
        f"{heading} Processor seconds of a fit",
        _pipes(
            ("table", *map(words.label, order)),
            [
                (t, *(_seconds(board, t, m) for m in order))
                for t in board.tables
            ],
        ),
    ]  # fmt: skip
    notes = failures(board)
    if notes:
        parts += [f"{heading} Without a result", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def _seconds(board: Scoreboard, table: str, method: str) -> str:
    return "-" if board.error(table, method) is None else f"{board.seconds(table, method):.2g}"


def _marked(board: Scoreboard, table: str, method: str) -> str:
    text = error_text(board, table, method)
    return f"**{text}**" if board.error(table, method) == _best(board, table) else text


def _pipes(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def plain(board: Scoreboard) -> dict[str, Any]:
    """For machines."""
    return {
        "critical_difference": board.critical_difference,
        "lines": [asdict(line) for line in board.lines()],
        "results": [asdict(result) for result in board.results],
    }


# --- the page -------------------------------------------------------------------------------------


def html(board: Scoreboard) -> str:
    """One page that needs nothing else."""
    return document("Scoreboard", "\n".join(_body(board)))


def _body(board: Scoreboard) -> Iterator[str]:
    yield "<h1>Scoreboard</h1>"
    yield (
        f'<p class="soft">{words.plural(len(board.tables), "table")}, '
        f"{words.plural(len(board.methods), 'method')}. "
        "Made by <code>kernelsieve bench --suite tables</code>.</p>"
    )
    head = "".join(f'<th class="number">{escape(name)}</th>' for name in HEADER[1:])
    yield f'<div class="scroll"><table id="ranks"><thead><tr><th></th>{head}</tr></thead><tbody>'
    for line in board.lines():
        first, *rest = cells(line, len(board.tables))
        row = "".join(f'<td class="number">{escape(cell)}</td>' for cell in rest)
        yield f'<tr><th scope="row">{escape(first)}</th>{row}</tr>'
    yield "</tbody></table></div>"
    yield f'<p class="small soft">{escape(EXPLANATION)}</p>'
    try:
        picture = critical_difference_svg(board)
    except ModuleNotFoundError:
        picture = ""
    if picture:
        yield "<h2>Critical differences</h2>"
        yield f'<figure class="wide">{picture}</figure>'
        yield (
            '<p class="small soft">Mean ranks; methods joined by a bar cannot be told apart '
            f"(Nemenyi's test at 95 %, critical difference {board.critical_difference:.2f}).</p>"
        )
    yield from _errors(board)
    notes = failures(board)
    if notes:
        yield "<h2>Without a result</h2><ul>"
        yield from (f"<li>{escape(note)}</li>" for note in notes)
        yield "</ul>"
    yield "<h2>Methods</h2><dl>"
    for name in board.methods:
        method = METHODS[name]
        yield f"<dt>{escape(method.label)}</dt><dd>{escape(method.description)}</dd>"
    yield f"</dl><p>{escape(FAIRNESS)}</p>"


def _errors(board: Scoreboard) -> Iterator[str]:
    order = [line.method for line in board.lines()]
    yield "<h2>Error and time on every table</h2>"
    yield '<div class="scroll"><table id="errors"><thead><tr><th></th>'
    yield "".join(f'<th class="number">{escape(words.label(m))}</th>' for m in order)
    yield "</tr></thead><tbody>"
    for setup in board.setups:
        name, best = setup.dataset, _best(board, setup.dataset)
        size = f"n={setup.n_train + setup.n_test:,} d={setup.n_inputs} {NAMES[setup.metric]}"
        yield f'<tr><th scope="row">{escape(name)}<small>{size}</small></th>'
        for method in order:
            error = board.error(name, method)
            style = ' class="number best"' if error == best else ' class="number"'
            time = "" if error is None else duration(board.seconds(name, method))
            yield f"<td{style}><b>{error_text(board, name, method)}</b><small>{time}</small></td>"
        yield "</tr>"
    yield "</tbody></table></div>"


# --- the critical-difference picture --------------------------------------------------------------


def critical_difference_svg(board: Scoreboard) -> str:
    """The picture as an SVG element for the page."""
    with plots.page_style("cd"):
        picture = plots.as_element(draw(board), "cd")
    return picture.replace("<svg", f'<svg role="img" aria-label="{ALT_CRITICAL}"', 1)


def draw(board: Scoreboard) -> Figure:
    """Methods by mean rank from the best on top; bars join those that cannot be told apart.

    Parameters
    ----------
    board : Scoreboard

    Returns
    -------
    Figure
    """
    from matplotlib.figure import Figure

    lines = board.lines()
    n = len(lines)
    figure = Figure(figsize=(7.0, 0.9 + 0.28 * n))
    ax = figure.subplots()
    figure.subplots_adjust(left=0.17, right=0.97, top=0.97, bottom=0.55 / (0.9 + 0.28 * n))
    ranks = [line.rank for line in lines]
    ours = [METHODS[line.method].ours for line in lines]
    for place, (rank, own) in enumerate(zip(ranks, ours, strict=True)):
        colour = "#D55E00" if own else "#0072B2"
        ax.plot([1, rank], [place, place], color=plots.GREY, alpha=0.25, linewidth=1)
        ax.plot(rank, place, "o", color=colour, markersize=7)
        ax.annotate(f"{rank:.1f}", (rank, place), (7, 0), textcoords="offset points",
                    va="center", fontsize=9)  # fmt: skip
    for first, last in cliques(ranks, board.critical_difference):
        x = (ranks[first] + ranks[last]) / 2
        ax.plot([x, x], [first - 0.2, last + 0.2], color=plots.INK, alpha=0.55, linewidth=2.5)
    ax.set_yticks(range(n), [words.label(line.method) for line in lines])
    ax.set_ylim(n - 0.4, -0.6)
    ax.set_xlim(0.7, max(ranks) + 1.2)
    ax.set_xlabel("mean rank (1 is best); orange: this library")
    ax.grid(axis="x", alpha=0.25, color=plots.GREY)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    return figure


def cliques(ranks: list[float], difference: float) -> list[tuple[int, int]]:
    """First and last of every longest run of rising ranks that lie within a difference.

    Examples
    --------
    >>> cliques([1.0, 2.0, 2.5, 5.0], 1.6)
    [(0, 2)]
    """
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(i for i in range(first, len(ranks)) if ranks[i] - ranks[first] <= difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
