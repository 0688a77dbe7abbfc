"""Endpoints that are worked by hand: subscriptions that no executor touches, taken as bytes."""

from __future__ import annotations

import importlib
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from rths_nodes.ros import names

LATCHED_DEPTH = 64
"""Of a subscription to a latched topic: several nodes, or several states, may speak before it is looked at."""


class ByHand(CallbackGroup):
    """Subscriptions that no executor may touch."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        return None


class Inbox:
    """One subscription, emptied by hand."""

    def __init__(self, subscription: Any) -> None:
        self.subscription = subscription
        self._take = subscription.handle.take_message
        self._type = subscription.msg_type

    def take(self) -> bytes | None:
        """The next message as bytes; None when there is none (about 1 us)."""
        found = self._take(self._type, True)
        return None if found is None else found[0]


def open_inbox(
    node: Any, topic: names.Topic, group: ByHand, depth: int, best_effort: bool = False, name: str = ""
) -> Inbox:
    """A subscription of ``node`` to ``topic``, there or at ``name``, to be emptied by hand."""
    qos = quality(topic, depth, best_effort)
    kind = message_class(topic.type)
    return Inbox(node.create_subscription(kind, name or topic.name, _ignore, qos, callback_group=group, raw=True))


def quality(topic: names.Topic, depth: int, best_effort: bool = False) -> QoSProfile:
    """The QoS of an endpoint of ``topic``; only streams may be best effort."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.BEST_EFFORT if best_effort and topic.stream else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if topic.latched else DurabilityPolicy.VOLATILE,
    )


def message_class(kind: str) -> Any:
    """The message class of ``package/msg/Name``."""
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _ignore(_: Any) -> None:
    """No executor serves these subscriptions."""
