"""Endpoints that are worked by hand, in bytes: publishers, and subscriptions that no executor touches.

Between nodes of one process a message need not go through the middleware: an :class:`Outlet` hands it to the
:class:`Inbox` of a neighbour, as the intra-process communication of rclcpp does, which rclpy does not have.
"""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from rths_nodes.core.wire.run_mark import RunMark
from rths_nodes.ros import names
from rths_nodes.ros.transport.peers import NOBODY, AnnouncementGuard, OpenGuard, PublisherGuard


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


AT_MOST = 5000
"""Messages that an inbox keeps of each: of the middleware (Fast DDS) and of neighbours, who may outlive it."""


FOREIGN_A_TURN = 128
"""Foreign messages that an inbox drops before its node looks at something else: below a millisecond."""


class Inbox:
    """One subscription, emptied by hand; only messages that pass the ``guard`` come out.

    ``by_hand``: whoever may speak here is a neighbour, and hands its messages over. What comes from it through the
    middleware as well, because others listen, too, is here already.
    """

    def __init__(self, subscription: Any, guard: PublisherGuard) -> None:
        self.subscription, self.guard = subscription, guard
        self.by_hand = False
        self._take = subscription.handle.take_message
        self._type = subscription.msg_type
        self._known, self._waiting = guard.known, guard.waiting
        self._handed: deque[tuple[bytes, int]] = deque(maxlen=AT_MOST)
        self.hand = self._handed.append
        """Takes a message of a neighbour, and when it was sent, ns."""
        self._came_ns = 0

    def fill_by_hand(self, by_hand: bool) -> None:
        """From now on a neighbour hands its messages over, or not any more."""
        self.by_hand = by_hand

    def take(self) -> bytes | None:
        """The next message as bytes; None when there is none, or not yet behind many foreign ones (about 1 us)."""
        if self.by_hand:
            if not self._handed:
                return None
            data, self._came_ns = self._handed.popleft()
            return data
        guard, left = self.guard, FOREIGN_A_TURN
        while left > 0 and (found := self._next()) is not None:
            data, gid = found
            if data and guard.admits(data):
                return data
            if data:
                guard.reject(gid, data)
            left -= 1
        return None

    def skim(self) -> None:
        """As :meth:`drop`, but only what takes no time that anybody would notice."""
        self.drop(FOREIGN_A_TURN)

    def drop(self, most: int = AT_MOST) -> None:
        """What the middleware has brought of messages that are handed over; foreign ones are counted."""
        guard = self.guard
        while self.by_hand and self._waiting:  # from before the run was known
            kept, publisher = self._waiting.popleft()
            if not guard.admits(kept):
                guard.drop(publisher)
        while self.by_hand and most > 0 and (found := self._take(self._type, True)) is not None:
            most -= 1
            data, gid = found[0], _gid_of(found[1])
            if not guard.run.has_sent(data) or (gid is not None and gid not in self._known):
                guard.drop(gid or NOBODY)

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next message, and the gid of its publisher; no bytes where it is not that of a peer."""
        if self._waiting:
            return self._waiting.popleft()
        found = self._take(self._type, True)
        if found is None:
            return None
        data, gid = found[0], _gid_of(found[1])
        if gid is None:
            self.guard.go_without_gids()
        if gid is None or gid in self._known:
            self._came_ns = found[1]["received_timestamp"]
            return data, gid or NOBODY
        self.guard.meet(gid, data)
        return self._waiting.popleft() if self._waiting else (b"", gid)

    def waited(self) -> int:
        """How long the message that was taken last has waited here, ns; 0 where that is not known."""
        return max(0, time.time_ns() - self._came_ns) if self._came_ns else 0


class Outlet:
    """One publisher of bytes.

    ``neighbours``: inboxes of nodes in this process, which are handed every message. The middleware gets it only
    when it is ``heard_elsewhere``; at once, or where it ``holds``, when asked to: the loop does not wait for that.
    """

    def __init__(self, publisher: Any) -> None:
        self.publisher = publisher
        self.neighbours: tuple[Inbox, ...] = ()
        self._hands: list[Callable[[tuple[bytes, int]], None]] = []
        self.heard_elsewhere = True
        self.holds = False
        self._held: list[bytes] = []
        # without rclpy's guard against other threads, which a node that is worked by hand does not have
        self._publish = publisher.handle.publish_raw

    def send(self, data: bytes) -> None:
        """To everybody who listens."""
        if self._hands:
            handed = (data, time.time_ns())
            for hand in self._hands:
                hand(handed)
        if not self.heard_elsewhere:
            return
        if self.holds:
            self._held.append(data)
        else:
            self._publish_elsewhere(data)

    def publish_held(self) -> None:
        """To the others what only the neighbours have so far."""
        if self._held:
            held, self._held = self._held, []
            for data in held:
                self._publish_elsewhere(data)

    def _publish_elsewhere(self, data: bytes) -> None:
        self._publish(data)
        for inbox in self.neighbours:  # the middleware brings it to them at once, a second time
            inbox.drop(1)

    def hand_to(self, neighbours: Sequence[Inbox], holds: bool) -> None:
        """From now on messages go to ``neighbours`` by hand. None may be under way to them."""
        self.neighbours, self.holds = tuple(neighbours), holds
        self._hands = [inbox.hand for inbox in neighbours]
        for inbox in neighbours:
            inbox.fill_by_hand(True)
        self.look()

    def look(self) -> None:
        """Whether anybody else listens: they may come and go, neighbours may be closed."""
        here = sum(inbox.by_hand for inbox in self.neighbours)
        self.heard_elsewhere = self.publisher.get_subscription_count() > here


def open_inbox(
    node: Any,
    topic: names.Topic,
    group: ByHand,
    run: RunMark,
    best_effort: bool = False,
    name: str = "",
    speakers: Sequence[str] = (),
) -> Inbox:
    """A subscription of ``node`` to ``topic``, there or at ``name``, to be emptied by hand.

    ``speakers``: full names of the nodes whose messages count, where they are of ``run``. The inbox keeps all, up
    to the limit of the middleware (``AT_MOST``): with fewer, a burst of somebody else's would push messages of the
    peers out.
    """
    qos = quality(topic, best_effort, HistoryPolicy.KEEP_ALL)
    kind = message_class(topic.type)
    found = node.create_subscription(kind, name or topic.name, _ignore, qos, callback_group=group, raw=True)
    guard = PublisherGuard if topic.publishers else OpenGuard
    if topic.name == names.TEST_STATE:
        guard = AnnouncementGuard
    return Inbox(found, guard(node, found, speakers, run, topic.handshake))


def quality(
    topic: names.Topic, best_effort: bool = False, history: HistoryPolicy = HistoryPolicy.KEEP_LAST
) -> QoSProfile:
    """The QoS of a publisher of ``topic``; only streams may be best effort."""
    return QoSProfile(
        history=history,
        depth=topic.kept,
        reliability=ReliabilityPolicy.BEST_EFFORT if best_effort and topic.stream else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if topic.latched else DurabilityPolicy.VOLATILE,
    )


def message_class(kind: str) -> Any:
    """The message class of ``package/msg/Name``."""
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _gid_of(info: dict[str, Any]) -> bytes | None:
    gid = info.get(GID)
    return None if gid is None else gid["data"]


def _ignore(_: Any) -> None:
    """No executor serves these subscriptions."""
