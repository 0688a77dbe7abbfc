# SPDX-License-Identifier: Apache-2.0
"""Recording of further topics, of programs that do not take part in the test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions, naming
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from std_msgs.msg import String

import rths_nodes
from rths_nodes.core.errors import ConfigError
from rths_nodes.msg import Measurement
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.nodes.recorder import LOOK_NS, FurtherTopics, full_names

NAME, OVERRIDES = "chen_ricles_2010", ["duration=4"]
ROBOT = "/robot/measurement"  # ends like a stream of the test


@pytest.fixture
def robot() -> Iterator[Node]:
    with composed.ros_context() as context:
        node = Node("robot", namespace="robot", context=context)
        yield node
        node.destroy_node()


def test_topic_of_another_program_is_recorded(robot: Node, tmp_path: Path, different: Any) -> None:
    publisher = robot.create_publisher(String, ROBOT, 10)
    values = {"scenario": NAME, "overrides": OVERRIDES, "recorder:record": tmp_path / "run"}
    values["recorder:record_topics"] = f"[{ROBOT}, not_there]"
    arguments = [part for name, value in values.items() for part in ("-p", f"{name}:={value}")]
    command = [sys.executable, "-m", "rths_nodes.app.node", "rig", "--ros-args", "-r", "__ns:=/rths", *arguments]
    rig = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    sent = 0
    while rig.poll() is None:
        publisher.publish(String(data=f"pose {sent}"))
        sent += 1
        with suppress(subprocess.TimeoutExpired):
            rig.wait(0.02)
    assert rig.returncode == 0
    recording = bag.read(tmp_path / "run")
    assert recording.information["gaps"] == "0"
    assert all(recording.counts[topic] > 0 for topic in (*names.ALSO_RECORDED, ROBOT))
    assert recording.topics[ROBOT].type == "std_msgs/msg/String"
    assert "/rths/not_there" not in recording.topics
    poses = [deserialize_message(data, String).data for topic, data, _ in recording.messages() if topic == ROBOT]
    first = int(poses[0].partition(" ")[2])
    assert poses == [f"pose {first + number}" for number in range(len(poses))]
    assert different(rths_nodes.read(tmp_path / "run"), rths_nodes.run(NAME, OVERRIDES)) == []


class Bench:
    """Further topics of a recorder node, its writer and warnings."""

    def __init__(self, node: Node, clock: Any, *topics: str) -> None:
        self.added: dict[str, tuple[Any, ...]] = {}
        self.written: list[tuple[str, bytes, int]] = []
        self.warnings: list[str] = []
        self._clock = clock
        writer: Any = SimpleNamespace(add=self._add, write=lambda *message: self.written.append(message))
        self.topics = FurtherTopics(node, topics, writer, self.warnings.append, clock)

    def _add(self, topic: str, *announced: Any) -> None:
        if topic == "/refused":
            raise ConfigError("definition not installed")
        self.added[topic] = announced

    def look_until(self, condition: Any) -> None:
        for _ in range(1000):
            self._clock.now += LOOK_NS
            self.topics.look()
            self.topics.record()
            if condition():
                return
            time.sleep(0.005)
        pytest.fail(f"{self.added}, {self.warnings}")


def test_subscription_has_the_qos_of_its_publishers(robot: Node, still_clock: Any) -> None:
    lossy = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    bench = Bench(robot, still_clock, "/lossy", "/latched")
    robot.create_publisher(String, "/lossy", lossy)
    robot.create_publisher(String, "/latched", latched).publish(String(data="before"))
    bench.look_until(lambda: bench.written)
    string = "std_msgs/msg/String"
    assert bench.added == {"/lossy": (string, False, False), "/latched": (string, True, True)}
    ((topic, data, stamp),) = bench.written
    assert (topic, deserialize_message(data, String).data) == ("/latched", "before")
    assert stamp > 0
    assert not bench.warnings
    bench.topics.close()


@pytest.mark.parametrize(
    ("topic", "kind", "reason"),
    [("/refused", String, "definition not installed"), ("/other_rig/measurement", Measurement, "another rig")],
)
def test_topic_that_cannot_be_recorded_is_reported_once(
    topic: str, kind: type, reason: str, robot: Node, still_clock: Any
) -> None:
    bench = Bench(robot, still_clock, topic)
    robot.create_publisher(kind, topic, 10)
    bench.look_until(lambda: bench.warnings)
    for _ in range(3):
        still_clock.now += LOOK_NS
        bench.topics.look()
    (warning,) = bench.warnings
    assert mentions(warning, topic, reason)
    assert not bench.added


@pytest.mark.parametrize("topic", ["two words", "/rths/measurement", "test_state"])
def test_invalid_names_and_topics_of_the_test_are_refused(topic: str) -> None:
    with composed.ros_context() as context:
        node = Node("recorder", namespace="rths", context=context)
        try:
            with pytest.raises(ConfigError, match=naming("record_topics", topic)):
                full_names(node, [topic])
            assert full_names(node, ["pose", "/pose", "pose"]) == [*names.ALSO_RECORDED, "/rths/pose", "/pose"]
        finally:
            node.destroy_node()
