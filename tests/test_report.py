"""The tables and the report: what is printed is what was measured, and a browser shows the page."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kernelsieve._progress import duration
from kernelsieve.bench import Comparison, plots, report, scoreboard_report, table, words
from kernelsieve.bench.machine import environment
from kernelsieve.bench.methods import METHODS, PAPER_METHODS
from kernelsieve.bench.paper import PAPER_DATASETS, PUBLISHED
from kernelsieve.bench.records import Result, Setup, summarise
from kernelsieve.bench.scoreboard import Scoreboard

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def setup(dataset: str = "wine", **changes: Any) -> Setup:
    values = {
        "dataset": dataset, "conditions": "c", "task": "regression", "metric": "rmse",
        "n_train": 3898, "n_validation": 975, "n_test": 1624, "n_inputs": 11,
        "gamma": 0.09, "alpha": 1.0, "float_type": "float64", "n_threads": 2,
        "statistical_dimension": 123.4, "spectrum_places": [1, 10, 100],
        "spectrum_values": [4000.0, 30.0, 0.2], "seconds": 1.0, "environment": environment(),
    }  # fmt: skip
    return Setup(**{**values, **changes})


def result(method: str, s: int | None, seed: int, error: float | None, **changes: Any) -> Result:
    values = {
        "dataset": "wine", "conditions": "c", "method": method, "n_components": s, "seed": seed,
        "error": error, "validation": error, "scores": {"rmse": error, "accuracy": 0.9},
        "fit_seconds": 0.5, "processor_seconds": 1.0, "predict_seconds": 0.1,
        "peak_bytes": 2_500_000, "epsilon": 0.5,
    }  # fmt: skip
    return Result(**{**values, **changes})


def comparison(
    dataset: str = "wine", methods: tuple[str, ...] = PAPER_METHODS, **changes: Any
) -> Comparison:
    """Errors fall from 0.8 with s and with the method's place; seeds differ by 0.002."""
    runs = [
        result(
            m,
            s if METHODS[m].has_features else None,
            seed,
            0.8 - 0.02 * i - 4e-5 * s + 0.002 * (seed - 1),
            fit_seconds=s / 1000 * (1 + i),
            epsilon=125 / s if METHODS[m].gaussian else None,
            dataset=dataset,
        )
        for i, m in enumerate(methods)
        for s in ((250, 500, 1000) if METHODS[m].has_features else (250,))
        for seed in range(3)
    ]
    failed = result("lightgbm", None, 0, 0.0, failure="not installed: pip install lightgbm")
    return Comparison(setup(dataset, **changes), tuple(summarise(runs, methods)), (failed,))


def rendered(comparisons: list[Comparison], width: int = 80, encoding: str = "utf-8") -> list[str]:
    """The terminal's lines."""
    console = Console(width=width, color_system=None, force_terminal=False)
    options = console.options.update(width=width)
    options.encoding = encoding
    lines = console.render_lines(table.Terminal(comparisons), options, pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


# --- means over seeds and what follows from them --------------------------------------------------


def test_summaries_average_over_seeds() -> None:
    runs = [
        result("b", 200, 0, 3.0),
        result("a", 100, 0, 1.0, fit_seconds=1.0, epsilon=1.0, peak_bytes=10),
        result("a", 100, 1, 2.0, fit_seconds=1.2, epsilon=2.0, peak_bytes=30),
        result("a", 100, 2, 3.0, fit_seconds=9.0, epsilon=6.0, peak_bytes=None),
        result("a", 50, 0, 4.0, epsilon=None),
    ]
    first, second, third = summarise(runs, methods=("a", "b"))
    assert [(r.method, r.n_components) for r in (first, second, third)] == [
        ("a", 50), ("a", 100), ("b", 200),
    ]  # fmt: skip
    assert (second.error, second.spread, second.fit_seconds, second.n_seeds) == (2.0, 1.0, 1.2, 3)
    assert (second.epsilon, second.peak_bytes) == (1.0, 30)  # at the first seed
    assert second.standard_error == pytest.approx(3**-0.5)
    assert (first.spread, first.epsilon) == (0.0, None)


def test_fourier_s_to_reach() -> None:
    found = comparison()
    assert found.fourier_best is not None
    assert found.fourier_best.error == pytest.approx(0.76)
    reached = {m: found.reaching(m, found.fourier_best.error) for m in PAPER_METHODS}
    assert {m: row.n_components for m, row in reached.items() if row} == {
        "fourier": 1000, "nystrom": 500, "oblivious": 250, "row-norm": 250, "adaptive": 250,
    }  # fmt: skip
    assert found.reaching("fourier", 0.5) is None


def test_error_ratio_has_the_error_bar_of_a_quotient() -> None:
    found = comparison()
    row, fourier = found.of("adaptive")[0], found.of("fourier")[0]
    ratio, error = table.error_ratio(row, fourier)
    assert ratio == pytest.approx(0.71 / 0.79)
    relative = 0.002 / 3**0.5 * (0.71**-2 + 0.79**-2) ** 0.5
    assert error == pytest.approx(ratio * relative)


def test_published_numbers_are_those_of_the_papers_table() -> None:
    assert PAPER_DATASETS == ("wine", "insurance", "ct", "forest")
    assert set(PUBLISHED) == {(d, m) for d in PAPER_DATASETS for m in PAPER_METHODS}
    adaptive = [PUBLISHED[d, "adaptive"].n_components for d in PAPER_DATASETS]
    assert adaptive == [400, 400, 2800, 500]


# --- the terminal ---------------------------------------------------------------------------------


def test_terminal_table_has_the_papers_layout_in_80_columns() -> None:
    lines = rendered([comparison(name) for name in ("wine", "insurance", "ct", "forest")])
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["wine", "insurance", "ct", "forest"]  # all four beside each other
    assert lines[1].split()[:2] == ["n=6,497", "d=11"]
    fourier = next(i for i, line in enumerate(lines) if line.startswith("Fourier"))
    assert "0.7600 ± 0.0020" in lines[fourier]
    assert "1.00 s s=1000+" in lines[fourier + 1]  # the error was still falling
    assert "0.736, 2 s" in lines[fourier + 2]
    assert "s=5000" in lines[fourier + 3]


def test_more_datasets_than_fit_go_below() -> None:
    lines = rendered([comparison(f"data{i}") for i in range(6)])
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if "data" in line and "0." not in line and ":" not in line]
    assert [len(head.split()) for head in heads] == [4, 2]


def test_methods_without_a_result_are_named_below_the_table() -> None:
    lines = rendered([comparison()], width=100)
    assert "wine: LightGBM: not installed: pip install lightgbm" in lines


def test_every_label_fits_80_columns_with_two_datasets() -> None:
    lines = rendered([comparison("wine", tuple(METHODS)), comparison("uji", tuple(METHODS))])
    assert max(map(len, lines)) <= 80
    assert all(any(line.startswith(m.label) for line in lines) for m in METHODS.values())


def test_plain_terminals_get_plain_characters() -> None:
    lines = rendered([comparison()], encoding="ascii")
    first = next(i for i, line in enumerate(lines) if line.startswith("RMSE on"))
    assert "\n".join(lines[:first]).isascii()
    assert any("0.7600 +- 0.0020" in line for line in lines)


# --- Markdown -------------------------------------------------------------------------------------


def test_markdown_has_ours_beside_the_papers() -> None:
    lines = table.markdown([comparison("wine"), comparison("uji")]).splitlines()
    assert (
        "| **Fourier** | 0.7600 ± 0.0020, 1.00 s, s=1000+ | 0.7600 ± 0.0020, 1.00 s, s=1000+ |"
        in lines
    )
    assert "| paper | 0.736, 2 s, s=5000 | - |" in lines
    assert any(line.startswith("| **Adaptive** | **0.6800 ± 0.0020**") for line in lines)
    assert "| wine | 250 | 0.975 ± 0.004, 2.00 | 0.949 ± 0.004, 3.00 |" in "\n".join(lines)
    assert "| Fourier | 250 | 0.7900 ± 0.0020 | 0.25 s | 0.10 s | 2.5 MB | 0.5 |" in lines
    # Every table is whole: each row has as many cells as its header.
    for block in re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.MULTILINE):
        assert len({row.count("|") for row in block.splitlines()}) == 1


def test_words() -> None:
    times = (1e-5, 0.0994, 0.1, 9.999, 75.0, 99.6, 700.0)
    assert [duration(t) for t in times] == [
        "< 1 ms", "99 ms", "0.10 s", "10 s", "75 s", "1.7 min", "12 min",
    ]  # fmt: skip
    assert words.decimals(comparison().rows) == 4
    assert words.decimals([]) == 3


# --- pictures -------------------------------------------------------------------------------------


def test_picture_has_two_panels_with_all_methods_named_apart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    methods = ("linear", "boosting", "exact", "fourier", "nystrom", "row-norm", "adaptive")
    pair = [comparison("wine", methods), comparison("forest", methods)]
    figure = plots.draw(pair)
    left, right = figure.axes
    assert "a linear model (= 1)" in figure.texts[0].get_text()
    assert left.get_xlabel() == "number of features s"
    assert right.get_xlabel() == "seconds, all datasets together"
    assert len(right.lines) == len(methods)
    figure.canvas.draw()
    names = [text for text in left.texts if text.get_text()]
    assert {text.get_text() for text in names} == {METHODS[m].label for m in methods}
    boxes = sorted((text.get_window_extent() for text in names), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    ticks = [label.get_window_extent() for label in right.get_yticklabels()]
    assert max(box.x1 for box in boxes) < min(box.x0 for box in ticks)
    plots.save(pair, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_one_dataset_is_drawn_in_its_own_units() -> None:
    (curve, *_) = plots.curves([comparison("wine", ("fourier", "adaptive"))])
    assert curve.errors == pytest.approx([0.79, 0.78, 0.76])
    several = plots.curves([comparison("wine", ("linear", "fourier"))] * 2)
    assert several[0].errors == [1.0]
    assert several[1].seconds == pytest.approx([2 * 0.5, 2 * 1.0, 2 * 2.0])


def test_no_panel_is_empty() -> None:
    pytest.importorskip("matplotlib")
    titles = [title for title, _ in plots.panels(comparison("wine", ("linear", "boosting")))]
    assert titles == ["error against time"]
    assert len(plots.panels(comparison())) == 4


def test_styles_tell_all_methods_apart() -> None:
    styles = plots.styles()
    assert set(styles) == set(METHODS)
    assert len({tuple(sorted(style.items())) for style in styles.values()}) == len(METHODS)


# --- the page -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a page refers to, its identifiers, and whether its tags are balanced."""

    VOID = frozenset({"meta", "link", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "srcset", "action") and value:
                self.references.append(value)
            if name == "id" and value:
                self.ids.append(value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page_text() -> str:
    pytest.importorskip("matplotlib")
    names = ("wine", "insurance", "forest", "uji & <co>")
    return report.html([comparison(name) for name in names], left_out=["s = 4000 on uji."])


def test_page_says_what_was_left_out_and_what_failed(page_text: str) -> None:
    assert "s = 4000 on uji." in page_text
    assert "LightGBM: not installed: pip install lightgbm" in page_text


def scoreboard() -> Scoreboard:
    methods = ["linear", "boosting", "adaptive", "ebm"]
    results = [
        result(
            m, None, 0, None if m == "ebm" else 1.0 + 0.1 * ((i + k) % 4),
            dataset=f"t{k} & <co>", failure="stopped after 180 s" if m == "ebm" else None,
        )
        for i, m in enumerate(methods)
        for k in range(5)
    ]  # fmt: skip
    setups = [setup(f"t{k} & <co>") for k in range(5)]
    return Scoreboard(setups, methods, results)


def test_scoreboard_is_printed_with_its_failures() -> None:
    board = scoreboard()
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(scoreboard_report.terminal(board))
    text = capture.get()
    assert "EBM: stopped after 180 s (on all tables)" in text
    assert text.splitlines()[1].split()[0] in {"Linear", "Boosting", "Adaptive"}
    lines = scoreboard_report.markdown(board).splitlines()
    assert any(line.startswith("| EBM | 4.0 | 1.00 | 0% | - |") for line in lines)
    for block in re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.MULTILINE):
        assert len({row.count("|") for row in block.splitlines()}) == 1


def test_scoreboard_page_needs_nothing_else() -> None:
    pytest.importorskip("matplotlib")
    text = scoreboard_report.html(scoreboard())
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    assert "<co>" not in text
    assert "Methods by their mean rank" in text


def test_bars_join_methods_that_cannot_be_told_apart() -> None:
    assert scoreboard_report.cliques([1.0, 2.0, 3.5, 4.0, 9.0], 2.0) == [(0, 1), (1, 3)]
    assert scoreboard_report.cliques([1.0, 5.0], 2.0) == []


def test_page_needs_nothing_else(page_text: str) -> None:
    page = Page(page_text)
    assert page.open == []
    assert "script" not in page.tags
    assert all(ref.startswith(("#", "data:")) for ref in page.references)
    assert "@import" not in page_text
    assert not re.search(r"url\((?!#)", page_text)
    inside = [ref[1:] for ref in page.references if ref.startswith("#")]
    assert set(inside) <= set(page.ids)


def test_identifiers_are_unique_and_names_are_escaped(page_text: str) -> None:
    page = Page(page_text)
    assert len(page.ids) == len(set(page.ids))
    assert "<co>" not in page_text
    assert "uji &amp; &lt;co&gt;" in page_text


def test_page_without_pictures_says_how_to_get_them() -> None:
    text = report.html([comparison()], pictures=False)
    assert "pip install 'kernelsieve[plot]'" in text
    assert "<figure>" not in text
    Page(text)


PROBE = """<script>
window.addEventListener("error", e => document.title += " ERROR " + e.message);
window.addEventListener("load", () => {
  const charts = [...document.querySelectorAll("figure svg")];
  const seen = charts.filter(c => {
    const b = c.getBoundingClientRect();
    const curves = [...c.querySelectorAll("g[id*=line2d] > path")].filter(
      p => p.getBoundingClientRect().width > 50 && p.getBoundingClientRect().height > 20);
    return b.width > 200 && b.height > 120 && curves.length > 0;
  });
  const sideways = document.documentElement.scrollWidth > window.innerWidth;
  const small = [...document.querySelectorAll("figure text")].filter(
    t => t.getBoundingClientRect().height < 7).length;
  parent.postMessage(JSON.stringify({
    charts: charts.length, seen: seen.length, sideways, small,
    width: window.innerWidth, title: document.title,
  }), "*");
});
</script>"""
# A frame: chromium's own windows are never narrower than 500 pixels.
FRAME = """<!DOCTYPE html><title>frame</title><body><script>
window.addEventListener("message", e => document.body.setAttribute("data-probe", e.data));
</script><iframe src="report.html" style="width:WIDTHpx; height:900px; border:0"></iframe></body>"""


def browse(tmp_path: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
            "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", *options, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_the_page(tmp_path: Path, page_text: str, width: int) -> None:
    """Without network: a quiet console, all pictures visible, no sideways scroll, no tiny text."""
    page = tmp_path / "report.html"
    page.write_text(page_text.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    done = browse(tmp_path, frame, "--window-size=1300,1000", "--dump-dom")
    probe = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert probe, done.stdout[-500:]
    found = json.loads(unescape(probe.group(1)))
    assert found["charts"] == found["seen"] == 16
    assert found["width"] == width
    assert not found["sideways"]
    assert found["small"] == 0
    assert "ERROR" not in found["title"]
    assert "CONSOLE" not in done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_a_browser_prints_the_page(tmp_path: Path, page_text: str) -> None:
    page, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(page_text, encoding="utf-8")
    browse(tmp_path, page, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 5 <= pages <= 12  # one for the tables, one or two for each dataset, one for the rest


# --- what was not measured -----------------------------------------------------------------------


def test_a_dataset_without_results_is_named_and_no_more() -> None:
    empty = Comparison(setup("wine"), (), ())
    assert report._in_short(empty) == "<b>wine</b>"
    assert report._paper_cell(empty, "fourier") == "<td>-</td>"
    assert empty.chosen("fourier") is None


def test_a_method_that_one_dataset_lacks_has_a_dash_there() -> None:
    pair = [comparison("wine"), comparison("uji", ("linear", "fourier"))]
    lines = rendered(pair, width=100)
    adaptive = next(line for line in lines if line.startswith("Adaptive"))
    assert adaptive.split()[-1] == "-"
    assert {curve.method for curve in plots.curves(pair)} == {"fourier"}


def test_errors_that_were_not_reached_are_said_to_be() -> None:
    found = comparison("wine", ("adaptive", "fourier"))  # here Fourier is the better one
    assert table.reaching(found, "adaptive") == "not reached"
    assert table.reaching(found, "fourier").startswith("s=1000, ")
    assert table.reaching(comparison("wine", ("linear",)), "linear") == "not reached"


def test_failures_name_the_sizes_where_they_were() -> None:
    runs = [
        result("fourier", s, seed, None, failure="too slow") for s in (250, 500) for seed in (0, 1)
    ]
    found = Comparison(setup("wine"), (), tuple(runs))
    assert words.failures(found) == ["Fourier: too slow (s=250, s=500)"]


def test_ratios_are_of_equal_sizes() -> None:
    found = comparison("wine", ("fourier", "adaptive"))
    fourier = found.of("fourier")[0]
    assert table._relative(found, fourier, "adaptive").startswith("0.975 ± ")
    other = dataclasses.replace(fourier, n_components=999)
    assert table._relative(found, other, "adaptive") == ""


def test_one_size_is_in_the_middle_of_its_axis() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax = figure.subplots()
    plots._features_axis(ax, [500])
    assert ax.get_xlim() == (250.0, 1000.0)


def test_one_method_differs_from_no_other() -> None:
    board = scoreboard()
    alone = Scoreboard(board.setups, ["linear"], [r for r in board.results if r.method == "linear"])
    assert alone.critical_difference == 0.0
    assert board.critical_difference > 1.0
