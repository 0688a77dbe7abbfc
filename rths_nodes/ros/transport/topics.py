# SPDX-License-Identifier: Apache-2.0
"""Topics of one node: publishers, polled inboxes, counts of messages, and deferred messages to the recorder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rclpy.duration import Duration
from rclpy.node import Node

from rths_nodes.core.data import Data
from rths_nodes.core.protocols import Port
from rths_nodes.core.wire import Codec, RunMark, decode, encode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros import names
from rths_nodes.ros.transport import peers
from rths_nodes.ros.transport.endpoints import (
    FOREIGN_A_TURN,
    ByHand,
    Inbox,
    StreamPublisher,
    message_class,
    open_inbox,
    overridable,
    quality,
)
from rths_nodes.ros.transport.node_lines import Load, NodeLines

BURST = 32

Pack = Callable[..., bytes]
Sample = Callable[[], object]
FLUSH_S = 0.5
"""Time for sent messages to arrive before their publishers are destroyed, s."""

T = TypeVar("T")
Send = Callable[[bytes], None]
OnHeard = Callable[[str, bytes, Data], None]
"""Function that receives topic, bytes and plain values of each message on a low-rate topic."""


class Interposer:
    """Layer between a node and its topics and port, without effect; subclasses insert faults."""

    holds_up = False
    """True if the node works only while ``may_work()`` is true."""

    def sender(self, topic: str, send: Send) -> Send:
        return send

    def inbox(self, topic: str, inbox: Inbox) -> Inbox:
        return inbox

    def port(self, port: Port) -> Port:
        return port

    def may_work(self) -> bool:
        return True


class NodeTopics:
    """Holds publishers and inboxes of ``node`` by the keys of its endpoints, from :meth:`open` to :meth:`close`.

    ``opened`` contains the ``inboxes`` without the interposer; ``senders`` publish through ``outlets``.
    ``on_received`` receives each message on a low-rate topic.
    """

    codec: Codec

    def __init__(self, node: Node, clock: Clock = SYSTEM_CLOCK, on_received: OnHeard | None = None) -> None:
        self._node, self._clock, self._on_received = node, clock, on_received
        self.run = RunMark()
        self.group = ByHand()
        self.lines = NodeLines(node, lambda: self.run.mark, node.get_logger().warning, clock)
        self.outlets: dict[str, StreamPublisher] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.opened: dict[str, Inbox] = {}
        self.guards: dict[str, peers.PublisherGuard] = {}
        self.senders: dict[str, Send] = {}
        self.malformed = 0
        self._awaited: set[str] = set()
        self._streams: dict[str, StreamPublisher] = {}

    def open(
        self,
        endpoints: Iterable[names.Endpoint],
        codec: Codec,
        best_effort: bool = False,
        interposer: Interposer | None = None,
        load: Load | None = None,
    ) -> None:
        """Make publishers and inboxes. With ``load``, streams within this machine use lines."""
        self.codec = codec
        between = interposer or Interposer()
        self.malformed = 0
        if load is not None:
            self.lines.open(load)
        for endpoint in endpoints:
            row, key, name, partners = endpoint.row, endpoint.key, endpoint.name, endpoint.partners
            if endpoint.publishes:
                kind, qos, options = message_class(row.type), quality(row, best_effort), overridable(row)
                publisher = self._node.create_publisher(kind, name, qos, qos_overriding_options=options)
                outlet = self.outlets[key] = StreamPublisher(publisher, partners)
                self.senders[key] = between.sender(key, outlet.send)
                if row.stream:
                    self._streams[key] = outlet
            else:
                inbox = open_inbox(self._node, row, self.group, self.run, best_effort, name, partners)
                self.opened[key], self.guards[key] = inbox, inbox.guard
                self.inboxes[key] = between.inbox(key, inbox)
                if endpoint.awaited:
                    self._awaited.add(key)
        self.lines.connect(self._streams, self.opened.values())

    def join(self, mark: str) -> None:
        """Join a run. Raises ConfigError for an invalid mark."""
        self.run.become(mark)
        for guard in self.guards.values():
            guard.learn()

    def close(self) -> None:
        self.publish_held()
        self.lines.close()
        self.run = RunMark()  # a neighbour may still use the old mark
        for outlet in self.outlets.values():
            self._node.destroy_publisher(outlet.publisher)
        for inbox in self.opened.values():
            inbox.fill_by_hand(False)
            self._node.destroy_subscription(inbox.subscription)
        for collection in (self.outlets, self.senders, self._streams, self.inboxes, self.opened, self.guards):
            collection.clear()
        self._awaited.clear()

    def flush(self) -> None:
        self.publish_held()
        end = self._clock.monotonic_ns() + round(FLUSH_S * 1e9)
        while self.lines.behind and self._clock.monotonic_ns() < end:
            self._clock.sleep(0.001)
            self.publish_held()
        for outlet in self.outlets.values():
            left = max(0, end - self._clock.monotonic_ns())
            outlet.publisher.wait_for_all_acked(Duration(nanoseconds=left))

    def publish(self, topic: str, values: Data) -> None:
        """Publish on a low-rate topic. Before the run is known, publish only on handshake topics."""
        row = names.TOPICS[topic]
        if self.run.mark or row.handshake:
            header = {"stamp": self._clock.time_ns(), "run": self.run.mark}
            self.senders[topic](encode(row.message, header | dict(values)))

    def receive(self, topic: str, unpack: Callable[[bytes], tuple[T, int]]) -> tuple[T, int] | None:
        """Return the next valid sample of a stream and its stamp, or None; drop and count malformed messages."""
        inbox = self.inboxes[topic]
        while (data := inbox.take()) is not None:
            try:
                return unpack(data)
            except ValueError:
                self.drop_malformed()
        return None

    def drop_malformed(self) -> None:
        self.malformed += 1

    def received(self, topic: str, counts: Callable[[Data], bool] = lambda values: True) -> list[Data]:
        """Return all queued messages of ``topic`` that satisfy ``counts``, as plain values."""
        messages = []
        while (data := self.inboxes[topic].take()) is not None:
            try:
                values = decode(names.TOPICS[topic].message, data)
            except ValueError:
                self.drop_malformed()
                continue
            if not counts(values):
                self.guards[topic].drop()
                continue
            if self._on_received is not None:
                self._on_received(topic, data, values)
            messages.append(values)
        return messages

    @property
    def stream_counts(self) -> dict[str, int]:
        return {key: outlet.sent for key, outlet in self._streams.items()}

    def hand_to(self, neighbours_topics: Iterable[NodeTopics], holds: bool) -> None:
        """Pass streams directly to inboxes of this process; with ``holds``, others wait for ``publish_held``."""
        me = self._node.get_fully_qualified_name()
        inboxes = [inbox for other in neighbours_topics for inbox in other.opened.values()]
        for outlet in self._streams.values():
            topic = outlet.publisher.topic_name
            if neighbours := [box for box in inboxes if box.guard.speakers == (me,) and box.guard.topic == topic]:
                outlet.hand_to(neighbours, holds)

    def share(self, codec: Codec) -> None:
        if codec.sizes == self.codec.sizes:
            self.codec = codec

    @property
    def filled_directly(self) -> list[Inbox]:
        return [inbox for inbox in self.opened.values() if inbox.by_hand or inbox.by_line]

    def publish_held(self) -> None:
        for outlet in self._streams.values():
            outlet.publish_held()

    def look(self) -> None:
        self.lines.answer()
        for outlet in self._streams.values():
            outlet.publish_held()
            outlet.look()
        for inbox in self.filled_directly:
            inbox.drop(FOREIGN_A_TURN)

    def missing(self) -> str:
        for outlet in self.outlets.values():
            if outlet.publisher.get_subscription_count() < len(outlet.partners):
                return _missing(outlet.publisher.topic_name, self._absent(outlet))
        guards = [guard for key, guard in self.guards.items() if key in self._awaited]
        for guard in guards:
            if guard.subscription.get_publisher_count() < len(guard.speakers):
                guard.look()
                return _missing(guard.topic, guard.missing, guard.nameless)
        for guard in self.guards.values():
            guard.look()
        for guard in guards:
            if guard.missing:
                return _missing(guard.topic, guard.missing, guard.nameless)
        for outlet in self.outlets.values():
            if absent := self._absent(outlet):
                return _missing(outlet.publisher.topic_name, absent)
        return ""

    def _absent(self, outlet: StreamPublisher) -> set[str]:
        return {*outlet.partners} - peers.subscribers(self._node, outlet.publisher.topic_name)

    def duplicate_names(self, full_names: Sequence[str]) -> str:
        return peers.duplicate_names(self._node, self.outlets["node_status"].publisher.topic_name, full_names)

    def other_versions(self) -> str:
        published = {outlet.publisher.topic_name: outlet.partners for outlet in self.outlets.values()}
        received = {guard.topic: guard.speakers for guard in self.guards.values()}
        for topic, partners in (*published.items(), *received.items()):
            if version := peers.other_version(self._node, topic, partners):
                return version
        return ""

    def close_guards(self) -> None:
        for guard in self.guards.values():
            if guard.complete:
                guard.close()
        self.lines.settle()

    def name_publishers(self) -> None:
        for guard in self.guards.values():
            if guard.unnamed or guard.keeps:
                guard.look()

    def dropped(self, peer: str) -> dict[str, float]:
        counts: dict[str, float] = {}
        for inbox in self.filled_directly:
            inbox.drop()
        for topic, guard in self.guards.items():
            if guard.unnamed:
                guard.look()
            for node, count in guard.foreign().items():
                counts[f"foreign.{peer}.{topic}.{node}"] = count
        for caller, count in self.lines.strangers.items():
            counts[f"foreign.{peer}.its socket.{caller}"] = count
        for key, count in self.lines.lost().items():
            counts[f"overflow.{peer}.{key}"] = count
        return counts | ({f"malformed.{peer}": self.malformed} if self.malformed else {})


def _missing(topic: str, absent: Iterable[str], nameless: int = 0) -> str:
    there = f" (publishers without a name so far: {nameless})" if nameless else ""
    return f"{', '.join(sorted(absent)) or 'the middleware'} on {topic}{there}"


class DeferredSends:
    """Queues up to ``BURST`` messages: a burst wakes the recorder once, in real time after the Command."""

    def __init__(self, topics: NodeTopics) -> None:
        self._topics = topics
        self._newest: tuple[str, Pack, Sample, tuple[object, ...]] | None = None
        self._burst: list[tuple[str, Pack, tuple[object, ...]]] = []

    def put(self, topic: str, pack: Pack, sample: Sample, *rest: object) -> None:
        """Queue the message ``pack(sample(), *rest)``. Queue no message if ``sample()`` returns None.

        ``sample()`` is evaluated when the message is sent, or before its value changes (:meth:`collect`).
        """
        if self._newest is not None:
            self.collect()
        if len(self._burst) >= BURST:
            self.send()
        self._newest = (topic, pack, sample, rest)

    def collect(self) -> None:
        if self._newest is not None:
            topic, pack, sample, rest = self._newest
            self._newest = None
            message = sample()
            if message is not None:
                self._burst.append((topic, pack, (message, *rest)))

    def send(self) -> None:
        self.collect()
        for topic, pack, sample in self._burst:
            self._topics.senders[topic](pack(*sample))
        self._burst.clear()
        self._topics.publish_held()

    def clear(self) -> None:
        self._newest = None
        self._burst.clear()
