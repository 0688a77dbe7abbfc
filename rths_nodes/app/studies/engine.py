"""Independent pieces of work side by side, each in a process of its own.

The processes are spawned: a program of your own that starts a study needs its ``if __name__ == "__main__":``, as
for every use of ``multiprocessing`` with fresh processes.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any, TypeVar

R = TypeVar("R")

TOLD_S = 0.1
"""Time between two looks at how far the processes are."""


Tell = Callable[[float], None]
"""How a piece of work says which share of it is done, 0 to 1."""


def side_by_side(
    work: Callable[..., R],
    jobs: Sequence[tuple[Any, ...]],
    at_once: int,
    progress: Callable[[Sequence[float]], None] | None = None,
) -> Iterator[tuple[int, R]]:
    """Results of ``work(*job, tell)`` as they are ready, with the numbers of their jobs; ``at_once`` at a time.

    ``work`` is a function of a module, which may ``tell`` the share of it that is done; ``progress`` gets the
    shares of all jobs, now and then. Jobs and results must be what ``pickle`` takes. Raises what ``work`` raises;
    then, and when the caller stops, the processes are ended at once.
    """
    context = multiprocessing.get_context("spawn")
    shares = context.RawArray("d", len(jobs))
    pool = ProcessPoolExecutor(at_once, context, _begin, (shares,))
    try:
        numbers = {pool.submit(_work, work, number, job): number for number, job in enumerate(jobs)}
        waiting = set(numbers)
        while waiting:
            done, waiting = wait(waiting, TOLD_S if progress else None, FIRST_COMPLETED)
            for each in done:
                shares[numbers[each]] = 1.0
            if progress:
                progress(list(shares))
            yield from ((numbers[each], each.result()) for each in done)
    except BaseException:
        _end(pool)
        raise
    pool.shutdown()


_shares: Any = None
"""In a process of the pool: the shares that are done, which it has in common with the parent."""


def _begin(shares: Any) -> None:
    """Ctrl-C reaches every process of a terminal; the parent alone answers it."""
    global _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(work: Callable[..., R], number: int, job: tuple[Any, ...]) -> R:
    def tell(share: float) -> None:
        _shares[number] = share

    return work(*job, tell)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the processes of ``pool`` at once."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
