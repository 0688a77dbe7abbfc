# SPDX-License-Identifier: Apache-2.0
"""Tests of parallel jobs: results, progress, lost processes, Dask clusters."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from joblib.parallel import LokyBackend
from messages import naming
from programs import child_environment

from rths_nodes.app.studies import engine
from rths_nodes.app.studies.engine import Lost, Where, as_completed
from rths_nodes.core.errors import ConfigError

COUNT = 8
SQUARES = {number: number * number for number in range(COUNT)}
JOBS = [(number, (number,)) for number in range(COUNT)]
HERE = [Where(1), Where(2)]

Task = Callable[[str], Any]


@pytest.mark.parametrize("where", HERE)
def test_jobs_return_their_results(task: Task, where: Where) -> None:
    reports: list[Sequence[float]] = []
    assert dict(as_completed(task("square"), iter(JOBS), COUNT, where, reports.append)) == SQUARES
    assert reports[-1] == [1.0] * COUNT


@pytest.mark.parametrize(("where", "most"), [(Where(1), 1), (Where(2), COUNT - 1)])
def test_jobs_are_generated_on_demand(task: Task, where: Where, most: int) -> None:
    generated = []

    def jobs() -> Any:
        for job in JOBS:
            generated.append(job)
            yield job

    next(iter(as_completed(task("square"), jobs(), COUNT, where)))
    assert 1 <= len(generated) <= most


def test_job_that_ends_its_process_is_lost_alone(task: Task) -> None:
    results = dict(as_completed(task("dying"), iter(JOBS), COUNT, Where(2)))
    lost = results.pop(3)
    assert isinstance(lost, Lost)
    assert "ended twice" in lost.reason
    assert results == {number: square for number, square in SQUARES.items() if number != 3}


def test_job_is_repeated_after_its_process_ended(task: Task, tmp_path: Path) -> None:
    jobs = [(number, (number, str(tmp_path))) for number in range(COUNT)]
    assert dict(as_completed(task("dying_once"), iter(jobs), COUNT, Where(2))) == SQUARES


def test_interrupt_ends_repeated_job(task: Task, tmp_path: Path) -> None:
    jobs = ((number, (number, str(tmp_path))) for number in range(COUNT))
    with pytest.raises(KeyboardInterrupt):
        list(as_completed(task("hanging"), jobs, COUNT, Where(2)))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "process").read_text()), 0)


def test_processes_start_with_blocked_interrupt(task: Task) -> None:
    """Ctrl-C during the imports of a process printed a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert set(dict(as_completed(task("blocked"), iter(JOBS), COUNT, Where(2))).values()) == {True}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_processes_limit_libraries_as_joblib_does() -> None:
    assert set(LokyBackend.MAX_NUM_THREADS_VARS) <= set(engine.ONE_THREAD)


def test_growing_process_is_replaced_without_warning(task: Task) -> None:
    """joblib replaces a process that has grown by 300 MB."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        assert dict(as_completed(task("growing"), iter(JOBS), COUNT, Where(2))) == SQUARES
    assert [str(message.message) for message in messages] == []


def test_processes_reuse_memory_of_freed_arrays(task: Task) -> None:
    """Otherwise the arrays of 2 MB cause 39 000 page faults."""
    if platform.libc_ver()[0] != "glibc" or "GLIBC_TUNABLES" in os.environ:
        pytest.skip("another memory allocator, or one with other settings")
    faults = dict(as_completed(task("faults_of_arrays"), iter(JOBS), COUNT, Where(2)))
    assert max(faults.values()) < 1000


@pytest.mark.parametrize("where", HERE)
def test_exception_of_job_is_raised(task: Task, where: Where) -> None:
    with pytest.raises(ValueError, match="three"):
        list(as_completed(task("failing"), iter(JOBS), COUNT, where))


def test_swallowed_keyboard_interrupt_stops_jobs(task: Task) -> None:
    """A finaliser or a callback of a library may swallow the exception."""

    def jobs() -> Iterator[Any]:
        yield from JOBS[:2]
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        yield from JOBS[2:]

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(as_completed(task("square"), jobs(), COUNT, Where(1)))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.nodes
def test_cluster_returns_same_results(task: Task, cluster: Any, tmp_path: Path) -> None:
    """Another worker repeats the job of a worker that has ended."""
    where = Where(scheduler=cluster.scheduler_address)
    reports: list[Sequence[float]] = []
    assert dict(as_completed(task("square"), iter(JOBS), COUNT, where, reports.append)) == SQUARES
    assert reports[-1] == [1.0] * COUNT
    jobs = [(number, (number, str(tmp_path))) for number in range(COUNT)]
    assert dict(as_completed(task("dying_once"), iter(jobs), COUNT, where)) == SQUARES
    with pytest.raises(ValueError, match="three"):  # the result cannot be read
        list(as_completed(task("Unreadable"), iter(JOBS), COUNT, where))


@pytest.mark.nodes
def test_other_version_of_worker_is_refused(task: Task, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "__version__", "0.0.1")
    with pytest.raises(ConfigError, match=naming("rths_nodes", "0.0.1")):
        list(as_completed(task("square"), iter(JOBS), COUNT, Where(scheduler=cluster.scheduler_address)))


def test_unreachable_scheduler_is_refused(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    monkeypatch.setattr(engine, "PATIENCE_S", 0.5)
    with pytest.raises(ConfigError, match=naming("scheduler", "/127.0.0.1", "9")):
        list(as_completed(task("square"), iter(JOBS), COUNT, Where(scheduler="tcp://127.0.0.1:9")))


def test_missing_dask_is_reported_with_its_package(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=naming("dask.distributed", "distributed")):
        list(as_completed(task("square"), iter(JOBS), COUNT, Where(scheduler="tcp://127.0.0.1:9")))


def test_joblib_and_dask_are_imported_lazily() -> None:
    lazy = "{'joblib', 'distributed', 'pyarrow'}"
    source = f"import sys, rths_nodes.app.commands.studies; print({lazy} & set(sys.modules))"
    command = [sys.executable, "-c", source]
    assert subprocess.check_output(command, text=True, env=child_environment()) == "set()\n"
