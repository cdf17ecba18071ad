"""report.html: one page with tables and pictures that needs nothing else, no network, no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from kernelsieve.bench import plots, table, words
from kernelsieve.bench.methods import METHODS
from kernelsieve.bench.paper import CITATION, PUBLISHED
from kernelsieve.bench.records import Comparison

CAPTIONS = {
    "error against s": "Test error against features",
    "error against time": "Test error against training time",
    "epsilon against s": "Spectral epsilon against features",
    "spectrum": "Eigenvalues of the kernel matrix",
}
NO_PICTURES = "<p>Pictures need matplotlib: <code>pip install 'kernelsieve[plot]'</code>.</p>"


def html(comparisons: Sequence[Comparison], *, pictures: bool = True) -> str:
    """The page."""
    style = files("kernelsieve.bench").joinpath("report.css").read_text(encoding="utf-8")
    names = ", ".join(c.setup.dataset for c in comparisons)
    body = "\n".join(
        [
            *_head(comparisons),
            *_paper_table(comparisons),
            *_reaching(comparisons),
            *(part for i, c in enumerate(comparisons) for part in _dataset(c, i, pictures)),
            *_methods(comparisons),
            *_measured(comparisons[0].setup.environment),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # or the browser would ask for favicon.ico
        f"<title>kernelsieve bench: {escape(names)}</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _head(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield "<h1>Kernel ridge regression with approximate kernels</h1>"
    yield '<p class="soft">Made by <code>kernelsieve bench</code>.</p>'
    links = (
        f'<a href="#dataset-{i}">{escape(c.setup.dataset)}</a>' for i, c in enumerate(comparisons)
    )
    more = '<a href="#methods">Methods</a> <a href="#measured">How it was measured</a>'
    yield f"<nav>{' '.join(links)} {more}</nav>"
    yield "<ul>"
    for comparison in comparisons:
        yield f"<li>{_in_short(comparison)}</li>"
    yield "</ul>"


def _in_short(comparison: Comparison) -> str:
    """One sentence on who was best, one on what Fourier's error takes."""
    name, best = f"<b>{escape(comparison.setup.dataset)}</b>", comparison.best
    if best is None:
        return name
    digits = words.decimals(comparison.rows)
    size = f" with {best.n_components:,} features" if best.n_components else ""
    text = (
        f"{name}: {escape(words.label(best.method))} has the lowest error, "
        f"{best.error:.{digits}f}{size}."
    )
    fourier = comparison.fourier_best
    adaptive = comparison.reaching("adaptive", fourier.error) if fourier is not None else None
    if fourier is not None and adaptive is not None:
        text += (
            f" Fourier's lowest, {fourier.error:.{digits}f} with {fourier.n_components:,} features,"
            f" takes {adaptive.n_components:,} Adaptive features."
        )
    return text


def _paper_table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield "<h2>Results</h2>"
    yield '<div class="scroll"><table id="results"><thead><tr><th></th>'
    for c in comparisons:
        sizes = escape(words.sizes(c.setup))
        yield f"<th>{escape(c.setup.dataset)}<small>{sizes}</small></th>"
    yield "</tr></thead><tbody>"
    for method in table.methods_of(comparisons):
        yield f'<tr><th scope="row">{escape(words.label(method))}</th>'
        yield from (_paper_cell(c, method) for c in comparisons)
        yield "</tr>"
    yield "</tbody></table></div>"
    yield f'<p class="small soft">{escape(words.REMARKS)}</p>'
    if any((c.setup.dataset, m) in PUBLISHED for c in comparisons for m in c.methods):
        yield f'<p class="small soft">Paper: {escape(CITATION)}, Table 1.</p>'


def _paper_cell(comparison: Comparison, method: str) -> str:
    row = comparison.chosen(method)
    if row is None:
        return "<td>-</td>"
    error = escape(words.error(row, words.decimals(comparison.rows)))
    rest = (words.duration(row.fit_seconds), words.features(comparison, row))
    ours = f"<b>{error}</b><br>{escape(', '.join(filter(None, rest)))}"
    published = PUBLISHED.get((comparison.setup.dataset, method))
    theirs = (
        f"<small>paper: {published.error}, {published.time}, s={published.n_components}</small>"
        if published is not None
        else ""
    )
    best = comparison.best is not None and comparison.best.method == method
    return f"<td{' class=best' if best else ''}>{ours}{theirs}</td>"


def _reaching(comparisons: Sequence[Comparison]) -> Iterator[str]:
    reach = [c for c in comparisons if c.fourier_best is not None and len(c.methods) > 1]
    if not reach:
        return
    yield "<h2>Features and time to reach Fourier's lowest error</h2>"
    yield '<div class="scroll"><table id="reaching"><thead><tr><th></th>'
    for c in reach:
        assert c.fourier_best is not None
        error = f"{c.fourier_best.error:.{words.decimals(c.rows)}f}"
        yield f"<th>{escape(c.setup.dataset)}<small>RMSE {error}</small></th>"
    yield "</tr></thead><tbody>"
    for method in table.methods_of(reach):
        if METHODS[method].has_features:
            cells = "".join(f"<td>{escape(table.reaching(c, method))}</td>" for c in reach)
            yield f'<tr><th scope="row">{escape(words.label(method))}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _dataset(comparison: Comparison, number: int, pictures: bool) -> Iterator[str]:
    name = escape(comparison.setup.dataset)
    yield f'<h2 class="dataset" id="dataset-{number}">{name}</h2>'
    yield f'<p class="facts">{_upper(words.conditions(comparison))}.</p>'
    if pictures:
        yield from _pictures(comparison, number)
    else:
        yield NO_PICTURES
    yield "<h3>Every number</h3>"
    header = (
        '<th>method</th><th class="number">s</th><th class="number">RMSE</th>'
        '<th class="number">training</th><th class="number">peak memory</th>'
        '<th class="number">epsilon</th>'
    )
    yield f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>'
    shown = ""
    for first, *numbers in table.details(comparison):
        cells = "".join(f'<td class="number">{escape(cell)}</td>' for cell in numbers)
        label = escape(first) if first != shown else ""
        yield f'<tr><th scope="row">{label}</th>{cells}</tr>'
        shown = first
    yield "</tbody></table></div>"


def _pictures(comparison: Comparison, number: int) -> Iterator[str]:
    look = plots.styles()
    entries = (f"<li>{_swatch(look[m])}{escape(words.label(m))}</li>" for m in comparison.methods)
    yield f'<ul class="legend">{"".join(entries)}</ul>'
    yield '<div class="charts">'
    for i, (title, panel) in enumerate(plots.PANELS):
        picture = plots.svg(panel, comparison, f"p{number}-{i}")
        name = escape(f"{comparison.setup.dataset}: {title}")
        picture = picture.replace("<svg", f'<svg role="img" aria-label="{name}"', 1)
        yield f"<figure><figcaption>{CAPTIONS[title]}</figcaption>{picture}</figure>"
    yield "</div>"


def _swatch(style: dict[str, Any]) -> str:
    """A short line in the method's colour, dashed as in the pictures."""
    dashes = {"--": "6 3", ":": "2 2", "-.": "6 2 2 2"}.get(style["linestyle"], "none")
    colour = style["color"]
    return (
        '<svg viewBox="0 0 36 14" aria-hidden="true">'
        f'<line x1="1" y1="7" x2="35" y2="7" stroke="{colour}" stroke-width="2.5" '
        f'stroke-dasharray="{dashes}"/>{_mark(style["marker"], colour)}</svg>'
    )


def _mark(marker: str, colour: str) -> str:
    """The marker of a method; those without a simple shape are drawn as a dot."""
    shapes = {"s": "13,2 23,2 23,12 13,12", "D": "18,1 24,7 18,13 12,7", "^": "18,1 24,12 12,12",
              "v": "18,13 24,2 12,2"}  # fmt: skip
    if marker in shapes:
        return f'<polygon points="{shapes[marker]}" fill="{colour}"/>'
    return f'<circle cx="18" cy="7" r="5" fill="{colour}"/>'


def _methods(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield '<h2 id="methods">Methods</h2><dl>'
    for name in table.methods_of(comparisons):
        method = METHODS[name]
        yield f"<dt>{escape(method.label)}</dt><dd>{escape(_upper(method.description))}.</dd>"
    yield "</dl>"


def _measured(facts: dict[str, Any]) -> Iterator[str]:
    yield '<h2 id="measured">How it was measured</h2>'
    yield f"<p>{escape(words.FAIRNESS)}</p>"
    yield (
        "<p>Inputs are standardised on the training rows and cut at 8 standard deviations; a "
        "quarter of the rows is for testing. Training time is that of features and regression "
        "together. Spectral epsilon is that of at most 600 training rows, the spectrum and the "
        "statistical dimension s_alpha are those of at most 2,000, with alpha scaled to their "
        "number.</p>"
    )
    versions = ", ".join(
        f"{name} {facts[name]}"
        for name in ("kernelsieve", "python", "numpy", "scipy", "scikit-learn", "numba")
    )
    yield "<dl>"
    yield f"<dt>Versions</dt><dd>{escape(versions)}</dd>"
    yield (
        f"<dt>Machine</dt><dd>{escape(facts['processor'])}, "
        f"{words.plural(facts['cores'], 'core')}, {escape(facts['system'])}</dd>"
    )
    yield "</dl>"


def _upper(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]
