# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscriptions that handle messages as bytes, polled without an executor; and their QoS.

Nodes of one process are neighbours and pass messages directly, unlike in rclpy. Processes of one machine use a
line (``line.py``). Users may change QoS and names only of topics between a test and other programs, because other
topics are part of the protocol.
"""

from __future__ import annotations

import importlib
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription
from rclpy.waitable import Waitable

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, unknown
from rths_nodes.core.wire import HEAD, RunMark, number_of
from rths_nodes.ros import names
from rths_nodes.ros.transport import peers
from rths_nodes.ros.transport.line import SENT_AT, SocketReader, SocketWriter
from rths_nodes.ros.transport.rclpy_private import publish_bytes, take_bytes


class ByHand(MutuallyExclusiveCallbackGroup):
    def can_execute(self, entity: Waitable) -> bool:
        return False


GID = "publisher_gid"
"""Key of the publisher's gid in the information about a message. Some distributions lack this key."""
AT_MOST = 5000
"""Maximum number of unread messages in an inbox, as in Fast DDS."""
FOREIGN_A_TURN = 128
"""Maximum number of foreign messages dropped per call, which takes less than a millisecond."""


class Inbox:
    """Polled subscription of the node ``owner`` that returns only messages accepted by the ``guard``.

    If ``by_hand``, the publisher is a neighbour and passes messages directly; otherwise they come by ``line``, if
    any. Copies of these messages from the middleware are dropped.
    """

    def __init__(
        self, subscription: Subscription, guard: peers.PublisherGuard, owner: str = "", stream: bool = False
    ) -> None:
        self.subscription, self.guard, self.owner, self.stream = subscription, guard, owner, stream
        self.by_hand = False
        self.line: SocketReader | None = None
        self._received_to = -1
        self._take = take_bytes(subscription)
        self._type = subscription.msg_type
        self._known, self._waiting = guard.known, guard.waiting
        self._handed: deque[tuple[bytes, int]] = deque(maxlen=AT_MOST)
        self.hand = self._handed.append
        self._came_ns = 0

    def fill_by_hand(self, by_hand: bool) -> None:
        self.by_hand = by_hand
        self.hang_up()

    def receive_by(self, line: SocketReader) -> None:
        self.hang_up()
        self.line = line

    @property
    def by_line(self) -> bool:
        line = self.line
        if line is not None and not line.spoken:
            line.look()
            if line.ended:
                self.hang_up()
        return self.line is not None

    def hang_up(self) -> None:
        if self.line is not None:
            self._received_to = self.line.last_number
            self.line.close()
            self.line = None

    def take(self) -> bytes | None:
        """Return the next message; None if there is no message, or after ``FOREIGN_A_TURN`` foreign messages."""
        if self.by_hand:
            if not self._handed:
                return None
            data, self._came_ns = self._handed.popleft()
            return data
        if self.line is not None:
            return self._take_from(self.line)
        guard, left = self.guard, FOREIGN_A_TURN
        while left > 0:
            if self._waiting:
                data, gid = self._waiting.popleft()
            elif (message := self._take(self._type, True)) is not None:
                data, gid = self._from_whom(*message)
            else:
                return None
            if data and guard.admits(data):
                if self._received_to < 0 or len(data) < HEAD.size or number_of(data) > self._received_to:
                    return data
            elif data:
                guard.reject(gid, data)
            left -= 1
        return None

    def _take_from(self, line: SocketReader) -> bytes | None:
        data = line.take()
        if data is not None:
            self._came_ns = line.sent_ns
            return data
        if line.ended and (line.given_back or not line.spoken):
            self.hang_up()
            return self.take()
        return None

    def drop(self, most: int = AT_MOST) -> None:
        """Drop up to ``most`` copies, from the middleware, of messages received directly; count foreign ones."""
        guard = self.guard
        line = self.line if self.by_line else None
        elsewhere = self.by_hand or (line is not None and not line.given_back)
        while elsewhere and self._waiting:  # received before the run was known
            kept, publisher = self._waiting.popleft()
            if not guard.admits(kept):
                guard.drop(publisher)
        while elsewhere and most > 0 and (message := self._take(self._type, True)) is not None:
            most -= 1
            data, gid = message[0], _gid_of(message[1])
            if not guard.run.has_sent(data) or (gid is not None and gid not in self._known):
                guard.drop(gid or peers.NOBODY)

    def _from_whom(self, data: bytes, info: Data) -> tuple[bytes, bytes]:
        gid = _gid_of(info)
        if gid is None:
            self.guard.go_without_gids()
        if gid is None or gid in self._known:
            self._came_ns = info["received_timestamp"]
            return data, gid or peers.NOBODY
        self.guard.meet(gid, data)
        return self._waiting.popleft() if self._waiting else (b"", gid)

    def waited(self) -> int:
        return max(0, time.time_ns() - self._came_ns) if self._came_ns else 0


class StreamPublisher:
    """Publishes messages as bytes; ``sent`` is their number.

    ``partners`` are the subscribing peers (full names), nodes of the loop first. ``neighbours`` are inboxes in
    this process, which receive every message directly. ``lines`` are the lines to other nodes of this machine, by
    full name. The middleware receives messages only if ``has_topic_subscribers`` is true, with ``holds`` only
    after a call of :meth:`publish_held`.
    """

    def __init__(self, publisher: Publisher, partners: tuple[str, ...] = ()) -> None:
        self.publisher, self.partners = publisher, partners
        self.sent = 0
        self.neighbours: tuple[Inbox, ...] = ()
        self.lines: dict[str, SocketWriter] = {}
        self.has_topic_subscribers = True
        self.holds = False
        self._gone = 0
        self._held: list[bytes] = []
        self._publish = publish_bytes(publisher)

    def send(self, data: bytes) -> None:
        self.sent += 1
        if self.neighbours:
            handed = (data, time.time_ns())
            for inbox in self.neighbours:
                inbox.hand(handed)
        if self.lines:
            packed = SENT_AT.pack(time.time_ns()) + data
            for line in self.lines.values():
                if not line.send(packed):  # the middleware sends this message and all later messages
                    self.has_topic_subscribers = True
        if not self.has_topic_subscribers:
            return
        if self.holds:
            self._held.append(data)
        else:
            self._publish_elsewhere(data)

    def publish_held(self) -> None:
        for line in self.lines.values():
            if line.behind:
                line.send_kept()
        if self._held:
            held, self._held = self._held, []
            for data in held:
                self._publish_elsewhere(data)

    def _publish_elsewhere(self, data: bytes) -> None:
        self._publish(data)
        for inbox in self.neighbours:  # the middleware delivers a second copy to each neighbour
            inbox.drop(1)

    def hand_to(self, neighbours: Sequence[Inbox], holds: bool) -> None:
        """Pass messages directly to ``neighbours``. No message to ``neighbours`` may be in transit."""
        self.neighbours, self.holds = tuple(neighbours), holds
        for inbox in neighbours:
            if inbox.owner in self.lines:
                self.lines.pop(inbox.owner).close()
            inbox.fill_by_hand(True)
        self.look()

    def speak_to(self, partner: str, line: SocketWriter, holds: bool) -> None:
        """Send messages to the node ``partner`` on ``line``. No message to ``partner`` may be in transit."""
        lines = self.lines | {partner: line}
        self.lines = {name: lines[name] for name in (*self.partners, *lines) if name in lines}
        self.holds = holds
        self.look()

    def speaks_to(self, partner: str) -> bool:
        if any(inbox.owner == partner and inbox.by_hand for inbox in self.neighbours):
            return True
        line = self.lines.get(partner)
        return line is not None and line.open

    @property
    def lost(self) -> int:
        return self._gone + sum(line.lost for line in self.lines.values())

    def hang_up(self) -> None:
        for line in self.lines.values():
            line.close()
            self._gone += line.lost
        self.lines.clear()
        self.has_topic_subscribers = True

    def look(self) -> None:
        for partner in [partner for partner, line in self.lines.items() if not line.look()]:
            self._gone += self.lines.pop(partner).lost
        here = sum(inbox.by_hand for inbox in self.neighbours) + len(self.lines)
        self.has_topic_subscribers = not here or self.publisher.get_subscription_count() > here


def open_inbox(
    node: Node,
    topic: names.Topic,
    group: ByHand,
    run: RunMark,
    best_effort: bool = False,
    name: str = "",
    speakers: Sequence[str] = (),
) -> Inbox:
    """Return an inbox of ``node`` for ``topic``, subscribed as ``name`` if ``name`` is not empty.

    Messages of ``run`` from the nodes ``speakers`` (full names) are accepted. The inbox keeps up to ``AT_MOST``
    messages, so that a foreign node cannot displace messages of peers.
    """
    qos = quality(topic, best_effort, HistoryPolicy.KEEP_ALL)
    kind = message_class(topic.type)
    subscription = node.create_subscription(kind, name or topic.name, ignore, qos, callback_group=group, raw=True)
    judge = _guard_of(topic)(node, subscription, speakers, run, topic.handshake)
    return Inbox(subscription, judge, node.get_fully_qualified_name(), topic.stream)


def _guard_of(topic: names.Topic) -> type[peers.PublisherGuard]:
    if topic.name == names.TRIP:
        return peers.TripGuard if topic.publishers else peers.RequestGuard
    if topic.name == names.TEST_STATE:
        return peers.AnnouncementGuard
    return peers.PublisherGuard if topic.publishers else peers.OpenGuard


def quality(
    topic: names.Topic, best_effort: bool = False, history: HistoryPolicy = HistoryPolicy.KEEP_LAST
) -> QoSProfile:
    return QoSProfile(
        history=history,
        depth=topic.kept,
        reliability=ReliabilityPolicy.BEST_EFFORT if topic.lossy(best_effort) else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if topic.latched else DurabilityPolicy.VOLATILE,
    )


def message_class(kind: str) -> type:
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _gid_of(info: Data) -> bytes | None:
    gid = info.get(GID)
    return None if gid is None else gid["data"]


def ignore(_: object) -> None:
    """Do nothing, because no executor serves these subscriptions."""


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


def check_overrides(node: Node, location: names.NodeLocation, parameters: Mapping[str, object]) -> None:
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
                _check_override(name, value, topics)
    problems.refuse()


def _topics(node: Node, location: names.NodeLocation) -> Iterator[tuple[str, names.Topic]]:
    for row in names.TOPICS.values():
        yield location.topic(row.name), row
    for row in (names.DIAGNOSTICS, names.CLOCK):
        yield row.name, row
    peers = node.get_parameter("peers").value if location.role == names.ACTUATOR else ()
    axes = [""] if location.role == names.AXIS else [f"{axis}/" for axis in map(names.axis_of, peers) if axis]
    for key, row in names.AXIS_TOPICS.items():
        for axis in axes:
            yield f"{axis}{key}", row


def _check_override(name: str, value: object, topics: Mapping[str, names.Topic]) -> None:
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
