"""Foreign publishers, second rigs and messages that make no sense: nothing moves the rig, nothing ends a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rclpy.node import Node

import rths_nodes
from rths_nodes import hosts, scenario, wire
from rths_nodes.components import Command, Measurement, Target
from rths_nodes.params import ConfigError
from rths_nodes.ros import composed, launching, names, results
from rths_nodes.ros.endpoints import message_class, quality
from rths_nodes.safety import State

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
TOLD = [topic for topic in names.TOPICS.values() if topic.type.startswith("rths_nodes/")]


# What a foreign node may send


def numbers(value: float, count: int) -> list[np.ndarray]:
    return [np.full(1, value) for _ in range(count)]


def samples(codec, topic: str, sample: int, value: float, flags: int = 0) -> bytes:
    """A well-formed message of a stream."""
    if topic == "target":
        return codec.pack_target(Target(sample, *numbers(value, 6), flags=flags), 0)
    if topic == "command":
        return codec.pack_command(Command(sample, *numbers(value, 2), flags=flags), 0)
    if topic == "compensator_state":
        return codec.pack_state(sample, [value] * codec.sizes[2], flags, 0)
    return codec.pack_measurement(Measurement(sample, *numbers(value, 3), flags=flags), 0)


LIES = {
    "sync_status": [{"sample": 4_000_000_000}],
    "test_state": [{"state": state, "sample": 5, "reason": "a lie"} for state in range(256)],
    "node_status": [{"node": node, "problem": "a lie", "scenario_hash": "0"} for node in names.NODES],
    "trip": [{"source": node, "reason": "a lie"} for node in (*names.NODES, "runner")],
    "summary": [{"node": node, "names": ["metrics.lie"], "values": [1.0]} for node in names.NODES],
    "progress": [{"node": node, "sample": 4_000_000_000, "done": True} for node in names.NODES],
}


def hostile(codec, topic: names.Topic, sample: int) -> list[bytes]:
    """Messages on ``topic`` that would do harm at ``sample`` if anybody listened."""
    if topic.stream:
        near = [sample, sample + 1, sample + 2, 0, max(sample - 1, 0), sample + 1000, 4_294_967_295]
        values = [1e-3, 1.0, -1e300, float("nan"), float("inf"), 0.0]
        good = [samples(codec, topic.name, n, x, flags) for n in near for x in values for flags in (0, 2, 0xFFFFFFFF)]
    else:
        good = [wire.encode(topic.message, lie) for lie in LIES[topic.name]]
    short = [good[0][:n] for n in (4, 5, 11, len(good[0]) - 1)]
    long = [good[0] + bytes(n) for n in (1, 3, 9, 40)]  # the middleware takes no more
    return [*good, *short, *long, wire.ENCAPSULATION + b"\xff" * 60, b"\x00\x00\x00\x00" + bytes(60)]


class Stranger:
    """A node that publishes on every topic of the rig; it may have any name."""

    def __init__(self, context, name: str = "stranger", namespace: str = "lab") -> None:
        self.node = Node(name, context=context, namespace=namespace, start_parameter_services=False)
        self.publishers = {
            topic: self.node.create_publisher(
                message_class(topic.type), f"/{names.NAMESPACE}/{topic.name}", quality(topic)
            )
            for topic in TOLD
        }
        self.sent = dict.fromkeys((topic.name for topic in TOLD), 0)

    def publish(self, codec, sample: int, most: int) -> None:
        """At most ``most`` messages on every topic."""
        for topic, publisher in self.publishers.items():
            messages = hostile(codec, topic, sample)
            start = self.sent[topic.name]
            for number in range(most):
                publisher.publish(messages[(start + number) % len(messages)])
            self.sent[topic.name] += most


def composed_run(directory: Path, disturb=None, overrides=(SHORT,), **options):
    """A run in one process; ``disturb(nodes by role, context)`` gives what is called before each Measurement."""
    descriptions = launching.describe(NAME, list(overrides), run_id="one", record=str(directory), **options)
    with composed.ros_context() as context:
        nodes = {
            d.role: composed.make_node(d.role, hosts.open_writer, context, d.parameters) for d in descriptions
        }
        for node in nodes.values():
            node.start()
        rig = nodes["actuator"]
        if disturb:
            action, send = disturb(nodes, context), rig.send

            def interfering(topic, data):
                if topic == "measurement":
                    action(rig.rig.sample)
                send(topic, data)
                if topic == "measurement":
                    action(rig.rig.sample)

            rig.send = interfering
        result = composed._run(list(nodes.values()), context, None, None)
        codes = {role: node.exit_code for role, node in nodes.items()}
        for node in nodes.values():
            node.destroy_node()
    return SimpleNamespace(result=result, codes=codes, directory=directory)


def histories(directory: Path) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in rths_nodes.read(directory).arrays().items()}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    run = hosts.run(NAME, [SHORT]).read()
    return {name: values.tobytes() for name, values in run.arrays().items()}


# Foreign messages


MESSAGES = 10_000
BURST = 250
"""More than a small queue would hold, on both sides of every Measurement that is chosen."""


def test_ten_thousand_foreign_messages_on_every_topic_change_no_bit(undisturbed, tmp_path):
    strangers = []

    def disturb(nodes, context):
        stranger = Stranger(context)
        strangers.append(stranger)

        def action(sample: int) -> None:
            if sample % 64 == 1 and stranger.sent["trip"] < MESSAGES:
                stranger.publish(nodes["actuator"].codec, sample, BURST)

        return action

    found = composed_run(tmp_path / "run", disturb)
    print(found.result, found.codes)
    assert set(strangers[0].sent.values()) == {MESSAGES}
    assert (found.result.outcome, set(found.codes.values())) == ("finished", {0}), found.result.reason
    assert histories(tmp_path / "run") == undisturbed
    assert rths_nodes.read(tmp_path / "run").information["gaps"] == "0"
    told = [note for note in found.result.notes if "foreign messages were dropped" in note]
    assert len(told) == 1
    for name in ("target", "command", "measurement", "true_state", "compensator_state"):
        assert f"{MESSAGES} of /lab/stranger on {name}" in told[0]
    assert "malformed" not in told[0], "they were not even looked at"
