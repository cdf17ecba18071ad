"""report.html: one page with tables and pictures that needs nothing else, no network, no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from kernelsieve._progress import duration
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
ALT_CRITICAL = "Methods by their mean rank; bars join those that cannot be told apart"
ALT = "Test error of every method against the number of features, and against training time"
NO_PICTURES = "<p>Pictures need matplotlib: <code>pip install 'kernelsieve[plot]'</code>.</p>"


def html(
    comparisons: Sequence[Comparison],
    *,
    left_out: Sequence[str] = (),
    png: bytes | None = None,
    pictures: bool = True,
) -> str:
    """The page.

    Parameters
    ----------
    comparisons : sequence of Comparison
    left_out : sequence of str
        Sentences on what was not measured.
    png : bytes, optional
        The picture of all datasets together.
    pictures : bool, default True
        Whether to draw the panels of every dataset, which needs matplotlib.

    Returns
    -------
    str
    """
    picture = "" if png is None else b64encode(png).decode()
    names = ", ".join(c.setup.dataset for c in comparisons)
    body = "\n".join(
        [
            *_head(comparisons, left_out, picture),
            *_paper_table(comparisons),
            *_reaching(comparisons),
            *(part for i, c in enumerate(comparisons) for part in _dataset(c, i, pictures)),
            *_methods(comparisons),
            *_measured(comparisons[0].setup.environment),
        ]
    )
    return document(f"kernelsieve bench: {names}", body)


def document(title: str, body: str) -> str:
    """A page with its style inside."""
    style = files("kernelsieve.bench").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # or the browser would ask for favicon.ico
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _head(
    comparisons: Sequence[Comparison], left_out: Sequence[str], picture: str
) -> Iterator[str]:
    yield "<h1>Comparison of methods</h1>"
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
    for line in left_out:
        yield f'<p class="small soft">{escape(line)}</p>'
    if picture:
        yield f'<img class="summary" alt="{ALT}" src="data:image/png;base64,{picture}">'


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
    yield f'<p class="small soft">{escape(words.remarks(comparisons))}</p>'
    if words.has_paper(comparisons):
        yield f'<p class="small soft">Paper: {escape(CITATION)}, Table 1.</p>'


def _paper_cell(comparison: Comparison, method: str) -> str:
    row = comparison.chosen(method)
    if row is None:
        return "<td>-</td>"
    error = escape(words.error(row, words.decimals(comparison.rows)))
    rest = (duration(row.fit_seconds), words.features(comparison, row))
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
        name = f"{words.metric(c.setup)} {error}"
        yield f"<th>{escape(c.setup.dataset)}<small>{name}</small></th>"
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
    cells = "".join(f'<th class="number">{n}</th>' for n in table.detail_columns(comparison))
    yield '<div class="scroll"><table><thead><tr>'
    yield f"<th>method</th>{cells}</tr></thead><tbody>"
    shown = ""
    for first, *numbers in table.details(comparison):
        cells = "".join(f'<td class="number">{escape(cell)}</td>' for cell in numbers)
        label = escape(first) if first != shown else ""
        yield f'<tr><th scope="row">{label}</th>{cells}</tr>'
        shown = first
    yield "</tbody></table></div>"
    for line in words.failures(comparison):
        yield f'<p class="small soft">{escape(line)}</p>'


def _pictures(comparison: Comparison, number: int) -> Iterator[str]:
    look = plots.styles()
    entries = (f"<li>{_swatch(look[m])}{escape(words.label(m))}</li>" for m in comparison.methods)
    yield f'<ul class="legend">{"".join(entries)}</ul>'
    yield '<div class="charts">'
    for i, (title, panel) in enumerate(plots.panels(comparison)):
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
        "<p>A quarter of the rows is for testing; 15 % are validation rows, which choose s. "
        "Numbers are standardised on the training rows and cut at 8 standard deviations. Training "
        "time is that of features and regression together. Spectral epsilon (at the first seed), "
        "the spectrum and the statistical dimension s_alpha are those of at most 600 training "
        "rows, with alpha scaled to their number.</p>"
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
