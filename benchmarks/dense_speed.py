"""Claim: on dense data the features cost a fraction of RBFSampler's.

50,000 x 384 float32, s = 4,000: RowNormFeatures.fit_transform in at most 1/3 of RBFSampler's time,
transform of both maps in at most 1/4. The data have a decaying spectrum, as images and sensors do.
Filling a fresh array of the size of Z, and copying a warm one, say what the memory allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _common import OURS, Report, memory_bandwidth, parser, race, smooth_rows, space_of
from sklearn.kernel_approximation import RBFSampler

FIT_TRANSFORM = 1 / 3
TRANSFORM = 1 / 4


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=3)
    args = arguments.parse_args()
    n_rows, n_columns, s = (3_000, 64, 300) if args.quick else (50_000, 384, 4_000)
    X = smooth_rows(n_rows, n_columns)
    gamma = 1.0 / n_columns  # the columns have unit variance: "scale"
    with Report("dense_speed", args) as report:
        report.set("Gaussian", gamma=gamma, n=n_rows, d=n_columns, s=s, dtype="float32")
        maps: dict[str, Any] = {
            name: cls(s, gamma=gamma, random_state=0, n_jobs=report.threads)
            for name, cls in OURS.items()
        }
        maps["RBFSampler"] = RBFSampler(gamma=gamma, n_components=s, random_state=0)
        fitting = race({n: m.fit_transform for n, m in maps.items()}, X, args.repetitions)
        # The maps are now fitted to all rows: what is left to warm up is transform itself.
        transform = race({n: m.transform for n, m in maps.items()}, X, args.repetitions)
        bandwidth = memory_bandwidth((n_rows, s), np.float32, args.repetitions)
        for name, features in maps.items():
            report.record(
                method=name,
                fit_transform=fitting[name],
                transform=transform[name],
                space=space_of(features),
            )
        report.record(method="memory", megabytes=n_rows * s * 4 / 1e6, **bandwidth)
        peer_fit, peer = fitting["RBFSampler"], transform["RBFSampler"]
        rows: list[tuple[Any, ...]] = [
            (
                name,
                space_of(maps[name]),
                fitting[name],
                fitting[name] / peer_fit,
                transform[name],
                transform[name] / peer,
            )
            for name in maps
        ]
        rows += [(name, "", "", "", time, time / peer) for name, time in bandwidth.items()]
        columns = ("", "space", "fit_transform", "x RBFS.", "transform", "x RBFS.")
        report.table(f"Best wall time of {args.repetitions}, seconds", columns, rows)
        ratio = fitting["row norm"] / peer_fit
        report.check("fit_transform: row norm / RBFSampler", ratio, FIT_TRANSFORM)
        for name in OURS:
            ratio = transform[name] / peer
            report.check(f"transform: {name} / RBFSampler", ratio, TRANSFORM)


if __name__ == "__main__":
    main()
