# SPDX-License-Identifier: Apache-2.0
"""Tests of the executable ``rig``: all nodes of a test in one process that ROS 2 starts."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from programs import begun

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.loop import outcomes
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import LateData
from rths_nodes.ros.hosting.processes import Result
from rths_nodes.ros.names import NODES

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
AXES = tuple(f"story_{number}/axis" for number in (1, 2, 3))


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return begun([sys.executable, "-m", "rths_nodes.app.node", "rig", *arguments], cwd=folder)


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run ``rig`` to its end; return exit code, output and errors."""
    rig = start(folder, *arguments)
    output, errors = rig.communicate(timeout=100)
    return rig.returncode, output, errors


def parameter_file(folder: Path, scenario: str, *overrides: str, peers: tuple[str, ...] = NODES) -> str:
    file, quoted = folder / "test.yaml", ", ".join(f"'{override}'" for override in overrides)
    values = {"overrides": quoted, "peers": ", ".join(peers), "record": folder / "run"}
    file.write_text(FILE.format(scenario=scenario, **values))
    return str(file)


def logged(errors: str, level: str = "INFO") -> list[str]:
    """Return the lines of loggers at ``level``."""
    return [line for line in errors.splitlines() if line.startswith(f"[{level}] ")]


def unexpected(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line not in logged(errors)]


def test_parameters_and_namespace_reach_each_node(tmp_path: Path, different: Any) -> None:
    file = parameter_file(tmp_path, NAME, SHORT)
    arguments = ("--params-file", file, "-r", "__ns:=/lab", "-p", "recorder:recording.note:=by rig")
    code, output, errors = run(tmp_path, "--ros-args", *arguments, "-r", "monitor:joint_states:=joints")
    assert (code, unexpected(errors)) == (0, [])
    assert mentions(output, "rths", "1030")
    recording = rths_nodes.read(tmp_path / "run")
    assert (recording.scenario.recording.note, recording.information["host"]) == ("by rig", "composed")
    assert different(recording, rths_nodes.run(NAME, [SHORT, "compensator.alpha_es=29"])) == []


def test_axis_nodes_share_process(tmp_path: Path, different: Any) -> None:
    overrides = ("duration=0.4", "soft_start=null")
    file = parameter_file(tmp_path, "three_independent_axes", *overrides, peers=(*NODES, *AXES))
    code, _, errors = run(tmp_path, *NODES, *AXES, "--ros-args", "--params-file", file)
    assert (code, unexpected(errors)) == (0, [])
    assert different(rths_nodes.read(tmp_path / "run"), rths_nodes.run("three_independent_axes", overrides)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_holds_rig(number: int, tmp_path: Path) -> None:
    rig = start(tmp_path, "--ros-args", "--params-file", parameter_file(tmp_path, NAME, "duration=2000"))
    journal = tmp_path / "run" / "run_0.mcap"
    while rig.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        time.sleep(0.05)
    rig.send_signal(number)
    output, errors = rig.communicate(timeout=100)
    assert rig.returncode == ExitCode.HELD, errors
    assert mentions(output, "rths", "test", "held")
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("actuatr",), ("unknown", "actuatr", "actuator")),
        (("integrator", "monitor"), ("actuator", "node")),
        (("--ros-args", "-p", f"scenario:={NAME}"), ("record", "missing")),
        (("actuator", "--ros-args", "-p", "scenario:=nothing"), ("unknown", "scenario", "nothing")),
        (("actuator", "--ros-args", "-p", "scenario"), ("invalid",)),
    ],
)
def test_invalid_arguments_are_refused(arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, *arguments)
    assert code == ExitCode.REFUSED
    assert mentions(errors, *parts)
    assert "Traceback" not in errors


@pytest.mark.parametrize("level", ["info", "debug"])
def test_log_has_states_of_test_but_no_middleware(tmp_path: Path, level: str) -> None:
    file = parameter_file(tmp_path, NAME, SHORT)
    arguments = ("--params-file", file, "-r", "__ns:=/lab", "--log-level", f"lab:={level}")
    code, _, errors = run(tmp_path, "--ros-args", *arguments)
    assert code == 0
    lines = logged(errors)
    assert sum(f"configured: {NAME}" in line for line in lines) == len(NODES)
    states = ["armed at sample 0", "running at sample 0", "finished at sample 1030"]
    assert [line.rpartition("[lab.actuator]: ")[2] for line in lines if "at sample" in line] == states
    debug = logged(errors, "DEBUG")
    assert all("[lab." in line for line in debug)
    assert any("discovered" in line for line in debug) is any("joined the run" in line for line in debug)
    assert (0 < len(debug) < 100) is (level == "debug")


@pytest.mark.parametrize("code", list(ExitCode))
def test_ending_has_outcome_and_reason(code: ExitCode) -> None:
    result = Result(exit_code=code, sample=812, reason="axes.story_1: too far\nby 2 mm")
    assert mentions(result.ending, code.ending, "812", "axes.story_1", "2 mm")


def test_ending_reports_invalid_test() -> None:
    result = Result(state=State.FINISHED, sample=3080, late=LateData(1705))
    result.judge([0, 0])
    assert result.exit_code is ExitCode.NOT_VALID
    assert mentions(result.ending, "3080", "not valid", "55 %")
    result.exit_code = ExitCode.TRIPPED
    assert "not valid" not in result.ending


@pytest.mark.parametrize(
    ("arguments", "exit_code", "parts"),
    [
        (("actuator", "--ros-args", "-p", "scenario:=nothing"), 2, ("actuator", "scenario", "unknown", "nothing")),
        (("actuatr",), 2, ("rig", "unknown", "actuatr")),
        (("integrator", "compensator", "actuator", "monitor"), 3, ("axes.story_1.limits.stroke",)),
    ],
)
def test_rig_started_by_launch_writes_report_and_exits_with_0(
    arguments: tuple[str, ...], exit_code: int, parts: tuple[str, ...], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv(outcomes.REPORT_FILE, str(tmp_path / "rig"))
    if exit_code == ExitCode.TRIPPED:
        file = parameter_file(tmp_path, NAME, SHORT, "axes.story_1.limits.stroke=1e-5", peers=arguments)
        arguments += ("--ros-args", "--params-file", file)
    code, output, errors = run(tmp_path, *arguments)
    report = outcomes.read_report(tmp_path / "rig")
    assert report is not None
    assert (code, output, unexpected(errors)) == (0, "", [])
    assert (report.exit_code, report.test) == (exit_code, exit_code if exit_code == ExitCode.TRIPPED else None)
    assert mentions(report.problem, *parts)
    assert report.test is None or mentions(report.ending, "test", "tripped")
