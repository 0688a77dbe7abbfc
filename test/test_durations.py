# SPDX-License-Identifier: Apache-2.0
"""Tests are left out, and dealt to processes, by their recorded durations."""

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
    """As much of a collected test as is looked at."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def item(path: str, name: str) -> Any:
    return Item(path=durations.TESTS / path, name=name)


LONG = [
    item("a/test_long.py", name) for name in ("test_whole", *(f"test_cases[{number}]" for number in range(1, 5)))
]
SHORT = [item("test_short.py", f"test_{letter}") for letter in "abcde"]


def test_long_tests_and_cases_beyond_the_limit_are_left_out() -> None:
    left_out = durations.longer_than(2.0, [*LONG, *SHORT], RECORDED, "")
    assert [each.name for each in LONG if each in left_out] == ["test_whole", "test_cases[2]"]


def test_each_long_test_belongs_to_one_share() -> None:
    whole = durations.longer_than(0.0, [*LONG, *SHORT], RECORDED, "")
    shares = [whole - durations.longer_than(0.0, [*LONG, *SHORT], RECORDED, f"{number}/3") for number in range(3)]
    assert set().union(*shares) == whole
    assert sum(map(len, shares)) == len(whole) == 5


def test_each_process_begins_with_its_share_of_the_long_files() -> None:
    other = [item("test_other.py", name) for name in "xyz"]
    recorded = RECORDED | {"test_other.py": {"x": 30.0}}
    order = durations.dealt([*SHORT, *LONG, *other], 2, recorded)
    assert order == [*other, *SHORT[:3], *LONG, *SHORT[3:]]  # 6 and 7, as xdist divides 13


def test_what_is_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "durations.json"
    file.write_text(
        json.dumps({"test_imports.py": {"test_a": 3.0, "test_b": 2.0}, "test_gone.py": {"test_a": 1.0}})
    )
    monkeypatch.setattr(durations, "FILE", file)
    durations.record({"test/test_imports.py::test_a": 0.1, "test/test_tour.py::test_c[1-a]": 0.26})
    assert durations.recorded() == {"test_imports.py": {"test_b": 2.0}, "test_tour.py": {"test_c[1-a]": 0.3}}


def test_what_is_left_out_is_counted() -> None:
    """In its own process: of tests that are marked soak, and of long ones."""
    words = ["test/loop/test_copies_soak.py", "--collect-only", "-q", "--longest", "0.1", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=durations.TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tests marked soak (make soak)" in done.stdout
