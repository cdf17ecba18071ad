"""What the benchmark scripts share: arguments, data, tuning, clocks, memory, tables, records."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq
from scipy.spatial.distance import pdist
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
    TensorSketchFeatures,
    datasets,
)
from kernelsieve._parallel import thread_count
from kernelsieve.bench.problem import SEARCH, scaler_for
from kernelsieve.kernels import Gaussian
from kernelsieve.learning import choose_gamma_alpha

Array = NDArray[Any]

OURS = {"adaptive": AdaptiveFeatures, "row norm": RowNormFeatures}
# The other maps, for tables beside the claims: a short name, the class, its options.
OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "orth.": (FourierFeatures, {"frequencies": "orthogonal"}),
    "struct.": (FourierFeatures, {"frequencies": "structured"}),
    "Ny. lev.": (NystromFeatures, {"landmarks": "leverage"}),
    "Ny. chol.": (NystromFeatures, {"landmarks": "rpcholesky"}),
    "obliv.": (ObliviousFeatures, {}),
    "Maclaur.": (MaclaurinFeatures, {}),
    "tensor": (TensorSketchFeatures, {}),
}
PACKAGES = ("kernelsieve", "numpy", "scipy", "scikit-learn", "numba")
WIDTH = 80
WARM_UP_ROWS = 512

# --- arguments and the report --------------------------------------------------------------------


def parser(description: str | None, *, seeds: int | None = 5) -> argparse.ArgumentParser:
    """The arguments that every script takes; ``seeds=None`` for those that need no seeds."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if seeds is not None:
        result.add_argument("--seeds", type=int, default=seeds, help=f"default {seeds}")
    result.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    result.add_argument("--threads", type=int, help="for every method; default all cores")
    result.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return result


@dataclass
class Report:
    """Prints settings, tables and verdicts, and keeps every number for a JSON file.

    Used as a context: inside, every method has the same number of threads; on leaving, the verdicts
    are printed and ``<out>/<name>.json`` is written (``<out>/quick/<name>.json`` with --quick).
    """

    name: str
    args: argparse.Namespace
    settings: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def threads(self) -> int:
        """The number of threads that every method gets."""
        return thread_count(self.args.threads)

    @property
    def path(self) -> Path:
        """Where the JSON file goes."""
        return self.args.out / ("quick" if self.args.quick else "") / f"{self.name}.json"

    def __enter__(self) -> Self:
        self.console = Console(width=WIDTH, highlight=False)
        self._limits = threadpool_limits(self.threads)
        self._limits.__enter__()
        self._start = time.perf_counter()
        self.console.rule(self.name + (" (quick)" if self.args.quick else ""))
        self.console.print(
            f"{os.cpu_count()} cores, {self.threads} threads for every method; "
            + ", ".join(f"{package} {version(package)}" for package in PACKAGES),
            markup=False,
        )
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._limits.__exit__(kind, error, trace)
        if kind is None:
            self._print_verdicts()
            self._write()

    def print(self, text: str) -> None:
        """A line of explanation."""
        self.console.print(text, markup=False)

    def set(self, key: str, **values: Any) -> None:
        """Print and keep settings such as gammas and alphas."""
        self.settings[key] = values
        self.print(f"{key}: " + ", ".join(f"{name} = {_cell(v)}" for name, v in values.items()))

    def record(self, **fields: Any) -> None:
        """Keep one measurement."""
        self.records.append(fields)

    def mean(self, value: str, **where: Any) -> float:
        """The mean of a field over the records (the seeds) with these other fields."""
        return float(np.mean([record[value] for record in self.select(**where)]))

    def select(self, **where: Any) -> list[dict[str, Any]]:
        """The records with these fields."""
        return [r for r in self.records if all(r.get(k) == v for k, v in where.items())]

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table; the first column is text, the others are numbers."""
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", collapse_padding=True)
        for i, column in enumerate(columns):
            table.add_column(column, justify="right" if i else "left", no_wrap=True)
        for row in rows:
            table.add_row(*map(_cell, row))
        self.console.print(table)

    def check(self, what: str, reached: float, target: float) -> None:
        """A target to be printed at the end: ``reached`` should be at most ``target``."""
        self.checks.append(
            {"what": what, "reached": reached, "target": target, "pass": bool(reached <= target)}
        )

    def _print_verdicts(self) -> None:
        if not self.checks:
            return
        rows = [
            (c["what"], c["reached"], f"<= {_cell(c['target'])}", "pass" if c["pass"] else "MISS")
            for c in self.checks
        ]
        self.table("Targets", ("what", "reached", "target", ""), rows)
        passed = sum(check["pass"] for check in self.checks)
        self.print(f"{passed} of {len(self.checks)} targets met")

    def _write(self) -> None:
        seconds = time.perf_counter() - self._start
        content = {
            "benchmark": self.name,
            "arguments": {k: str(v) for k, v in vars(self.args).items()},
            "machine": {
                "cores": os.cpu_count(),
                "threads": self.threads,
                "processor": processor(),
                "system": platform.platform(),
                "load": os.getloadavg(),
            },
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in PACKAGES},
            "seconds": seconds,
            "settings": self.settings,
            "checks": self.checks,
            "records": self.records,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content, indent=1, default=_plain) + "\n")
        self.print(f"{seconds:.0f} s in all; every number is in {self.path}")

    def earlier_records(self, **where: Any) -> list[dict[str, Any]]:
        """Records of the last run, from its JSON file; none if there is no such file."""
        if not self.path.exists():
            return []
        records = json.loads(self.path.read_text())["records"]
        return [r for r in records if all(r.get(k) == v for k, v in where.items())]


def processor() -> str:
    """The processor's name, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if np.isnan(number):
            return "-"
        if 0 < abs(number) < 1e-3:
            return f"{number:.1e}"
        return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"
    return f"{value:,}" if isinstance(value, (int, np.integer)) else str(value)


def _plain(value: Any) -> Any:
    """What json does not know: numpy's numbers and arrays."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


# --- data, gammas and alphas ---------------------------------------------------------------------


def standardised(name: str) -> tuple[Array, Array]:
    """A dataset with unit-variance columns, cut at 8 standard deviations for every method alike."""
    data = datasets.load(name)
    return scaler_for(data.X).fit_transform(data.X), data.y


def scaled_split(X: Array, y: Array, seed: int) -> list[Array]:
    """X_train, X_test, y_train, y_test: three quarters for training, scaled as on these."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    scaler = scaler_for(X_train)
    return [scaler.fit_transform(X_train), scaler.transform(X_test), y_train, y_test]


def split_of_some(name: str, seed: int, n_rows: int) -> list[Array]:
    """A scaled split of at most so many random rows of a dataset."""
    data = datasets.load(name)
    chosen = np.random.default_rng(seed).permutation(len(data.y))[:n_rows]
    return scaled_split(data.X[chosen], data.y[chosen], seed)


def subsample(X: Any, n_rows: int, seed: int = 0) -> Any:
    """``n_rows`` random rows."""
    rng = np.random.default_rng(seed)
    return X[np.sort(rng.permutation(X.shape[0])[:n_rows])]


def tuned(X: Array, y: Array, threads: int) -> tuple[float, float]:
    """gamma and alpha by leave-one-out error of Fourier features on at most 16,000 rows."""
    options = replace(SEARCH, n_rows=16_000, n_draws=2)
    found = choose_gamma_alpha(
        FourierFeatures(1_000, n_jobs=threads), X, y, options, n_jobs=threads
    )
    return float(found.gamma), found.alpha


def gamma_at_radius(X: Array, mean_squared_radius: float) -> float:
    """The gamma at which the mean of |x'|^2 = 2 gamma |x - mu|^2 has this value."""
    return mean_squared_radius / (2.0 * float(X.var(axis=0).sum()))


def median_gamma(X: Array) -> float:
    """1 / (2 m^2) with m the median distance between two rows (of at most 2,000)."""
    return 1.0 / (2.0 * float(np.median(pdist(subsample(X, 2000), "sqeuclidean"))))


def mixture(n_rows: int, seed: int = 0, n_columns: int = 8, n_clusters: int = 5) -> Array:
    """Standardised rows of a mixture of correlated normals."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_clusters, n_columns))
    shapes = rng.standard_normal((n_clusters, n_columns, n_columns))
    shapes /= np.arange(1, n_columns + 1)  # a few directions hold most of each cluster
    cluster = rng.integers(n_clusters, size=n_rows)
    noise = rng.standard_normal((n_rows, n_columns))
    X = centres[cluster] + np.einsum("nij,nj->ni", shapes[cluster], noise)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def smooth_rows(n_rows: int, n_columns: int) -> Array:
    """Standardised float32 rows with a decaying spectrum (1 / k), as images and sensors have."""
    rng = np.random.default_rng(0)
    directions, _ = np.linalg.qr(rng.standard_normal((n_columns, n_columns)))
    scales = 1.0 / np.arange(1, n_columns + 1)
    X = rng.standard_normal((n_rows, n_columns), dtype=np.float32)
    X = X @ (scales[:, None] * directions.T).astype(np.float32)
    return X / X.std(axis=0)


def tfidf(n_rows: int | None = None, n_columns: int | None = None) -> Any:
    """IMDB's tf-idf in float32, shuffled (the file is sorted by class): rows of length 1.

    ``n_columns`` keeps only the most frequent words.
    """
    X, _ = standardised("imdb")
    order = np.random.default_rng(0).permutation(X.shape[0])[:n_rows]
    X = X.astype(np.float32)[order]
    if n_columns is None:
        return X
    return X[:, np.argsort(-np.bincount(X.indices, minlength=X.shape[1]))[:n_columns]]


def alpha_for_dimension(K: Array, dimension: float) -> float:
    """The alpha at which K's statistical dimension is ``dimension``."""
    eigenvalues = np.clip(np.linalg.eigvalsh(K), 0.0, None)

    def excess(log_alpha: float) -> float:
        return float(np.sum(eigenvalues / (eigenvalues + np.exp(log_alpha)))) - dimension

    return float(np.exp(brentq(excess, np.log(1e-14 * eigenvalues[-1]), np.log(eigenvalues.sum()))))


def best_rank_error(K: Array, s: int) -> float:
    """The relative Frobenius error of the best matrix of rank s: nothing of s columns has less."""
    squares = np.sort(np.square(np.linalg.eigvalsh(K)))
    return float(np.sqrt(squares[:-s].sum() / squares.sum()))


def other_maps(kernel: Any, s: int, seed: int, threads: int) -> dict[str, Any]:
    """Those of ``OTHERS`` that have this kernel."""
    wrong = TensorSketchFeatures if isinstance(kernel, Gaussian) else FourierFeatures
    return {
        name: cls(s, kernel=kernel, random_state=seed, n_jobs=threads, **options)
        for name, (cls, options) in OTHERS.items()
        if cls is not wrong
    }


def frobenius_error(K: Array, Z: Any) -> float:
    """|K - Z Z^T| / |K|, in float64."""
    product = Z.astype(np.float64) @ Z.T.astype(np.float64)
    product = product.toarray() if sp.issparse(product) else product
    return float(np.linalg.norm(K - product) / np.linalg.norm(K))


def space_of(features: Any) -> str:
    """The basis and rotation that one of our maps chose; nothing for a peer."""
    basis = {"monomial": "monom.", "mercer": "mercer"}.get(getattr(features, "basis_", ""), "")
    return basis + "+pca" if getattr(features, "rotate_", False) else basis


def fit_transform(features: Any, X: Any, *y: Any) -> Any:
    """Z, without Nystroem's remark that n_components exceeds the number of rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_components > n_samples")
        return features.fit_transform(X, *y)


# --- clocks --------------------------------------------------------------------------------------


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call; what it returns is freed before the next."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def race(
    calls: Mapping[str, Callable[[Any], Any]], X: Any, repetitions: int, *, warm_up: bool = True
) -> dict[str, float]:
    """The best wall time of each call on X.

    A warm-up on the first rows (compilation, imports) is not counted. The calls take turns, so that
    a slow minute of the machine is nobody's own.
    """
    if warm_up:
        for call in calls.values():
            call(X[:WARM_UP_ROWS])
    best = dict.fromkeys(calls, np.inf)
    for _ in range(repetitions):
        for name, call in calls.items():
            best[name] = min(best[name], seconds(partial(call, X)))
    return best


def memory_bandwidth(shape: tuple[int, ...], dtype: Any, repetitions: int) -> dict[str, float]:
    """Seconds to fill a fresh array (page faults) and to copy a warm one: the references."""
    source, target = np.ones(shape, dtype=dtype), np.zeros(shape, dtype=dtype)
    calls = {
        "fill fresh": lambda _: np.full(shape, 1.0, dtype=dtype),
        "copy warm": lambda _: np.copyto(target, source),
    }
    np.copyto(target, source)
    return race(calls, None, repetitions, warm_up=False)


# --- memory --------------------------------------------------------------------------------------


def size_of(X: Any) -> int:
    """Bytes of an array, dense or CSR."""
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes


def peak_memory(load: Callable[[], Any], work: Callable[[Any], Any]) -> int:
    """Bytes that ``work`` needs at most beyond what ``load`` left, in a process of its own.

    Both must be functions of a module (or partials of such); what is compiled is compiled before.
    """
    return in_new_process(_growth, load, work)


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns in a process that has done nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _growth(load: Callable[[], Any], work: Callable[[Any], Any]) -> int:
    X = load()
    work(X[:WARM_UP_ROWS])
    before = high_water()
    work(X)
    return high_water() - before


def high_water() -> int:
    """The largest resident size of this process so far, in bytes."""
    with contextlib.suppress(OSError):
        # Unlike ru_maxrss this does not count the process that started this one.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def stored(X: Any, folder: Path) -> Iterator[Path]:
    """X in an uncompressed file, which loads without a second copy in memory."""
    path = folder / ("X.npz" if sp.issparse(X) else "X.npy")
    if sp.issparse(X):
        sp.save_npz(path, X, compressed=False)
    else:
        np.save(path, X)
    try:
        yield path
    finally:
        path.unlink()


def load_stored(path: Path) -> Any:
    """What ``stored`` wrote."""
    return sp.load_npz(path) if path.suffix == ".npz" else np.load(path)
