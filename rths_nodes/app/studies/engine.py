# SPDX-License-Identifier: Apache-2.0
"""Independent pieces of work side by side: on this machine with joblib, on many with dask.distributed.

Every piece stands alone, so that its result is the same wherever it was computed, and in whatever order. No
cluster is started here: a scheduler of dask that is named must be there, with workers that have this version of
the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rths_nodes.app.studies import run_time
from rths_nodes.app.studies.tasks import Job, Lost, Progress, R, Tell
from rths_nodes.loop.interrupts import raised_at_once
from rths_nodes.loop.options import AUTO, COMPILED, KERNELS
from rths_nodes.loop.scenario.schema import Scenario

WORTH_S = 15.0
"""Time of all runs in Python from which on a loop over kernels is worth the time to compile it."""


@dataclass(frozen=True)
class Where:
    """Where the work is done: by dask at the address ``scheduler``, else by so many ``processes`` here.

    One process is this one. A scheduler's address looks like ``tcp://host:8786``. ``engine`` is the one of
    ``loop/options.py``; what has no loop over kernels is run stage by stage.
    """

    processes: int = 1
    scheduler: str = ""
    engine: str = AUTO

    def engine_of(self, scenario: Scenario, samples: float) -> str:
        """The engine of ``samples`` of runs like ``scenario``; auto is compiled where that is worth the time."""
        if self.engine != AUTO:
            return self.engine
        return COMPILED if (run_time.of_samples(scenario, samples) or 0.0) >= WORTH_S else KERNELS

    def decided(self, scenario: Scenario, samples: float) -> Where:
        """The same with the engine that ``samples`` of runs like ``scenario`` get: a trial is made once."""
        return replace(self, engine=self.engine_of(scenario, samples))


def as_completed(
    work: Callable[..., R], jobs: Iterable[Job], count: int, where: Where, progress: Progress | None = None
) -> Iterator[tuple[int, R | Lost]]:
    """Results of ``work(*arguments, tell)`` as they are ready, with the numbers of their jobs, 0 to ``count`` - 1.

    ``jobs`` are taken as they are needed, never all at once. ``work`` is a function of a module, which may
    ``tell`` the share of it that is done; jobs and results must be what ``pickle`` takes. A piece whose processes
    end under it is given as ``Lost``. Raises what ``work`` raises, and ConfigError for a scheduler that cannot be
    used; then, and when the caller stops, nothing goes on. A request to stop raises KeyboardInterrupt.
    """
    with raised_at_once() as check:
        for result in _finished(work, jobs, count, where, progress):
            check()
            yield result


def release(where: Where) -> None:
    """Free what processes of this machine still hold: a study of many plants is to stay below 1 GB."""
    if not where.scheduler and where.processes > 1:
        from rths_nodes.app.studies import local

        local.release()


def _finished(
    work: Callable[..., R], jobs: Iterable[Job], count: int, where: Where, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    if where.scheduler:
        from rths_nodes.app.studies import cluster

        yield from cluster.as_completed(work, jobs, count, where.scheduler, progress)
    elif where.processes <= 1:
        yield from _here(work, jobs, count, progress)
    else:
        from rths_nodes.app.studies import local

        yield from local.as_completed(work, jobs, count, where.processes, progress)


def _here(
    work: Callable[..., R], jobs: Iterable[Job], count: int, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    shares = np.zeros(count)

    def tell_of(number: int) -> Tell:
        def tell(share: float) -> None:
            shares[number] = share
            if progress:
                progress(shares.tolist())

        return tell

    for number, arguments in jobs:
        result = work(*arguments, tell_of(number))
        tell_of(number)(1.0)
        yield number, result


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
