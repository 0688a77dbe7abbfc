# SPDX-License-Identifier: Apache-2.0
"""Tests of the ends of launched tests: exit code, last message and recording agree, for every driver."""

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
"""Ends with our actuator node. Launch does not pass other signals to its nodes."""
OURS_ALONE = ("actuator told to stop", "stop service", "trip service", "deactivated")
EXTERNAL = {name: code for name, code in OURS.items() if name not in OURS_ALONE} | {"SIGINT": ExitCode.TRIPPED}
"""Ends with an external driver node, which stops only on a Trip."""
COMPOSED = [name for name in OURS if name not in ("actuator hangs", "actuator told to stop")]
SIGNALS = {"actuator killed": signal.SIGKILL} | OF_PROCESSES
SOON = "port.longest_wait=0.5"  # short timeout for silent nodes


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a driver node, by default the example, as ``ros2 run`` does."""
    modules = [str(ROOT), str(ROOT / "examples" / "driver_node"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, modules))}
    with ExitStack() as leaving:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, *(arguments or ("-c", DRIVER)), "--ros-args", "-r", "__ns:=/rths"]
            process = subprocess.Popen(command, env=environment, cwd=tmp_path)
            leaving.callback(process.wait)
            leaving.callback(process.kill)
            return process

        yield start


def act(run: Launch, way: str, actuator: int, call: Callable[[], object]) -> None:
    """Do the action that ends the test, once it runs."""
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
    """Exit code, last message and recording agree; only crashes are reported as such."""
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
    # launch reports a failed node to the recorder, but not within one process
    within = way == "node killed" and "rig" in run.pids()
    assert about["outcome"] == ("tripped" if within else code.outcome), run.output
    if way in ("node killed", "actuator killed") and not within and run.errors():
        assert about["reason"] in last
    if code != ExitCode.FAILED:
        assert " ".join(about["reason"].split()) in last


@pytest.mark.parametrize("way", OURS)
def test_launch_ends_as_recorded(launch: Any, tmp_path: Path, way: str) -> None:
    with ExitStack() as stack:
        call = stack.enter_context(called(way)) if way in SERVICES else lambda: None
        with largest_file(FILE_SIZES.get(way)):
            run = launch(f"overrides:={' '.join(OVERRIDES.get(way, [LONG, SOON]))}", "directory:=run")
        if way in SIGNALS:
            run.wait_for(lambda: "actuator" in run.pids())
        act(run, way, run.pids().get("actuator", 0), call)
        check(run, tmp_path, OURS[way], way)


@pytest.mark.parametrize("way", COMPOSED)
def test_composed_launch_ends_as_recorded(launch: Any, tmp_path: Path, way: str) -> None:
    with ExitStack() as stack:
        call = stack.enter_context(called(way)) if way in SERVICES else lambda: None
        faults = [f"faults:={word}" for word in FAULTS.get(way, ())]
        arguments = (
            f"overrides:={' '.join(OVERRIDES.get(way, [LONG]))}",
            "directory:=run",
            "composed:=true",
            *faults,
        )
        with largest_file(FILE_SIZES.get(way)):
            run = launch(*arguments)
        if way not in FAULTS:
            act(run, way, 0, call)
        check(run, tmp_path, OURS[way], way)


@pytest.mark.parametrize("way", EXTERNAL)
def test_launch_with_external_driver_ends_as_recorded(launch: Any, driver: Any, tmp_path: Path, way: str) -> None:
    overrides = f"overrides:={' '.join(OVERRIDES.get(way, [LONG, SOON]))}"
    arguments = (overrides, "directory:=run", "actuator:=false", "run_id:=monday_1")
    with largest_file(FILE_SIZES.get(way)):
        run = launch(*arguments, file="single_actuator.launch.py")
    external = driver()
    act(run, way, external.pid, lambda: None)
    check(run, tmp_path, EXTERNAL[way], way)
    if way in ("finished", "limit", "monitor", "SIGINT"):
        assert external.wait(30) == 0


def test_launch_with_bridging_driver_reports_invalid_test(launch: Any, driver: Any, tmp_path: Path) -> None:
    arguments = ("overrides:=duration=1", "directory:=run", "actuator:=false", "run_id:=monday_1")
    run = launch(*arguments, file="single_actuator.launch.py")
    samples = load("chen_ricles_2010", ["duration=1"]).samples
    driver(str(ROOT / "test" / "ros" / "foreign_driver.py"), str(samples), "0", "bridges")
    assert run.end(90.0) == 1, run.output
    last = run.output.splitlines()[-1]
    assert mentions(last, ExitCode.NOT_VALID.ending, samples, "25 % bridged", "exit code 4"), run.output
    assert rths_nodes.read(tmp_path / "run").ending in last
    assert mentions(run.output, f"rths: {samples // 4} samples bridged")
