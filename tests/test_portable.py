"""The package without what other systems and smaller installations lack."""

from __future__ import annotations

import os
import re
import subprocess
import sys

HIDE = """
import sys

class Hidden:
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
"""
# Unix has these alone. What other packages do on Windows is theirs: they are imported before.
ON_WINDOWS = f"""{HIDE}
import os, signal
import llvmlite.binding, numba, platformdirs, pooch, pyarrow.csv, pyarrow.parquet
import scipy.linalg, scipy.optimize, typer
import sklearn.ensemble, sklearn.kernel_approximation, sklearn.neighbors
for name in ("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty"))
for name in ("fork", "register_at_fork", "killpg", "setsid", "sched_getaffinity", "sysconf",
             "getuid", "geteuid", "getpgid", "getloadavg", "uname", "nice"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGXCPU", "SIGHUP", "SIGUSR1", "alarm", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
"""
WITHOUT_EXTRAS = f"""{HIDE}
sys.meta_path.insert(0, Hidden("pytest", "_pytest", "dask", "distributed", "matplotlib", "onnx",
    "onnxruntime", "pandas", "polars", "lightgbm", "catboost", "interpret", "xrfm", "xGPR"))
"""


def python(program: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORT_ALL = """
import importlib, pkgutil, signal, kernelsieve
del signal.SIGKILL
names = [m.name for m in pkgutil.walk_packages(kernelsieve.__path__, "kernelsieve.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
HELP = """
import signal
del signal.SIGKILL
from kernelsieve.cli import main
main(["--help"])
"""


def test_every_module_is_imported_where_there_is_no_unix() -> None:
    assert int(python(ON_WINDOWS + IMPORT_ALL)) > 150


def test_the_command_line_starts_where_there_is_no_unix() -> None:
    assert "compare methods" in python(ON_WINDOWS + HELP)


FIT = """
import tempfile
from pathlib import Path
from sklearn.linear_model import Ridge
from kernelsieve import datasets
from kernelsieve.bench import problem
from kernelsieve.bench.isolated import Limits, isolated
from kernelsieve.bench.methods import Method, Settings, plain_linear
row = Method("fine", "Fine", "a peer", plain_linear, lambda n, d, s: 0.0, requires="sklearn")
with isolated(Limits(), 1) as place:
    place.load(problem.from_dataset(datasets.load("diabetes")))
    print(sorted(place.run(row, Settings(0, 1.0, 1.0))))
"""


def test_peers_run_where_there_is_no_unix() -> None:
    said = python(ON_WINDOWS + FIT)
    assert "error" in said
    assert "failure" not in said


DESCRIBE = """
import inspect, pydoc, kernelsieve
members = dict(inspect.getmembers(kernelsieve))
assert set(dir(kernelsieve)) <= set(members)
pydoc.render_doc(kernelsieve)
pydoc.render_doc(kernelsieve.testing.FeatureMapBattery)
print("described")
"""
CHECK = """
from kernelsieve import FourierFeatures
from kernelsieve.testing import check_feature_map

def make(**overrides):
    return FourierFeatures(**{"n_components": 16, "random_state": 0, **overrides})

class Rounds(FourierFeatures):
    def transform(self, X):
        return super().transform(X).round(1)

def broken(**overrides):
    return Rounds(**{"n_components": 16, "random_state": 0, **overrides})

some = ("test_unbiased", "test_threads_do_not_change_the_bits")
print(len(check_feature_map(make, leave_out=some)))
try:
    check_feature_map(broken)
except AssertionError as error:
    print(str(error).splitlines()[0])
"""


def test_the_package_describes_itself_without_any_extra() -> None:
    assert python(WITHOUT_EXTRAS + DESCRIBE) == "described\n"


def test_maps_are_checked_without_pytest() -> None:
    count, failed = python(WITHOUT_EXTRAS + CHECK).splitlines()
    assert int(count) > 60
    assert re.fullmatch(r"\d+ of \d+ tests failed:", failed)
