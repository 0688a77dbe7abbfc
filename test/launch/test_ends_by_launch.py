# SPDX-License-Identifier: Apache-2.0
"""The table of ends by launch: its exit code, its words and the recording agree, whoever drives the rig."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch_testing", reason="ROS 2's launch is not installed here")
pytest.importorskip("launch_ros", reason="ROS 2's launch is not installed here")

from ends import FAULTS, FILE_SIZES, LONG, OF_PROCESSES, OVERRIDES, SERVICES, WAYS, called, largest_file
from launched import Launch
from messages import mentions

import rths_nodes
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.files import load

ROOT = Path(__file__).resolve().parents[2]
DRIVER = "from rths_example_driver.driver import main; main()"
OURS = {name: WAYS[name] for name in WAYS if not name.startswith("SIG")} | {"SIGINT": ExitCode.HELD}
"""Of our actuator node. Other signals launch does not hand on to its nodes."""
OURS_ALONE = ("actuator told to stop", "stop service", "trip service", "deactivated")
FOREIGN = {name: code for name, code in OURS.items() if name not in OURS_ALONE} | {"SIGINT": ExitCode.TRIPPED}
"""Of a driver node of somebody else, which knows no other request to stop than a Trip."""
COMPOSED = [name for name in OURS if name not in ("actuator hangs", "actuator told to stop")]
SIGNALS = {"actuator killed": signal.SIGKILL} | OF_PROCESSES
SOON = "port.longest_wait=0.5"
"""A node that says nothing is given up soon."""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a driver node, by default the example, as ``ros2 run`` does."""
    modules = [str(ROOT), str(ROOT / "examples" / "driver_node"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, modules))}
    with ExitStack() as leaving:

        def start(*words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, *(words or ("-c", DRIVER)), "--ros-args", "-r", "__ns:=/rths"]
            made = subprocess.Popen(command, env=environment, cwd=tmp_path)
            leaving.callback(made.wait)
            leaving.callback(made.kill)
            return made

        yield start


def act(run: Launch, way: str, actuator: int, call: Callable[[], object]) -> None:
    """Do what ends the test, once it is under way."""
    if way in SERVICES or way in SIGNALS or way in ("SIGINT", "node killed"):
        run.wait_for_samples()
    if way in SERVICES:
        call()
    elif way == "SIGINT":
        os.killpg(run.popen.pid, signal.SIGINT)
    elif way == "node killed":
        os.kill(run.pids().get("compensator", 0), signal.SIGKILL)
    elif way in SIGNALS:
        os.kill(actuator, SIGNALS[way])


def check(run: Launch, folder: Path, code: ExitCode, way: str) -> None:
    """Exit code, words and recording say the same, and nothing looks like a crash that is none."""
    assert run.end(90.0) == (0 if code == ExitCode.FINISHED else 1), run.output
    last = run.output.splitlines()[-1]
    assert f"rths: {code.ending}" in last, run.output
    assert f"(exit code {code:d})" in last or code == ExitCode.FINISHED
    assert "Caught exception" not in run.output
    assert "Traceback" not in run.output
    assert len(run.errors()) <= (way in ("node killed", "actuator killed", "actuator hangs")), run.output
    if way in ("refused", "disk full"):
        return
    about = rths_nodes.read(folder / "run").information
    # within one process nobody tells the recorder that another node has failed; else launch does
    within = way == "node killed" and "rig" in run.pids()
    assert about["outcome"] == ("tripped" if within else code.outcome), run.output
    if way in ("node killed", "actuator killed") and not within and run.errors():
        assert about["reason"] in last
    if code != ExitCode.FAILED:
        assert " ".join(about["reason"].split()) in last


@pytest.mark.parametrize("way", OURS)
def test_launch_ends_as_the_recording(launch: Any, tmp_path: Path, way: str) -> None:
    with ExitStack() as stack:
        call = stack.enter_context(called(way)) if way in SERVICES else lambda: None
        with largest_file(FILE_SIZES.get(way)):
            run = launch(f"overrides:={' '.join(OVERRIDES.get(way, [LONG, SOON]))}", "directory:=run")
        if way in SIGNALS:
            run.wait_for(lambda: "actuator" in run.pids())
        act(run, way, run.pids().get("actuator", 0), call)
        check(run, tmp_path, OURS[way], way)


@pytest.mark.parametrize("way", COMPOSED)
def test_launch_of_nodes_in_one_process_ends_as_the_recording(launch: Any, tmp_path: Path, way: str) -> None:
    with ExitStack() as stack:
        call = stack.enter_context(called(way)) if way in SERVICES else lambda: None
        faults = [f"faults:={word}" for word in FAULTS.get(way, ())]
        words = (f"overrides:={' '.join(OVERRIDES.get(way, [LONG]))}", "directory:=run", "composed:=true", *faults)
        with largest_file(FILE_SIZES.get(way)):
            run = launch(*words)
        if way not in FAULTS:
            act(run, way, 0, call)
        check(run, tmp_path, OURS[way], way)


@pytest.mark.parametrize("way", FOREIGN)
def test_launch_with_a_driver_of_somebody_else_ends_as_the_recording(
    launch: Any, driver: Any, tmp_path: Path, way: str
) -> None:
    overrides = f"overrides:={' '.join(OVERRIDES.get(way, [LONG, SOON]))}"
    words = (overrides, "directory:=run", "actuator:=false", "run_id:=monday_1")
    with largest_file(FILE_SIZES.get(way)):
        run = launch(*words, file="single_actuator.launch.py")
    foreign = driver()
    act(run, way, foreign.pid, lambda: None)
    check(run, tmp_path, FOREIGN[way], way)
    if way in ("finished", "limit", "monitor", "SIGINT"):
        assert foreign.wait(30) == 0


def test_launch_with_a_driver_that_bridges_reports_that_the_test_is_not_valid(
    launch: Any, driver: Any, tmp_path: Path
) -> None:
    words = ("overrides:=duration=1", "directory:=run", "actuator:=false", "run_id:=monday_1")
    run = launch(*words, file="single_actuator.launch.py")
    samples = load("chen_ricles_2010", ["duration=1"]).samples
    driver(str(ROOT / "test" / "ros" / "foreign_driver.py"), str(samples), "0", "bridges")
    assert run.end(90.0) == 1, run.output
    last = run.output.splitlines()[-1]
    assert mentions(last, ExitCode.NOT_VALID.ending, samples, "25 % bridged", "exit code 4"), run.output
    read = rths_nodes.read(tmp_path / "run")
    assert read.ending in last
    assert mentions(run.output, f"rths: {samples // 4} samples bridged")
