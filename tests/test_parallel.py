"""Threads over blocks of rows: order, bounds, nesting, failure, and forks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from kernelsieve import _parallel
from kernelsieve._parallel import map_row_blocks, one_thread_in_blas, ordered_row_blocks

FORKING = Path(__file__).parent / "support" / "forking.py"
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def sizes(rows: slice) -> int:
    return rows.stop - rows.start


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_results_come_in_order(n_jobs: int) -> None:
    def block(rows: slice) -> int:
        time.sleep(0.002 * (rows.start % 3))
        return rows.start

    assert map_row_blocks(block, 95, 10, n_jobs) == list(range(0, 95, 10))


def test_no_more_than_n_jobs_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def block(rows: slice) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    map_row_blocks(block, 60, 1, 3)
    assert 1 <= most <= 3


def test_a_worker_may_use_blocks_itself() -> None:
    def outer(rows: slice) -> int:
        return sum(map_row_blocks(sizes, 40, 10, 2))

    assert map_row_blocks(outer, 8, 1, 2) == [40] * 8


def test_after_nested_blocks_the_caller_is_free_again() -> None:
    together = threading.Barrier(2, timeout=20)

    def outer(rows: slice) -> int:
        return sum(map_row_blocks(sizes, 4, 2, 2))

    assert map_row_blocks(outer, 4, 1, 2) == [4] * 4
    map_row_blocks(lambda rows: together.wait(), 2, 1, 2)  # breaks if one thread does both


def test_stopping_early_leaves_nothing_running() -> None:
    finished: list[int] = []

    def block(rows: slice) -> int:
        time.sleep(0.01)
        finished.append(rows.start)
        return rows.start

    results = ordered_row_blocks(block, 100, 1, 2)
    assert next(results) == 0
    results.close()
    count = len(finished)
    time.sleep(0.05)
    assert len(finished) == count < 100


def test_an_error_reaches_the_caller_and_the_pool_survives() -> None:
    def block(rows: slice) -> int:
        if rows.start == 3:
            raise RuntimeError("block 3")
        return rows.start

    for n_jobs in (1, 2, 3):
        with pytest.raises(RuntimeError, match="block 3"):
            map_row_blocks(block, 10, 1, n_jobs)
    assert map_row_blocks(sizes, 10, 4, 2) == [4, 4, 2]


def in_a_child(results: multiprocessing.Queue) -> None:
    results.put(map_row_blocks(sizes, 10, 4, 2))


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    assert map_row_blocks(sizes, 10, 4, 2) == [4, 4, 2]  # the parent's threads exist
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=in_a_child, args=(results,))
    child.start()
    try:
        assert results.get(timeout=60) == [4, 4, 2]
    finally:
        child.kill()
        child.join()


def in_a_fork(call: Callable[[], bool]) -> bool:
    """Whether a forked child finds ``call`` true within 20 seconds."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            code = 0 if call() else 1
        finally:
            os._exit(code)
    for _ in range(2000):
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return False


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_a_lock_of_another_thread() -> None:
    held = threading.Event()

    def hold() -> None:
        with _parallel._single_threaded_blas.lock:
            held.set()
            time.sleep(0.5)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(20)
    assert in_a_fork(lambda: map_row_blocks(sizes, 10, 4, 2) == [4, 4, 2])
    other.join()
    assert map_row_blocks(sizes, 10, 4, 2) == [4, 4, 2]


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread anyway")
def test_a_child_is_not_bound_by_what_other_threads_asked_for() -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_thread_in_blas():
            inside.set()
            leave.wait(60)

    map_row_blocks(sizes, 10, 4, 2)  # all of BLAS is loaded
    with threadpool_limits(2, "blas"):
        other = threading.Thread(target=stay)
        other.start()
        assert inside.wait(20)
        try:
            assert blas_threads() == {1}
            assert in_a_fork(lambda: blas_threads() == {2})
            with one_thread_in_blas():  # what the forking thread asked for is kept
                assert in_a_fork(lambda: blas_threads() == {1})
        finally:
            leave.set()
            other.join()
        assert blas_threads() == {2}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread anyway")
def test_threads_of_blas_come_back_whoever_leaves_last() -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_thread_in_blas():
            inside.set()
            leave.wait(60)

    map_row_blocks(sizes, 10, 4, 2)  # all of BLAS is loaded
    with threadpool_limits(2, "blas"):
        other = threading.Thread(target=stay)
        with one_thread_in_blas():
            other.start()
            assert inside.wait(20)
        assert blas_threads() == {1}
        leave.set()
        other.join()
        assert blas_threads() == {2}


def run_forking(*arguments: str, seconds: float, cache: Path | None = None) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(FORKING), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, said


@forks
def test_children_predict_while_threads_predict() -> None:
    run_forking("--forks", "40", seconds=120.0)


@forks
@pytest.mark.slow
def test_a_thousand_children_predict_while_threads_predict() -> None:
    run_forking("--forks", "1000", seconds=900.0)


@forks
@pytest.mark.slow
def test_children_predict_while_threads_compile(tmp_path: Path) -> None:
    run_forking("--forks", "4", "--first", seconds=300.0, cache=tmp_path)


AT_THE_END = """
import atexit
from kernelsieve._parallel import map_row_blocks, ordered_row_blocks, read_ahead

def start(rows):
    return rows.start

def work():
    print(map_row_blocks(start, 9, 3, 2), list(ordered_row_blocks(start, 9, 3, 2)))
    print(list(read_ahead([1, 2])))

def fails(rows):
    raise KeyError("block")

class Last:
    def __del__(self, work=work):
        work()

last = Last()
work()

@atexit.register
def at_exit():
    work()
    try:
        map_row_blocks(fails, 9, 3, 3)
    except KeyError as error:
        print(error)
"""


def test_work_is_done_while_the_interpreter_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=120
    )
    once = ["[0, 3, 6] [0, 3, 6]", "[1, 2]"]
    assert done.stdout.splitlines() == [*once, *once, "'block'", *once], done.stderr
    assert done.stderr == ""
