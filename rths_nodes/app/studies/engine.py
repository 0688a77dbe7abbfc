# SPDX-License-Identifier: Apache-2.0
"""Independent pieces of work in parallel: on this machine with joblib, or on several with dask.distributed.

Results do not depend on the machine or the order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from rths_nodes.app.studies.tasks import Job, Lost, Progress, R, with_components
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.loop.compiled.running import loop_over_kernels
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.interrupts import raised_at_once
from rths_nodes.loop.options import AUTO, COMPILED, KERNELS, STAGES, STUDY_ENGINES
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

WORTH_S = 15.0
"""Total time of all runs in Python above which compiling saves time, s."""
TRIED_S = 0.2
WORTH = 100_000

BUILT_S, FASTER = 1.0, 30.0
"""Approximate time to build a compiled loop, s, and speed of this loop relative to a loop over kernels in
Python."""


@dataclass(frozen=True)
class Where:
    """Selects where work runs: on a dask cluster, or in processes on this machine.

    ``scheduler`` is the address of the cluster (``tcp://host:8786``). Without it, the work runs in ``processes``
    on this machine, or in the current process if ``processes`` is 1.
    """

    processes: int = 1
    scheduler: str = ""
    engine: str = AUTO

    def engine_of(self, scenario: Scenario, samples: float) -> str:
        """Return the engine for runs like ``scenario`` with a total of ``samples`` samples.

        The engine ``auto`` selects the compiled engine if compilation saves time.
        """
        if self.engine != AUTO:
            return self.engine
        return COMPILED if (expected_s(scenario, samples) or 0.0) >= WORTH_S else KERNELS


def chosen(jobs: int | None = None, scheduler: str = "", engine: str = AUTO) -> Where:
    if jobs is not None and scheduler:
        raise ConfigError("jobs: must be omitted with a scheduler, which sets the number of runs per worker")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs = {jobs}: must be >= 1")
    if engine not in STUDY_ENGINES:
        raise unknown("engine", "engine", engine, STUDY_ENGINES)
    return Where(jobs or processors(), scheduler, engine)


def expected_s(scenario: Scenario, samples: float, engine: str = KERNELS) -> float | None:
    """Return the expected duration of ``samples`` of a test, s; None if it is short or unknown.

    No external part is started.
    """
    if samples < WORTH:
        return None
    try:
        stages = Loop(Assembly(scenario).twin())
    except ConfigError:
        return None
    kernels = loop_over_kernels(stages, compiled=False)
    loop = stages if engine == STAGES or isinstance(kernels, str) else kernels
    end = time.perf_counter() + TRIED_S
    outcome = loop.run(interrupted=lambda: time.perf_counter() > end)
    in_python = float(samples * outcome.timing["loop"]["mean_s"])
    return BUILT_S + in_python / FASTER if engine == COMPILED else in_python


def as_completed(
    work: Callable[..., R], jobs: Iterable[Job], count: int, where: Where, progress: Progress | None = None
) -> Iterator[tuple[int, R | Lost]]:
    """Yield the number (below ``count``) and the result of each job, in order of completion.

    The result is returned by ``work(*arguments, report)``, or is ``Lost`` if the processes of the job died.
    ``work`` is a module-level function and may ``report`` its completed fraction. Jobs and results must be
    picklable. Raises errors of ``work``, and ConfigError if the scheduler is unusable. All work ends after an
    error, or if the caller stops iterating. A stop request raises KeyboardInterrupt.
    """
    with raised_at_once() as check:
        for result in _finished(work, jobs, count, where, progress):
            check()
            yield result


def _finished(
    work: Callable[..., R], jobs: Iterable[Job], count: int, where: Where, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    if where.scheduler:
        from rths_nodes.app.studies import cluster

        yield from cluster.as_completed(with_components(work), jobs, count, where.scheduler, progress)
    elif where.processes > 1:
        from rths_nodes.app.studies import local

        yield from local.as_completed(with_components(work), jobs, count, where.processes, progress)
    else:
        shares = [0.0] * count

        def tell(number: int, share: float) -> None:
            shares[number] = share
            if progress:
                progress(list(shares))

        for number, arguments in jobs:
            result = work(*arguments, partial(tell, number))
            tell(number, 1.0)
            yield number, result


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
