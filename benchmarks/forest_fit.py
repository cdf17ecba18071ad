"""Claim: choosing the features costs less than the ridge regression on them.

AdaptiveFeatures(500).fit on the full forest (581,012 x 54, float32) takes less time than one ridge
solve on its features, by scikit-learn's Ridge(solver="cholesky") or by KernelRidge's own normal
equations; its transform takes as long as RowNormFeatures' (within 10 %).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from _common import OURS, Array, Report, parser, race, seconds, space_of, standardised
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from kernelsieve import KernelRidge
from kernelsieve.features import FeatureMap

GAMMA, ALPHA = 0.0056, 0.01
SAME = 1.1


class Given(FeatureMap):
    """The rows are the features already: leaves of a KernelRidge only its ridge."""

    n_components, kernel, gamma, random_state, n_jobs = 1, "gaussian", 1.0, 0, None

    def __init__(self) -> None:
        pass

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        self.n_components_ = X.shape[1]

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        out[...] = X


def fit(estimator: Any, y: Array, X: Any) -> Any:
    """The fit to these rows, which are the first of all."""
    return estimator.fit(X, y[: len(X)])


def ridge_times(Z: Array, y: Array, threads: int, repetitions: int) -> dict[str, float]:
    """Seconds of one ridge solve on the features."""
    solvers = {
        "ridge, scikit-learn": Ridge(alpha=ALPHA, solver="cholesky"),
        "ridge, KernelRidge": KernelRidge(Given(), alpha=ALPHA, n_jobs=threads),
    }
    return race({name: partial(fit, model, y) for name, model in solvers.items()}, Z, repetitions)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=3)
    args = arguments.parse_args()
    n_rows, s = (5_000, 100) if args.quick else (None, 500)
    X, y = standardised("forest")
    X, y = X[:n_rows].astype(np.float32), y[:n_rows]
    with Report("forest_fit", args) as report:
        report.set("Gaussian", gamma=GAMMA, alpha=ALPHA, n=len(X), d=X.shape[1], s=s)
        maps = {
            name: cls(s, gamma=GAMMA, alpha=ALPHA, random_state=0, n_jobs=report.threads)
            for name, cls in OURS.items()
        }
        fits = race({name: partial(fit, m, y) for name, m in maps.items()}, X, args.repetitions)
        transforms = race({name: m.transform for name, m in maps.items()}, X, args.repetitions)
        ridges = ridge_times(maps["adaptive"].transform(X), y, report.threads, args.repetitions)
        whole = KernelRidge(maps["adaptive"], alpha=ALPHA, n_jobs=report.threads)
        together = seconds(lambda: whole.fit(X, y))
        rows = [
            *((f"{name}: fit", space_of(maps[name]), t) for name, t in fits.items()),
            *((f"{name}: transform", space_of(maps[name]), t) for name, t in transforms.items()),
            *((name, "", t) for name, t in ridges.items()),
            ("KernelRidge(adaptive).fit, all of it", space_of(maps["adaptive"]), together),
        ]
        for what, space, time in rows:
            report.record(what=what, space=space, seconds=time)
        report.table(f"Best wall time of {args.repetitions}", ("", "space", "seconds"), rows)
        for name, time in ridges.items():
            report.check(f"adaptive fit / {name}", fits["adaptive"] / time, 1.0)
        ratio = transforms["adaptive"] / transforms["row norm"]
        report.check("transform: adaptive / row norm", ratio, SAME)


if __name__ == "__main__":
    main()
