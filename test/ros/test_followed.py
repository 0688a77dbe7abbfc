# SPDX-License-Identifier: Apache-2.0
"""Nodes that follow the executive on the host composed: the same bits, trips, stops and recordings."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.executive import running
from rths_nodes.loop.executive.running import ExecutiveLoop
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.hosting.listener import StopClient

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.nodes.followed import FollowedRig

pytestmark = pytest.mark.nodes

NAME, SHORT = "chen_ricles_2010", ["duration=1"]
PATIENT = ["heartbeat.recorder=10", "heartbeat.monitor=10"]
"""Overrides for a loaded machine."""


@pytest.fixture
def followed(tmp_path: Path) -> Any:
    """Runs a test by nodes that follow the executive."""

    def followed(name: str, overrides: list[str], **options: Any) -> hosts.RunResult:
        options = {"host": "composed", "engine": "executive", "record": tmp_path / "run"} | options
        return hosts.run(name, overrides, **options)

    return followed


def ending(result: hosts.RunResult) -> tuple[object, ...]:
    return result.outcome, result.reason, result.samples, result.exit_code, result.compensator, str(result.metrics)


@pytest.mark.parametrize("pace", ["lockstep", "realtime"])
@pytest.mark.parametrize("name", [NAME, "marths_2023"])
def test_nodes_publish_the_results_of_the_stages(name: str, pace: str, followed: Any, different: Any) -> None:
    overrides = [*SHORT, *PATIENT]
    nodes, stages = followed(name, overrides, pace=pace), hosts.run(name, overrides, engine="python")
    assert nodes.messages is not None
    assert nodes.messages["complete"]
    assert different(nodes.read(), stages.read(), may_slip=True) == []
    if nodes.exit_code == ExitCode.FINISHED:  # on a loaded machine missed ticks make it not valid
        assert ending(nodes) == ending(stages)
    assert (nodes.engine, nodes.read().information["engine"]) == ("executive", "executive")


@pytest.mark.parametrize("limit", ["stroke=0.0089", "force=213215", "tracking_error=0.00073", "velocity=0.26"])
def test_limit_trips_at_the_sample_of_the_stages(limit: str, followed: Any, different: Any) -> None:
    overrides = ["duration=4", f"axes.story_1.limits.{limit}"]
    nodes, stages = followed(NAME, overrides), hosts.run(NAME, overrides, engine="python")
    assert ending(nodes) == ending(stages)
    assert nodes.outcome == "tripped"
    assert different(nodes.read(), stages.read(), may_slip=True) == []


def test_monitor_breach_trips_at_the_sample_of_the_stages(followed: Any, different: Any) -> None:
    overrides = ["duration=8", "monitor.energy_error_percent=0.05"]
    nodes, stages = followed(NAME, overrides), hosts.run(NAME, overrides, engine="python")
    assert (nodes.outcome, nodes.samples) == (stages.outcome, stages.samples)
    assert stages.outcome == "tripped"
    assert different(nodes.read(), stages.read(), may_slip=True) == []


@pytest.mark.parametrize(("kind", "outcome"), [("stop", "held"), ("trip", "tripped")])
def test_stop_client_ends_the_test(kind: str, outcome: str, followed: Any) -> None:
    client = StopClient(NAMESPACE, "page_that_stops")
    client.start()
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(client.stop(kind))))

    def progress(sample: int, _: int) -> None:
        if sample > 500 and not thread.ident:
            thread.start()

    try:
        result = followed(NAME, ["duration=20", *PATIENT], pace="realtime", progress=progress)
        thread.join()
    finally:
        client.close()
    assert result.outcome == outcome
    assert 500 < result.samples < 20000
    assert answers


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"host": "processes"}, ["engine", "executive", "processes"]),
        ({"actuator_nodes": "per_axis"}, ["engine", "executive", "actuator_nodes", "per_axis"]),
        ({"faults": ["delay@1:target,3"]}, ["engine", "executive", "faults"]),
    ],
)
def test_incompatible_options_are_refused(options: dict[str, Any], parts: list[str], followed: Any) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        followed(NAME, SHORT, **options)


@pytest.mark.parametrize(("action", "outcome"), [("hold", "held"), ("trip", "tripped")])
def test_stop_between_arming_and_first_sample_takes_effect(
    action: str, outcome: str, followed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = FollowedRig.begin

    def stop_and_begin(rig: FollowedRig) -> None:
        getattr(rig, action)("stopped while armed")
        begin(rig)

    monkeypatch.setattr(FollowedRig, "begin", stop_and_begin)
    result = followed(NAME, ["duration=5", *PATIENT], pace="realtime")
    assert result.outcome == outcome
    assert mentions(result.reason, "stopped while armed")
    assert result.samples < 512


@pytest.mark.parametrize("role", ["recorder", "monitor"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_suspended_observer_stops_the_rig(
    role: str, number: signal.Signals, followed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, sent = [], []
    start = node_processes._started

    def start_and_keep(*arguments: Any) -> node_processes.Process:
        processes.append(start(*arguments))
        return processes[-1]

    def progress(sample: int, _: int) -> None:
        if sample > 1000 and not sent:
            sent.append(sample)
            processes[0].popen.send_signal(number)

    monkeypatch.setattr(node_processes, "_started", start_and_keep)
    overrides = ["duration=30", "heartbeat.recorder=1", "heartbeat.monitor=1"]
    result = followed(NAME, overrides, pace="realtime", progress=progress, separate=[role])
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert mentions(result.reason, role, "SIGKILL" if number is signal.SIGKILL else "1 s")
    assert 1000 < result.samples < 20_000


def test_interrupt_ends_a_suspended_program(followed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started = ExecutiveLoop._start

    def suspend(loop: ExecutiveLoop, leaving: ExitStack) -> int:
        programs.append(loop)
        return started(loop, leaving)

    def progress(sample: int, _: int) -> None:
        if sample > 500 and not frozen:
            os.kill(programs[0]._process.pid, signal.SIGSTOP)
            frozen.append(sample)

    programs, frozen = list[ExecutiveLoop](), list[int]()
    monkeypatch.setattr(ExecutiveLoop, "_start", suspend)
    monkeypatch.setattr(running, "FROZEN_S", 60.0)
    overrides = ["duration=60", *PATIENT]
    result = followed(NAME, overrides, pace="realtime", progress=progress, interrupted=lambda: bool(frozen))
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert mentions(result.reason, "suspended", "killed")
    assert re.search(r"no row for [23]\.\d s", result.reason)
