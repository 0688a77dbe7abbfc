"""A process that hangs while it leaves ends all the same, with its own exit code."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from rths_nodes.leaving import exits_within

HANGS = """
import ctypes
from rths_nodes.leaving import exits_within
with exits_within(0.5, {code}):
    ctypes.PyDLL(None).pause()  # holds the interpreter's lock: no Python code runs any more
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_hangs_in_a_library_ends_with_its_code(code):
    assert (
        subprocess.run([sys.executable, "-c", HANGS.format(code=code)], timeout=60, check=False).returncode == code
    )


def test_one_that_ends_in_time_is_not_touched():
    with exits_within(0.2, 1):
        pass
    time.sleep(0.4)
