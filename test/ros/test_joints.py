# SPDX-License-Identifier: Apache-2.0
"""The axes as joints, for tools: during a test, against the recording."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import Ear
from rclpy.node import Node
from sensor_msgs.msg import JointState

from rths_nodes.app import hosts
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import JOINTS
from rths_nodes.ros.nodes.monitor import Joints

pytestmark = pytest.mark.nodes

NAME, SECONDS = "three_independent_axes", 2.0


class Ears:
    """All three topics."""

    def __init__(self, node: Node) -> None:
        self._ears = [Ear(node, JointState, f"/rths/{topic}") for topic in JOINTS]

    def listen(self, *_: int) -> None:
        for listener in self._ears:
            listener.listen()

    @property
    def heard(self) -> list[list[JointState]]:
        return [listener.heard for listener in self._ears]


def times(messages: Iterable[JointState]) -> list[int]:
    return [each.header.stamp.sec * 10**9 + each.header.stamp.nanosec for each in messages]


def check(heard: list[list[JointState]], run: Run, count: int) -> None:
    """Each message is a sample of the recording, of all three topics the same one."""
    states, targets, commands = heard
    assert len(states) >= count
    assert times(states) == times(targets) == times(commands)
    for state, target, command in zip(*heard, strict=True):
        assert list(state.name) == list(target.name) == list(command.name) == list(run.axes)
        (sample,) = np.flatnonzero((run.displacement == list(state.position)).all(axis=1))[:1]
        assert list(state.effort) == run.force[sample].tolist()
        assert list(target.position) == run.target[sample].tolist()
        assert list(command.position) == run.command[sample].tolist()
        assert len(target.effort) == len(command.effort) == 0


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, list[list[JointState]]]:
    folder = tmp_path_factory.mktemp("joints") / "run"
    with composed.ros_context() as context:
        node = Node("tool", context=context, start_parameter_services=False)
        ears = Ears(node)
        hosts.run(NAME, [f"duration={SECONDS}"], host="composed", record=folder, progress=ears.listen)
        ears.listen()
        node.destroy_node()
    return folder, read_run(folder), ears.heard


def test_they_are_samples_of_the_test(tested: tuple[Path, Run, Any]) -> None:
    _, run, heard = tested
    check(heard, run, 10)


def test_an_axis_that_is_controlled_by_force_has_its_aims_as_efforts() -> None:
    told: dict[str, JointState] = {}
    joints = Joints({"moved": False, "loaded": True}, 0.001, "rig", told.__setitem__)
    joints.publish(0, 0, [0.01, 2e3], [0.02, 2.1e3], [0.0, 0.1], [5.0, 1.9e3])
    joints.publish(50, 1_500_000_000, [0.02, 2e3], [0.03, 2.1e3], [0.01, 0.1], [5.0, 1.9e3])
    states, targets, commands = (told[topic] for topic in JOINTS)
    np.testing.assert_allclose(states.velocity, [0.2, 0.0])
    np.testing.assert_array_equal(targets.position, [0.02, np.nan])
    np.testing.assert_array_equal(targets.effort, [np.nan, 2e3])
    np.testing.assert_allclose(commands.velocity, [0.2, np.nan])
    assert (states.header.frame_id, states.header.stamp.sec, states.header.stamp.nanosec) == (
        "rig",
        1,
        500_000_000,
    )
