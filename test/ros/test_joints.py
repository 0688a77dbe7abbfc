# SPDX-License-Identifier: Apache-2.0
"""The axes as joints, for tools: messages of a test compared with its recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import Ear
from rclpy.node import Node
from sensor_msgs.msg import JointState

from rths_nodes.app import hosts
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import JOINTS
from rths_nodes.ros.nodes.monitor import Joints

pytestmark = pytest.mark.nodes


def times(messages: list[JointState]) -> list[int]:
    return [message.header.stamp.sec * 10**9 + message.header.stamp.nanosec for message in messages]


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


def test_targets_of_force_axis_are_efforts() -> None:
    published: dict[str, JointState] = {}
    joints = Joints({"moved": False, "loaded": True}, 0.001, "rig", published.__setitem__)
    joints.publish(0, 0, [0.01, 2e3], [0.02, 2.1e3], [0.0, 0.1], [5.0, 1.9e3])
    joints.publish(50, 1_500_000_000, [0.02, 2e3], [0.03, 2.1e3], [0.01, 0.1], [5.0, 1.9e3])
    states, targets, commands = (published[topic] for topic in JOINTS)
    np.testing.assert_allclose(states.velocity, [0.2, 0.0])
    np.testing.assert_array_equal(targets.position, [0.02, np.nan])
    np.testing.assert_array_equal(targets.effort, [np.nan, 2e3])
    np.testing.assert_allclose(commands.velocity, [0.2, np.nan])
    stamp = states.header.stamp
    assert (states.header.frame_id, stamp.sec, stamp.nanosec) == ("rig", 1, 500_000_000)
