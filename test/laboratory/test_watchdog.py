# SPDX-License-Identifier: Apache-2.0
"""Tests of the watchdog of a simulated port: a late, frozen or dead node loses the rig."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from loop_parts import command
from messages import mentions, naming

import rths_nodes
import rths_nodes.app.hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports.watchdog import Watchdog
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

LIMIT = 0.05


def wait_for(poll: Callable[[], str]) -> str:
    """Poll until there is a reason, or for 20 s."""
    end = time.monotonic() + 20.0
    while not (reason := poll()) and time.monotonic() < end:
        time.sleep(2.0 * LIMIT)
    return reason


def test_watchdog_acts_only_between_first_beat_and_end(capfd: pytest.CaptureFixture[str]) -> None:
    watchdog = Watchdog(LIMIT)
    time.sleep(3.0 * LIMIT)
    assert watchdog.beat() == ""
    watchdog.end()
    assert watchdog._process.returncode == 0
    assert capfd.readouterr().err == ""


def test_late_beat_loses_rig_permanently(capfd: pytest.CaptureFixture[str]) -> None:
    watchdog = Watchdog(LIMIT)
    watchdog.beat()
    reason = wait_for(watchdog.beat)
    assert mentions(reason, "port.watchdog", "port", "0.05 s")
    assert watchdog.beat() == reason
    watchdog.end()
    assert mentions(capfd.readouterr().err, "watchdog", "50 ms")


def test_dead_node_is_detected_immediately() -> None:
    code = """
import os, signal, time
from rths_nodes.laboratory.ports.watchdog import Watchdog
watchdog = Watchdog(10.0)
watchdog.beat()
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    # the watchdog inherits the pipe: the call returns when it has ended
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=9.0, env=environment
    )
    assert mentions(run.stderr, "watchdog", "node")


def test_late_port_holds_position_and_reports_reason() -> None:
    port = Assembly(files.load("chen_ricles_2010", [f"port.watchdog={LIMIT}"])).port
    port.arm_watchdog()
    port.wait_tick()
    port.write(command(1, 1e-4))
    assert port.interlock == ""
    time.sleep(10.0 * LIMIT)

    def tick() -> str:
        port.wait_tick()
        port.write(command(port.sample, 5e-4))
        return str(port.interlock)

    assert "port.watchdog" in wait_for(tick)
    held = port.read().command.copy()
    tick()
    assert np.array_equal(port.read().command, held)
    port.close()


@pytest.mark.nodes
def test_frozen_actuator_node_trips(tmp_path: Path, patience: list[str]) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    report = rths_nodes.app.hosts.run(
        "chen_ricles_2010",
        ["port.watchdog=0.05", "duration=1.5", *patience],
        host="processes",
        pace="realtime",
        record=tmp_path / "run",
        keep=False,
        faults=["freeze@0.5:actuator,0.3"],
    )
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert mentions(report.reason, "port.watchdog", "port", "0.05 s")
    run = rths_nodes.read(tmp_path / "run")
    assert len(run.time) < 550, "continued after the freeze"


def test_watchdog_is_off_by_default() -> None:
    port = Assembly(files.load("chen_ricles_2010")).port
    port.arm_watchdog()
    port.write(command(1, 1e-4))
    assert (port.interlock, port._watchdog) == ("", None)


def test_watchdog_does_not_act_in_lockstep() -> None:
    report = rths_nodes.run("chen_ricles_2010", ["port.watchdog=0.05", "duration=1"])
    assert report.outcome == "finished"


def test_watchdog_shorter_than_two_commands_is_refused() -> None:
    loaded = files.load("chen_ricles_2010", ["port.watchdog=0.05", "servo_rate=10", "substeps=1"])
    with pytest.raises(ConfigError, match=naming("port.watchdog", "0.05 s", ">= 0.2 s")):
        _ = Assembly(loaded).port
