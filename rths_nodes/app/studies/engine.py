"""Independent pieces of work side by side, each in a process of its own.

The processes are spawned: a program of your own that starts a study needs its ``if __name__ == "__main__":``, as
for every use of ``multiprocessing`` with fresh processes.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

R = TypeVar("R")


def side_by_side(work: Callable[..., R], jobs: Sequence[tuple[Any, ...]], at_once: int) -> Iterator[tuple[int, R]]:
    """Results of ``work(*job)`` as they are ready, with the numbers of their jobs; ``at_once`` run at a time.

    ``work`` is a function of a module; jobs and results must be what ``pickle`` takes. Raises what ``work``
    raises; then, and when the caller stops, the processes are ended at once.
    """
    pool = ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn"), _leave_interrupts)
    try:
        numbers = {pool.submit(work, *job): number for number, job in enumerate(jobs)}
        for done in as_completed(numbers):
            yield numbers[done], done.result()
    except BaseException:
        _end(pool)
        raise
    pool.shutdown()


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the parent alone answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the processes of ``pool`` at once."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
