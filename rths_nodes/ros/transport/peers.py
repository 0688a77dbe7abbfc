# SPDX-License-Identifier: Apache-2.0
"""Whose messages count: those of the peers of this run. What others send is dropped and counted.

A publisher is known by its gid, which comes with every message; the graph tells which node it belongs to. Until
the test is under way a peer may still come, or come back with another publisher; then nobody else is let in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rclpy.node import Node
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from rths_nodes.core.wire.run_mark import FIELD_AT, NO_RUN, RunMark
from rths_nodes.loop.pacing import Clock
from rths_nodes.ros.transport.trip_requests import request_in

MOST_FOREIGN = 64
"""Foreign publishers of one topic that are told apart; those beyond are counted together."""

MOST_UNJUDGED = 64
"""Messages of one topic that are kept until the run is known."""

UNKNOWN = "unknown"
"""Name of a publisher of which the graph knows no node, or that comes after too many others."""

_UNNAMED = "NODE_NAME_UNKNOWN"
_HASHED = "RIHS"
NOBODY = b""
"""The gid of a message that tells none, and of publishers that come after too many others."""


def publishers(node: Node, topic: str) -> list[tuple[str, bytes]]:
    """Node (full name, empty while it is not known) and gid of every publisher of ``topic``."""
    return [(_full_name(info), bytes(info.endpoint_gid)) for info in node.get_publishers_info_by_topic(topic)]


def subscribers(node: Node, topic: str) -> set[str]:
    """Full names of the nodes that listen to ``topic``."""
    return {_full_name(info) for info in node.get_subscriptions_info_by_topic(topic)}


def nodes(node: Node) -> set[str]:
    """Full names of all nodes that are there."""
    return {f"{namespace.rstrip('/')}/{name}" for name, namespace in node.get_node_names_and_namespaces()}


def wait_until_gone(node: Node, others: Sequence[str], seconds: float, clock: Clock) -> None:
    """Until none of the nodes ``others`` (full names) is there any more, or ``seconds`` are over."""
    end = clock.monotonic_ns() + round(seconds * 1e9)
    while clock.monotonic_ns() < end and not nodes(node).isdisjoint(others):
        clock.sleep(0.01)


def duplicate_names(node: Node, topic: str, peers: Sequence[str]) -> str:
    """Nodes that have the name of the same one of ``peers``, by their publishers of ``topic``; empty: none."""
    there = publishers(node, topic)
    for peer in peers:
        gids = [gid.hex() for name, gid in there if name == peer]
        if len(gids) > 1:
            return f"{len(gids)} nodes are called {peer}: they publish on {topic} as {' and '.join(sorted(gids))}"
    return ""


def other_version(node: Node, topic: str, others: Sequence[str]) -> str:
    """Which of the nodes ``others`` has another type behind ``topic`` than ``node``, in words; empty: none.

    A type is told by its hash, where the middleware has one.
    """
    there = [*node.get_publishers_info_by_topic(topic), *node.get_subscriptions_info_by_topic(topic)]
    hashes = {(_full_name(info), str(info.topic_type_hash)): info.topic_type for info in there}
    mine = next((found for name, found in hashes if name == node.get_fully_qualified_name()), "")
    for (name, found), kind in hashes.items():
        if name in others and mine.startswith(_HASHED) and found.startswith(_HASHED) and found != mine:
            return f"{name} has another version of {kind} on {topic}: {found}, here {mine}; update one of the two"
    return ""


def _full_name(info: TopicEndpointInfo) -> str:
    if _UNNAMED in info.node_name:
        return ""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class PublisherGuard:
    """Whose messages count on one topic, for one subscription: those of ``run``, from the peers ``speakers``.

    ``speakers`` are full names; ``known`` are their publishers' gids. While the guard is open, a gid that is not
    known yet is looked up; of a node that the graph does not name yet, the last message is kept (only latched
    messages come before the test). Not every distribution tells gids: there the bytes of a message alone say
    whether it is of this run. ``early``: what comes before the test may be of a node that does not know the run.
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
        """Messages that were kept, with the gids of their publishers: to be judged now."""
        self.open = True
        """Peers may still come."""
        self._gids: dict[str, bytes] = {}
        self._kept: dict[bytes, bytes] = {}
        self._unjudged: deque[tuple[bytes, bytes]] = deque()
        self._dropped: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}
        self._others: tuple[str, ...] = ()
        """Who else publishes here, at the last look."""
        self._by_gid = True
        self._asked = 0
        self.nameless = self.count = 0
        """Publishers at the last look whose nodes the graph did not name yet, and all of them."""

    def admits(self, data: bytes) -> bool:
        """True for a message of this run, and before the test of one whose sender does not know it yet."""
        return self.run.has_sent(data) or (self.open and self._is_early(data))

    def _is_early(self, data: bytes) -> bool:
        return self._early and data.startswith(NO_RUN, FIELD_AT)

    def reject(self, gid: bytes, data: bytes) -> None:
        """Drop a message that is not admitted; as long as the run is not known, keep it until it is."""
        if self._is_early(data):
            return  # of a peer as well: it has come when the test had begun
        if not self.open or self.run.frame_id:
            self.drop(gid)
            return
        self._unjudged.append((data, gid))
        if len(self._unjudged) > MOST_UNJUDGED:
            self.drop(self._unjudged.popleft()[1])

    def go_without_gids(self) -> None:
        """This distribution does not tell which publisher a message is from."""
        self._by_gid = False

    @property
    def certain(self) -> bool:
        """True when what comes is of a peer, whatever it says: by its gid, or as nobody else publishes here."""
        if not self._by_gid:
            self.look()
        return self._by_gid or not (self._others or self.nameless)

    @property
    def doubtful(self) -> int:
        """Number of publishers here, where a name is missing and nothing else is in doubt; 0 otherwise."""
        return 0 if self._by_gid or self._others or not self.nameless else self.count

    def learn(self) -> None:
        """The run is known now, or is another one."""
        self.waiting += self._unjudged
        self._unjudged.clear()

    @property
    def complete(self) -> bool:
        """True when every peer that speaks here was found, and there is only one of each."""
        return len(self._gids) == len(self.speakers)

    @property
    def missing(self) -> list[str]:
        """The peers that should speak here and were not found at the last look."""
        return [speaker for speaker in self.speakers if speaker not in self._gids]

    def look(self) -> None:
        """Ask the graph whose publishers there are; once it is closed, only for names of others."""
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
            if self._gids.get(speaker) not in gids:  # who was there first, stays
                self._gids.pop(speaker, None)
                if len(gids) == 1:
                    self._gids[speaker] = gids[0]
        self.known.clear()
        self.known.update(self._gids.values())
        owners = {gid: name for name, gid in there}
        for gid in list(self._kept):
            if gid in self.known:
                self.waiting.append((self._kept.pop(gid), gid))
            elif owners.get(gid, "") not in ("", *self.speakers):  # of two nodes of one name one may leave
                del self._kept[gid]
                self.drop(gid)

    def close(self) -> None:
        """From now on nobody else is let in."""
        if self.open:
            self.open = False
            for gid in self._kept:
                self.drop(gid)
            self._kept.clear()

    def meet(self, gid: bytes, data: bytes) -> None:
        """A message of a publisher that is not known: it is put into ``waiting``, kept for later, or dropped."""
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
        """Count a message of the publisher ``gid`` that does not count."""
        key = gid if gid in self._dropped or len(self._dropped) < MOST_FOREIGN else NOBODY
        self._dropped[key] = self._dropped.get(key, 0) + 1

    @property
    def unnamed(self) -> bool:
        """True when messages of somebody were dropped whose name was not asked for yet."""
        return self._asked < len(self._dropped)

    @property
    def keeps(self) -> bool:
        """True when a message was kept whose publisher the graph did not name yet."""
        return bool(self._kept)

    def foreign(self) -> dict[str, int]:
        """Return the number of dropped messages, by the full name of the node that has sent them."""
        found: dict[str, int] = {}
        for gid, count in self._dropped.items():
            # where no message tells whose it is: of those who publish here as well
            others = " or ".join(self._others) if gid == NOBODY and len(self._dropped) == 1 else ""
            name = self._names.get(gid, others or UNKNOWN)
            found[name] = found.get(name, 0) + count
        return found

    @property
    def gone(self) -> bool:
        """True when the peers that spoke here have left."""
        if not self.subscription.get_publisher_count():
            return True
        return not any(gid in self.known for _, gid in publishers(self._node, self.topic))


class AnnouncementGuard(PublisherGuard):
    """On the topic that says which run it is: what is heard there is judged by who hears it."""

    def admits(self, data: bytes) -> bool:
        """Whatever run it is of, until the test begins."""
        return self.open or self.run.has_sent(data)


class OpenGuard(PublisherGuard):
    """On a topic that is everybody's: nobody is foreign, and nothing tells a run."""

    def meet(self, gid: bytes, data: bytes) -> None:
        """Whoever it is may come in."""
        self.waiting.append((data, gid))

    def admits(self, data: bytes) -> bool:
        return True


class TripGuard(PublisherGuard):
    """Guard of trips of peers. A request of another program is not foreign: the inboxes of requests take it."""

    def meet(self, gid: bytes, data: bytes) -> None:
        if request_in(data) is None:
            super().meet(gid, data)

    def admits(self, data: bytes) -> bool:
        """True for a Trip of a peer; without gids a request comes here as well."""
        return request_in(data) is None and super().admits(data)

    def reject(self, gid: bytes, data: bytes) -> None:
        if request_in(data) is None:
            super().reject(gid, data)


class RequestGuard(OpenGuard):
    """Guard of trip requests of other programs."""

    def admits(self, data: bytes) -> bool:
        return request_in(data) is not None

    def reject(self, gid: bytes, data: bytes) -> None:
        """Ignore a Trip of a run: the other inbox takes or counts it."""
