# SPDX-License-Identifier: Apache-2.0
"""What the tests of studies share: work that other processes can import, and a cluster of dask."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

WORK = '''
import os
import resource
import time
from pathlib import Path

import numpy as np

kept = []


def square(number, tell):
    """The square, later for smaller numbers, so that they become ready in another order."""
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


def dying(number, tell):
    """The square, but number 3 ends its process."""
    if number == 3:
        os._exit(7)
    return number * number


def dying_once(number, place, tell):
    """The square; the first that comes to number 3 ends its process, and only the first."""
    if number == 3 and not (seen := Path(place) / "seen").exists():
        seen.touch()
        os._exit(7)
    return number * number


def growing(number, tell):
    """Keeps 160 MB for each piece, as what is compiled is kept."""
    kept.append(b"x" * 160_000_000)
    time.sleep(1.1)
    return number * number


def failing(number, tell):
    """Number 3 raises."""
    if number == 3:
        raise ValueError("three")
    return number * number
'''


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Functions of a module that every process finds; in one place, so that processes serve several tests."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "pieces_of_work.py").write_text(WORK)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        module = importlib.import_module("pieces_of_work")
        yield lambda name: getattr(module, name)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of two workers with one thread each, which find what this process finds."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        yield started
