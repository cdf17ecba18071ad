"""Threads over blocks of rows.

Inside, BLAS is limited to one thread, so that results do not depend on the number of threads. A
forked child starts with threads and locks that nobody holds. While the interpreter ends, no thread
can be started: the calling one does the work.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from numbers import Integral
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


def row_blocks(n_rows: int, block_rows: int) -> list[slice]:
    """Split rows into blocks that depend on the data's shape only, not on the threads."""
    return [slice(start, min(start + block_rows, n_rows)) for start in range(0, n_rows, block_rows)]


def thread_count(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``; None and -1 mean all available cores."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral)):
        raise TypeError(
            f"n_jobs={n_jobs!r} must be None or an integer: it is the number of threads"
        )
    if n_jobs == 0:
        raise ValueError(
            "n_jobs=0 is not a number of threads: use None for all cores, or a positive number"
        )
    available = _available_cores()
    if n_jobs is None:
        return available
    return n_jobs if n_jobs > 0 else max(1, available + 1 + n_jobs)


@cache
def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def ordered_row_blocks(
    function: Callable[[slice], Result], n_rows: int, block_rows: int, n_jobs: int | None = None
) -> Iterator[Result]:
    """Iterate over ``function(rows)`` for all blocks, in order, a bounded number at a time."""
    blocks = row_blocks(n_rows, block_rows)
    return ordered_map(function, blocks, min(thread_count(n_jobs), max(1, len(blocks))))


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None = None
) -> Iterator[Result]:
    """Iterate over ``function(item)`` in order; the caller's thread draws items as needed."""
    threads = thread_count(n_jobs)
    with _single_threaded_blas:
        if threads <= 1 or _worker.busy:  # a worker that waits for workers may deadlock
            yield from map(function, items)
            return
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(_submit(threads, partial(function, item)))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            wait([future for future in pending if not future.cancel()])


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Iterate over ``items``; a thread prepares the next one in the meantime."""
    iterator, nothing = iter(items), object()
    with ThreadPoolExecutor(1, "kernelsieve-reader") as reader:
        following = _submit_to(reader, partial(next, iterator, nothing))
        while (item := following.result()) is not nothing:
            following = _submit_to(reader, partial(next, iterator, nothing))
            yield item


@contextmanager
def one_thread() -> Iterator[None]:
    """Run without our own thread pool; the caller manages threads, as a Dask worker does."""
    with _single_threaded_blas, _at_work():
        yield


@contextmanager
def one_thread_in_blas() -> Iterator[None]:
    """Run with our own thread pool alone, so that results do not depend on the threads of BLAS."""
    with _single_threaded_blas:
        yield


def map_row_blocks(
    function: Callable[[slice], Result], n_rows: int, block_rows: int, n_jobs: int | None = None
) -> list[Result]:
    """Return the list of ``function(rows)`` for all blocks of rows, in order."""
    blocks = row_blocks(n_rows, block_rows)
    threads = 1 if _worker.busy else min(thread_count(n_jobs), len(blocks))
    results: dict[int, Result] = {}
    waiting = deque(enumerate(blocks))  # its popleft is atomic

    def work() -> None:
        while waiting:
            try:
                place, rows = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                results[place] = function(rows)
            except BaseException:
                waiting.clear()
                raise

    with _single_threaded_blas:
        # The caller works too: a thread that only hands out small blocks would take the
        # interpreter's lock from those who work on them.
        helpers = [_submit(threads - 1, work) for _ in range(threads - 1)]
        try:
            with _at_work():
                work()
        finally:
            waiting.clear()
            wait([helper for helper in helpers if not helper.cancel()])
    for helper in helpers:
        if not helper.cancelled():
            helper.result()  # raises what it raised
    return [results[place] for place in range(len(blocks))]


class _Worker(threading.local):
    """Whether this thread works on a block, and so must not wait for other workers."""

    busy = False


_worker = _Worker()


@contextmanager
def _at_work() -> Iterator[None]:
    before, _worker.busy = _worker.busy, True
    try:
        yield
    finally:
        _worker.busy = before


def _start_worker() -> None:
    _worker.busy = True


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """A pool of threads that persists: starting one takes as long as a small block."""
    return ThreadPoolExecutor(threads, "kernelsieve", initializer=_start_worker)


def _submit(threads: int, call: Callable[[], Result]) -> Future[Result]:
    return _submit_to(_pool(threads), call)


def _submit_to(pool: ThreadPoolExecutor, call: Callable[[], Result]) -> Future[Result]:
    """Have a pool call it, or the calling thread if no thread can be started any more."""
    try:
        return pool.submit(call)
    except RuntimeError:  # the interpreter ends, or the system has no more threads
        return _called_here(call)


def _called_here(call: Callable[[], Result]) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        with _at_work():
            future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
    return future


class _SingleThreadedBlas:
    """Limits BLAS to one thread while any thread is inside.

    The limit is process-wide, so nested and concurrent users share one: the first to enter sets
    it, the last to leave restores it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._users = 0
        self._mine = threading.local()  # how often the thread that asks is inside
        self._numbers: list[int] = []  # of threads, before the limit

    def __enter__(self) -> None:
        with self.lock:
            if self._users == 0:
                self._numbers = [library.num_threads for library in _blas()]
                _set_blas([1] * len(self._numbers))
            self._users += 1
            self._mine.depth = self._depth() + 1

    def __exit__(self, *exception: object) -> None:
        with self.lock:
            self._mine.depth = self._depth() - 1
            self._leave(1)

    def forget_other_threads(self) -> None:
        """In a forked child, where they have ended without leaving."""
        self._leave(self._users - max(0, min(self._depth(), self._users)))

    def _depth(self) -> int:
        return getattr(self._mine, "depth", 0)

    def _leave(self, users: int) -> None:
        self._users -= users
        if users and self._users == 0:
            _set_blas(self._numbers)


@cache
def _blas() -> list[Any]:
    """The libraries of BLAS in this process."""
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded before threadpoolctl looks)

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_blas(numbers: list[int]) -> None:
    """Set the number of threads of every library, from any thread.

    The public setter of threadpoolctl 3.8 does nothing in a thread while another one has a limit.
    """
    for library, number in zip(_blas(), numbers, strict=True):
        getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


_single_threaded_blas = _SingleThreadedBlas()


def _forked() -> None:
    """Make a child ready, which has one thread only, and copies of the parent's locks."""
    _pool.cache_clear()
    _single_threaded_blas.lock.release()
    _single_threaded_blas.forget_other_threads()


if hasattr(os, "register_at_fork"):
    # A fork waits until no other thread holds the lock: the child could never get it.
    os.register_at_fork(
        before=_single_threaded_blas.lock.acquire,
        after_in_parent=_single_threaded_blas.lock.release,
        after_in_child=_forked,
    )
