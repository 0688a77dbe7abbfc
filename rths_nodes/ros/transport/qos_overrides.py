# SPDX-License-Identifier: Apache-2.0
"""QoS settings of the user: parameters ``qos_overrides.TOPIC.publisher.POLICY``, and remapping of topics.

Only topics between a test and other programs can be changed, because the name and QoS of other topics are part of
the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rclpy.node import Node
from rclpy.qos import QoSPolicyKind
from rclpy.qos_overriding_options import QoSOverridingOptions

from rths_nodes.core.errors import ConfigError, Problems, unknown
from rths_nodes.ros import names
from rths_nodes.ros.transport.wiring import NodeLocation

PREFIX = "qos_overrides."
NAME = re.compile(r"qos_overrides\.(?P<topic>[^.]+)\.(?P<side>[^.]+)\.(?P<policy>[^.]+)")
DEEPEST = 5000
"""Largest depth of a queue, as in Fast DDS."""
POLICIES: dict[str, tuple[str, ...]] = {
    "depth": (),
    "durability": ("volatile", "transient_local"),
    "history": ("keep_last",),  # keep_all would block the node if a subscriber is slow
    "reliability": ("reliable", "best_effort"),
}


def overridable(topic: names.Topic) -> QoSOverridingOptions | None:
    if not topic.for_onlookers:
        return None
    return QoSOverridingOptions([QoSPolicyKind[policy.upper()] for policy in POLICIES])


def check(node: Node, location: NodeLocation, parameters: Mapping[str, object]) -> None:
    """Raise ConfigError for invalid overrides of ``node``, and for remapped topics of the protocol."""
    rows = dict(_topics(node, location))
    topics = {node.resolve_topic_name(name): row for name, row in rows.items()}
    problems = Problems()
    for name, row in rows.items():
        canonical, actual = node.resolve_topic_name(name, only_expand=True), node.resolve_topic_name(name)
        if actual != canonical and row.publishers and row.subscribers:
            problems.append(
                f"{canonical}: remapping to {actual} is refused, because nodes and recordings rely on the name. "
                "Use a namespace, or remap the topic in the other program"
            )
    for name, value in parameters.items():
        if name.startswith(PREFIX):
            with problems.gathered():
                _check(name, value, topics)
    problems.refuse()


def _topics(node: Node, location: NodeLocation) -> Iterator[tuple[str, names.Topic]]:
    for row in names.TOPICS.values():
        yield location.topic(row.name), row
    for row in (names.DIAGNOSTICS, names.CLOCK):
        yield row.name, row
    for key, row in names.AXIS_TOPICS.items():
        for name in _below_axes(node, location, key):
            yield name, row


def _below_axes(node: Node, location: NodeLocation, key: str) -> Iterable[str]:
    if location.role == names.AXIS:
        return [key]
    peers = node.get_parameter("peers").value if location.role == names.ACTUATOR else ()
    return [f"{axis}/{key}" for axis in map(names.axis_of, peers) if axis]


def _check(name: str, value: object, topics: Mapping[str, names.Topic]) -> None:
    parts = NAME.fullmatch(name)
    if parts is None:
        raise ConfigError(f"{name}: must have the form {PREFIX}/TOPIC.publisher.POLICY")
    topic, side, policy = parts.group("topic", "side", "policy")
    chosen = [key for key, row in topics.items() if row.for_onlookers]
    if topic not in topics:
        raise unknown(name, "topic", topic, chosen)
    if not topics[topic].for_onlookers:
        raise ConfigError(
            f"{name}: refused, because the QoS of {topic} is part of the protocol of the loop (see the parameters "
            f"reliability and transport). Allowed topics: {', '.join(chosen)}"
        )
    if side != "publisher":
        raise ConfigError(
            f"{name}: must be {PREFIX}{topic}.publisher.{policy}, because no node of a test subscribes to {topic}"
        )
    if policy not in POLICIES:
        raise unknown(name, "policy", policy, POLICIES)
    if policy == "depth":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= DEEPEST:
            raise ConfigError(f"{name} = {value!r}: must be a whole number from 1 to {DEEPEST}")
    elif value not in POLICIES[policy]:
        raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(POLICIES[policy])}")
