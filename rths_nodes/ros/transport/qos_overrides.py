# SPDX-License-Identifier: Apache-2.0
"""QoS overrides by the user: ``qos_overrides.TOPIC.publisher.POLICY`` among the parameters of a node.

Only for topics that no node of a test subscribes to. Other QoS is part of the protocol: a stream with a smaller
queue loses samples, and a volatile topic in place of a latched one keeps nodes waiting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rclpy.node import Node
from rclpy.qos import QoSPolicyKind
from rclpy.qos_overriding_options import QoSOverridingOptions

from rths_nodes.core.errors import ConfigError, Problems, unknown
from rths_nodes.ros import names
from rths_nodes.ros.transport.wiring import Place

PREFIX = "qos_overrides."
NAME = re.compile(r"qos_overrides\.(?P<topic>[^.]+)\.(?P<side>[^.]+)\.(?P<policy>[^.]+)")
DEEPEST = 5000
"""Largest depth: Fast DDS keeps no more untaken messages of a topic."""
POLICIES: dict[str, tuple[str, ...]] = {
    "depth": (),
    "durability": ("volatile", "transient_local"),
    "history": ("keep_last",),  # keep_all would block the node on a slow onlooker
    "reliability": ("reliable", "best_effort"),
}
"""Valid values of each policy; a depth is an integer."""


def overridable(topic: names.Topic) -> QoSOverridingOptions | None:
    """Return rclpy's overriding options for a publisher of ``topic``; None if its QoS is fixed."""
    if not topic.for_onlookers:
        return None
    return QoSOverridingOptions([QoSPolicyKind[policy.upper()] for policy in POLICIES])


def check(node: Node, place: Place, given: Mapping[str, object]) -> None:
    """Raise ConfigError for ineffective overrides of ``node``; overrides for other nodes' topics are valid."""
    topics = {node.resolve_topic_name(place.topic(row.name)): row for row in names.TOPICS.values()}
    topics |= {node.resolve_topic_name(row.name): row for row in (names.DIAGNOSTICS, names.CLOCK)}
    for key in names.AXIS_TOPICS:
        topics |= {node.resolve_topic_name(name): names.AXIS_TOPICS[key] for name in _below_axes(node, place, key)}
    problems = Problems()
    for name, value in given.items():
        if name.startswith(PREFIX):
            with problems.gathered():
                _check(name, value, topics)
    problems.refuse()


def _below_axes(node: Node, place: Place, key: str) -> Iterable[str]:
    if place.role == names.AXIS:
        return [key]
    peers = node.get_parameter("peers").value if place.role == names.ACTUATOR else ()
    return [f"{axis}/{key}" for axis in map(names.axis_of, peers) if axis]


def _check(name: str, value: object, topics: Mapping[str, names.Topic]) -> None:
    found = NAME.fullmatch(name)
    if found is None:
        raise ConfigError(f"{name}: must be {PREFIX}/TOPIC.publisher.POLICY")
    topic, side, policy = found.group("topic", "side", "policy")
    chosen = [known for known, row in topics.items() if row.for_onlookers]
    if topic not in topics:
        raise unknown(name, "topic", topic, chosen)
    if not topics[topic].for_onlookers:
        raise ConfigError(
            f"{name}: refused: the QoS of {topic} is part of the protocol of the loop (of the streams reliability "
            f"and transport can be chosen); overrides count on {', '.join(chosen)}"
        )
    if side != "publisher":
        raise ConfigError(
            f"{name}: no node of a test listens to {topic}: must be {PREFIX}{topic}.publisher.{policy}"
        )
    if policy not in POLICIES:
        raise unknown(name, "policy", policy, POLICIES)
    if policy == "depth":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= DEEPEST:
            raise ConfigError(f"{name} = {value!r}: must be a whole number from 1 to {DEEPEST}")
    elif value not in POLICIES[policy]:
        raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(POLICIES[policy])}")
