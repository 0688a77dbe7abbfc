# SPDX-License-Identifier: Apache-2.0
"""Independent jobs in parallel: on this machine with loky (joblib), or on several machines with dask.distributed.

Results depend on neither machine nor order. Other processes receive the components that the running program has
added. dask reassigns the jobs of a dead worker. A job that has killed several workers is lost.
"""

from __future__ import annotations

import atexit
import io
import itertools
import linecache
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import Array
from rths_nodes.core.version import __version__
from rths_nodes.loop.compiled.running import loop_over_kernels
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.interrupts import raised_at_once
from rths_nodes.loop.options import AUTO, COMPILED, KERNELS, STAGES, STUDY_ENGINES
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

if TYPE_CHECKING:
    import distributed

WORTH_S = 15.0
"""Total computing time of runs in Python above which compilation saves time, s."""
TRIED_S = 0.2
WORTH = 100_000

BUILT_S, FASTER = 1.0, 30.0
"""``BUILT_S``: time to build a compiled loop, s. ``FASTER``: ratio of its speed to the speed of Python."""

R = TypeVar("R")
Tell = Callable[[float], None]
Progress = Callable[[Sequence[float]], None]
Report = Callable[[float, float], None]
"""Function that receives completed and total work."""
Shown = Callable[[str], AbstractContextManager[Report]]
"""Function that takes the name of a task and returns a context manager, which yields the task's Report."""
Say = Callable[[Iterable[str]], None]
Job = tuple[int, tuple[object, ...]]
"""Number of a job, and the arguments of its function."""


def warn(remarks: Iterable[str]) -> None:
    for remark in remarks:
        warnings.warn(remark, stacklevel=3)


@contextmanager
def silent(name: str) -> Iterator[Report]:
    yield lambda done, total: None


def summed(report: Report) -> Progress:
    return lambda shares: report(sum(shares), len(shares))


@dataclass(frozen=True)
class Where:
    """Selects where jobs run: on a dask cluster, or in processes on this machine.

    ``scheduler`` is the address of the cluster (``tcp://host:8786``). If it is empty, the jobs run in
    ``processes`` processes on this machine (1: in the current process).
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


def chosen(jobs: int | None, scheduler: str = "", engine: str = AUTO) -> Where:
    if jobs is not None and scheduler:
        raise ConfigError("jobs: must be omitted with a scheduler, which sets the number of runs per worker")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs = {jobs}: must be >= 1")
    if engine not in STUDY_ENGINES:
        raise unknown("engine", "engine", engine, STUDY_ENGINES)
    return Where(jobs or processors(), scheduler, engine)


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def expected_s(scenario: Scenario, samples: float, engine: str = KERNELS) -> float | None:
    """Return the expected computing time of ``samples`` samples, s, or None if it is short or unknown.

    External components are not started.
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


@dataclass(frozen=True)
class Lost:
    reason: str


def as_completed(
    work: Callable[..., R], jobs: Iterable[Job], count: int, where: Where, progress: Progress | None = None
) -> Iterator[tuple[int, R | Lost]]:
    """Yield the number (below ``count``) and the result of each job, in order of completion.

    The result is returned by ``work(*arguments, report)``, or is ``Lost`` if the processes of the job died.
    ``work`` is a module-level function and may ``report`` its completed fraction. Jobs and results must be
    picklable. Raises errors of ``work``, ConfigError if the scheduler is unusable, and OSError if its connection
    is lost. All work ends after an error, or if the caller stops iterating. A stop request raises
    KeyboardInterrupt.
    """
    with raised_at_once() as check:
        for result in _results(work, jobs, count, where, progress):  # an error closes the generator at once
            check()
            yield result


def _results(
    work: Callable[..., R], jobs: Iterable[Job], count: int, where: Where, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    if where.scheduler:
        return _on_cluster(with_components(work), jobs, count, where.scheduler, progress)
    if where.processes > 1:
        return _in_processes(with_components(work), jobs, count, where.processes, progress)
    return _here(work, jobs, count, progress)


def _here(
    work: Callable[..., R], jobs: Iterable[Job], count: int, progress: Progress | None
) -> Iterator[tuple[int, R]]:
    shares = [0.0] * count

    def tell(number: int, share: float) -> None:
        shares[number] = share
        if progress:
            progress(list(shares))

    for number, arguments in jobs:
        result = work(*arguments, partial(tell, number))
        tell(number, 1.0)
        yield number, result


def _completed(
    jobs: Iterable[Job], submit: Callable[[Job], Future[R]], ahead: Callable[[], int]
) -> Iterator[tuple[Job, Future[R]]]:
    waiting, under_way = iter(jobs), dict[Future[R], Job]()
    while True:
        for job in itertools.islice(waiting, max(0, ahead() - len(under_way))):
            under_way[submit(job)] = job
        if not under_way:
            return
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            yield under_way.pop(future), future


# Processes of this machine

TOLD_S = 0.1
ORPHANED_S = 0.5
"""Time until a process notices the death of its parent, s."""
IDLE_S = 10
MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1073741824:glibc.malloc.hugetlb=1"
"""glibc settings that keep the memory of freed arrays, in huge pages, so that no run has to clear 8000 pages."""
LIBRARIES = "OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA", "NUMEXPR"
ONE_THREAD = {"VECLIB_MAXIMUM_THREADS": "1"} | {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}


def _in_processes(
    work: Callable[..., R], jobs: Iterable[Job], count: int, processes: int, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    """Yield results as :func:`as_completed` does. A job whose process dies is retried once, alone."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # loky mistakes compiled code in memory for a leak and replaces the process
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    used = set[Executor]()
    with _shares(count, progress) as (file, shares):

        def submit(job: Job, processes: int = processes) -> Future[R]:
            pool = _pool(processes)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit the mask
            try:
                future: Future[R] = pool.submit(_work, work, job, file)
            except TerminatedWorkerError:  # an earlier job has killed a worker of this pool
                _reusable_pool.cache_clear()
                return submit(job, processes)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            used.add(pool)
            return future

        try:
            for job, future in _completed(jobs, submit, lambda: 2 * processes):
                result: R | Lost
                try:
                    result = future.result()
                except TerminatedWorkerError as broken:
                    # one job crashes its worker: run each alone so that it kills no other job
                    try:
                        result = submit(job, 1).result()
                    except TerminatedWorkerError:
                        cause = str(broken).partition("\n")[0]
                        result = Lost(f"the process of this run has ended twice: {cause}")
                shares[job[0]] = 1.0
                yield job[0], result
        except BaseException:  # an error, or the caller has stopped
            for pool in used:
                pool.shutdown(kill_workers=True)  # type: ignore[call-arg]
            _reusable_pool.cache_clear()
            raise


def _pool(processes: int) -> Executor:
    return _reusable_pool(processes, tuple(sys.path), frozenset(os.environ.items()))


@lru_cache(2)
def _reusable_pool(processes: int, path: tuple[str, ...], environment: frozenset[tuple[str, str]]) -> Executor:
    from joblib.externals.loky import ProcessPoolExecutor

    variables = {"GLIBC_TUNABLES": MEMORY, **dict(environment), **ONE_THREAD}
    begin = {"initializer": _begin, "initargs": (path,), "timeout": IDLE_S, "env": variables}
    pool: Executor = ProcessPoolExecutor(processes, **begin)
    return pool


atexit.register(_reusable_pool.cache_clear)  # loky needs its modules when a pool ends


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
    """Initialise a worker process with the module search path ``path``."""
    sys.path[:] = path
    threading.Thread(target=_end_with, args=(os.getppid(),), name="parent", daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process as soon as the process ``parent`` ends; without this, loky waits for a minute."""
    while os.getppid() == parent:
        time.sleep(ORPHANED_S)
    os._exit(1)


def _work(work: Callable[..., R], job: Job, file: str) -> R:
    number, arguments = job
    shares = np.memmap(file, np.float64, "r+")

    def tell(share: float) -> None:
        shares[number] = share

    return work(*arguments, tell)


# Cluster

PATIENCE_S = 10.0
"""Timeout until the scheduler responds and has a worker, s."""
AHEAD = 4
AT_LEAST = 16
"""Minimum number of jobs submitted in advance."""


def _on_cluster(
    work: Callable[..., R], jobs: Iterable[Job], count: int, scheduler: str, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    with _client(scheduler) as client:
        shares = [0.0] * count

        def submit(job: Job) -> Future[Any]:
            future: Future[Any] = Future()
            # pure=False: dask must not reuse results of an earlier study
            remote = client.submit(_work_there, work, __version__, job[1], pure=False)
            # the executor of dask leaves a future pending if its result cannot be read
            remote.add_done_callback(future.set_result)
            return future

        def ahead() -> int:
            return max(AT_LEAST, AHEAD * int(sum(client.nthreads().values())))

        for (number, _), future in _completed(jobs, submit, ahead):
            result: R | Lost = _result(future.result(), scheduler)
            shares[number] = 1.0
            if progress:
                progress(list(shares))
            yield number, result


def _work_there(work: Callable[..., R], version: str, arguments: tuple[object, ...]) -> R:
    if version != __version__:
        raise ConfigError(
            f"a worker has rths_nodes {__version__}, but the study has {version}, so results may differ"
        )
    return work(*arguments, lambda share: None)


def _result(future: distributed.Future, scheduler: str) -> Any:
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        return Lost(f"the workers that executed this run have ended: {error}".partition("\n")[0])
    except CancelledError as error:
        raise ConnectionError(f"scheduler {scheduler}: the connection was lost during the study") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"scheduler {scheduler}: a worker lacks a module that a run needs ({error})") from error
    except ConfigError as error:
        raise error.within(f"scheduler {scheduler}") from None


@contextmanager
def _client(scheduler: str) -> Iterator[distributed.Client]:
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("scheduler: requires dask.distributed (pip install distributed)") from None
    try:
        client = Client(scheduler, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"scheduler {scheduler}: no dask scheduler responds at this address ({error})") from None
    try:
        try:
            client.wait_for_workers(1, timeout=PATIENCE_S)
        except TimeoutError:
            raise ConfigError(f"scheduler {scheduler}: has no workers. Start workers with 'dask worker'") from None
        yield client
    finally:
        client.close()


# Components of the running program


def _with(work: Callable[..., R], components: bytes, *arguments: object) -> R:
    _receive(components)
    return work(*arguments)


def _in_file(name: str, make: Callable[..., CodeType], arguments: tuple[object, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=name)


def with_components(work: Callable[..., R]) -> Callable[..., R]:
    if not (components := registry.added()):
        return work
    try:
        import cloudpickle
    except ImportError:  # older versions of joblib include cloudpickle
        from joblib.externals import cloudpickle

    plain = cloudpickle.CloudPickler.dispatch_table

    def located(code: CodeType) -> tuple[object, ...]:
        """Pickle code with its file name, because the translation to C reads the file."""
        return _in_file, (code.co_filename, *plain[CodeType](code))

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap({CodeType: located}, plain)

    # a compiled kernel needs its source, which a notebook keeps only in memory
    files = {name: linecache.getlines(name) for name in list(linecache.cache) if not os.path.isfile(name)}
    packed = io.BytesIO()
    Pickler(packed).dump((components, files))
    return partial(_with, work, packed.getvalue())


@cache
def _receive(components: bytes) -> None:
    added, files = pickle.loads(components)
    for file, lines in files.items():
        linecache.cache[file] = sum(map(len, lines)), None, lines, file
    for family, component in added:
        registry.add(family, component)
