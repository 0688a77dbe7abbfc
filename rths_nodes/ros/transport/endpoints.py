# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscriptions that handle messages as bytes, polled without an executor, with filters and QoS.

A filter accepts messages from peers of this run. Other messages are dropped and counted. Trip requests have their
own filter. The middleware provides the gid (identifier) of a publisher, and the ROS graph provides its node. Until
the test begins, peers may appear, or return with another publisher. Later publishers are refused.

Nodes of one process are neighbours and pass messages directly, unlike in rclpy. Processes on one machine use lines
(``line.py``). Users may change the QoS and names of a topic only if it connects a test with other programs,
because all other topics are part of the protocol.
"""

from __future__ import annotations

import importlib
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo
from rclpy.waitable import Waitable

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, unknown
from rths_nodes.core.wire import FIELD_AT, HEAD, NO_RUN, RunMark, decode, number_of
from rths_nodes.core.wire import LENGTH as LENGTH_OF_MARK
from rths_nodes.loop.pacing import Clock
from rths_nodes.ros import names
from rths_nodes.ros.transport.line import SENT_AT, SocketReader, SocketWriter
from rths_nodes.ros.transport.rclpy_private import publish_bytes, take_bytes

VERSION_2 = "std_msgs/Header header\nuint32 sample\nuint32 effective_sample\nstring source\nstring reason\n"
"""Definition of Trip in programs built before version 0.10."""
LONGEST = 200
"""Maximum length of the source and of the reason in a trip request, characters."""
MOST_FOREIGN = 64
MOST_UNJUDGED = 64
UNKNOWN = "unknown"
_UNNAMED = "NODE_NAME_UNKNOWN"
NOBODY = b""
"""Gid for messages without a gid, and for publishers that are not counted separately."""


def publishers(node: Node, topic: str) -> list[tuple[str, bytes]]:
    return [(full_name(info), bytes(info.endpoint_gid)) for info in node.get_publishers_info_by_topic(topic)]


def wait_until_gone(node: Node, leaving: Sequence[str], seconds: float, clock: Clock) -> None:
    end = clock.monotonic_ns() + round(seconds * 1e9)
    while clock.monotonic_ns() < end:
        present = node.get_node_names_and_namespaces()
        if {f"{namespace.rstrip('/')}/{name}" for name, namespace in present}.isdisjoint(leaving):
            return
        clock.sleep(0.01)


def full_name(info: TopicEndpointInfo) -> str:
    if _UNNAMED in info.node_name:
        return ""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class PublisherGuard:
    """Filters one subscription: accepts messages of ``run`` from the peers ``speakers`` (full names).

    ``known`` contains the gids of the peers' publishers. An open guard looks up the node of an unknown gid in the
    graph. If the graph has no such node yet, the guard keeps the last message of the publisher. In distributions
    without gids, only the bytes show whether a message belongs to this run. If ``early`` is true, messages from
    nodes that do not know the run are accepted before the test.
    """

    def __init__(
        self, node: Node, subscription: Subscription, speakers: Sequence[str], run: RunMark, early: bool = False
    ) -> None:
        self._node, self.subscription = node, subscription
        self.topic: str = subscription.topic_name
        self.speakers = tuple(speakers)
        self.run, self._early = run, early
        self.known: set[bytes] = set()
        self.waiting: deque[tuple[bytes, bytes]] = deque()
        self.open = True
        self._gids: dict[str, bytes] = {}
        self._kept: dict[bytes, bytes] = {}
        self._unjudged: deque[tuple[bytes, bytes]] = deque()
        self._dropped: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}
        self._others: tuple[str, ...] = ()
        self._by_gid = True
        self._asked = 0
        self.nameless = self.count = 0

    def admits(self, data: bytes) -> bool:
        return self.run.has_sent(data) or (self.open and self._is_early(data))

    def _is_early(self, data: bytes) -> bool:
        return self._early and data.startswith(NO_RUN, FIELD_AT)

    def reject(self, gid: bytes, data: bytes) -> None:
        if self._is_early(data):
            return  # may also come from a peer, sent before the peer joined the run
        if not self.open or self.run.mark:
            self.drop(gid)
            return
        self._unjudged.append((data, gid))
        if len(self._unjudged) > MOST_UNJUDGED:
            self.drop(self._unjudged.popleft()[1])

    def go_without_gids(self) -> None:
        self._by_gid = False

    @property
    def certain(self) -> bool:
        """True if gids, or the absence of other publishers, prove that all messages come from peers."""
        if not self._by_gid:
            self.look()
        return self._by_gid or not (self._others or self.nameless or self.count > len(self.speakers))

    @property
    def doubtful(self) -> int:
        """Number of publishers if a missing name is the only reason why the guard is not certain, otherwise 0."""
        return 0 if self._by_gid or self._others or not self.nameless else self.count

    def learn(self) -> None:
        self.waiting += self._unjudged
        self._unjudged.clear()

    @property
    def complete(self) -> bool:
        return len(self._gids) == len(self.speakers)

    @property
    def missing(self) -> list[str]:
        return [speaker for speaker in self.speakers if speaker not in self._gids]

    def look(self) -> None:
        """Query the graph for publishers. A closed guard updates only the names of foreign publishers."""
        self._asked = len(self._dropped)
        there = publishers(self._node, self.topic)
        self.nameless, self.count = sum(not name for name, _ in there), len(there)
        self._others = tuple(sorted({name for name, _ in there if name and name not in self.speakers}))
        if self.open:
            self._find(there)
        for name, gid in there:
            if name and gid in self._dropped:
                self._names[gid] = name

    def _find(self, there: Sequence[tuple[str, bytes]]) -> None:
        for speaker in self.speakers:
            gids = [gid for name, gid in there if name == speaker]
            if self._gids.get(speaker) not in gids:  # keep the gid of the first publisher
                self._gids.pop(speaker, None)
                if len(gids) == 1:
                    self._gids[speaker] = gids[0]
        self.known.clear()
        self.known.update(self._gids.values())
        owners = {gid: name for name, gid in there}
        for gid in list(self._kept):
            if gid in self.known:
                self.waiting.append((self._kept.pop(gid), gid))
            elif owners.get(gid, "") not in ("", *self.speakers):  # one of two nodes with the same name may leave
                del self._kept[gid]
                self.drop(gid)

    def close(self) -> None:
        if self.open:
            self.open = False
            for gid in self._kept:
                self.drop(gid)
            self._kept.clear()

    def meet(self, gid: bytes, data: bytes) -> None:
        """Handle a message of an unknown publisher: append it to ``waiting``, keep it until later, or drop it."""
        if not self.open or gid in self._dropped:
            self.drop(gid)
            return
        self._kept[gid] = data
        self._find(publishers(self._node, self.topic))
        if len(self._kept) > MOST_FOREIGN:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self.drop(oldest)

    def drop(self, gid: bytes = NOBODY) -> None:
        key = gid if gid in self._dropped or len(self._dropped) < MOST_FOREIGN else NOBODY
        self._dropped[key] = self._dropped.get(key, 0) + 1

    @property
    def unnamed(self) -> bool:
        return self._asked < len(self._dropped)

    @property
    def keeps(self) -> bool:
        return bool(self._kept)

    def foreign(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for gid, count in self._dropped.items():
            # without gids, any other publisher may have sent the messages
            senders = " or ".join(self._others) if gid == NOBODY and len(self._dropped) == 1 else ""
            name = self._names.get(gid, senders or UNKNOWN)
            counts[name] = counts.get(name, 0) + count
        return counts

    @property
    def gone(self) -> bool:
        if not self.subscription.get_publisher_count():
            return True
        return not any(gid in self.known for _, gid in publishers(self._node, self.topic))


class AnnouncementGuard(PublisherGuard):
    """Filters the topic that announces runs. Subscribers of this topic check the run themselves."""

    def admits(self, data: bytes) -> bool:
        return self.open or self.run.has_sent(data)


class OpenGuard(PublisherGuard):
    """Accepts all messages of a public topic, because these messages belong to no run."""

    def meet(self, gid: bytes, data: bytes) -> None:
        self.waiting.append((data, gid))

    def admits(self, data: bytes) -> bool:
        return True


class TripGuard(PublisherGuard):
    """Accepts trips from peers. :class:`RequestGuard` accepts trips from other programs."""

    def meet(self, gid: bytes, data: bytes) -> None:
        if request_in(data) is None:
            super().meet(gid, data)

    def admits(self, data: bytes) -> bool:
        """Return True for a Trip from a peer. Without gids, requests also arrive here and are refused."""
        return request_in(data) is None and super().admits(data)

    def reject(self, gid: bytes, data: bytes) -> None:
        if request_in(data) is None:
            super().reject(gid, data)


class RequestGuard(OpenGuard):
    def admits(self, data: bytes) -> bool:
        return request_in(data) is not None

    def reject(self, gid: bytes, data: bytes) -> None:
        """Ignore a Trip of a run, because :class:`TripGuard` accepts or counts it."""


def reason_of(run: str, source: str, reason: str) -> str | None:
    if run or names.role_of(source) in (*names.ROLES, names.CONSOLE):
        return None
    source, reason = (
        "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST]) for text in (source, reason)
    )
    return ": ".join(filter(None, (f"trip requested by {source}" if source else "trip requested", reason)))


def request_in(data: bytes) -> str | None:
    """Return the reason (:func:`reason_of`) of a trip request of version 2 or 3, or None for other messages."""
    with suppress(ValueError):
        values = decode("Trip", data)
        if not values["run"] and len(values["frame_id"]) != LENGTH_OF_MARK:  # version 2 stores a mark here
            return reason_of("", values["source"], values["reason"])
    with suppress(ValueError):
        values = decode("Trip", data, VERSION_2)
        if not (values["frame_id"] or values["sample"]):  # version 3 has the length of ``run`` here, never 0
            return reason_of("", values["source"], values["reason"])
    return None


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

    Messages come directly from a neighbour if ``by_hand`` is true, otherwise from ``line``, or by topic
    if ``line`` is None. Middleware copies of messages from a neighbour or a line are dropped.
    """

    def __init__(
        self, subscription: Subscription, guard: PublisherGuard, owner: str = "", stream: bool = False
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
        """Return the next message, or None if the inbox is empty or after ``FOREIGN_A_TURN`` foreign messages."""
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
        """Drop up to ``most`` middleware copies of directly received messages, and count foreign messages."""
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
                guard.drop(gid or NOBODY)

    def _from_whom(self, data: bytes, info: Data) -> tuple[bytes, bytes]:
        gid = _gid_of(info)
        if gid is None:
            self.guard.go_without_gids()
        if gid is None or gid in self._known:
            self._came_ns = info["received_timestamp"]
            return data, gid or NOBODY
        self.guard.meet(gid, data)
        return self._waiting.popleft() if self._waiting else (b"", gid)

    def waited(self) -> int:
        return max(0, time.time_ns() - self._came_ns) if self._came_ns else 0


class StreamPublisher:
    """Publishes messages as bytes. ``sent`` counts the messages.

    ``partners`` are the subscribing peers (full names), nodes of the loop first. ``neighbours`` are inboxes in
    this process, which receive every message directly. ``lines`` are the lines to other nodes of this machine, by
    full name. The middleware receives messages only if ``has_topic_subscribers`` is true. If ``holds`` is true,
    messages for the middleware wait until :meth:`publish_held` is called.
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


def open_outlet(
    node: Node, topic: names.Topic, name: str, partners: tuple[str, ...], best_effort: bool
) -> StreamPublisher:
    kind, qos, options = message_class(topic.type), quality(topic, best_effort), overridable(topic)
    return StreamPublisher(node.create_publisher(kind, name, qos, qos_overriding_options=options), partners)


def overridable(topic: names.Topic) -> QoSOverridingOptions | None:
    kinds = [QoSPolicyKind[policy.upper()] for policy in POLICIES]
    return QoSOverridingOptions(kinds) if topic.for_onlookers else None


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


def _guard_of(topic: names.Topic) -> type[PublisherGuard]:
    if topic.name == names.TRIP:
        return TripGuard if topic.publishers else RequestGuard
    if topic.name == names.TEST_STATE:
        return AnnouncementGuard
    return PublisherGuard if topic.publishers else OpenGuard


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
"""Largest queue depth in a QoS override, as in Fast DDS."""
POLICIES: dict[str, tuple[str, ...]] = {
    "depth": (),
    "durability": ("volatile", "transient_local"),
    "history": ("keep_last",),  # keep_all would block the node if a subscriber is slow
    "reliability": ("reliable", "best_effort"),
}


def check_overrides(node: Node, location: names.NodeLocation, parameters: Mapping[str, object]) -> None:
    """Raise ConfigError for invalid QoS overrides of ``node``, and for remapped topics of the protocol."""
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
