# SPDX-License-Identifier: Apache-2.0
"""The executable ``rig``: all nodes of a test in one process that ROS 2 starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.loop import outcomes
from rths_nodes.loop.indices.late_periods import LateData
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.results import Result

NAME, SHORT = "chen_ricles_2010", "duration=1"
FILE = """
/**:
  ros__parameters:
    scenario: {scenario}
    overrides: [{overrides}]
    peers: [{peers}]
/**/recorder:
  ros__parameters: {{record: {record}, host: composed}}
/lab/compensator:
  ros__parameters: {{compensator.alpha_es: 29.0}}
"""
NODES = ("integrator", "compensator", "actuator", "monitor", "recorder")
AXES = tuple(f"story_{number}/axis" for number in (1, 2, 3))


def rig(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rths_nodes.app.node", "rig", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def parameter_file(folder: Path, scenario: str, *overrides: str, peers: tuple[str, ...] = NODES) -> str:
    file, quoted = folder / "test.yaml", ", ".join(f"'{words}'" for words in overrides)
    given = {"overrides": quoted, "peers": ", ".join(peers), "record": folder / "run"}
    file.write_text(FILE.format(scenario=scenario, **given))
    return str(file)


def logged(errors: str, level: str = "INFO") -> list[str]:
    """Return the lines of loggers at ``level``, without their time."""
    return [line for line in errors.splitlines() if line.startswith(f"[{level}] ")]


def unexpected(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line not in logged(errors)]


def test_parameter_files_parameters_and_the_namespace_reach_each_node(tmp_path: Path, different: Any) -> None:
    file = parameter_file(tmp_path, NAME, SHORT)
    words = ("--params-file", file, "-r", "__ns:=/lab", "-p", "recorder:recording.note:=by rig")
    node = rig(tmp_path, "--ros-args", *words, "-r", "monitor:joint_states:=joints")
    out, errors = node.communicate(timeout=100)
    assert (node.returncode, unexpected(errors)) == (0, [])
    assert mentions(out, "rths", "1030")
    run = rths_nodes.read(tmp_path / "run")
    assert (run.scenario.recording.note, run.information["host"]) == ("by rig", "composed")
    assert different(run, rths_nodes.run(NAME, [SHORT, "compensator.alpha_es=29"])) == []


def test_axes_with_nodes_of_their_own_share_the_process(tmp_path: Path, different: Any) -> None:
    overrides = ("duration=0.4", "soft_start=null")
    file = parameter_file(tmp_path, "three_independent_axes", *overrides, peers=(*NODES, *AXES))
    node = rig(tmp_path, *NODES, *AXES, "--ros-args", "--params-file", file)
    _, errors = node.communicate(timeout=100)
    assert (node.returncode, unexpected(errors)) == (0, [])
    assert different(rths_nodes.read(tmp_path / "run"), rths_nodes.run("three_independent_axes", overrides)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_holds_the_rig(number: int, tmp_path: Path) -> None:
    node = rig(tmp_path, "--ros-args", "--params-file", parameter_file(tmp_path, NAME, "duration=2000"))
    journal = tmp_path / "run" / "run_0.mcap"
    while node.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        time.sleep(0.05)
    node.send_signal(number)
    out, errors = node.communicate(timeout=100)
    assert node.returncode == ExitCode.HELD, errors
    assert mentions(out, "rths", "test", "held")
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("actuatr",), ("unknown", "actuatr", "actuator")),
        (("integrator", "monitor"), ("actuator", "node")),
        (("--ros-args", "-p", f"scenario:={NAME}"), ("record", "missing")),
        (("actuator", "--ros-args", "-p", "scenario:=nothing"), ("unknown", "scenario", "nothing")),
        (("actuator", "--ros-args", "-p", "scenario"), ("invalid",)),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(
    words: tuple[str, ...], message: tuple[str, ...], tmp_path: Path
) -> None:
    node = rig(tmp_path, *words)
    _, errors = node.communicate(timeout=100)
    assert node.returncode == ExitCode.REFUSED
    assert mentions(errors, *message)
    assert "Traceback" not in errors


@pytest.mark.parametrize("level", ["info", "debug"])
def test_nodes_log_the_states_of_a_test_and_nothing_of_the_middleware(tmp_path: Path, level: str) -> None:
    file = parameter_file(tmp_path, NAME, SHORT)
    node = rig(tmp_path, "--ros-args", "--params-file", file, "-r", "__ns:=/lab", "--log-level", f"lab:={level}")
    _, errors = node.communicate(timeout=100)
    assert node.returncode == 0
    told = logged(errors)
    assert sum(f"configured: {NAME}" in line for line in told) == len(NODES)
    ends = ["armed at sample 0", "running at sample 0", "finished at sample 1030"]
    assert [line.rpartition("[lab.actuator]: ")[2] for line in told if "at sample" in line] == ends
    debug = logged(errors, "DEBUG")
    assert all("[lab." in line for line in debug)
    assert any("discovered" in line for line in debug) is any("joined the run" in line for line in debug)
    assert (0 < len(debug) < 100) is (level == "debug")


@pytest.mark.parametrize("code", list(ExitCode))
def test_the_ending_tells_how_the_test_ended(code: ExitCode) -> None:
    test = Result(exit_code=code, sample=812, reason="axes.story_1: too far\nby 2 mm")
    assert mentions(test.ending, code.ending, "812", "axes.story_1", "2 mm")


def test_the_ending_tells_that_a_test_is_not_valid() -> None:
    test = Result(state=State.FINISHED, sample=3080, late=LateData(1705))
    test.judge([0, 0])
    assert test.exit_code is ExitCode.NOT_VALID
    assert mentions(test.ending, "3080", "not valid", "55 %")
    test.exit_code = ExitCode.TRIPPED
    assert "not valid" not in test.ending


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("actuator", "--ros-args", "-p", "scenario:=nothing"),
            2,
            ("actuator", "scenario", "unknown", "nothing"),
        ),
        (("actuatr",), 2, ("rig", "unknown", "actuatr")),
        (("integrator", "compensator", "actuator", "monitor"), 3, ("axes.story_1.limits.stroke",)),
    ],
)
def test_a_rig_that_launch_has_started_leaves_its_last_words_and_ends_with_0(
    words: tuple[str, ...], code: int, message: tuple[str, ...], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "rig"))
    if code == ExitCode.TRIPPED:
        overrides = [SHORT, "axes.story_1.limits.stroke=1e-5"]
        file = parameter_file(tmp_path, NAME, *overrides, peers=words)
        words += ("--ros-args", "--params-file", file)
    node = rig(tmp_path, *words)
    out, errors = node.communicate(timeout=100)
    left = outcomes.read_report(tmp_path / "rig")
    assert left is not None
    assert (node.returncode, out, unexpected(errors)) == (0, "", [])
    assert (left.exit_code, left.test) == (code, code if code == ExitCode.TRIPPED else None)
    assert mentions(left.problem, *message)
    assert left.test is None or mentions(left.ending, "test", "tripped")
