# SPDX-License-Identifier: Apache-2.0
"""Tests of the selection and the order of tests by their recorded durations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import durations
import pytest

RECORDED = {
    "a/test_long.py": {"test_whole": 9.0, "test_cases[1]": 1.5, "test_cases[2]": 3.0, "test_cases[3]": 0.5},
    "test_short.py": {"test_b": 1.0},
}


class Item(SimpleNamespace):
    """Path and name of a collected test."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def items(path: str, *names: str) -> list[Any]:
    return [Item(path=durations.TESTS / path, name=name) for name in names]


LONG = items("a/test_long.py", "test_whole", *(f"test_cases[{number}]" for number in range(1, 5)))
SHORT = items("test_short.py", *(f"test_{letter}" for letter in "abcde"))


def test_tests_beyond_limit_are_left_out_or_shared() -> None:
    left_out = durations.longer_than(2.0, [*LONG, *SHORT], RECORDED, "")
    assert [item.name for item in LONG if item in left_out] == ["test_whole", "test_cases[2]"]
    timed = durations.longer_than(0.0, [*LONG, *SHORT], RECORDED, "")
    shares = [timed - durations.longer_than(0.0, [*LONG, *SHORT], RECORDED, f"{number}/3") for number in range(3)]
    assert set().union(*shares) == timed
    assert sum(map(len, shares)) == len(timed) == 5


def test_each_process_begins_with_its_share_of_long_files() -> None:
    longest = items("test_other.py", *"xyz")
    order = durations.dealt([*SHORT, *LONG, *longest], 2, RECORDED | {"test_other.py": {"x": 30.0}})
    assert order == [*longest, *SHORT[:3], *LONG, *SHORT[3:]]  # 6 and 7, as xdist divides 13


def test_record_updates_run_tests_and_drops_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.json")
    old = {"test_imports.py": {"test_a": 3.0, "test_b": 2.0}, "test_gone.py": {"test_a": 1.0}}
    durations.FILE.write_text(json.dumps(old))
    durations.record({"test/test_imports.py::test_a": 0.1, "test/test_typed.py::test_c[1-a]": 0.26})
    assert durations.recorded() == {"test_imports.py": {"test_b": 2.0}, "test_typed.py": {"test_c[1-a]": 0.3}}


def test_left_out_tests_are_counted() -> None:
    """Both kinds: marked ``soak``, and longer than the limit."""
    options = ["--collect-only", "-q", "--longest", "0.1", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "test/loop/test_copies_soak.py", *options]
    result = subprocess.run(command, cwd=durations.TESTS.parent, capture_output=True, text=True, check=False)
    assert "tests marked soak (make soak)" in result.stdout
