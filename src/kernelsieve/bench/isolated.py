"""Runs fits in processes of their own with limits: whatever a peer does, the comparison goes on."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

from kernelsieve.bench.methods import Method, Settings
from kernelsieve.bench.problem import Problem
from kernelsieve.bench.worker import Job

SERVE = "import sys; from kernelsieve.bench.worker import serve; serve(sys.argv[1])"
POLL_SECONDS = 0.1
IDLE_SHARE = 0.02  # of a processor: below it a process hangs
PROC = Path("/proc")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What one fit may take.

    Attributes
    ----------
    seconds : float
        Processor time for each of its threads, so that a busy machine does not count. A process
        that does nothing for so long is stopped, too.
    n_bytes : int
        Resident memory of the process and its children. Linux only.
    """

    seconds: float = 180.0
    n_bytes: int = 8 * 2**30


class Isolated:
    """A folder and a process that forks: one child for each fit.

    Parameters
    ----------
    folder : Path
    limits : Limits
    n_threads : int
        What BLAS, OpenMP and numba are told in the environment.
    """

    def __init__(self, folder: Path, limits: Limits, n_threads: int) -> None:
        self.folder, self.limits, self.n_threads = folder, limits, n_threads
        self._server: subprocess.Popen[str] | None = None

    def load(self, problem: Problem) -> None:
        """Make this the problem of all fits to come."""
        (self.folder / "problem").write_bytes(pickle.dumps(problem))

    def run(self, method: Method, settings: Settings) -> dict[str, Any]:
        """Fit a method; what ``worker.measure`` found, or {"failure": why}.

        A method that is not installed, raises, is killed, takes too long or too much memory is
        reported in one line.
        """
        if not method.installed:
            return {"failure": f"not installed: pip install {method.requires}"}
        outcome = self.folder / "outcome.json"
        outcome.unlink(missing_ok=True)
        job = Job(method.build, settings, method.columns)
        (self.folder / "job").write_bytes(pickle.dumps(job))
        server = self._started()
        print("go", file=_open(server.stdin), flush=True)
        started = _open(server.stdout).readline()
        if not started:
            self.close()
            return {"failure": "the process that starts fits was killed"}
        child = int(started)
        try:
            stopped = self._watch(child, server)
        finally:
            _kill_group(child)  # it, or what it left behind
        ended = _open(server.stdout).readline()
        if stopped:
            return {"failure": stopped}
        if ended.strip() == "0" and outcome.exists():
            found: dict[str, Any] = json.loads(outcome.read_text())
            return found
        return {"failure": _why(int(ended or 1), self.folder / "log")}

    def close(self) -> None:
        """End the process."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()  # closes the pipes
            self._server = None

    def _started(self) -> subprocess.Popen[str]:
        if self._server is not None and self._server.poll() is not None:
            self.close()
        if self._server is None:
            threads = dict.fromkeys(THREAD_VARIABLES, str(self.n_threads))
            path = os.pathsep.join(filter(None, sys.path))
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **threads, "PYTHONPATH": path},
            )
            _open(self._server.stdout).readline()
        return self._server

    def _watch(self, child: int, server: subprocess.Popen[str]) -> str | None:
        """Wait for the end; the limit that was broken, if one was."""
        start, seconds = monotonic(), self.limits.seconds
        while not select.select([_open(server.stdout)], [], [], POLL_SECONDS)[0]:
            wall = monotonic() - start
            used = _usage(child)
            spent = wall if used is None else used[0] / self.n_threads
            if spent > seconds:
                return f"stopped after {seconds:g} s"
            if wall > seconds and spent < IDLE_SHARE * wall:
                return f"stopped: it did nothing for {seconds:g} s"
            if used is not None and used[1] > self.limits.n_bytes:
                return f"stopped at {self.limits.n_bytes / 2**30:.3g} GiB of memory"
        return None


@contextlib.contextmanager
def isolated(limits: Limits, n_threads: int) -> Iterator[Isolated]:
    """A place for fits, in a folder that only this user can read."""
    with tempfile.TemporaryDirectory(prefix="kernelsieve-") as name:
        place = Isolated(Path(name), limits, n_threads)
        try:
            yield place
        finally:
            place.close()


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _why(code: int, log: Path) -> str:
    if code < 0:
        hint = ", perhaps by the system for lack of memory" if -code == signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"ended with code {code}: {lines[-1][:150] if lines else 'no message'}"


def _usage(group: int) -> tuple[float, int] | None:
    """Processor seconds and resident bytes of a group; None where the system does not tell."""
    ticks, pages, found = 0, 0, False
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                found = True
                ticks += sum(map(int, fields[11:15]))
                pages += int(fields[21])
    if not found:
        return None
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
