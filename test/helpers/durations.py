# SPDX-License-Identifier: Apache-2.0
"""Recorded durations of the tests (``test/durations.json``): selection and order of the tests.

``pytest --longest S`` leaves out each test of more than S seconds. Of a parametrised test it runs the first cases
that fit into S seconds. With ``--share K/N`` it also runs share K, from 0, of N of the tests left out; ``.ci/run``
takes another share for each commit. ``make durations`` runs all tests except those marked soak and records their
durations. Tests that are not recorded, because they are quick or new, are always run.
"""

from __future__ import annotations

import json
from collections import Counter
from heapq import heapify, heapreplace
from pathlib import Path
from zlib import crc32

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILE = TESTS / "durations.json"
SHORTEST_S = 0.2
"""Shortest recorded duration of a test."""
LONG_FILE_S = 10.0
"""Shortest total duration of a file that begins before the others."""

Durations = dict[str, dict[str, float]]
"""File below ``test/`` -> name of a test with its case -> seconds."""


def recorded() -> Durations:
    """Return the stored durations."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def _duration(item: pytest.Item, durations: Durations) -> float:
    return durations.get(item.path.relative_to(TESTS).as_posix(), {}).get(item.name, 0.0)


def longer_than(longest: float, items: list[pytest.Item], durations: Durations, share: str) -> set[pytest.Item]:
    """Return the tests that ``--longest`` leaves out, without the ``share`` K/N."""
    number, shares = map(int, share.split("/")) if share else (0, 0)
    spent: Counter[tuple[Path, str]] = Counter()
    left_out = set()
    for item in items:
        test, seconds = (item.path, item.name.partition("[")[0]), _duration(item, durations)
        if spent[test] + seconds > longest:
            name = f"{item.path.relative_to(TESTS)}::{item.name}"
            if not shares or crc32(name.encode()) % shares != number:
                left_out.add(item)
        else:
            spent[test] += seconds
    return left_out


def dealt(items: list[pytest.Item], workers: int, durations: Durations) -> list[pytest.Item]:
    """Return the tests in an order in which each of the ``workers`` begins with its share of the long files.

    xdist gives each worker the same number of consecutive tests; an idle worker takes tests from the end of
    another list.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    seconds = {path: sum(_duration(item, durations) for item in tests) for path, tests in files.items()}
    long = sorted((path for path in files if seconds[path] >= LONG_FILE_S), key=seconds.__getitem__, reverse=True)
    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    loads = [(0.0, worker) for worker in range(workers)]
    heapify(loads)
    for path in long:  # the longest file to the worker with the smallest load
        load, worker = loads[0]
        heapreplace(loads, (load + seconds[path], worker))
        hands[worker] += files.pop(path)
    quick = [item for tests in files.values() for item in tests]
    for worker, hand in enumerate(hands):  # the number of tests that xdist assigns
        share = len(items) // workers + (worker >= workers - len(items) % workers)
        missing = max(share - len(hand), 0)
        hand += quick[:missing]
        del quick[:missing]
    return [item for hand in hands for item in hand] + quick


def record(measured: dict[str, float]) -> None:
    """Store the durations of the tests, by their node ids, and drop deleted files."""
    durations = {path: tests for path, tests in recorded().items() if (TESTS / path).exists()}
    for node, seconds in measured.items():
        path, _, name = node.removeprefix("test/").partition("::")
        tests = durations.setdefault(path, {})
        tests.pop(name, None)
        if seconds >= SHORTEST_S:
            tests[name] = round(seconds, 1)
    text = json.dumps(
        {path: durations[path] for path in sorted(durations) if durations[path]}, indent=0, sort_keys=True
    )
    FILE.write_text(text + "\n", encoding="utf-8")
