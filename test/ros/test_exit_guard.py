"""A process that hangs while it leaves ends all the same, with its own exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, time
from rths_nodes.ros.hosting.exit_guard import exits_within
with exits_within(0.5, {code}):
    {inside}
time.sleep(1.0)
"""
HANGS = "ctypes.PyDLL(None).pause()"
"""Holds the interpreter's lock: no Python code runs any more."""


def exit_code(inside: str, code: int) -> int:
    program = PROGRAM.format(inside=inside, code=code)
    return subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_hangs_in_a_library_ends_with_its_code(code):
    assert exit_code(HANGS, code) == code


def test_one_that_ends_in_time_is_not_touched():
    assert exit_code("pass", 3) == 0
