# SPDX-License-Identifier: Apache-2.0
"""Tests of the topics for displays and for ``use_sim_time``: live curves, joint states and /clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import Ear
from messages import naming
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.indices.live_columns import OF_AXIS
from rths_nodes.msg import Live, LiveCurves
from rths_nodes.recording import bag
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.hosting import composed

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
