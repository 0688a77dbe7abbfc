# SPDX-License-Identifier: Apache-2.0
"""Work on this machine, in joblib processes."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import numpy as np
from joblib.externals.loky.process_executor import TerminatedWorkerError
from joblib.parallel import LokyBackend

from rths_nodes.app.studies.tasks import Job, Lost, Progress, R
from rths_nodes.core.samples import Array

TOLD_S = 0.1
ORPHANED_S = 0.5
"""Time until a process notices the death of its parent, s."""
IDLE_S = 10
MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1073741824:glibc.malloc.hugetlb=1"
"""glibc settings that keep the memory of freed arrays, in huge pages. Otherwise each run clears 8000 pages."""


class _Processes(LokyBackend):  # type: ignore[misc]
    """Starts processes that call ``_begin`` first; joblib 1.4 and later versions support this."""

    def configure(self, *places: object, **names: object) -> int:
        begin = {"initializer": _begin, "initargs": (tuple(sys.path),), "idle_worker_timeout": IDLE_S}
        workers: int = super().configure(*places, **begin, **names)
        return workers

    def _prepare_worker_env(self, n_jobs: int) -> dict[str, str]:
        variables: dict[str, str] = super()._prepare_worker_env(n_jobs)
        return {"GLIBC_TUNABLES": MEMORY, **os.environ, **variables}


def as_completed(
    work: Callable[..., R], jobs: Iterable[Job], count: int, processes: int, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    """Yield results as ``engine.as_completed`` does. A job whose process dies is retried once, alone."""
    with _shares(count, progress) as (file, shares):
        waiting, under_way = iter(jobs), {}

        def taken() -> Iterator[Job]:
            for number, arguments in waiting:
                under_way[number] = arguments
                yield number, arguments

        while True:
            try:
                for number, result in _parallel(work, taken(), processes, file):
                    del under_way[number]
                    shares[number] = 1.0
                    yield number, result
                return
            except TerminatedWorkerError as error:
                broken = error
            # one job crashes its worker: run each alone so that it kills no other job
            for number, arguments in list(under_way.items()):
                yield number, _alone(work, (number, arguments), file, broken)
                del under_way[number]
                shares[number] = 1.0


def _alone(work: Callable[..., R], job: Job, file: str, broken: Exception) -> R | Lost:
    try:
        ((_, result),) = _parallel(work, iter([job]), 2, file)
    except TerminatedWorkerError:
        return Lost("the process of this run has ended twice: " + str(broken).partition("\n")[0])
    return result


def _parallel(
    work: Callable[..., R], jobs: Iterator[Job], processes: int, file: str
) -> Iterator[tuple[int, R | Lost]]:
    release = tuple(int(part) for part in joblib.__version__.split(".")[:2])
    order = "generator_unordered" if release >= (1, 4) else "generator"
    # joblib mistakes compiled code in memory for a leak and replaces the process
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    backend = _Processes(inner_max_num_threads=1)
    parallel = joblib.Parallel(processes, backend, return_as=order, batch_size=1, pre_dispatch=2 * processes)
    results = parallel(joblib.delayed(_work)(work, *job, file) for job in jobs)
    try:
        for result in results:  # noqa: UP028 (closes it before the lines below)
            yield result
    finally:
        with warnings.catch_warnings():  # joblib warns of pieces that are cancelled on purpose
            warnings.simplefilter("ignore")
            results.close()  # ends the processes if the caller has stopped


@contextmanager
def _shares(count: int, progress: Progress | None) -> Iterator[tuple[str, Array]]:
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        file, over = Path(folder) / "shares", threading.Event()
        shares = np.memmap(file, np.float64, "w+", shape=(count,))

        def look() -> None:
            while progress and not over.wait(TOLD_S):
                progress(shares.tolist())

        looking = threading.Thread(target=look, name="progress", daemon=True)
        looking.start()
        try:
            yield str(file), shares
        finally:
            over.set()
            looking.join()
            if progress:
                progress(shares.tolist())


def _begin(path: tuple[str, ...]) -> None:
    """Initialise a process, so that only its parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = path
    threading.Thread(target=_end_with, args=(os.getppid(),), name="parent", daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent ends; joblib would wait for a minute."""
    while os.getppid() == parent:
        time.sleep(ORPHANED_S)
    os._exit(1)


def _work(work: Callable[..., R], number: int, arguments: tuple[object, ...], file: str) -> tuple[int, R]:
    shares = np.memmap(file, np.float64, "r+")

    def tell(share: float) -> None:
        shares[number] = share

    return number, work(*arguments, tell)
