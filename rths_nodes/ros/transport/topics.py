# SPDX-License-Identifier: Apache-2.0
"""Topics of one node: publishers, polled inboxes, counts of messages, and deferred messages to the recorder.

Streams between nodes of one machine use lines (``line.py``), which :class:`NodeLines` connects.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from rclpy.duration import Duration
from rclpy.node import Node

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.protocols import Port
from rths_nodes.core.wire import Codec, RunMark, decode, encode
from rths_nodes.loop.options import SOCKETS, TOPICS
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros import names
from rths_nodes.ros.transport import endpoints
from rths_nodes.ros.transport.endpoints import (
    FOREIGN_A_TURN,
    ByHand,
    Inbox,
    PublisherGuard,
    StreamPublisher,
    full_name,
    open_inbox,
    open_outlet,
)
from rths_nodes.ros.transport.line import (
    LONGEST_GREETING,
    LONGEST_MESSAGE,
    WAIT,
    WELCOME,
    Credentials,
    Greeting,
    SocketReader,
    SocketWriter,
    address,
    make_room,
)

BURST = 32

Pack = Callable[..., bytes]
Sample = Callable[[], object]
HASHED = "RIHS"
FLUSH_S = 0.5
"""Time for sent messages to arrive before their publishers are destroyed, s."""

T = TypeVar("T")
Send = Callable[[bytes], None]
OnHeard = Callable[[str, bytes, Data], None]
"""Function that receives topic, bytes and plain values of each message on a low-rate topic."""


class Interposer:
    """Layer without effect between a node and its topics and port. Subclasses insert faults."""

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

    ``inboxes`` and ``senders`` apply the interposer. ``opened`` and ``outlets`` bypass it.
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
        self.guards: dict[str, PublisherGuard] = {}
        self.senders: dict[str, Send] = {}
        self.malformed = 0
        self._awaited: set[str] = set()
        self._streams: dict[str, StreamPublisher] = {}

    def open(
        self,
        wanted: Iterable[names.Endpoint],
        codec: Codec,
        best_effort: bool = False,
        interposer: Interposer | None = None,
        load: Load | None = None,
    ) -> None:
        """Create publishers and inboxes. If ``load`` is given, streams between nodes on this machine use lines."""
        self.codec = codec
        between = interposer or Interposer()
        self.malformed = 0
        if load is not None:
            self.lines.open(load)
        for endpoint in wanted:
            row, key, name, partners = endpoint.row, endpoint.key, endpoint.name, endpoint.partners
            if endpoint.publishes:
                outlet = self.outlets[key] = open_outlet(self._node, row, name, partners, best_effort)
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
        """Return the next valid sample of a stream and its stamp, or None. Malformed messages are only counted."""
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
        """Pass streams directly to neighbours. If ``holds``, :meth:`publish_held` sends all other copies."""
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
        there = self._node.get_subscriptions_info_by_topic(outlet.publisher.topic_name)
        return {*outlet.partners}.difference(map(full_name, there))

    def duplicate_names(self, peers: Sequence[str]) -> str:
        topic = self.outlets["node_status"].publisher.topic_name
        there = endpoints.publishers(self._node, topic)
        for peer in peers:
            gids = sorted(gid.hex() for name, gid in there if name == peer)
            if len(gids) > 1:
                return f"{len(gids)} nodes have the name {peer} and publish on {topic} as {' and '.join(gids)}"
        return ""

    def other_versions(self) -> str:
        """Return a description of partners with another version of a message, otherwise an empty string."""
        published = [(outlet.publisher.topic_name, outlet.partners) for outlet in self.outlets.values()]
        for topic, partners in (*published, *((guard.topic, guard.speakers) for guard in self.guards.values())):
            publishers = self._node.get_publishers_info_by_topic(topic)
            there = [*publishers, *self._node.get_subscriptions_info_by_topic(topic)]
            hashes = {(full_name(info), str(info.topic_type_hash)): info.topic_type for info in there}
            me = self._node.get_fully_qualified_name()
            mine = next((type_hash for name, type_hash in hashes if name == me), "")
            for (name, theirs), kind in hashes.items():
                if name in partners and theirs != mine and mine.startswith(HASHED) and theirs.startswith(HASHED):
                    return (
                        f"{name} uses another version of {kind} on {topic}: {theirs} instead of {mine}. "
                        f"Update this node or {name}"
                    )
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
    """Queues up to ``BURST`` messages and sends them together, so that the recorder wakes once."""

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


ANSWER_NS = 2 * SECOND
"""Timeout for receiving the greeting of a caller, ns."""
PATIENCE_NS = 3 * SECOND
"""Timeout of a caller that waits for the first answer, ns."""
DISCOVERED_NS = 20 * SECOND
"""Time after which a partner that has not discovered this node receives messages by topic, ns."""
WAITING = 64
"""Backlog of the socket, and maximum number of callers without a greeting."""
AT_A_TIME = 64
MOST_UNKNOWN = 512
"""Maximum number of callers that wait for a decision on their greeting, enough for two per axis of a large rig."""
MOST_STRANGERS = 64
BEYOND = "others"
UNDISCOVERED = "the called node has not discovered the caller"

Judge = Callable[[Greeting], str | None]
"""Function that checks a greeting. Returns an empty string to accept, a reason to refuse, or None if undecided."""

KEPT = names.TOPICS["measurement"].kept
"""Maximum number of messages queued for a slow partner."""
AGAIN_NS = 50_000_000


@dataclass(frozen=True)
class Load:
    """Capacity of a line: ``messages`` of at most ``size`` bytes. If ``holds`` is true, topics may be late."""

    messages: int
    size: int
    holds: bool


class NodeLines:
    """Connects ``node`` by lines to nodes of this machine, from :meth:`open` to :meth:`close`.

    ``run()`` returns the mark of the run, empty if unknown. ``warn`` receives the reason if messages to a partner
    on this machine are sent by topic.
    """

    def __init__(
        self, node: Node, run: Callable[[], str], warn: Callable[[str], object], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._node, self._run, self._warn, self._clock = node, run, warn, clock
        self._me: str = node.get_fully_qualified_name()
        self._listener: Acceptor | None = None
        self._outlets: dict[str, StreamPublisher] = {}
        self._by_topic: dict[str, Inbox] = {}
        self._calls: dict[tuple[str, str], Connector] = {}
        self._again_at: dict[tuple[str, str], int] = {}
        """Earliest time of the next call to each topic and partner, monotonic ns."""
        self._queried: set[str] = set()
        self._load: Load | None = None
        self.direct = False

    def open(self, load: Load) -> None:
        """Listen for connections, before any endpoint makes this node discoverable."""
        if load.size > LONGEST_MESSAGE:
            self._warn(
                f"messages of {load.size} bytes are too long for a socket (at most "
                f"{LONGEST_MESSAGE}); topics are used"
            )
            return
        self._load = load
        self._listener = Acceptor(self._address(self._me), self._clock)
        if self._listener.problem:
            self._warn(f"no process can reach {self._me} by socket ({self._listener.problem}); topics are used")

    def connect(self, outlets: Mapping[str, StreamPublisher], inboxes: Iterable[Inbox]) -> None:
        self._outlets = dict(outlets)
        self._by_topic = {inbox.guard.topic: inbox for inbox in inboxes if inbox.stream}

    def answer(self) -> None:
        if self._listener is None:
            return
        self._queried.clear()
        for hello, sock in self._listener.look(self._judge):
            self._by_topic[hello.topic].receive_by(SocketReader(sock))

    def _judge(self, hello: Greeting) -> str | None:
        inbox = self._by_topic.get(hello.topic)
        if inbox is None or hello.node not in inbox.guard.speakers:
            return f"{hello.node} does not publish {hello.topic} to this node"
        run = self._run()
        if not run:
            return None
        if hello.run != run:
            return f"the caller is in run {hello.run}, but the called node is in run {run}"
        if inbox.by_line or inbox.by_hand:
            return f"{hello.node} already has a line to this node"
        gid = bytes.fromhex(hello.gid)
        if gid not in inbox.guard.known and hello.topic not in self._queried:
            self._queried.add(hello.topic)
            inbox.guard.look()
        return "" if gid in inbox.guard.known else None

    def settle(self) -> None:
        """Begin the test: accept no more connections, and receive either all streams by line or none."""
        if self._listener is not None:
            self.answer()
            self._listener.close()
        for call in self._calls.values():
            call.close()
        self._calls.clear()
        inboxes = self._expected_inboxes
        self.direct = bool(inboxes) and all(inbox.by_line for inbox in inboxes)
        if not self.direct and not all(inbox.by_line or inbox.by_hand for inbox in inboxes):
            for inbox in inboxes:
                if inbox.line is not None:
                    inbox.line.give_back()

    @property
    def _expected_inboxes(self) -> list[Inbox]:
        return [inbox for inbox in self._by_topic.values() if inbox.guard.speakers]

    @property
    def strangers(self) -> dict[str, int]:
        return {} if self._listener is None else self._listener.strangers

    def call(self) -> str:
        """Connect to the partners. Return a description of missing answers, or an empty string."""
        if self._load is None:
            return ""
        missing = []
        for outlet in self._outlets.values():
            if outlet.sent:
                continue  # messages sent over DDS may still be in transit
            for partner in outlet.partners:
                way = (outlet.publisher.topic_name, partner)
                if not outlet.speaks_to(partner):
                    self._go_on(outlet, way, self._load)
                    if way not in self._again_at:
                        missing.append(f"{partner} to answer a call on {way[0]}")
        return ", ".join(missing)

    def _go_on(self, outlet: StreamPublisher, way: tuple[str, str], load: Load) -> None:
        (topic, partner), now = way, self._clock.monotonic_ns()
        call = self._calls.get(way)
        if call is not None and call.hello.run != self._run():  # the actuator node has restarted
            call.close()
            call = None
        if call is None:
            hello = self._hello(topic) if now >= self._again_at.get(way, 0) else None
            if hello is None:
                return
            call = self._calls[way] = Connector(self._address(partner), hello, self._clock)
        if not call.look():
            return
        del self._calls[way]
        if call.socket is not None:
            make_room(call.socket, load.messages, load.size)
            outlet.speak_to(partner, SocketWriter(call.socket, KEPT), load.holds)
        elif call.problem and way not in self._again_at:
            self._warn(f"{partner} cannot be reached by socket ({call.problem}); messages are sent on {topic}")
        self._again_at[way] = now + AGAIN_NS

    def _hello(self, topic: str) -> Greeting | None:
        gids = [gid for name, gid in endpoints.publishers(self._node, topic) if name == self._me]
        return Greeting(self._run(), self._me, topic, gids[0].hex()) if len(gids) == 1 else None

    @property
    def way(self) -> str:
        """Transport of incoming streams: ``sockets``, ``process`` (direct), or ``topics``."""
        inboxes = self._expected_inboxes
        if inboxes and all(inbox.by_hand for inbox in inboxes):
            return "process"
        return SOCKETS if inboxes and all(inbox.by_hand or inbox.by_line for inbox in inboxes) else TOPICS

    @property
    def behind(self) -> list[SocketWriter]:
        return [line for outlet in self._outlets.values() for line in outlet.lines.values() if line.behind]

    def lost(self) -> dict[str, int]:
        return {key: outlet.lost for key, outlet in self._outlets.items() if outlet.lost}

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for call in self._calls.values():
            call.close()
        self._listener, self._load, self.direct = None, None, False
        for outlet in self._outlets.values():
            outlet.hang_up()
        for inbox in self._by_topic.values():
            inbox.hang_up()
        for state in (self._calls, self._again_at, self._outlets, self._by_topic):
            state.clear()

    def _address(self, node: str) -> bytes:
        return address(node, self._node.context.get_domain_id())


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    return made


class Acceptor:
    """Accepts connections on ``address`` if there is no ``problem``. ``strangers`` counts refusals by caller."""

    def __init__(self, address: bytes, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.monotonic_ns
        self.problem = ""
        self.strangers: dict[str, int] = {}
        self._callers: dict[socket.socket, int] = {}
        """Connection time of each caller without an answer, monotonic ns."""
        self._greetings: dict[socket.socket, Greeting] = {}
        self._socket: socket.socket | None = _socket()
        try:
            self._socket.bind(address)
            self._socket.listen(WAITING)
        except OSError as error:
            self.problem = _holder(address) or error.strerror or str(error)
            self._socket.close()
            self._socket = None

    def look(self, judge: Judge) -> list[tuple[Greeting, socket.socket]]:
        if self._socket is None:
            return []
        self._accept(self._socket)
        lines, now = list[tuple[Greeting, socket.socket]](), self._now()
        for caller, since in list(self._callers.items()):
            held = caller in self._greetings
            refusal = None if held else self._greet(caller, now - since >= ANSWER_NS)
            hello, gone = self._greetings.get(caller), held and _has_hung_up(caller)
            if hello is not None and not gone:
                refusal = judge(hello)
            if refusal:
                self._turn_away(caller, refusal)
            elif hello is not None and (gone or refusal is not None or now - since > DISCOVERED_NS):
                del self._callers[caller], self._greetings[caller]
                if refusal is not None and _say(caller, WELCOME):
                    lines.append((hello, caller))
                else:
                    _say(caller, UNDISCOVERED.encode())
                    caller.close()
        return lines

    def _greet(self, caller: socket.socket, late: bool) -> str | None:
        try:
            hello = Greeting.unpack(caller.recv(LONGEST_GREETING))
        except BlockingIOError:
            return "no greeting" if late else None
        except (OSError, ValueError):
            return "invalid greeting"
        if len(self._greetings) >= MOST_UNKNOWN:
            return "too many callers"
        self._greetings[caller] = hello
        _say(caller, WAIT)
        return None

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_A_TIME):
            try:
                caller, _ = listening.accept()
            except OSError:  # no listener, or no free file descriptor
                return
            caller.setblocking(False)
            who = Credentials.of(caller)
            if not who.trusted:
                self._turn_away(caller, f"the caller runs as another user ({who.user})")
                continue
            if len(self._callers) - len(self._greetings) >= WAITING:
                silent = [waiting for waiting in self._callers if waiting not in self._greetings]
                self._turn_away(silent[0], "too many callers")
            self._callers[caller] = self._now()

    def _turn_away(self, caller: socket.socket, reason: str) -> None:
        who = str(Credentials.of(caller))
        key = who if who in self.strangers or len(self.strangers) < MOST_STRANGERS else BEYOND
        self.strangers[key] = self.strangers.get(key, 0) + 1
        self._callers.pop(caller, None)
        self._greetings.pop(caller, None)
        _say(caller, reason.encode(errors="replace"))
        caller.close()

    def close(self) -> None:
        for caller in self._callers:
            caller.close()
        self._callers.clear()
        self._greetings.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Connector:
    """Connects to the node that listens on ``address``, and sends the greeting ``hello``.

    ``answered`` is true once the connection is accepted or refused, or times out. ``problem`` is the reason for a
    missing ``socket``, but is empty if no node listens on this machine.
    """

    def __init__(self, address: bytes, hello: Greeting, clock: Clock = SYSTEM_CLOCK) -> None:
        self._address, self.hello = address, hello
        self._now = clock.monotonic_ns
        self._until = self._now() + PATIENCE_NS
        self._connected = self._held = False
        self.socket: socket.socket | None = _socket()
        self.answered = False
        self.problem = ""

    def look(self) -> bool:
        if not self.answered:
            try:
                self._go_on()
            except BlockingIOError:
                if self._now() > self._until:
                    self._end(UNDISCOVERED if self._held else "the node has not answered")
            except ConnectionRefusedError:
                self._end("")
            except OSError as error:
                self._end(error.strerror or str(error))
        return self.answered

    def _go_on(self) -> None:
        assert self.socket is not None
        if not self._connected:
            self.socket.connect(self._address)
            self._connected = True
            who = Credentials.of(self.socket)
            if not who.trusted:
                self._end(f"{who} has bound the address of the node")
                return
            self.socket.send(self.hello.pack())
        answer = self.socket.recv(LONGEST_GREETING)
        if answer == WAIT and not self._held:  # only once: another process may have bound the address
            self._held, self._until = True, self._now() + DISCOVERED_NS
            answer = self.socket.recv(LONGEST_GREETING)
        if answer == WELCOME:
            self.answered = True
        elif answer:
            self._end(f"the call was refused: {answer.decode(errors='replace')}")
        else:
            self._end(f"{Credentials.of(self.socket)} has closed the connection")

    def _end(self, problem: str) -> None:
        self.answered, self.problem = True, problem
        self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def _say(caller: socket.socket, text: bytes) -> bool:
    with suppress(OSError):
        caller.send(text)
        return True
    return False


def _has_hung_up(caller: socket.socket) -> bool:
    try:
        return not caller.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _holder(address: bytes) -> str:
    with _socket() as probe:
        try:
            probe.connect(address)
            return f"{Credentials.of(probe)} has bound the address of the node"
        except OSError:
            return ""
