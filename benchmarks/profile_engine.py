"""Where the time of fit and transform goes, and how far evaluation is from the memory bandwidth.

No target: three tables for each case. fit is profiled with all threads, transform with one, so that
its phases add up. Phases are measured by wrapping functions of the library while they run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from _common import (
    Report,
    memory_bandwidth,
    parser,
    race,
    seconds,
    size_of,
    smooth_rows,
    space_of,
    standardised,
    tfidf,
)

from kernelsieve import AdaptiveFeatures, RowNormFeatures
from kernelsieve.kernels import Gaussian, Polynomial

Phase = str | Callable[..., str]


# Where each phase happens; the outermost phase counts, so what trials draw belongs to them.
FIT: dict[str, Phase] = {
    "features.base:FeatureMap._validated": "validation",
    "features.base:FeatureMap._resolve_kernel": "validation",
    "kernels.base:SeriesKernel.series_of": "Taylor series",
    "products.product_features:Frame.rotated": "rotation",
    "products.product_features:Frame.along_columns": "spread of the columns",
    "products.local_basis:LocalBasis.of_rows": "Mercer basis",
    "engine.space:Space.captured_trace": "trial spaces",
    "engine.space:MonomialSpace.proposal": "proposal tables",
    "engine.space:TableSpace.proposal": "proposal tables",
    "engine.space:MonomialSpace.whole_degrees": "whole degrees",
    "engine.space:draw_distinct": "draws",
    "engine.space:MonomialSpace.features": "prefix trees",
    "engine.space:TableSpace.features": "prefix trees",
    "engine.draws:RowNormProposal.probabilities": "norms",
    "engine.draws:TableProposal.probabilities": "norms",
    "products.product_features:ProductFeatures.squared_norms": "norms",
    "engine.scores:make_anchors": "anchors",
    "engine.scores:score_pool": "scores",
    "engine.scores:keep_probabilities": "thinning",
    "engine.scores:thin_pool": "thinning",
}
TRANSFORM: dict[str, Phase] = {
    "features.base:FeatureMap._validated": "validation",
    "products.product_features:MonomialBasis.dense_atoms": "atoms (frame, powers)",
    "products.local_basis:LocalTables.dense_atoms": "atoms (frame, tables)",
    "products.product_features:MonomialBasis.sparse_roots": "amplitudes",
    "products.product_features:evaluate_rows": "evaluation of the tree",
    "products.product_features:evaluate_csr": "evaluation of the tree",
}


@dataclass
class Profile:
    """Seconds by phase; time inside a phase belongs to the outermost one."""

    phases: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    _inside: bool = False

    def timed(self, function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
        """The same function, with its time written down."""

        @functools.wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            if self._inside:
                return function(*args, **options)
            self._inside = True
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self._inside = False
                name = phase if isinstance(phase, str) else phase(*args, **options)
                self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

        return wrapper

    @contextlib.contextmanager
    def watch(self, places: dict[str, Phase]) -> Iterator[None]:
        """Wrap these functions for a while; names that are gone are listed in ``missing``."""
        with contextlib.ExitStack() as stack:
            for place, phase in places.items():
                module, _, path = place.partition(":")
                *owners, name = path.split(".")
                try:
                    owner = importlib.import_module(f"kernelsieve.{module}")
                    for part in owners:
                        owner = getattr(owner, part)
                    wrapped = self.timed(getattr(owner, name), phase)
                except (AttributeError, ModuleNotFoundError):
                    self.missing.append(place)
                else:
                    stack.enter_context(mock.patch.object(owner, name, wrapped))
            yield


def profiled(call: Callable[[], Any], places: dict[str, Phase]) -> tuple[Profile, float]:
    """Phases and all seconds of one call."""
    profile = Profile()
    with profile.watch(places):
        total = seconds(call)
    profile.phases["everything else"] = total - sum(profile.phases.values())
    return profile, total


def show(report: Report, case: str, step: str, profile: Profile, total: float) -> None:
    by_time = sorted(profile.phases.items(), key=lambda item: -item[1])
    for phase, spent in by_time:
        report.record(case=case, step=step, phase=phase, seconds=spent, share=spent / total)
    rows = [(phase, spent, f"{100 * spent / total:.0f} %") for phase, spent in by_time]
    report.table(f"{case}: {step}, {total:.3g} s", ("phase", "seconds", "share"), rows)
    if profile.missing:
        report.print("not found, so counted as everything else: " + ", ".join(profile.missing))


def throughput(report: Report, case: str, features: Any, X: Any, repetitions: int) -> list[Any]:
    """How fast transform writes, against filling a fresh array and copying a warm one."""
    best = race({"transform": features.transform}, X, repetitions)["transform"]
    size = size_of(features.transform(X))
    memory = memory_bandwidth((size // 4,), np.float32, repetitions)
    speeds = {"transform": size / best, **{name: size / t for name, t in memory.items()}}
    share = memory["fill fresh"] / best
    report.record(case=case, step="throughput", Z_bytes=size, share_of_fill=share, **speeds)
    return [case, size / 1e6, best, *(speed / 1e9 for speed in speeds.values()), share]


def cases(quick: bool, threads: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """(name, unfitted map, X, y), one at a time: they are large."""
    options: dict[str, Any] = {"random_state": 0, "n_jobs": threads}
    s, n_rows = (100, 5_000) if quick else (500, None)
    X, y = standardised("forest")
    X, y = X[:n_rows].astype(np.float32), y[:n_rows]
    for name, cls in (("adaptive", AdaptiveFeatures), ("row norm", RowNormFeatures)):
        features = cls(s, kernel=Gaussian(0.0056), alpha=0.01, **options)
        yield f"forest, {name}", features, X, y
    s, shape = (200, (3_000, 64)) if quick else (4_000, (50_000, 384))
    X = smooth_rows(*shape)
    for basis in ("monomial", "mercer"):
        features = RowNormFeatures(s, basis=basis, **options)
        yield f"{shape[1]} columns, {basis}", features, X, None
    s, X = (500, tfidf(2_000, 4_000)) if quick else (20_000, tfidf())
    kernel = Polynomial(2, gamma=1.0, coef0=1.0)
    yield "imdb, row norm", RowNormFeatures(s, kernel=kernel, **options), X, None


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=3)
    args = arguments.parse_args()
    rows = []
    with Report("profile_engine", args) as report:
        for case, features, X, y in cases(args.quick, report.threads):
            features.fit(X[:600], None if y is None else y[:600]).transform(X[:600])  # compiled
            show(report, case, "fit", *profiled(functools.partial(features.fit, X, y), FIT))
            report.set(case, n=X.shape[0], s=features.n_components_, space=space_of(features))
            rows.append(throughput(report, case, features, X, args.repetitions))
            features.set_params(n_jobs=1)
            transform = profiled(functools.partial(features.transform, X), TRANSFORM)
            show(report, case, "transform, one thread", *transform)
        columns = ("", "Z MB", "seconds", "GB/s", "fill GB/s", "copy GB/s", "of fill")
        report.table("transform against the memory (GB of Z per second)", columns, rows)


if __name__ == "__main__":
    main()
