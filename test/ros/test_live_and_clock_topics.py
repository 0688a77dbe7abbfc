# SPDX-License-Identifier: Apache-2.0
"""Tests of the topics for displays and for ``use_sim_time``: live curves, joint states and /clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from ear import Ear
from messages import naming
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from served_test import directly, operator_node

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.indices.live_columns import OF_AXIS
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import Live, LiveCurves
from rths_nodes.recording import bag
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import JOINTS
from rths_nodes.ros.nodes.monitor import joint_publisher

NAME, SHORT = "chen_ricles_2010", "duration=1.5"
SAMPLE = 1e9 / 1024.0
"""ns."""
BEST_EFFORT = QoSProfile(depth=5000, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
CURVES = [(Live, "/rths/live", BEST_EFFORT), (LiveCurves, "/rths/live_curves", LATCHED)]


def run_and_listen(topics: list[tuple[Any, ...]], scenario: str, sets: list[str], **options: Any) -> Any:
    """Run a test; return its result and the messages received on each of the ``topics``."""
    with composed.ros_context() as context:
        node = Node("display", context=context, start_parameter_services=False)
        ears = [Ear(node, *topic) for topic in topics]

        def listen(*_: int) -> None:
            for ear in ears:
                ear.listen()

        result = hosts.run(scenario, sets, progress=listen, **options)
        listen()
        node.destroy_node()
    assert result.exit_code == 0
    return result, [ear.heard for ear in ears]


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        (NAME, {"host": "composed"}),
        (NAME, {"host": "composed", "pace": "realtime"}),
        ("three_independent_axes", {"host": "processes"}),
    ],
)
def test_live_columns_match_recording(scenario: str, options: dict[str, Any], tmp_path: Path) -> None:
    result, (blocks, latched) = run_and_listen(
        CURVES, scenario, ["duration=2"], record=tmp_path / "run", **options
    )
    axes, curves = list(result.scenario.axes), latched[-1]
    assert curves.names == [f"{axis}/{name}" for name in OF_AXIS for axis in axes]
    assert len(curves.units) == len(curves.names)
    limits = dict(zip(curves.limits, curves.high, strict=True))
    assert limits["stroke"] == result.scenario.limits[axes[-1]].stroke
    run = read_run(tmp_path / "run")  # has all curves except the indicator
    rows = np.hstack([run.target, run.command, run.displacement, run.force, run.target - run.displacement])
    for block in blocks:
        columns = np.array(block.values).reshape(-1, len(curves.names), 4)
        for number, column in enumerate(columns):
            start = block.first + number * block.column
            part = rows[start : start + block.column].astype(np.float32)
            expected = np.stack([part[0], part.min(axis=0), part.max(axis=0), part[-1]], axis=1)
            np.testing.assert_array_equal(column[: rows.shape[1]], expected)
    samples = [len(block.values) // (4 * len(curves.names)) * block.column for block in blocks]
    assert sum(samples) > 0.5 * len(rows)  # best effort: a late or busy subscriber misses some
    assert blocks[-1].first + samples[-1] >= len(rows), "the end is published"


@pytest.mark.parametrize("clock", [True, False])
def test_clock_follows_samples_in_lockstep(clock: bool, tmp_path: Path) -> None:
    topics = [(Clock, "/clock"), (JointState, "/rths/joint_states")]
    options = {"host": "composed", "record": tmp_path / "run", "clock": clock}
    _, (times, joints) = run_and_listen(topics, NAME, [SHORT], **options)
    stamps = [time.clock.sec * 10**9 + time.clock.nanosec for time in times]
    measured = {stamp for topic, _, stamp in bag.read(tmp_path / "run").messages() if topic == "/rths/measurement"}
    assert set(stamps) <= measured
    assert stamps == sorted(stamps)
    if clock:  # every tenth sample, once the subscriber is discovered
        assert len(stamps) > 10
        assert np.diff(stamps).max() <= 11 * SAMPLE
        assert max(measured) - stamps[-1] <= 11 * SAMPLE
    else:
        assert stamps == []
    assert {joint.header.frame_id for joint in joints} == {"rths"}


@pytest.mark.parametrize(
    ("options", "parts"),
    [({"host": "composed", "pace": "realtime"}, ("clock", "lockstep")), ({}, ("host", "embedded"))],
)
def test_clock_is_refused_without_simulated_time(options: dict[str, str], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        hosts.run(NAME, [SHORT], clock=True, **options)


# The axes as joints, for tools: messages of a test compared with its recording


def times(messages: list[JointState]) -> list[int]:
    return [message.header.stamp.sec * 10**9 + message.header.stamp.nanosec for message in messages]


@pytest.mark.nodes
def test_joints_are_samples_of_the_recording(tmp_path: Path) -> None:
    """The messages of all three topics show the same sample."""
    with composed.ros_context() as context:
        node = Node("tool", context=context, start_parameter_services=False)
        ears = [Ear(node, JointState, f"/rths/{topic}") for topic in JOINTS]

        def listen(*_: int) -> None:
            for ear in ears:
                ear.listen()

        overrides = ["duration=2.0"]
        hosts.run("three_independent_axes", overrides, host="composed", record=tmp_path / "run", progress=listen)
        listen()
        node.destroy_node()
    run = read_run(tmp_path / "run")
    states, targets, commands = messages = [ear.heard for ear in ears]
    assert len(states) >= 10
    assert times(states) == times(targets) == times(commands)
    for state, target, command in zip(*messages, strict=True):
        assert list(state.name) == list(target.name) == list(command.name) == list(run.axes)
        (sample,) = np.flatnonzero((run.displacement == list(state.position)).all(axis=1))[:1]
        assert list(state.effort) == run.force[sample].tolist()
        assert list(target.position) == run.target[sample].tolist()
        assert list(command.position) == run.command[sample].tolist()
        assert len(target.effort) == len(command.effort) == 0


@pytest.mark.nodes
def test_targets_of_force_axis_are_efforts() -> None:
    published: dict[str, JointState] = {}
    publish = joint_publisher({"moved": False, "loaded": True}, 0.001, "rig", published.__setitem__)
    publish(0, 0, [0.01, 2e3], [0.02, 2.1e3], [0.0, 0.1], [5.0, 1.9e3])
    publish(50, 1_500_000_000, [0.02, 2e3], [0.03, 2.1e3], [0.01, 0.1], [5.0, 1.9e3])
    states, targets, commands = (published[topic] for topic in JOINTS)
    np.testing.assert_allclose(states.velocity, [0.2, 0.0])
    np.testing.assert_array_equal(targets.position, [0.02, np.nan])
    np.testing.assert_array_equal(targets.effort, [np.nan, 2e3])
    np.testing.assert_allclose(commands.velocity, [0.2, np.nan])
    stamp = states.header.stamp
    assert (states.header.frame_id, stamp.sec, stamp.nanosec) == ("rig", 1, 500_000_000)


# Messages of nodes on /diagnostics, once a second of their clock, decoded as by any ROS tool


def receive(ear: Ear) -> list[DiagnosticStatus]:
    time.sleep(0.2)
    ear.listen()
    return [status for message in ear.heard for status in message.status]


def values_of(status: DiagnosticStatus) -> dict[str, str]:
    return {entry.key: entry.value for entry in status.values}


def test_node_publishes_once_a_second_of_its_clock(by_hand, clock):
    with by_hand.node("compensator", clock=clock, namespace="shaker_2") as node:
        ear = Ear(node, DiagnosticArray, "/diagnostics", 10)
        published = [node.diagnostics.publish_if_due()]
        for _ in range(30):
            clock.now += 100_000_000
            published.append(node.diagnostics.publish_if_due())
        assert [n for n, yes in enumerate(published) if yes] == [0, 10, 20, 30]
        statuses = receive(ear)
    assert len(statuses) == 4
    assert {(s.level, s.name, s.hardware_id) for s in statuses} == {
        (DiagnosticStatus.OK, "shaker_2/compensator", "shaker_2")
    }
    values = values_of(statuses[-1])
    assert (values["scenario"], values["role"], values["sample"]) == ("chen_ricles_2010", "compensator", "-1")


def test_recent_problem_is_a_warning_and_trip_an_error(by_hand, clock):
    with by_hand.node("integrator", clock=clock) as node:
        ear = Ear(node, DiagnosticArray, "/diagnostics", 10)
        node.topics.malformed += 2
        node.diagnostics.publish_if_due()
        clock.now += 1_000_000_000
        node.diagnostics.publish_if_due()
        by_hand.put_state(node, State.TRIPPED, 7, "too far")
        clock.now += 1_000_000_000
        node.diagnostics.publish_if_due()
        recent, past, tripped = receive(ear)
    assert (recent.level, recent.message) == (DiagnosticStatus.WARN, "2 malformed")
    assert past.level == DiagnosticStatus.OK
    assert values_of(recent)["malformed"] == values_of(past)["malformed"] == "2"
    assert (tripped.level, tripped.message) == (DiagnosticStatus.ERROR, "too far")
    assert values_of(tripped)["state"] == "TRIPPED"


def test_exception_is_published_immediately(by_hand, clock):
    with by_hand.node("integrator", clock=clock) as node:
        ear = Ear(node, DiagnosticArray, "/diagnostics", 10)
        node.surprise(RuntimeError("no such thing"))
        status = receive(ear)[-1]
    assert (status.level, status.message) == (DiagnosticStatus.ERROR, "integrator: RuntimeError: no such thing")


PROGRAM = """
import sys
from rths_nodes.app import hosts
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.ros.nodes.course import Completion

seen = []
def noting(method):
    def noted(self):
        seen.append(set(sys.modules))
        return method(self)
    return noted

RigStage.begin, Completion.work = noting(RigStage.begin), noting(Completion.work)
hosts.run(
    "chen_ricles_2010", ["duration=2.2"], host="composed", pace="realtime", record=sys.argv[1], keep=False
)
print(sorted(seen[1] - seen[0]))
"""


def test_nothing_is_imported_while_the_rig_moves(tmp_path):
    """An import takes tens of milliseconds, also an import by a library at its first use."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_operator_node_reports_a_trip_as_error(tmp_path, monkeypatch):
    with directly(tmp_path) as session:
        node, levels = operator_node(session, "rths_tripped"), []
        monkeypatch.setattr(node._diagnostics, "publish", lambda message: levels.append(message.status[0].level))
        try:
            for state in (State.HELD, State.TRIPPED):
                session.runner.session.state = state
                node._diagnose()
        finally:
            session.runner.session.state = State.IDLE
            node.close()
    assert levels == [DiagnosticStatus.OK, DiagnosticStatus.ERROR]
