"""Endpoints that are worked by hand: subscriptions that no executor touches, taken as bytes."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from rths_nodes.ros import names
from rths_nodes.ros.peers import Door, OpenDoor


class ByHand(CallbackGroup):
    """Subscriptions and services that their node looks at itself: no executor may touch them."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        return None


GID = "publisher_gid"
"""Where a message says which publisher it is from; not in every distribution."""


class Inbox:
    """One subscription, emptied by hand; only messages that pass the ``door`` come out."""

    def __init__(self, subscription: Any, door: Door) -> None:
        self.subscription, self.door = subscription, door
        self._take = subscription.handle.take_message
        self._type = subscription.msg_type
        self._known, self._waiting = door.known, door.waiting
        self._came_ns = 0

    def take(self) -> bytes | None:
        """The next message as bytes; None when there is none (about 1 us)."""
        if self._waiting:
            return self._waiting.popleft()
        while (found := self._take(self._type, True)) is not None:
            data: bytes = found[0]
            gid = found[1].get(GID)
            if gid is None:
                Door.by_gid = False  # of all: it is the distribution's
                return data
            if gid["data"] in self._known:
                self._came_ns = found[1]["received_timestamp"]
                return data
            self.door.meet(gid["data"], data)
            if self._waiting:
                return self._waiting.popleft()
        return None

    def waited(self) -> int:
        """How long the message that was taken last has waited here, ns; 0 where that is not known."""
        return max(0, time.time_ns() - self._came_ns) if self._came_ns else 0


def open_inbox(
    node: Any,
    topic: names.Topic,
    group: ByHand,
    best_effort: bool = False,
    name: str = "",
    speakers: Sequence[str] = (),
) -> Inbox:
    """A subscription of ``node`` to ``topic``, there or at ``name``, to be emptied by hand.

    ``speakers``: full names of the nodes whose messages count. The inbox keeps all, up to the limit of the
    middleware (Fast DDS: 5000): with fewer, a burst of somebody else's would push messages of the peers out.
    """
    qos = quality(topic, best_effort)
    qos.history = HistoryPolicy.KEEP_ALL
    kind = message_class(topic.type)
    found = node.create_subscription(kind, name or topic.name, _ignore, qos, callback_group=group, raw=True)
    return Inbox(found, (Door if topic.publishers else OpenDoor)(node, found, speakers))


def quality(topic: names.Topic, best_effort: bool = False) -> QoSProfile:
    """The QoS of a publisher of ``topic``; only streams may be best effort."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=topic.kept,
        reliability=ReliabilityPolicy.BEST_EFFORT if best_effort and topic.stream else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if topic.latched else DurabilityPolicy.VOLATILE,
    )


def message_class(kind: str) -> Any:
    """The message class of ``package/msg/Name``."""
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _ignore(_: Any) -> None:
    """No executor serves these subscriptions."""
