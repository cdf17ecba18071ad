"""The table in the paper's layout: methods down, datasets across, published numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kernelsieve._progress import duration
from kernelsieve.bench import words
from kernelsieve.bench.paper import CITATION, PUBLISHED
from kernelsieve.bench.records import Comparison, Summary

GAP = 2


class Terminal:
    """The tables of a comparison, with as many datasets beside each other as the width allows."""

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self.comparisons = list(comparisons)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plus_minus = "+-" if options.ascii_only else "±"
        for group in grouped(self.comparisons, options.max_width, plus_minus):
            yield terminal_table(group, plus_minus)
            yield Text()
        reach = [c for c in self.comparisons if c.fourier_best and len(c.methods) > 1]
        for group in grouped(reach, options.max_width, plus_minus):
            yield Text("Features and time to reach Fourier's lowest error", style="bold")
            yield reaching_table(group)
            yield Text()
        for comparison in self.comparisons:
            for line in words.failures(comparison):
                yield Text(f"{comparison.setup.dataset}: {line}", style="yellow")
        yield Padding(Text(words.remarks(self.comparisons), style="dim"), (0, 0, 1, 0))


def grouped(
    comparisons: Sequence[Comparison], width: int, plus_minus: str = "±"
) -> Iterator[list[Comparison]]:
    """Datasets that fit beside each other."""
    rest = list(comparisons)
    while rest:
        group = [rest.pop(0)]
        while rest and _width([*group, rest[0]], plus_minus) <= width:
            group.append(rest.pop(0))
        yield group


def _width(group: Sequence[Comparison], plus_minus: str) -> int:
    first = max(len(words.label(m)) for m in methods_of(group))
    return first + sum(GAP + max(map(len, _column(c, group, plus_minus))) for c in group)


def _column(comparison: Comparison, group: Sequence[Comparison], plus_minus: str) -> Iterator[str]:
    yield comparison.setup.dataset
    yield words.sizes(comparison.setup)
    for method in methods_of(group):
        for ours, published in _lines(comparison, method, plus_minus):
            yield ours
            yield published


def methods_of(group: Sequence[Comparison]) -> list[str]:
    """All methods of some comparisons, in the order of the first; last those that failed."""
    failed = (result.method for c in group for result in c.failures)
    return list(dict.fromkeys([*(method for c in group for method in c.methods), *failed]))


def _lines(
    comparison: Comparison, method: str, plus_minus: str
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Two lines of ours and two of the paper: error and time, and s."""
    row = comparison.chosen(method)
    published = PUBLISHED.get((comparison.setup.dataset, method))
    ours = _missing(comparison, method), ""
    if row is not None:
        digits = words.decimals(comparison.rows)
        rest = (duration(row.fit_seconds), words.features(comparison, row))
        ours = words.error(row, digits, plus_minus), " ".join(filter(None, rest))
    theirs = ("", "")
    if published is not None:
        theirs = f"{published.error}, {published.time}", f"s={published.n_components}"
    return (ours[0], theirs[0]), (ours[1], theirs[1])


def _missing(comparison: Comparison, method: str) -> str:
    """What stands where a method has no error; the reason in full is said below the table."""
    reasons = [result.failure or "" for result in comparison.failures if result.method == method]
    if any(reason.startswith("not installed") for reason in reasons):
        return "not installed"
    return "failed" if reasons else "-"


def terminal_table(group: Sequence[Comparison], plus_minus: str = "±") -> Table:
    """Methods down, datasets across; the lowest error of a dataset is green."""
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for comparison in group:
        table.add_column(comparison.setup.dataset, no_wrap=True)
    table.add_row("", *(words.sizes(c.setup) for c in group), style="dim")
    for method in methods_of(group):
        lines = [_lines(c, method, plus_minus) for c in group]
        styles = ["bold green" if _is_best(c, method) else "" for c in group]
        for i in (0, 1):
            cells = (Text(cell[i][0], s) for cell, s in zip(lines, styles, strict=True))
            table.add_row(Text(words.label(method) if i == 0 else "", "bold"), *cells)
        if any(cell[0][1] for cell in lines):
            for i in (0, 1):
                table.add_row(
                    "  paper" if i == 0 else "", *(cell[i][1] for cell in lines), style="dim"
                )
    return table


def _is_best(comparison: Comparison, method: str) -> bool:
    return comparison.best is not None and comparison.best.method == method


def reaching_table(group: Sequence[Comparison]) -> Table:
    """The smallest s of each method at which it is as good as Fourier ever gets."""
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for comparison in group:
        assert comparison.fourier_best is not None
        table.add_column(
            f"{comparison.setup.dataset} {_short(comparison, comparison.fourier_best)}",
            no_wrap=True,
        )
    for method in methods_of(group):
        if any(row.n_components for c in group for row in c.of(method)):
            table.add_row(Text(words.label(method), "bold"), *(reaching(c, method) for c in group))
    return table


def _short(comparison: Comparison, row: Summary) -> str:
    return f"{row.error:.{words.decimals(comparison.rows)}f}"


def reaching(comparison: Comparison, method: str) -> str:
    """s=500, 1.2 s; or that it was not reached."""
    best = comparison.fourier_best
    row = comparison.reaching(method, best.error) if best is not None else None
    if row is None or row.n_components is None:
        return "not reached"
    return f"s={row.n_components}, {duration(row.fit_seconds)}"


# --- Markdown -----------------------------------------------------------------------------------


def markdown(comparisons: Sequence[Comparison]) -> str:
    """table.md: the paper's table, what it takes to reach Fourier, equal s, and every number."""
    parts = [
        "# Comparison of methods",
        _paper_layout(comparisons),
        f"{words.remarks(comparisons)} {words.FAIRNESS}",
    ]
    if words.has_paper(comparisons):
        parts.append(f"Paper: {CITATION}.")
    reach = [c for c in comparisons if c.fourier_best is not None and len(c.methods) > 1]
    if reach:
        parts += ["## Features and time to reach Fourier's lowest error", _reach_layout(reach)]
        parts += ["## At equal s: error and time relative to Fourier", _equal_layout(reach)]
    for comparison in comparisons:
        parts += [f"## {comparison.setup.dataset}: every number", _details(comparison)]
    return "\n\n".join(parts) + "\n"


def _pipes(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    marks = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, marks, *rows))


def _paper_layout(comparisons: Sequence[Comparison]) -> str:
    has_paper = words.has_paper(comparisons)
    header = ["", *(f"{c.setup.dataset} ({words.sizes(c.setup)})" for c in comparisons)]
    rows = []
    for method in methods_of(comparisons):
        lines = [_lines(c, method, "±") for c in comparisons]
        cells = []
        for comparison, ((error, _), (rest, _)) in zip(comparisons, lines, strict=True):
            shown = f"**{error}**" if _is_best(comparison, method) else error
            cells.append(", ".join(filter(None, (shown, rest.replace(" s=", ", s=")))))
        rows.append([f"**{words.label(method)}**", *cells])
        if has_paper:
            theirs = [", ".join(filter(None, (a, b))) for (_, a), (_, b) in lines]
            rows.append(["paper", *(text or "-" for text in theirs)])
    return _pipes(header, rows)


def _reach_layout(comparisons: Sequence[Comparison]) -> str:
    header = [""]
    for c in comparisons:
        assert c.fourier_best is not None
        header.append(f"{c.setup.dataset}: {_short(c, c.fourier_best)}")
    rows = [
        [words.label(method), *(reaching(c, method) for c in comparisons)]
        for method in methods_of(comparisons)
        if any(row.n_components for c in comparisons for row in c.of(method))
    ]
    return _pipes(header, rows)


def _equal_layout(comparisons: Sequence[Comparison]) -> str:
    others = [m for m in methods_of(comparisons) if m != "fourier"]
    others = [m for m in others if any(r.n_components for c in comparisons for r in c.of(m))]
    rows = []
    for comparison in comparisons:
        for fourier in comparison.of("fourier"):
            cells = [_relative(comparison, fourier, method) for method in others]
            if any(cells):
                rows.append([comparison.setup.dataset, str(fourier.n_components), *cells])
    table = _pipes(["dataset", "s", *map(words.label, others)], rows)
    return (
        f"{table}\n\nRatio of the mean errors ± twice its standard error, then the ratio of the "
        "times; below 1 is better than Fourier."
    )


def _relative(comparison: Comparison, fourier: Summary, method: str) -> str:
    rows = [r for r in comparison.of(method) if r.n_components == fourier.n_components]
    if not rows:
        return ""
    ratio, error = error_ratio(rows[0], fourier)
    seconds = rows[0].fit_seconds / fourier.fit_seconds
    return f"{ratio:.3f} ± {2 * error:.3f}, {seconds:.2f}"


def error_ratio(row: Summary, fourier: Summary) -> tuple[float, float]:
    """The ratio of two mean errors and its standard error."""
    ratio = row.error / fourier.error
    relative = (row.standard_error / row.error) ** 2 if row.error > 0 else 0.0
    relative += (fourier.standard_error / fourier.error) ** 2
    return ratio, ratio * relative**0.5


def _details(comparison: Comparison) -> str:
    header = ["method", *detail_columns(comparison)]
    table = _pipes(header, [list(cells) for cells in details(comparison)])
    lines = [f"- {line}" for line in words.failures(comparison)]
    if lines:
        table += "\n\nWithout a result:\n\n" + "\n".join(lines)
    return (
        f"{words.conditions(comparison)[0].upper()}{words.conditions(comparison)[1:]}.\n\n{table}"
    )


def detail_columns(comparison: Comparison) -> list[str]:
    """What :func:`details` has after the method."""
    extra = ["accuracy"] if comparison.setup.task == "classification" else []
    errors = [words.metric(comparison.setup), *extra]
    return ["s", *errors, "training", "prediction", "peak memory", "epsilon"]


def details(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Every row of a comparison as texts."""
    digits = words.decimals(comparison.rows)
    classes = comparison.setup.task == "classification"
    for row in comparison.rows:
        yield (
            words.label(row.method),
            "-" if row.n_components is None else str(row.n_components),
            words.error(row, digits),
            *([f"{row.scores['accuracy']:.4f}"] if classes else []),
            duration(row.fit_seconds),
            duration(row.predict_seconds),
            words.size(row.peak_bytes),
            words.number(row.epsilon),
        )
