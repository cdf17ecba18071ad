"""The page of figures: every target of the design, what was reached, and what limits the misses.

Reads ``benchmarks/results/*.json`` and writes the second half of ``docs/benchmarks.md`` and its
pictures. They are a part of the repository, so that the page reads the same there as in the built
documentation; run this after every change of the results. A result that is not there is "not
measured"; one that lacks what the page needs is an error that names the file.

    python benchmarks/page.py docs
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
MARKER = "<!-- made by benchmarks/page.py from here on -->"
OURS = ("adaptive", "row norm")
SHOWN = 12  # cases of a figure that are listed one by one

Record = Mapping[str, Any]


class ResultError(Exception):
    """A results file that lacks what the page needs."""


@dataclass(frozen=True)
class Case:
    """One comparison: ``ours`` should be at most ``limit`` times ``peer``."""

    label: str
    ours: float
    peer: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def met(self) -> bool:
        return self.ratio <= self.limit

    @property
    def slack(self) -> float:
        """The ratio over its target: at most 1 where it is met."""
        return self.ratio / self.limit


@dataclass(frozen=True)
class Result:
    """The content of a results file."""

    name: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, name: str, folder: Path = RESULTS) -> Result | None:
        path = folder / f"{name}.json"
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["records"], content["versions"], content["arguments"]
        except (ValueError, KeyError, TypeError) as error:
            raise ResultError(
                f"{path}: not what benchmarks/{name}.py writes ({error!r})"
            ) from error
        return cls(name, content)

    def select(self, **where: Any) -> list[Record]:
        return [r for r in self.content["records"] if all(r.get(k) == v for k, v in where.items())]

    def values(self, field: str, **where: Any) -> list[float]:
        return [float(record[field]) for record in self.select(**where)]

    def mean(self, field: str, **where: Any) -> float:
        return float(np.mean(self.values(field, **where)))

    def distinct(self, field: str, **where: Any) -> list[Any]:
        """The values of a field, in the order in which they come."""
        return list(dict.fromkeys(r[field] for r in self.select(**where) if field in r))

    @property
    def command(self) -> str:
        return f"python benchmarks/{self.name}.py"


@dataclass(frozen=True)
class Figure:
    """A row of the design's table."""

    what: str
    peer: str
    target: str
    sources: tuple[str, ...]  # the first that exists is used
    cases: Callable[[Result], list[Case]]
    limited_by: str  # said where it is missed

    def measured(self, folder: Path = RESULTS) -> tuple[Result, list[Case]] | None:
        """The cases of the first source that has any."""
        for name in self.sources:
            result = Result.read(name, folder)
            if result is None:
                continue
            try:
                cases = self.cases(result)
            except (KeyError, TypeError, ValueError) as error:
                raise ResultError(
                    f"{folder / name}.json lacks what '{self.what}' needs ({error!r}): "
                    f"run {result.command} again"
                ) from error
            if cases:
                return result, cases
        return None


# --- what is compared ----------------------------------------------------------------------------


def epsilons(mode: str | None, peer: str | None, limit: float) -> Callable[[Result], list[Case]]:
    """Our maps against a peer; peer=None is the paper's estimator of the same features."""
    paper = {"adaptive": "i.i.d. leverage", "row norm": "i.i.d. row norm"}

    def cases(result: Result) -> list[Case]:
        return [
            Case(
                f"{data}, {where}, {ours}",
                result.mean("epsilon", data=data, mode=where, method=ours),
                result.mean("epsilon", data=data, mode=where, method=peer or paper[ours]),
                limit,
            )
            for data in result.distinct("data")
            for where in result.distinct("mode", data=data)
            if mode is None or where == mode
            for ours in OURS
        ]

    return cases


EXACT = 1e-10  # below this a kernel error is rounding: whoever gets there has the kernel


def kernel_errors(*peers: str) -> Callable[[Result], list[Case]]:
    """Against the best of some random features, where they were measured."""

    def cases(result: Result) -> list[Case]:
        found = []
        for data in result.distinct("data"):
            for kernel in result.distinct("kernel", data=data):
                for s in result.distinct("s", data=data, kernel=kernel):
                    where = {"data": data, "kernel": kernel, "s": s}
                    there = [p for p in peers if result.select(method=p, **where)]
                    if not there:
                        continue
                    best = min(result.mean("error", method=p, **where) for p in there)
                    for ours in OURS:
                        error = result.mean("error", method=ours, **where)
                        label = f"{data}, {kernel}, s = {s:,}, {ours}"
                        found.append(Case(label, error, max(best, EXACT), 0.5))
        return found

    return cases


def equal_size(result: Result) -> list[Case]:
    """Test RMSE of adaptive features against Fourier and oblivious ones at each s."""
    lower = {"uji": 0.95, "forest": 0.98}
    cases = []
    for data in result.distinct("data"):
        for s in result.distinct("s", data=data):
            for peer in ("Fourier", "oblivious"):
                where = {"data": data, "s": s}
                theirs = result.values("rmse", method=peer, **where)
                if not theirs:
                    continue
                ours = result.values("rmse", method="adaptive", **where)
                spread = math.hypot(*(np.std(v) / math.sqrt(len(v)) for v in (ours, theirs)))
                limit = lower.get(data, 1.0 + 2.0 * spread / float(np.mean(theirs)))
                label = f"{data}, s = {s:,}, against {peer}"
                cases.append(Case(label, float(np.mean(ours)), float(np.mean(theirs)), limit))
    return cases


def _means(result: Result, data: str, method: str) -> list[tuple[int, float, float]]:
    """(s, RMSE, seconds) of a method, the smallest s first."""
    return [
        (
            s,
            result.mean("rmse", data=data, method=method, s=s),
            result.mean("fit_seconds", data=data, method=method, s=s),
        )
        for s in sorted(result.distinct("s", data=data, method=method))
    ]


def _first(means: Iterable[tuple[int, float, float]], error: float) -> tuple[float, float]:
    """(s, seconds) of the smallest s with this error; infinite where it is not reached."""
    return next(((s, t) for s, rmse, t in means if rmse <= error), (math.inf, math.inf))


def sizes_to_fourier(result: Result) -> list[Case]:
    cases = []
    for data in result.distinct("data"):
        fourier = _means(result, data, "Fourier")
        best = min(rmse for _, rmse, _ in fourier)
        ours, _ = _first(_means(result, data, "adaptive"), best)
        limit = 0.2 if data == "uji" else 1.0
        cases.append(Case(data, ours, _first(fourier, best)[0], limit))
    return cases


def times_to_fourier(result: Result) -> list[Case]:
    limits = {"uji": 0.2, "forest": 0.5, "wine": 0.5}
    cases = []
    for data in (d for d in result.distinct("data") if d in limits):
        peer = "RBFSampler" if result.select(data=data, method="RBFSampler") else "Fourier"
        theirs = _means(result, data, peer)
        best = min(rmse for _, rmse, _ in theirs)
        time = min(_first(_means(result, data, m), best)[1] for m in OURS)
        cases.append(Case(data, time, _first(theirs, best)[1], limits[data]))
    return cases


def times_to_nystrom(result: Result) -> list[Case]:
    cases = []
    for data in result.distinct("data"):
        peer = "Nystroem" if result.select(data=data, method="Nystroem") else "Nystrom"
        theirs = [m for m in _means(result, data, peer) if m[0] == 1000]
        if not theirs:
            continue
        _, error, seconds = theirs[0]
        mine = [m for m in (*OURS, "auto", "Nystrom") if m != peer]
        time = min(_first(_means(result, data, method), error)[1] for method in mine)
        cases.append(Case(data, time, seconds, 0.6))
    return cases


def forest_to_fourier(result: Result) -> list[Case]:
    """Seconds of the smallest adaptive map with RBFSampler(2000)'s error, on all of forest."""
    peer = result.select(part="forest", model="RBFSampler 2000")[0]
    ours = [r for r in result.select(part="forest") if r["model"].startswith("adaptive")]
    time = min((r["seconds"] for r in ours if r["rmse"] <= peer["rmse"]), default=math.inf)
    return [Case("forest, 435,759 rows", time, peer["seconds"], 0.5)]


def forest_nystrom(result: Result) -> list[Case]:
    ours, peer = (
        result.select(part="forest", model=model)[0]["seconds"]
        for model in ("fused Nystrom 1000", "Nystroem 1000")
    )
    return [Case("forest, 435,759 rows", ours, peer, 0.6)]


def dense(field: str, limit: float) -> Callable[[Result], list[Case]]:
    def cases(result: Result) -> list[Case]:
        ours, peer = (result.mean(field, method=m) for m in ("row norm", "RBFSampler"))
        return [Case("50,000 x 384, s = 4,000", ours, peer, limit)]

    return cases


def sparse(peer: str, field: str, limit: float) -> Callable[[Result], list[Case]]:
    def cases(result: Result) -> list[Case]:
        ours = result.mean(field, method="RowNormFeatures")
        return [Case("IMDB", ours, result.mean(field, method=peer), limit)]

    return cases


def slopes(field: Callable[[Record], float]) -> Callable[[Result], list[Case]]:
    """The exponent of growth with the nonzeros, by least squares in logarithms."""

    def cases(result: Result) -> list[Case]:
        found = []
        for kind in result.distinct("kind"):
            for method in result.distinct("method", kind=kind):
                records = result.select(kind=kind, method=method)
                sizes = np.log([r["nnz"] for r in records])
                slope = np.polyfit(sizes, np.log([field(r) for r in records]), 1)[0]
                found.append(Case(f"{kind}, {method}", float(slope), 1.0, 1.05))
        return found

    return cases


SWEEP = ("reach", "auto")
FIGURES = (
    Figure(
        "spectral ε, mean squared radius 0.2, s = 10 s_α",
        "Fourier features",
        "≤ 1/10",
        ("spectral_epsilon",),
        epsilons("radius 0.2", "Fourier", 0.1),
        "insurance has 85 columns of equal variance: the constant and the columns themselves are "
        "86 of the 200 features, and the rest cannot hold 3,655 products of two.",
    ),
    Figure(
        "spectral ε, mean squared radius 0.2, s = 10 s_α",
        "Nystrom, uniform landmarks",
        "≤ 1/2",
        ("spectral_epsilon",),
        epsilons("radius 0.2", "Nystroem", 0.5),
        "few features cover data that lie near a surface of few dimensions.",
    ),
    Figure(
        "spectral ε, tuned γ, s = 10 s_α",
        "Fourier features",
        "≤ 1/3",
        ("spectral_epsilon",),
        epsilons("tuned", "Fourier", 1 / 3),
        "a large radius spreads the kernel over many products.",
    ),
    Figure(
        "spectral ε, tuned γ, s = 10 s_α",
        "Nystrom, uniform landmarks",
        "≤ 1.5",
        ("spectral_epsilon",),
        epsilons("tuned", "Nystroem", 1.5),
        "a large radius spreads the kernel over many products, landmarks do not feel it.",
    ),
    Figure(
        "spectral ε everywhere",
        "the paper's independent draws",
        "≤ 1/10",
        ("spectral_epsilon",),
        epsilons(None, None, 0.1),
        "at larger radii the kernel is spread over more products, so independent draws repeat "
        "less and distinct ones have less to gain. The paper's leverage estimator is given exact "
        "probabilities here, which its sketch does not have.",
    ),
    Figure(
        "relative kernel error at equal s",
        "the best of RBFSampler, PolynomialCountSketch, TensorSketch, Maclaurin",
        "≤ 1/2",
        ("kernel_error",),
        kernel_errors("peer", "tensor", "Maclaur."),
        "polynomials of degree 3 and 5 in 54 and 85 columns have up to millions of products, of "
        "which a few hundred cannot hold enough; sketches mix all of them.",
    ),
    Figure(
        "relative kernel error at equal s",
        "our own ObliviousFeatures",
        "≤ 1/2",
        ("kernel_error",),
        kernel_errors("obliv."),
        "these sketches hold the low degrees exactly and mix only the rest, unlike published ones; "
        "ours have the low degrees nearly exactly, too, and what both lack is spread over "
        "many products (a reading of the table: errors were not measured degree by degree).",
    ),
    Figure(
        "test RMSE at equal s",
        "Fourier, oblivious",
        "no higher (+ 2 standard errors); uji ≤ 0.95, forest ≤ 0.98",
        SWEEP,
        equal_size,
        "the difference shrinks as s grows, because all methods approach the exact kernel's error.",
    ),
    Figure(
        "smallest s that reaches Fourier's best RMSE",
        "Fourier",
        "uji ≤ 1/5, elsewhere ≤ 1",
        SWEEP,
        sizes_to_fourier,
        "on insurance all methods with 1,000 and more features are within 0.0004 of each other, a "
        "quarter of the standard error; on uji 800 adaptive ones would have to be as good as "
        "4,000 random ones, and 750 have 8 % more error, 1,500 less.",
    ),
    Figure(
        "total time to reach Fourier's best RMSE",
        "RBFSampler + Ridge",
        "uji ≤ 1/5; forest, wine ≤ 1/2",
        SWEEP,
        times_to_fourier,
        "on forest adaptive features, too, need nearly 2,000, and then most of the time is the "
        "ridge regression, which is the same for both.",
    ),
    Figure(
        "total time to reach RBFSampler(2,000)'s RMSE, all of forest",
        "RBFSampler + Ridge",
        "≤ 1/2",
        ("models",),
        forest_to_fourier,
        "the number of features: adaptive ones, too, need nearly 2,000 for this error, and the "
        "ridge regression on them takes most of the time.",
    ),
    Figure(
        "total time to reach Nystrom(1000)'s RMSE, our best",
        "Nystroem + Ridge",
        "≤ 0.6",
        SWEEP,
        times_to_nystrom,
        "on a few thousand rows Nystroem takes a second, and choosing features 0.1 to 0.4 s of it, "
        "whatever their number.",
    ),
    Figure(
        "total time of Nystrom(1000) ridge, all of forest",
        "Nystroem + Ridge",
        "≤ 0.6",
        ("models",),
        forest_nystrom,
        "the kernel evaluations, which both have to do.",
    ),
    Figure(
        "dense embedding, float32: row norm, `fit_transform`",
        "RBFSampler",
        "≤ 1/3",
        ("dense_speed",),
        dense("fit_transform", 1 / 3),
        "memory: filling a fresh array of 50,000 x 4,000 numbers alone takes about a sixth of "
        "RBFSampler's time, and a first fit draws and weights its features besides.",
    ),
    Figure(
        "dense embedding, float32: row norm, `transform`",
        "RBFSampler",
        "≤ 1/4",
        ("dense_speed",),
        dense("transform", 0.25),
        "memory bandwidth: every feature is one multiplication and one store.",
    ),
    Figure(
        "sparse embedding, IMDB, 20,000 features: time",
        "PolynomialCountSketch(2,000)",
        "≤ 1/40",
        ("sparse_speed",),
        sparse("PolynomialCountSketch", "seconds", 1 / 40),
        "memory bandwidth.",
    ),
    Figure(
        "sparse embedding, IMDB, 20,000 features: time",
        "Nystroem(2,000)",
        "≤ 1/3",
        ("sparse_speed",),
        sparse("Nystroem", "seconds", 1 / 3),
        "memory bandwidth.",
    ),
    Figure(
        "sparse embedding, IMDB: kernel error",
        "PolynomialCountSketch(2,000)",
        "no higher",
        ("sparse_speed",),
        sparse("PolynomialCountSketch", "error", 1.0),
        "products of rare words are many.",
    ),
    Figure(
        "growth of fit time with nnz(X), 10⁷ to 10⁸",
        "a straight line",
        "log-log slope ≤ 1.05",
        ("scaling",),
        slopes(lambda r: r["seconds"]),
        "probably the caches: at 10⁸ nonzeros a smaller share of what is looked up fits in them "
        "than at 10⁷. The number of steps is proportional to the nonzeros.",
    ),
    Figure(
        "growth of X + peak memory",
        "a straight line",
        "log-log slope ≤ 1.05",
        ("scaling",),
        slopes(lambda r: r["X_bytes"] + r["peak_bytes"]),
        "a copy of the rows that grows with them.",
    ),
)

# --- the page ------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Three digits; words for what never came."""
    if math.isinf(value):
        return "not reached"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-3 or value == 0 else f"{value:.1e}"


def worst(cases: Sequence[Case]) -> Case:
    return max(cases, key=lambda case: case.slack)


def table(rows: Iterable[Sequence[str]], header: Sequence[str], right: Sequence[int] = ()) -> str:
    """A Markdown table."""
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def summary(folder: Path = RESULTS) -> str:
    """The one table: a row for each figure, with its worst case."""
    rows = []
    for figure in FIGURES:
        found = figure.measured(folder)
        if found is None:
            command = f"`{figure.sources[0]}.py`"
            rows.append(
                (figure.what, figure.peer, figure.target, "not measured", "", "", "", command)
            )
            continue
        result, cases = found
        bad, met = worst(cases), sum(case.met for case in cases)
        verdict = "met" if met == len(cases) else "**missed**"
        if 1 < len(cases) != met:
            verdict += f" in {len(cases) - met} of {len(cases)}"
        label = f" ({bad.label})" if len(cases) > 1 else ""
        rows.append(
            (
                figure.what,
                figure.peer,
                figure.target,
                number(bad.ours) + label,
                number(bad.peer),
                number(bad.ratio),
                verdict,
                f"`{result.name}.py`",
            )
        )
    command = "command: python benchmarks/"
    header = ("what", "against", "target", "reached, worst case", "peer", "ratio", "", command)
    return table(rows, header, right=(4, 5))


def misses(folder: Path = RESULTS) -> str:
    """What limits each figure that is missed."""
    lines = []
    for figure in FIGURES:
        found = figure.measured(folder)
        if found is None or all(case.met for case in found[1]):
            continue
        missed = [case for case in found[1] if not case.met]
        named = "; ".join(f"{c.label}: {number(c.ratio)}" for c in missed[:6])
        more = f" and {len(missed) - 6} more" if len(missed) > 6 else ""
        lines.append(
            f"- **{figure.what}**, against {figure.peer}, {figure.target}: missed for "
            f"{named}{more}. Limited by: {figure.limited_by}"
        )
    return "\n".join(lines) + "\n" if lines else "None.\n"


def details(folder: Path = RESULTS) -> str:
    """The cases of every figure; of long lists those nearest to their targets."""
    parts = []
    for figure in FIGURES:
        found = figure.measured(folder)
        if found is None:
            continue
        result, cases = found
        shown = sorted(cases, key=lambda case: -case.slack)[:SHOWN] if len(cases) > SHOWN else cases
        rest = (
            f" The {SHOWN} nearest to their targets of {len(cases)}." if len(cases) > SHOWN else ""
        )
        rows = [
            (
                case.label,
                number(case.ours),
                number(case.peer),
                number(case.ratio),
                number(case.limit),
                "met" if case.met else "**missed**",
            )
            for case in shown
        ]
        parts.append(
            f"**{figure.what}, against {figure.peer}.** `{result.command}`.{rest}\n\n"
            + table(rows, ("case", "ours", "peer", "ratio", "at most", ""), right=(1, 2, 3, 4))
        )
    return "\n".join(parts)


def provenance(folder: Path = RESULTS) -> str:
    """Which versions and machine the results come from, one row a file."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        result = Result.read(path.stem, folder)
        assert result is not None
        machine, versions = result.content.get("machine", {}), result.content["versions"]
        arguments = result.content["arguments"]
        load = machine.get("load")
        rows.append(
            (
                f"`{result.command}`",
                f"{machine.get('cores', '?')} cores, {machine.get('threads', '?')} threads",
                "-" if not load else f"{load[0]:.1f}",
                str(arguments.get("seeds", "-")),
                versions.get("kernelsieve", "?"),
                versions.get("scikit-learn", "?"),
                f"{float(result.content.get('seconds', 'nan')):,.0f} s",
            )
        )
    header = ("command", "machine", "load", "seeds", "kernelsieve", "scikit-learn", "took")
    return table(rows, header, right=(2, 3, 6))


def sweep_remark(folder: Path = RESULTS) -> str:
    """What the sweep over s was."""
    result = Result.read("reach", folder)
    if result is not None:
        seeds = ", ".join(
            f"{data} {len(result.distinct('seed', data=data))}" for data in result.distinct("data")
        )
        return (
            "The rows on test RMSE and on the time to reach one use all rows; splits (and seeds of "
            f"the features): {seeds}. s is 125 doubled; of our own also 750, 1,250, 1,500 and "
            "1,750, so a size or time to reach an error is that of the first of these.\n"
        )
    return (
        "The rows on test RMSE and on the time to reach one are not yet measured by "
        "`benchmarks/reach.py` as they should be (all rows, five seeds, scikit-learn's RBFSampler "
        "and Nystroem). They come from `benchmarks/auto.py`: at most 30,000 training rows, three "
        "seeds, no oblivious features, and our own Fourier and Nystrom ridge regressions as peers, "
        "which are quicker than scikit-learn's.\n"
    )


def beside_xgpr(folder: Path = RESULTS) -> str:
    """Errors and times of xGPR on the processor; nothing where it was not run."""
    result = Result.read("xgpr", folder)
    if result is None:
        return ""
    methods = result.distinct("method")
    rows = [
        (
            data,
            f"{s:,}",
            *(
                f"{number(result.mean('rmse', data=data, s=s, method=method))}, "
                f"{number(result.mean('fit_seconds', data=data, s=s, method=method))} s"
                for method in methods
            ),
        )
        for data in result.distinct("data")
        for s in result.distinct("s", data=data)
    ]
    return (
        "## Beside xGPR\n\n"
        "Test RMSE and seconds to fit at equal s, up to 30,000 training rows, the mean of "
        f"{len(result.distinct('seed'))} splits. xGPR is built for graphics cards and runs on the "
        "processor here; its hyperparameters were chosen for it on a tenth of the rows, ours as "
        f"everywhere; neither search is timed. `{result.command}`.\n\n"
        + table(rows, ("data", "s", *methods), right=range(1, 2 + len(methods)))
    )


# --- pictures ------------------------------------------------------------------------------------

COLOURS = {"met": "#0072B2", "missed": "#D55E00"}
LOOKS = {
    "Fourier": ("#0072B2", "o"),
    "Nystrom": ("#E69F00", "s"),
    "oblivious": ("#CC79A7", "D"),
    "row norm": ("#009E73", "^"),
    "adaptive": ("#D55E00", "v"),
    "auto": ("#333333", "P"),
}


def draw_overview(path: Path, folder: Path = RESULTS) -> None:
    """Every case of every figure as its distance from the target."""
    from matplotlib.figure import Figure as Canvas

    rows = [(f, found[1]) for f in FIGURES if (found := f.measured(folder)) is not None]
    canvas = Canvas(figsize=(9.0, 0.42 * len(rows) + 1.2), layout="constrained")
    ax = canvas.subplots()
    for place, (_, cases) in enumerate(rows):
        for case in cases:
            slack = float(np.clip(case.slack, 1e-3, 30))
            colour = COLOURS["met" if case.met else "missed"]
            ax.plot(slack, place, "o", color=colour, ms=6, alpha=0.6, mew=0)
    ax.axvline(1, color="#333333", lw=1.2)
    ax.set(xscale="log", xlabel="ratio / its target: left of the line is met", xlim=(8e-4, 40))
    ax.set_yticks(
        range(len(rows)),
        [f"{f.what}\n{f.peer}, {f.target}".replace("`", "") for f, _ in rows],
        fontsize=7,
    )
    ax.invert_yaxis()
    ax.grid(axis="x", color="#dddddd", lw=0.6)
    ax.set_axisbelow(True)
    canvas.savefig(path, dpi=110)


def draw_sweep(path: Path, folder: Path = RESULTS) -> None:
    """Test RMSE against s and against time."""
    from matplotlib.figure import Figure as Canvas

    result = next(r for name in SWEEP if (r := Result.read(name, folder)) is not None)
    names = [d for d in ("wine", "insurance", "forest", "uji") if d in result.distinct("data")]
    canvas = Canvas(figsize=(10.5, 5.6), layout="constrained")
    grid = canvas.subplots(2, len(names), squeeze=False)
    for column, data in enumerate(names):
        for method, (colour, marker) in LOOKS.items():
            means = _means(result, data, method)
            for row, place in ((0, 0), (1, 2)):
                grid[row, column].plot(
                    [m[place] for m in means],
                    [m[1] for m in means],
                    marker=marker,
                    color=colour,
                    ms=4,
                    label=method if means else None,
                )
        grid[0, column].set(title=data, xscale="log", xlabel="features s")
        grid[1, column].set(xscale="log", xlabel="seconds to fit")
        for ax in grid[:, column]:
            ax.tick_params(labelsize=8)
    grid[0, 0].set_ylabel("test RMSE")
    grid[1, 0].set_ylabel("test RMSE")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    canvas.savefig(path, dpi=110)


def draw_epsilon(path: Path, folder: Path = RESULTS) -> None:
    """Spectral epsilon of every method, data and bandwidth."""
    from matplotlib.figure import Figure as Canvas

    result = Result.read("spectral_epsilon", folder)
    assert result is not None
    methods = {
        "i.i.d. row norm": "#bbbbbb",
        "i.i.d. leverage": "#777777",
        "Fourier": "#0072B2",
        "Nystroem": "#E69F00",
        "row norm": "#009E73",
        "adaptive": "#D55E00",
    }
    places = [(d, m) for d in result.distinct("data") for m in result.distinct("mode", data=d)]
    canvas = Canvas(figsize=(9.0, 3.6), layout="constrained")
    ax = canvas.subplots()
    width = 0.8 / len(methods)
    for i, (method, colour) in enumerate(methods.items()):
        heights = [result.mean("epsilon", data=d, mode=m, method=method) for d, m in places]
        spots = np.arange(len(places)) + (i - len(methods) / 2 + 0.5) * width
        ax.bar(spots, heights, width, color=colour, label=method)
    ax.set_xticks(range(len(places)), [f"{d}\n{m}" for d, m in places])
    ax.set(yscale="log", ylabel="spectral ε at s = 200 (lower is better)")
    ax.legend(
        frameon=False,
        ncols=len(methods),
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.5, 1.12),
    )
    canvas.savefig(path, dpi=110)


def draw_scaling(path: Path, folder: Path = RESULTS) -> None:
    """Fit time and peak memory against nonzeros."""
    from matplotlib.figure import Figure as Canvas

    result = Result.read("scaling", folder)
    assert result is not None
    canvas = Canvas(figsize=(9.0, 3.4), layout="constrained")
    left, right = canvas.subplots(1, 2)
    for kind, dashes in (("sparse", "-"), ("dense", "--")):
        for method in OURS:
            records = result.select(kind=kind, method=method)
            sizes = [r["nnz"] for r in records]
            colour, marker = LOOKS[method]
            style = {"color": colour, "marker": marker, "ls": dashes, "label": f"{kind}, {method}"}
            left.loglog(sizes, [r["seconds"] for r in records], **style)
            right.loglog(sizes, [(r["X_bytes"] + r["peak_bytes"]) / 1e9 for r in records], **style)
    left.set(xlabel="nonzeros of X", ylabel="seconds to fit")
    right.set(xlabel="nonzeros of X", ylabel="X and peak memory in GB")
    left.legend(frameon=False, fontsize=8)
    canvas.savefig(path, dpi=110)


PICTURES: dict[str, tuple[str, Callable[[Path, Path], None], tuple[str, ...]]] = {
    "overview": ("Every case of every figure, as its distance from the target", draw_overview, ()),
    "epsilon": ("Spectral epsilon at equal s", draw_epsilon, ("spectral_epsilon",)),
    "sweep": ("Test RMSE against the number of features and against time", draw_sweep, SWEEP),
    "scaling": ("Growth with the nonzeros", draw_scaling, ("scaling",)),
}


def scoreboard(folder: Path = RESULTS) -> str:
    """Mean ranks and errors on many tables, beside other packages."""
    path = folder / "scoreboard.json"
    return json.loads(path.read_text())["markdown"] if path.exists() else "Not measured.\n"


def drawn(folder: Path = RESULTS) -> list[str]:
    """The pictures for which there are results."""
    return [
        name
        for name, (_, _, needs) in PICTURES.items()
        if not needs or any((folder / f"{need}.json").exists() for need in needs)
    ]


def text(folder: Path = RESULTS) -> str:
    """The half of the page that is made from the results."""
    pictures = [f"![{PICTURES[name][0]}](figures/{name}.png)\n" for name in drawn(folder)]
    parts = [
        "## Scoreboard\n",
        scoreboard(folder),
        "## All figures\n",
        summary(folder),
        sweep_remark(folder),
        pictures[0],
        "## What limits the misses\n",
        misses(folder),
        "## Pictures\n",
        *pictures[1:],
        beside_xgpr(folder),
        "## Case by case\n",
        details(folder),
        "## Where the numbers come from\n",
        provenance(folder),
    ]
    return "\n".join(parts)


def write(docs: Path, folder: Path = RESULTS) -> None:
    """Replace what follows the marker in benchmarks.md, and draw the pictures."""
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    for name in drawn(folder):
        PICTURES[name][1](docs / "figures" / f"{name}.png", folder)
    path = docs / "benchmarks.md"
    head = path.read_text(encoding="utf-8").partition(MARKER)[0]
    path.write_text(f"{head}{MARKER}\n\n{text(folder)}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("docs", type=Path)
    write(parser.parse_args().docs)


if __name__ == "__main__":
    main()
