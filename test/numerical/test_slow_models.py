# SPDX-License-Identifier: Apache-2.0
"""Tests of OpenSees models that exceed the step: forecasts of the check, pauses, trips."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import models_left, skip_without_opensees
from loop_parts import collected
from messages import each_mentions, mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands import arguments, check
from rths_nodes.app.commands.check import judged
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SLOWED, FLAG_TRIPPED
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STARTED = FOLDER / "frame_started.yaml"
TEN = FOLDER / "ten_story_frame.yaml"

SLOW = """

import os, time
from pathlib import Path

_analyze, _done = ops.analyze, []


def analyze(*arguments):
    _done.append(arguments)
    if len(_done) in {steps}:  # gravity is the first
        {statement}
    return _analyze(*arguments)


ops.analyze = analyze
"""
WAITS = "time.sleep(0.2)"
DIES = "time.sleep(0.2), os.kill(os.getpid(), 9)"
HANGS = "(Path(__file__).parent / 'hangs').touch(), time.sleep(60)"
PAUSES = ["duration=1", "bridge.when_late=pause", "heartbeat={monitor: 5, recorder: 5}"]


def slow(folder: Path, statement: str, *overrides: str, steps: str = "(31,)", **options: Any) -> Any:
    """Run the three-story frame in real time with ``statement`` in some of its steps."""
    skip_without_opensees()
    overrides = (*PAUSES, "bridge.max_pause=5", *overrides, *slow_model(folder, statement, steps))
    return hosts.run(STARTED, overrides, pace="realtime", record=folder / "run", **options)


def slow_model(folder: Path, statement: str, steps: str = "(31,)") -> list[str]:
    path = folder / "frame.py"
    path.write_text((FOLDER / "frame.py").read_text() + SLOW.format(steps=steps, statement=statement))
    return [f"integrator.model={path}"]


def set_options(overrides: list[str]) -> list[str]:
    return [f"--set={override}" for override in overrides]


def scenario(*overrides: str) -> Any:
    return files.load(TEN, overrides)


def test_step_durations_are_judged_by_available_time() -> None:
    took = np.array([0.001] * 95 + [0.013] * 3 + [0.017, 0.040])
    report = list(judged(scenario("bridge.when_late=trip"), 12, took))
    assert mentions(report[0], "1 ms", "17.2 ms", "99 %", "40 ms", "100")
    assert mentions(report[1], "12.6 ms", "20 ms", "5", "100")
    assert mentions(report[2], "steps", "67 ms")
    excess = "1 of 100 steps exceeded the available time by more than bridge.max_bridge = 5 ms"
    caution = f"caution: {excess}; the rig then trips (with"
    assert report[3].startswith(caution)
    assert mentions(list(judged(scenario(), 12, took))[3], "rig", "pauses")
    assert len(list(judged(scenario(), 12, took[:99]))) == 3, "no caution without an excess"


def test_predicting_ramp_is_suggested() -> None:
    report = list(judged(scenario("ramp={type: quadratic}"), 0, np.array([0.003])))
    assert each_mentions(report[1:], ("0.6 ms", "20 ms", "1"), ("ramp.type", "predictor_corrector", "5 ms"))


def test_check_runs_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trip due to slow steps is forecast."""
    skip_without_opensees()
    overrides = ["duration=0.3", *slow_model(tmp_path, "time.sleep(0.1)", "(11, 15)")]
    assert main(["check", str(STARTED), *set_options(overrides)]) == 0
    output = capsys.readouterr().out
    assert mentions(output, "longest", "30")
    assert mentions(output, "rig", "trips")
    assert models_left() == []


@pytest.mark.parametrize(
    ("statement", "parts"), [("1 / 0", ("ZeroDivisionError",)), ("os._exit(3)", ("ended", "code", "3"))]
)
def test_check_refuses_failing_model(statement: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    skip_without_opensees()
    overrides = ["duration=0.3", *slow_model(tmp_path, statement, "(11,)")]
    parser = argparse.ArgumentParser()
    check.check_arguments(arguments.Arguments(parser))
    with pytest.raises(ConfigError, match=naming(*parts)):
        check.check_command(parser.parse_args([str(STARTED), *set_options(overrides)]))
    assert models_left() == []


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_rig_pauses_for_late_step(host: str, tmp_path: Path) -> None:
    result = slow(tmp_path, WAITS, steps="(31, 61)", host=host)
    assert result.outcome == "finished", result.reason
    run, timing = result.read(), result.timing
    assert timing["pauses"] >= 2
    assert timing["paused_s"] > 2 * 0.15
    assert timing["slowed"] == np.count_nonzero(run.flags & FLAG_SLOWED) >= 2
    assert len(run.time) == 1001
    for name in ("displacement", "force", "command", "true_displacement"):
        assert np.isfinite(getattr(run, name)).all(), name
    assert np.abs(np.diff(run.command[:, 0])).max() <= 1.0 * 1e-3, "m per sample: limit of the velocity"
    assert models_left() == []


@pytest.mark.soak
@pytest.mark.nodes(ros=True)
def test_late_step_trips_without_pause(tmp_path: Path) -> None:
    result = slow(tmp_path, WAITS, "bridge={max_bridge: 0.05, when_late: trip}", host="composed")
    assert result.exit_code == 3
    assert mentions(result.reason, "bridge.max_bridge", "51 ms", "<= 50 ms")


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_model_that_dies_during_pause_is_reported(host: str, tmp_path: Path) -> None:
    result = slow(tmp_path, DIES, host=host)
    assert result.exit_code == 1
    assert mentions(result.reason, "frame.py", "OpenSees", "SIGKILL")
    run = result.read()
    assert run.flags[-1] & FLAG_TRIPPED
    assert run.outcome == "tripped"
    assert models_left() == []


@pytest.mark.soak
@pytest.mark.nodes(ros=True)
def test_hanging_model_trips_after_max_pause(tmp_path: Path) -> None:
    result = slow(tmp_path, HANGS, "bridge.max_pause=0.4", host="processes")
    assert result.exit_code == 3
    assert mentions(result.reason, "bridge.max_pause", "0.401 s", "<= 0.4 s")
    assert models_left() == []


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_interrupt_during_pause_holds_rig(host: str, tmp_path: Path) -> None:
    skip_without_opensees()
    overrides = set_options([*PAUSES, "bridge.max_pause=5", *slow_model(tmp_path, HANGS)])
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", str(STARTED), *overrides]
    command += ["--host", host, "--pace", "realtime", "--record", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=-1, stderr=-2, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 60.0
        while not (tmp_path / "hangs").exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.3)  # until the rig pauses
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60.0)
    assert process.returncode == 130, output
    assert all(word in output for word in ("held", "interrupted"))
    assert models_left() == []


def test_late_steps_do_not_change_ten_story_frame() -> None:
    """A tenth of the steps is late beyond prediction and bridge; the linear damper feels the pauses."""
    skip_without_opensees()
    runs = []
    for faults in ([], [parse("late@0.5:target,0.1,30")]):
        outcome, run = collected(FaultyLoop(Assembly(scenario("duration=8")), faults))
        assert outcome.state.name == "FINISHED", outcome.reason
        runs.append(run.dof_displacement)
    assert outcome.timing["pauses"] >= 20
    plain, late = runs
    assert np.abs(plain).max() > 0.005, "m: the ground moves"
    assert np.abs(plain - late).max() < 0.02 * np.abs(plain).max()


@pytest.mark.soak
@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_ten_story_frame_in_real_time(host: str) -> None:
    """No more than 1 % of the steps are bridged or slowed, and none trips, on an idle machine."""
    skip_without_opensees()
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        pytest.skip("the machine is busy with other work")
    result = hosts.run(TEN, ["duration=40"], host=host, pace="realtime")
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    flagged = np.flatnonzero(result.read().flags & 65)
    assert len(np.unique(np.ceil(flagged / 20))) <= 0.01 * 2000
