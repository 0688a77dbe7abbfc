# SPDX-License-Identifier: Apache-2.0
"""The watchdog of a simulated port: who is late, frozen or dead finds the rig held."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
import rths_nodes.app.hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command
from rths_nodes.laboratory.ports.watchdog import Watchdog
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

LIMIT = 0.05


def command(sample: int, position: float) -> Command:
    return Command(sample, np.array([position]), np.array([position]))


def wait_for(taken: Any) -> str:
    end = time.monotonic() + 20.0
    while not (words := taken()) and time.monotonic() < end:
        time.sleep(2.0 * LIMIT)
    return str(words)


def test_it_waits_for_the_first_command_and_for_no_more_after_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    watchdog = Watchdog(LIMIT)
    time.sleep(3.0 * LIMIT)
    assert watchdog.beat() == ""
    watchdog.end()
    assert watchdog._process.returncode == 0
    assert capfd.readouterr().err == ""


def test_who_is_late_has_lost_the_rig_for_good(capfd: pytest.CaptureFixture[str]) -> None:
    watchdog = Watchdog(LIMIT)
    watchdog.beat()
    words = wait_for(watchdog.beat)
    assert mentions(words, "port.watchdog", "port", "0.05 s")
    assert watchdog.beat() == words
    watchdog.end()
    assert mentions(capfd.readouterr().err, "watchdog", "50 ms")


def test_a_dead_node_is_noticed_at_once() -> None:
    words = """
import os, signal, time
from rths_nodes.laboratory.ports.watchdog import Watchdog
watchdog = Watchdog(10.0)
watchdog.beat()
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=9.0, env=environment, check=False
    )  # the watchdog has our pipe, too: this waits for its words
    assert mentions(found.stderr, "watchdog", "node")


def test_the_port_stands_where_it_stood_and_says_why() -> None:
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
def test_a_frozen_actuator_node_finds_the_rig_taken_and_trips(tmp_path: Path, patience: list[str]) -> None:
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
    assert len(run.time) < 550, "it does not go on where it was frozen"


def test_without_being_asked_for_there_is_none() -> None:
    port = Assembly(files.load("chen_ricles_2010")).port
    port.arm_watchdog()
    port.write(command(1, 1e-4))
    assert (port.interlock, port._watchdog) == ("", None)


def test_in_lockstep_nothing_is_late() -> None:
    report = rths_nodes.run("chen_ricles_2010", ["port.watchdog=0.05", "duration=1"])
    assert report.outcome == "finished"


def test_a_watchdog_that_does_not_wait_for_two_commands_is_refused() -> None:
    loaded = files.load("chen_ricles_2010", ["port.watchdog=0.05", "servo_rate=10", "substeps=1"])
    with pytest.raises(ConfigError, match=naming("port.watchdog", "0.05 s", ">= 0.2 s")):
        _ = Assembly(loaded).port
