"""A process that hangs while it leaves ends all the same, with its own exit code."""

from __future__ import annotations

import subprocess
import sys
import time

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


ARMED_AGAIN = """
import ctypes, time
from rths_nodes.ros.hosting.exit_guard import ExitGuard
guard = ExitGuard()
for code in (3, 3, 0, 130):
    guard.arm(2.0, code)
    time.sleep(0.5)
ctypes.PyDLL(None).pause()
"""


def test_a_guard_that_is_armed_again_waits_anew_and_takes_the_last_code():
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", ARMED_AGAIN], timeout=60, check=False).returncode == 130
    assert time.monotonic() - started > 3.4


def test_one_that_ends_in_time_is_not_touched():
    assert exit_code("pass", 3) == 0
