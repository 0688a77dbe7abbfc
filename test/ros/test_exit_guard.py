# SPDX-License-Identifier: Apache-2.0
"""Processes that hang at their end: they exit with their own exit code, and nothing recorded is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.recording import bag
from rths_nodes.ros.hosting import composed, node_processes
from rths_nodes.ros.hosting.exit_guard import LEAVING_S
from rths_nodes.ros.names import NODES, RECORDER

NAME = "chen_ricles_2010"
HANGING = str(Path(__file__).with_name("hanging_at_end.py"))


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


GUARDED = """
import ctypes, time
from rths_nodes.ros.hosting.exit_guard import ExitGuard
guard = ExitGuard()
for code in {codes}:
    guard.arm({seconds}, code)
    time.sleep(0.25 * {seconds})
{inside}
guard.disarm()
time.sleep(1.0)
"""
HANGS = "ctypes.PyDLL(None).pause()"
"""Holds the interpreter's lock, so that no Python code runs."""


@pytest.mark.parametrize(("inside", "code", "expected"), [(HANGS, 0, 0), (HANGS, 3, 3), ("pass", 3, 0)])
def test_guard_ends_only_a_process_that_hangs(inside, code, expected):
    assert run_python("-c", GUARDED.format(seconds=0.5, codes=[code], inside=inside)).returncode == expected


def test_guard_that_is_armed_again_restarts_with_the_last_code():
    started = time.monotonic()
    assert run_python("-c", GUARDED.format(seconds=2.0, codes=(3, 3, 0, 130), inside=HANGS)).returncode == 130
    assert time.monotonic() - started > 3.4


PARAMETERS = [f"scenario:={NAME}", "overrides:=['duration=0.2']", f"peers:={[*NODES[:-1]]}"]


@pytest.mark.nodes
@pytest.mark.parametrize("end", ["thread", "middleware", "spin", "hang", "node"])
def test_nodes_exit_within_two_seconds_after_their_report(end, environment):
    """The process measures the time itself; a busy machine has ten times as long."""
    arguments = ["rig", *NODES[:-1], "--ros-args", *(part for value in PARAMETERS for part in ("-p", value))]
    program = [sys.executable, HANGING, *arguments]
    with subprocess.Popen(program, env=environment | {"RTHS_TEST_END": end}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"rths: the test has finished after 210 samples\n"
            for number in (signal.SIGINT, signal.SIGTERM):  # of an impatient operator
                process.send_signal(number)
            assert process.wait(10.0 * LEAVING_S) == 0
        finally:
            process.kill()


def test_refused_node_exits_as_well(environment):
    arguments = [HANGING, "monitor", "--ros-args", "-p", "scenario:=nosuch"]
    done = run_python(*arguments, env=environment | {"RTHS_TEST_END": "spin"})
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
def test_command_line_exits_after_a_composed_run(environment):
    done = run_python("-c", COMMAND, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "finished after 210 samples" in done.stdout


# Recorder that hangs after the test


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a test whose recorder has its own process, and ends as in ``hanging_at_end.py``."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    start = node_processes._started

    def start_hanging(peer: str, command: list[str], environment: dict[str, str]) -> Any:
        return start(peer, [command[0], HANGING, *command[3:]] if peer == RECORDER else command, environment)

    def run(end: str, **options: Any) -> Any:
        monkeypatch.setenv("RTHS_TEST_END", end)
        monkeypatch.setattr(node_processes, "_started", start_hanging)
        return hosts.run(NAME, ["duration=1"], record=tmp_path / "run", **options)

    return run


COMPOSED = {"host": "composed", "separate": [RECORDER]}
BY_TOPIC = {"host": "processes", "transport": "topics"}
EXITED = "the recorder node died (exit code 1)"
KILLED = "the recorder node hangs: its main thread does not run"


@pytest.mark.parametrize(
    ("end", "options", "hangs_s", "reason"),
    [
        ("tell hang", COMPOSED, 120.0, EXITED),
        pytest.param("tell hang", BY_TOPIC, 120.0, EXITED, marks=pytest.mark.soak),
        ("tell stop", COMPOSED, 120.0, KILLED),
        pytest.param("close hang", COMPOSED, 3.0, KILLED, marks=pytest.mark.soak),
        ("close stop", BY_TOPIC, 120.0, KILLED),
    ],
    ids=str,
)
def test_hanging_recorder_is_ended_and_its_file_recovered(
    end, options, hangs_s, reason, run, different, tmp_path, monkeypatch
):
    monkeypatch.setattr(node_processes, "HANGS_S", hangs_s)
    began = time.monotonic()
    report = run(end, **options)
    assert time.monotonic() - began < 0.5 * node_processes.INDEXING_S
    assert (report.exit_code, report.outcome) == (1, "failed")
    assert report.reason.startswith(reason)
    assert mentions(report.notes, "recover", tmp_path / "run")
    assert not bag.recover(tmp_path / "run").was_complete
    assert different(rths_nodes.read(tmp_path / "run"), rths_nodes.run(NAME, ["duration=1"])) == []


def test_recorder_that_indexes_is_waited_for(run, monkeypatch):
    monkeypatch.setattr(node_processes, "HANGS_S", 1.0)
    report = run("close work", **COMPOSED)
    assert (report.exit_code, report.reason, report.notes) == (0, "", [])
    assert report.messages["complete"]


def test_guard_of_the_report_ends_if_a_node_cannot_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the process could exit with the code of the test, although the node has failed."""
    calls: list[str] = []

    def fail() -> None:
        raise RuntimeError

    class Guard:
        arm = staticmethod(lambda *_: calls.append("arm"))
        disarm = staticmethod(lambda: calls.append("disarm"))

    monkeypatch.setattr(composed, "ExitGuard", Guard)
    nodes: Any = [SimpleNamespace(flush=fail)]
    with pytest.raises(RuntimeError):
        composed._report(nodes, 0, "", None, {})
    assert calls == ["arm", "disarm"]
