"""What the tests of studies share: work that other processes can import, and a cluster of dask."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WORK = '''
import os
import time
from pathlib import Path


def square(number, tell):
    """The square, later for smaller numbers, so that they become ready in another order."""
    tell(0.5)
    time.sleep(0.02 * (5 - number) if number < 5 else 0.0)
    return number * number


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


def failing(number, tell):
    """Number 3 raises."""
    if number == 3:
        raise ValueError("three")
    return number * number
'''


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Functions of a module that every process finds."""
    (tmp_path / "pieces_of_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    module = importlib.import_module("pieces_of_work")
    return lambda name: getattr(module, name)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of two workers with one thread each, which find what this process finds."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        yield started
