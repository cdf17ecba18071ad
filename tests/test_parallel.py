"""Threads over blocks of rows: order, bounds, nesting, failure, and forks."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import pytest

from kernelsieve._parallel import map_row_blocks, ordered_row_blocks


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
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
