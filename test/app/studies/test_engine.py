# SPDX-License-Identifier: Apache-2.0
"""Work side by side: the same results everywhere, whoever dies on the way."""

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
from joblib.externals.loky import get_reusable_executor
from messages import naming

from rths_nodes.app.studies import cluster as on_dask
from rths_nodes.app.studies.engine import Where, as_completed, release, start
from rths_nodes.app.studies.tasks import Lost
from rths_nodes.core.errors import ConfigError

COUNT = 8
SQUARES = {number: number * number for number in range(COUNT)}
JOBS = [(number, (number,)) for number in range(COUNT)]
HERE = [Where(1), Where(2)]

Work = Callable[[str], Any]


@pytest.mark.parametrize("where", HERE)
def test_every_piece_gives_its_own_result(work: Work, where: Where) -> None:
    assert dict(as_completed(work("square"), iter(JOBS), COUNT, where)) == SQUARES


@pytest.mark.parametrize("where", HERE)
def test_progress_ends_where_all_is_done(work: Work, where: Where) -> None:
    told: list[Sequence[float]] = []
    list(as_completed(work("square"), iter(JOBS), COUNT, where, told.append))
    assert told[-1] == [1.0] * COUNT


def test_jobs_are_taken_as_they_are_needed(work: Work) -> None:
    taken = []

    def jobs() -> Any:
        for job in JOBS:
            taken.append(job)
            yield job

    for _ in as_completed(work("square"), jobs(), COUNT, Where(1)):
        break
    assert len(taken) == 1
    taken.clear()
    for _ in as_completed(work("square"), jobs(), COUNT, Where(2)):
        break
    assert len(taken) < COUNT


def test_a_piece_that_ends_its_process_is_lost_and_takes_none_along(work: Work) -> None:
    found = dict(as_completed(work("dying"), iter(JOBS), COUNT, Where(2)))
    lost = found.pop(3)
    assert isinstance(lost, Lost)
    assert "ended twice" in lost.reason
    assert found == {number: square for number, square in SQUARES.items() if number != 3}


def test_a_piece_whose_process_was_ended_by_others_is_done_again(work: Work, tmp_path: Path) -> None:
    jobs = [(number, (number, str(tmp_path))) for number in range(COUNT)]
    assert dict(as_completed(work("dying_once"), iter(jobs), COUNT, Where(2))) == SQUARES


def test_a_process_that_grows_is_replaced_without_a_word(work: Work) -> None:
    """After 300 MB."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert dict(as_completed(work("growing"), iter(JOBS), COUNT, Where(2))) == SQUARES
    assert [str(each.message) for each in said] == []


def test_processes_keep_the_memory_of_freed_arrays(work: Work) -> None:
    """Otherwise the arrays of 2 MB cost 39 000 page faults."""
    if platform.libc_ver()[0] != "glibc" or "GLIBC_TUNABLES" in os.environ:
        pytest.skip("another memory allocator, or one that is set already")
    found = dict(as_completed(work("faults_of_arrays"), iter(JOBS), COUNT, Where(2)))
    assert max(found.values()) < 1000


def test_processes_start_early_and_end_when_they_are_released(work: Work) -> None:
    def processes() -> int:
        me = Path(f"/proc/{os.getpid()}/task")
        children = [child for task in me.iterdir() for child in (task / "children").read_text().split()]
        return sum(b"LokyProcess" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)

    start(Where(2), print)
    started = get_reusable_executor(reuse=True)
    assert dict(as_completed(work("square"), iter(JOBS), COUNT, Where(2))) == SQUARES
    assert get_reusable_executor(reuse=True) is started
    assert processes() == 2
    release(Where(2))
    assert processes() == 0


@pytest.mark.parametrize("where", HERE)
def test_what_a_piece_raises_is_raised(work: Work, where: Where) -> None:
    with pytest.raises(ValueError, match="three"):
        list(as_completed(work("failing"), iter(JOBS), COUNT, where))


# A cluster


def test_a_request_to_stop_is_heard_where_its_exception_is_swallowed(work: Work) -> None:
    """In a finaliser or a callback of a library."""

    def jobs() -> Iterator[Any]:
        yield from JOBS[:2]
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        yield from JOBS[2:]

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(as_completed(work("square"), jobs(), COUNT, Where(1)))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.nodes
def test_a_cluster_gives_the_same(work: Work, cluster: Any, tmp_path: Path) -> None:
    """Also where a worker ends under a piece: another one does it again."""
    where = Where(scheduler=cluster.scheduler_address)
    told: list[Sequence[float]] = []
    assert dict(as_completed(work("square"), iter(JOBS), COUNT, where, told.append)) == SQUARES
    assert told[-1] == [1.0] * COUNT
    jobs = [(number, (number, str(tmp_path))) for number in range(COUNT)]
    assert dict(as_completed(work("dying_once"), iter(jobs), COUNT, where)) == SQUARES


@pytest.mark.nodes
def test_a_cluster_of_another_version_is_refused(
    work: Work, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "__version__", "0.0.1")
    with pytest.raises(ConfigError, match=naming("rths_nodes", "0.0.1")):
        list(as_completed(work("square"), iter(JOBS), COUNT, Where(scheduler=cluster.scheduler_address)))


def test_a_scheduler_that_is_not_there_is_refused(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    monkeypatch.setattr(on_dask, "PATIENCE_S", 0.5)
    with pytest.raises(ConfigError, match=naming("scheduler", "/127.0.0.1", "9")):
        list(as_completed(work("square"), iter(JOBS), COUNT, Where(scheduler="tcp://127.0.0.1:9")))


def test_without_dask_the_way_to_it_is_told(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=naming("dask.distributed", "distributed")):
        list(as_completed(work("square"), iter(JOBS), COUNT, Where(scheduler="tcp://127.0.0.1:9")))


def test_nothing_of_joblib_and_dask_is_loaded_before_it_is_needed() -> None:
    source = (
        "import sys, rths_nodes.app.commands.compare\n"
        "print({'joblib', 'distributed', 'pyarrow'} & set(sys.modules))"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "set()\n"
