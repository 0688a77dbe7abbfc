# SPDX-License-Identifier: Apache-2.0
"""Nodes that follow the executive on the host composed: its bits, trips and stops, and their recording."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SLIPPED
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.ros.hosting.stop_client import StopClient

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.nodes.followed import FollowedRig

pytestmark = pytest.mark.nodes

NAME, SHORT = "chen_ricles_2010", ["duration=1"]
PATIENT = ["heartbeat.recorder=10", "heartbeat.monitor=10"]
"""Overrides for a loaded machine."""


def followed(folder: Path, name: str, overrides: list[str], **options: Any) -> hosts.RunResult:
    how = {"host": "composed", "engine": "executive", "record": folder / "run"} | options
    return hosts.run(name, overrides, **how)


def different(one: hosts.RunResult, other: hosts.RunResult) -> list[str]:
    """Return the recorded histories that have not the same bits, but for marks of missed ticks."""
    a, b = one.read().arrays(), other.read().arrays()
    a["flags"] = a["flags"] & ~np.uint32(FLAG_SLIPPED)
    return [name for name in b if a[name].shape != b[name].shape or not np.array_equal(a[name], b[name], True)]


def ending(result: hosts.RunResult) -> tuple[object, ...]:
    return result.outcome, result.reason, result.samples, result.exit_code, result.compensator, str(result.metrics)


@pytest.mark.parametrize("pace", ["lockstep", "realtime"])
@pytest.mark.parametrize("name", [NAME, "marths_2023"])
def test_the_nodes_publish_what_the_stages_compute(name: str, pace: str, tmp_path: Path) -> None:
    overrides = [*SHORT, *PATIENT]
    nodes, stages = followed(tmp_path, name, overrides, pace=pace), hosts.run(name, overrides, engine="python")
    assert nodes.messages is not None
    assert nodes.messages["complete"]
    assert different(nodes, stages) == []
    if nodes.outcome == "finished":  # on a loaded machine missed ticks make it not valid
        assert ending(nodes) == ending(stages)
    assert (nodes.engine, nodes.read().information["engine"]) == ("executive", "executive")


@pytest.mark.parametrize("limit", ["stroke=0.0089", "force=213215", "tracking_error=0.00073", "velocity=0.26"])
def test_a_limit_trips_at_the_sample_of_the_stages(limit: str, tmp_path: Path) -> None:
    overrides = ["duration=4", f"axes.story_1.limits.{limit}"]
    nodes, stages = followed(tmp_path, NAME, overrides), hosts.run(NAME, overrides, engine="python")
    assert ending(nodes) == ending(stages)
    assert nodes.outcome == "tripped"
    assert different(nodes, stages) == []


def test_a_breach_of_the_monitor_trips_at_the_sample_of_the_nodes(tmp_path: Path) -> None:
    overrides = ["duration=8", "monitor.energy_error_percent=0.05"]
    nodes, stages = followed(tmp_path, NAME, overrides), hosts.run(NAME, overrides, engine="python")
    assert (nodes.outcome, nodes.samples) == (stages.outcome, stages.samples)
    assert stages.outcome == "tripped"
    assert different(nodes, stages) == []


@pytest.mark.parametrize(("kind", "outcome"), [("stop", "held"), ("trip", "tripped")])
def test_a_stop_of_the_page_ends_the_test(kind: str, outcome: str, tmp_path: Path) -> None:
    client = StopClient(NAMESPACE, "page_that_stops")
    client.start()
    answers: list[str] = []

    def stop() -> None:
        answers.append(asyncio.run(client.stop(kind)))

    thread = threading.Thread(target=stop)

    def progress(sample: int, _: int) -> None:
        if sample > 500 and not thread.ident:
            thread.start()

    try:
        result = followed(tmp_path, NAME, ["duration=20", *PATIENT], pace="realtime", progress=progress)
        thread.join()
    finally:
        client.close()
    assert result.outcome == outcome
    assert 500 < result.samples < 20000
    assert answers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "processes"}, ["engine", "executive", "processes"]),
        ({"actuator_nodes": "per_axis"}, ["engine", "executive", "actuator_nodes", "per_axis"]),
        ({"faults": ["delay@1:target,3"]}, ["engine", "executive", "faults"]),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        followed(tmp_path, NAME, SHORT, **options)
    assert mentions(str(refused.value), *words)


@pytest.mark.parametrize(("way", "outcome"), [("hold", "held"), ("trip", "tripped")])
def test_a_stop_between_arming_and_the_first_sample_is_heeded(
    way: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = FollowedRig.begin

    def stopped(rig: FollowedRig) -> None:
        getattr(rig, way)("stopped while armed")
        begin(rig)

    monkeypatch.setattr(FollowedRig, "begin", stopped)
    result = followed(tmp_path, NAME, ["duration=5", *PATIENT], pace="realtime")
    assert result.outcome == outcome
    assert mentions(result.reason, "stopped while armed")
    assert result.samples < 512


@pytest.mark.parametrize("role", ["recorder", "monitor"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_suspended_observer_stops_the_rig(
    role: str, sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, lost = [], []
    start = node_processes._started

    def kept(*arguments: Any) -> node_processes.Process:
        started.append(start(*arguments))
        return started[-1]

    def progress(sample: int, _: int) -> None:
        if sample > 1000 and not lost:
            lost.append(sample)
            started[0].popen.send_signal(sent)

    monkeypatch.setattr(node_processes, "_started", kept)
    overrides = ["duration=30", "heartbeat.recorder=1", "heartbeat.monitor=1"]
    result = followed(tmp_path, NAME, overrides, pace="realtime", progress=progress, separate=[role])
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert mentions(result.reason, role, "SIGKILL" if sent is signal.SIGKILL else "1 s")
    assert 1000 < result.samples < 20_000
