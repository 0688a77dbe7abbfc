# SPDX-License-Identifier: Apache-2.0
"""QoS overrides and remapping apply to topics for other programs, and are refused elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.nodes.base import NodeRefused
from rths_nodes.ros.transport import qos_overrides
from rths_nodes.ros.transport.endpoints import quality

SCENARIO = {"scenario": "chen_ricles_2010"}
TOLD = [topic for topic in names.TOPICS.values() if topic.for_onlookers]


@contextmanager
def started(role: str, **overrides: Any) -> Iterator[Any]:
    """A node with ``overrides``: ``joint_states__depth`` stands for that of /rths/joint_states."""
    values = {
        f"qos_overrides./rths/{topic}.publisher.{policy}": value
        for (topic, policy), value in ((name.split("__"), value) for name, value in overrides.items())
    }
    with composed.ros_context() as context:
        node = composed.make_node(role, hosts.open_writer, context, SCENARIO | values)
        try:
            node.start()
            yield node
        finally:
            node.destroy_node()


def offered(node: Any, topic: str) -> Any:
    (found,) = node.get_publishers_info_by_topic(f"/rths/{topic}")
    return found.qos_profile


def test_what_our_nodes_say_to_each_other_is_not_for_onlookers() -> None:
    assert {topic.name for topic in TOLD} == {*names.JOINTS, "live", "live_curves"}
    assert names.DIAGNOSTICS.for_onlookers
    assert names.CLOCK.for_onlookers
    assert not names.TOPICS[names.FORMER_TRIP].for_onlookers, "an operator publishes it"
    assert all(qos_overrides.overridable(row) is None for row in names.TOPICS.values() if row not in TOLD)


def test_an_override_is_the_qos_of_the_publisher() -> None:
    with started(
        "monitor", joint_states__reliability="best_effort", joint_states__durability="transient_local"
    ) as n:
        found = offered(n, "joint_states")
        assert found.reliability == ReliabilityPolicy.BEST_EFFORT
        assert found.durability == DurabilityPolicy.TRANSIENT_LOCAL
        untouched = offered(n, "joint_targets")
        assert untouched.reliability == ReliabilityPolicy.RELIABLE
        assert untouched.durability == DurabilityPolicy.VOLATILE
        name = "qos_overrides./rths/joint_states.publisher.reliability"
        assert n.get_parameter(name).value == "best_effort"


@pytest.mark.parametrize("topic", TOLD, ids=lambda topic: topic.name)
def test_without_an_override_the_table_holds(topic: names.Topic) -> None:
    with started("monitor") as node:
        found, wanted = offered(node, topic.name), quality(topic)
        assert (found.reliability, found.durability) == (wanted.reliability, wanted.durability)
        prefix = f"qos_overrides./rths/{topic.name}.publisher."
        assert node.get_parameter(f"{prefix}depth").value == wanted.depth


def test_a_file_for_all_nodes_may_name_what_another_one_publishes() -> None:
    with started("compensator", live__depth=5) as node:
        assert not node.has_parameter("qos_overrides./rths/live.publisher.depth")


def test_the_node_of_an_axis_knows_the_topics_of_its_rig() -> None:
    values = {"scenario": "three_independent_axes", "qos_overrides./rths/live.publisher.depth": 5}
    values["qos_overrides./diagnostics.publisher.depth"] = 3
    with composed.ros_context() as context:
        arguments = composed.in_namespace("/rths/story_1")
        node = composed.make_node(names.AXIS, hosts.open_writer, context, values, cli_args=arguments)
        try:
            node.start()
            assert node.get_parameter("qos_overrides./diagnostics.publisher.depth").value == 3
        finally:
            node.destroy_node()


def test_overrides_hold_after_the_node_is_configured_again() -> None:
    with started("monitor", live__reliability="reliable") as node:
        node.trigger_deactivate()
        node.trigger_cleanup()
        node.start()
        assert offered(node, "live").reliability == ReliabilityPolicy.RELIABLE


@pytest.mark.parametrize("topic", [topic.name for topic in names.TOPICS.values() if topic not in TOLD])
def test_the_protocol_of_the_loop_is_not_overridden(topic: str) -> None:
    with pytest.raises(NodeRefused) as refused, started("monitor", **{f"{topic}__reliability": "best_effort"}):
        pass
    words = str(refused.value)
    assert words.startswith(f"qos_overrides./rths/{topic}.publisher.reliability: refused")
    assert "/rths/joint_states" in words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("/rths/joint_state.publisher.depth", 3, ("did you mean",)),
        ("/rths/live.subscription.depth", 3, ("qos_overrides", "/rths/live.publisher.depth")),
        ("/rths/live.publisher.deadline", 3, ("known", "depth", "durability", "history", "reliability")),
        ("/rths/live.publisher.depth", 0, ("number", "1", "5000")),
        ("/rths/live.publisher.depth", 2.5, ("whole", "number")),
        ("/rths/live.publisher.history", "keep_all", ("keep_last",)),
        ("/rths/live.publisher.reliability", "relaible", ("reliable", "best_effort")),
        ("/rths/live", 3, ("qos_overrides", "/TOPIC.publisher.POLICY")),
        ("/rths/story_1/command.publisher.depth", 1, ("protocol", "loop")),
    ],
)
def test_what_cannot_count_is_refused_in_words(name: str, value: Any, words: tuple[str, ...]) -> None:
    peers = [*names.NODES, "story_1/axis"]
    with composed.ros_context() as context:
        node = composed.make_node("actuator", hosts.open_writer, context, SCENARIO | {"peers": peers})
        try:
            with pytest.raises(ConfigError) as refused:
                qos_overrides.check(node, node.location, {f"qos_overrides.{name}": value, "pace": "lockstep"})
            assert mentions(str(refused.value), *words)
            assert str(refused.value).startswith(f"qos_overrides.{name}")
        finally:
            node.destroy_node()


def ended(*words: str) -> subprocess.CompletedProcess[str]:
    """Run an actuator node by itself with ROS arguments."""
    command = [sys.executable, "-m", "rths_nodes.app.node", "actuator", "--ros-args", *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_stream_is_refused_with_exit_code_2_before_anything_moves() -> None:
    options = ["scenario:=chen_ricles_2010", "qos_overrides./rths/measurement.publisher.depth:=1"]
    done = ended(*(part for option in options for part in ("-p", option)))
    assert done.returncode == 2
    assert "qos_overrides./rths/measurement.publisher.depth: refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_remapped_stream_is_refused_with_exit_code_2() -> None:
    done = ended("-p", "scenario:=chen_ricles_2010", "-r", "measurement:=/lab/measurement")
    assert done.returncode == 2
    assert mentions(done.stderr, "/rths/measurement", "/lab/measurement", "refused")
    assert "Traceback" not in done.stderr


BETWEEN_NODES = {row.name for row in names.TOPICS.values() if row.publishers and row.subscribers}


@pytest.mark.parametrize("role", [*names.NODES, names.AXIS])
def test_only_topics_between_the_test_and_other_programs_are_remapped(role: str) -> None:
    """In the namespace of an axis its own three topics as well; other programs publish the former trip topic."""
    here = "/rths/story_1" if role == names.AXIS else "/rths"
    topics = [*names.TOPICS, names.DIAGNOSTICS.name, names.CLOCK.name]
    below = [f"{here}/{key}" for key in names.AXIS_TOPICS if role == names.AXIS]
    canonical = [name if name.startswith("/") else f"/rths/{name}" for name in topics] + below
    remapped = [word for number, name in enumerate(canonical) for word in ("-r", f"{name}:=/lab/t_{number}")]
    arguments = [*composed.in_namespace(here), *remapped]
    with composed.ros_context() as context:
        node = composed.make_node(role, hosts.open_writer, context, SCENARIO, cli_args=arguments)
        try:
            with pytest.raises(ConfigError) as refused:
                qos_overrides.check(node, node.location, {})
        finally:
            node.destroy_node()
    assert {each.partition(": ")[0] for each in refused.value.problems} == {
        *(f"/rths/{name}" for name in BETWEEN_NODES),
        *below,
    }
