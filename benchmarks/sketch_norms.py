"""Claim: the error of PolySketch grows like sqrt(q) with the degree, TensorSketch's exponentially.

The root mean square over the seeds of |S x^(x)q|^2 / |x|^(2q) - 1, q = 2..16, both sketches with
512 coordinates out, for vectors x of 1,000 entries: flat (all equal), peaked (1/i) and random
(normal). PolySketch's is fitted by a power of q, whose exponent should be at most 1/2 (2 standard
errors, from ten groups of seeds, are allowed); TensorSketch's, where theory says less than 1/2, by
an exponential, whose factor for each degree should be at least 1.2.

Theory, for what is measured: PolySketch's mean square is at most
(1 + 2/w)^q (1 + 8/w)^(q-1) (1 + 2/m) - 1, about (10 q - 8) / w + 2 / m, with the tree's width
w = 4 m, which is 2.5 q / m (fitted as the measurements are, the bound itself has the power 0.508).
TensorSketch's is about 2 (1 + c)^q / m, with c = 1 - sum x_i^4 / |x|^4.
The plot goes beside the JSON file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _common import Array, Report, parser

from kernelsieve._parallel import map_row_blocks
from kernelsieve.sketches import PolySketch, TensorSketch
from kernelsieve.sketches.base import power_of_two
from kernelsieve.sketches.poly_sketch import WIDENING

POWER = 0.5
FACTOR = 1.2
MEASURABLE = 0.5
SKETCHES = {"PolySketch": PolySketch, "TensorSketch": TensorSketch}
COLOURS = {"flat": "#2a6f97", "peaked": "#c1121f", "random": "#6c757d"}


def unit_vectors(n_features: int) -> dict[str, Array]:
    """Unit vectors whose entries are all equal, fall like 1/i, and are normal."""
    found = {
        "flat": np.ones(n_features),
        "peaked": 1.0 / np.arange(1.0, n_features + 1.0),
        "random": np.random.default_rng(0).standard_normal(n_features),
    }
    return {name: x / np.linalg.norm(x) for name, x in found.items()}


def squared_errors(distribution: Any, X: Array, seeds: int, threads: int) -> Array:
    """(|S x^(x)q|^2 - 1)^2 of unit rows; shape (seeds, rows)."""

    def some(block: slice) -> list[Array]:
        sketches = (
            distribution.sample(s).apply(X, n_jobs=1) for s in range(block.start, block.stop)
        )
        return [np.square(np.square(Z).sum(axis=1) - 1.0) for Z in sketches]

    return np.concatenate(map_row_blocks(some, seeds, 4, threads))


def fit_line(x: Array, squares: Array) -> tuple[float, float]:
    """Slope of log(root mean square) against x, and its standard error.

    squares : (seeds, len(x)). The error is that of ten groups of seeds, each fitted by itself.
    """
    slopes = [
        np.polyfit(x, 0.5 * np.log(group.mean(axis=0)), 1)[0]
        for group in np.array_split(squares, 10)
    ]
    slope = np.polyfit(x, 0.5 * np.log(squares.mean(axis=0)), 1)[0]
    return float(slope), float(np.std(slopes, ddof=1) / np.sqrt(len(slopes)))


def theory(sketch: str, degree: int, size: int, x: Array) -> float:
    """The root of the mean square: a bound for PolySketch, up to 1 / m^2 for TensorSketch."""
    if sketch == "TensorSketch":
        spread = 1.0 - float((x**4).sum())
        return float(np.sqrt(2.0 * ((1.0 + spread) ** degree - 1.0) / size))
    width = power_of_two(WIDENING * size)
    fourth = (1.0 + 2.0 / width) ** degree * (1.0 + 8.0 / width) ** (degree - 1)
    return float(np.sqrt(fourth * (1.0 + 2.0 / size) - 1.0))


def save_plot(report: Report, degrees: list[int]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = figure.add_subplot()
    for sketch, style in (("TensorSketch", "o--"), ("PolySketch", "s-")):
        for vector, colour in COLOURS.items():
            errors = [report.mean("rms", sketch=sketch, vector=vector, q=q) for q in degrees]
            label = f"{sketch}, {vector}"
            ax.loglog(degrees, errors, style, color=colour, ms=4, lw=1.3, label=label)
    first = report.mean("rms", sketch="PolySketch", vector="flat", q=degrees[0])
    root = first * np.sqrt(np.array(degrees) / degrees[0])
    ax.loglog(degrees, root, ":", color="black", lw=1.2, label=r"$\propto\sqrt{q}$")
    marked = [q for q in (2, 3, 4, 6, 8, 12, 16) if q in degrees]
    ax.set_xticks(marked, [str(q) for q in marked])
    ax.minorticks_off()
    ax.set(xlabel="degree q", ylabel=r"rms of $|S x^{\otimes q}|^2 / |x|^{2q} - 1$")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(edgecolor="none", framealpha=0.9)
    path = report.path.with_suffix(".png")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    report.print(f"plot: {path}")


def judge(report: Report, vector: str, degrees: list[int], squares: dict[str, Array]) -> None:
    """The two fits for one vector; ``squares`` of shape (seeds, degrees) for each sketch."""
    q = np.array(degrees, dtype=float)
    power, error = fit_line(np.log(q), squares["PolySketch"])
    # Larger ones have tails so heavy that a few hundred seeds do not measure the mean square.
    expected = [
        report.select(sketch="TensorSketch", vector=vector, q=d)[0]["theory"] for d in degrees
    ]
    below = np.array(expected) < MEASURABLE
    rate, rate_error = fit_line(q[below], squares["TensorSketch"][:, below])
    factor = float(np.exp(rate))
    report.set(
        f"fits, {vector}",
        power=power,
        power_error=error,
        factor=factor,
        factor_error=factor * rate_error,
        factor_up_to=int(q[below][-1]),
    )
    report.check(f"PolySketch, {vector}: power of q - 2 se", power - 2 * error, POWER)
    report.check(f"{FACTOR} / TensorSketch's factor, {vector}", FACTOR / factor, 1.0)


def main() -> None:
    arguments = parser(__doc__, seeds=400)
    arguments.add_argument("--size", type=int, help="coordinates out; default 512")
    args = arguments.parse_args()
    size = args.size or (256 if args.quick else 512)
    degrees = [2, 4, 8] if args.quick else list(range(2, 17))
    seeds = min(args.seeds, 40) if args.quick else args.seeds
    vectors = unit_vectors(50 if args.quick else 1_000)
    X = np.stack(list(vectors.values()))
    with Report("sketch_norms", args) as report:
        report.set("sketches", size=size, seeds=seeds, d=X.shape[1])
        squares: dict[str, list[Array]] = {name: [] for name in SKETCHES}
        for q in degrees:
            for name, sketch in SKETCHES.items():
                distribution = sketch(X.shape[1], size, q)
                squares[name].append(squared_errors(distribution, X, seeds, report.threads))
                rms = np.sqrt(squares[name][-1].mean(axis=0))
                for vector, value in zip(vectors, rms, strict=True):
                    expected = theory(name, q, size, vectors[vector])
                    report.record(sketch=name, vector=vector, q=q, rms=value, theory=expected)
        for name in SKETCHES:
            rows = []
            for q in degrees:
                cells = [report.select(sketch=name, vector=v, q=q)[0] for v in vectors]
                rows.append((str(q), *(c[key] for c in cells for key in ("rms", "theory"))))
            columns = ("q", *(c for vector in vectors for c in (vector, "theory")))
            report.table(f"{name}: rms of |S x^q|^2 / |x|^2q - 1", columns, rows)
        for v, vector in enumerate(vectors):
            stacked = {name: np.stack(s, axis=1)[:, :, v] for name, s in squares.items()}
            judge(report, vector, degrees, stacked)
        save_plot(report, degrees)


if __name__ == "__main__":
    main()
