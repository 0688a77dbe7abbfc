# SPDX-License-Identifier: Apache-2.0
"""A process that hangs while it leaves ends all the same, with its own exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rths_nodes.ros.hosting.exit_guard import LEAVING_S

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


HERE = Path(__file__).parent
NODES = ["integrator", "compensator", "actuator", "monitor"]
TEST = ["scenario:=chen_ricles_2010", "overrides:=['duration=0.2']", f"peers:={NODES}"]


@pytest.mark.nodes
@pytest.mark.parametrize("way", ["thread", "middleware", "spin", "hang", "node"])
def test_nodes_that_have_said_their_last_word_are_gone_within_two_seconds(way, environment):
    """The clock of the process says so; it is given ten times as long, for the sake of a machine that is busy."""
    words = ["rig", *NODES, "--ros-args", *(part for word in TEST for part in ("-p", word))]
    program = [sys.executable, str(HERE / "leaving_badly.py"), *words]
    with subprocess.Popen(program, env=environment | {"RTHS_TEST_END": way}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            told = process.stdout.readline()
            assert told == b"rths: the test has finished after 210 samples\n"
            for number in (signal.SIGINT, signal.SIGTERM):  # an impatient operator spoils nothing
                process.send_signal(number)
            assert process.wait(10.0 * LEAVING_S) == 0
        finally:
            process.kill()


def test_a_refused_node_is_gone_as_well(environment):
    program = [sys.executable, str(HERE / "leaving_badly.py"), "monitor", "--ros-args", "-p", "scenario:=nosuch"]
    ended = environment | {"RTHS_TEST_END": "spin"}
    done = subprocess.run(program, env=ended, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "unknown scenario 'nosuch'" in done.stderr
    assert "Traceback" not in done.stderr


COMMAND = """
import atexit, sys
from rths_nodes.app.cli import program
atexit.register(lambda: [None for _ in iter(int, 1)])
sys.argv = ["rths", "run", "chen_ricles_2010", "--set", "duration=0.2", "--host", "composed", "--no-record"]
program()
"""


@pytest.mark.nodes
def test_the_command_line_is_gone_as_well_where_nodes_were_in_it(environment):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], env=environment, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"finished after 210 samples" in done.stdout
