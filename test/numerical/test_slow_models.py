# SPDX-License-Identifier: Apache-2.0
"""OpenSees that takes too long for a step: the rig waits for it where it may, and stops well where it must."""

from __future__ import annotations

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
from messages import each_mentions, mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands.check import judged
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SLOWED, FLAG_TRIPPED
from rths_nodes.loop.faults import kinds
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STARTED = FOLDER / "frame_started.yaml"
TEN = FOLDER / "ten_story_frame.yaml"

SLOW = """

import os, time
from pathlib import Path

_analyze, _done = ops.analyze, []


def analyze(*given):
    _done.append(given)
    if len(_done) in {steps}:  # gravity is the first
        {what}
    return _analyze(*given)


ops.analyze = analyze
"""
WAITS = "time.sleep(0.2)"
DIES = "time.sleep(0.2), os.kill(os.getpid(), 9)"
HANGS = "(Path(__file__).parent / 'hangs').touch(), time.sleep(60)"
PAUSES = ["duration=1", "bridge.when_late=pause", "heartbeat={monitor: 5, recorder: 5}"]


def slow(folder: Path, what: str, *overrides: str, steps: str = "(31,)", **options: Any) -> Any:
    """The three-story frame, which does ``what`` in some of its steps, in real time."""
    given = ["bridge.max_pause=5", *overrides, *slow_model(folder, what, steps)]
    return hosts.run(STARTED, [*PAUSES, *given], pace="realtime", record=folder / "run", **options)


def slow_model(folder: Path, what: str, steps: str = "(31,)") -> list[str]:
    path = folder / "frame.py"
    path.write_text((FOLDER / "frame.py").read_text() + SLOW.format(steps=steps, what=what))
    return [f"integrator.model={path}"]


# what is told of it before a test


def scenario(*overrides: str) -> Any:
    return files.load(TEN, overrides)


def test_the_steps_are_judged_by_what_is_left_for_them() -> None:
    took = np.array([0.001] * 95 + [0.013] * 3 + [0.017, 0.040])
    said = list(judged(scenario("bridge.when_late=trip"), 12, took))
    assert mentions(said[0], "1 ms", "17.2 ms", "99 %", "40 ms", "100")
    assert mentions(said[1], "12.6 ms", "20 ms", "5", "100")
    assert mentions(said[2], "steps", "67 ms")
    excess = "1 of 100 steps exceeded the available time by more than bridge.max_bridge = 5 ms"
    words = f"caution: {excess}; the rig then trips (with"
    assert said[3].startswith(words)
    assert mentions(list(judged(scenario(), 12, took))[3], "rig", "pauses")
    assert len(list(judged(scenario(), 12, took[:99]))) == 3, "no word of what does not happen"


def test_without_a_prediction_a_ramp_that_has_one_is_named() -> None:
    said = list(judged(scenario("ramp={type: quadratic}"), 0, np.array([0.003])))
    assert each_mentions(said[1:], ("0.6 ms", "20 ms", "1"), ("ramp.type", "predictor_corrector", "5 ms"))


def test_the_check_tries_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hiccup that the test would trip over is foretold, and nothing of the model is left behind."""
    skip_without_opensees()
    overrides = [
        word
        for one in ("duration=0.3", *slow_model(tmp_path, "time.sleep(0.1)", "(11, 15)"))
        for word in ("--set", one)
    ]
    assert main(["check", str(STARTED), *overrides]) == 0
    said = capsys.readouterr().out
    assert mentions(said, "longest", "30")
    assert mentions(said, "rig", "trips")
    assert models_left() == []


@pytest.mark.parametrize(
    ("what", "words"), [("1 / 0", ("ZeroDivisionError",)), ("os._exit(3)", ("ended", "code", "3"))]
)
def test_a_model_that_fails_when_it_is_tried_is_refused(what: str, words: tuple[str, ...], tmp_path: Path) -> None:
    skip_without_opensees()
    given = ["duration=0.3", *slow_model(tmp_path, what, "(11,)")]
    with pytest.raises(ConfigError, match=naming(*words)):
        main_check(given)
    assert models_left() == []


def main_check(overrides: list[str]) -> None:
    import argparse

    from rths_nodes.app.commands import check

    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    check.run(parser.parse_args([str(STARTED), *(word for one in overrides for word in ("--set", one))]))


# what happens in it


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_the_rig_waits_for_a_late_step(host: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    skip_without_opensees()
    result = slow(tmp_path, WAITS, steps="(31, 61)", host=host)
    assert result.outcome == "finished", result.reason
    run, timing = result.read(), result.timing
    assert timing["pauses"] >= 2
    assert timing["paused_s"] > 2 * 0.15
    assert timing["slowed"] == np.count_nonzero(run.flags & FLAG_SLOWED) >= 2
    assert len(run.time) == 1001, "samples, none lost"
    for name in ("displacement", "force", "command", "true_displacement"):
        assert np.isfinite(getattr(run, name)).all(), name
    assert np.abs(np.diff(run.command[:, 0])).max() <= 1.0 * 1e-3, "m in a sample: the limit"
    assert models_left() == []


@pytest.mark.soak
@pytest.mark.nodes
def test_without_a_pause_the_same_trips(tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    skip_without_opensees()
    result = slow(tmp_path, WAITS, "bridge={max_bridge: 0.05, when_late: trip}", host="composed")
    assert result.exit_code == 3
    assert mentions(result.reason, "bridge.max_bridge", "51 ms", "<= 50 ms")


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_a_model_that_dies_in_a_pause_is_named(host: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    skip_without_opensees()
    result = slow(tmp_path, DIES, host=host)
    assert result.exit_code == 1
    assert mentions(result.reason, "frame.py", "OpenSees", "SIGKILL")
    run = result.read()
    assert run.flags[-1] & FLAG_TRIPPED
    assert run.outcome == "tripped"
    assert models_left() == []


@pytest.mark.soak
@pytest.mark.nodes
def test_a_model_that_hangs_is_not_waited_for_longer_than_it_may(tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    skip_without_opensees()
    result = slow(tmp_path, HANGS, "bridge.max_pause=0.4", host="processes")
    assert result.exit_code == 3
    assert mentions(result.reason, "bridge.max_pause", "0.401 s", "<= 0.4 s")
    assert models_left() == []


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_an_interrupt_in_a_pause_holds_the_rig(host: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    skip_without_opensees()
    given = [*PAUSES, "bridge.max_pause=5", *slow_model(tmp_path, HANGS)]
    words = [word for one in given for word in ("--set", one)]
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", str(STARTED), *words]
    options = ["--host", host, "--pace", "realtime", "--record", str(tmp_path / "run")]
    with subprocess.Popen(
        [*command, *options], stdout=-1, stderr=-2, text=True, start_new_session=True
    ) as process:
        until = time.monotonic() + 60.0
        while not (tmp_path / "hangs").exists() and time.monotonic() < until and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.3)  # it pauses by now
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60.0)
    assert process.returncode == 130, said
    assert "held" in said
    assert "interrupted" in said
    assert models_left() == []


# the example


def test_ten_stories_with_late_steps_are_those_without() -> None:
    """One step of ten is late by more than is predicted and bridged; a linear damper feels slow samples."""
    skip_without_opensees()
    runs = []
    for faults in ([], [kinds.parse("late@0.5:target,0.1,30")]):
        loaded = scenario("duration=8")
        loop, found = FaultyLoop(Assembly(loaded), faults), Collector(loaded, Assembly(loaded).names)
        report = loop.run([found])
        assert report.state.name == "FINISHED", report.reason
        runs.append(found.run().dof_displacement)
    assert report.timing["pauses"] >= 20
    one, other = runs
    assert np.abs(one).max() > 0.005, "m: the ground has moved by then"
    assert np.abs(one - other).max() < 0.02 * np.abs(one).max()


@pytest.mark.soak
@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_ten_stories_in_real_time(host: str) -> None:
    """At most one step in a hundred is bridged or slowed, and none trips; on a machine that does nothing else."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    skip_without_opensees()
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        pytest.skip("the machine is busy with other work")
    result = hosts.run(TEN, ["duration=40"], host=host, pace="realtime", keep=True)
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    flagged = np.flatnonzero(result.read().flags & 65)
    assert len(np.unique(np.ceil(flagged / 20))) <= 0.01 * 2000
