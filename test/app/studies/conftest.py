# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of studies: tasks that other processes can import, and a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

TASKS = '''
import os
import resource
import signal
import time
from pathlib import Path

import numpy as np

kept = []


def square(number, tell):
    """Square; smaller numbers take longer, so that the order of the results differs."""
    tell(0.5)
    time.sleep(0.02 * (5 - number) if number < 5 else 0.0)
    return number * number


def faults_of_arrays(number, tell):
    """Page faults of ten times eight arrays of 2 MB, after a first time."""
    pages = []
    for _ in range(11):
        [np.ones(250_000) for _ in range(8)]
        pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return pages[-1] - pages[0]


def blocked(number, report):
    """True if this process is not interrupted by Ctrl-C, even during its start."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def dying(number, tell):
    """Square; number 3 ends its process."""
    if number == 3:
        os._exit(7)
    return number * number


def dying_once(number, folder, tell):
    """Square; number 3 ends its process the first time."""
    if number == 3 and not (seen := Path(folder) / "seen").exists():
        seen.touch()
        os._exit(7)
    return number * number


def hanging(number, folder, report):
    """Number 3 ends its process and, when it is repeated, interrupts its parent and hangs."""
    if number == 3:
        dying_once(number, folder, report)
        (Path(folder) / "process").write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60.0)


class Unreadable:
    def __init__(self, number, report): ...

    def __reduce__(self):
        return int, ("three",)


def growing(number, tell):
    """Square; each call keeps 160 MB, like compiled code."""
    kept.append(b"x" * 160_000_000)
    time.sleep(1.1)
    return number * number


def failing(number, tell):
    """Square; number 3 raises."""
    if number == 3:
        raise ValueError("three")
    return number * number
'''


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Return a task by name. All tests of a module import it from one folder, so that processes are reused."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "tasks_of_test.py").write_text(TASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        module = importlib.import_module("tasks_of_test")
        yield lambda name: getattr(module, name)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Local cluster of two workers with one thread each."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        yield started
