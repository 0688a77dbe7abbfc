# SPDX-License-Identifier: Apache-2.0
"""Message filters: accept messages from peers of this run; drop and count other messages, except trip requests.

A message contains the gid (identifier) of its publisher, and the ROS graph contains the publisher's node. Until
the test begins, peers may appear, or return with another publisher. Later publishers are not accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from rclpy.node import Node
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from rths_nodes.core.wire import FIELD_AT, NO_RUN, RunMark, decode
from rths_nodes.core.wire import LENGTH as LENGTH_OF_MARK
from rths_nodes.loop.pacing import Clock
from rths_nodes.ros.names import CONSOLE, ROLES, role_of

VERSION_2 = "std_msgs/Header header\nuint32 sample\nuint32 effective_sample\nstring source\nstring reason\n"
"""Definition of Trip in programs built before version 0.10."""
LONGEST = 200
"""Maximum length of the source, and of the reason, of a trip request, in characters."""
MOST_FOREIGN = 64
MOST_UNJUDGED = 64
UNKNOWN = "unknown"
_UNNAMED = "NODE_NAME_UNKNOWN"
_HASHED = "RIHS"
NOBODY = b""
"""Gid for messages without a gid, and for publishers that are not counted separately."""


def publishers(node: Node, topic: str) -> list[tuple[str, bytes]]:
    return [(_full_name(info), bytes(info.endpoint_gid)) for info in node.get_publishers_info_by_topic(topic)]


def subscribers(node: Node, topic: str) -> set[str]:
    return {_full_name(info) for info in node.get_subscriptions_info_by_topic(topic)}


def wait_until_gone(node: Node, leaving: Sequence[str], seconds: float, clock: Clock) -> None:
    end = clock.monotonic_ns() + round(seconds * 1e9)
    while clock.monotonic_ns() < end:
        present = node.get_node_names_and_namespaces()
        if {f"{namespace.rstrip('/')}/{name}" for name, namespace in present}.isdisjoint(leaving):
            return
        clock.sleep(0.01)


def duplicate_names(node: Node, topic: str, peers: Sequence[str]) -> str:
    there = publishers(node, topic)
    for peer in peers:
        gids = [gid.hex() for name, gid in there if name == peer]
        if len(gids) > 1:
            return f"{len(gids)} nodes have the name {peer} and publish on {topic} as {' and '.join(sorted(gids))}"
    return ""


def other_version(node: Node, topic: str, nodes: Sequence[str]) -> str:
    """Return a warning if one of ``nodes`` has another type hash for ``topic``; otherwise an empty text."""
    there = [*node.get_publishers_info_by_topic(topic), *node.get_subscriptions_info_by_topic(topic)]
    hashes = {(_full_name(info), str(info.topic_type_hash)): info.topic_type for info in there}
    mine = next((type_hash for name, type_hash in hashes if name == node.get_fully_qualified_name()), "")
    for (name, type_hash), kind in hashes.items():
        if name in nodes and mine.startswith(_HASHED) and type_hash.startswith(_HASHED) and type_hash != mine:
            return (
                f"{name} uses another version of {kind} on {topic}: {type_hash} instead of {mine}. "
                f"Update this node or {name}"
            )
    return ""


def _full_name(info: TopicEndpointInfo) -> str:
    if _UNNAMED in info.node_name:
        return ""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class PublisherGuard:
    """Filters one subscription: accepts messages of ``run`` from the peers ``speakers`` (full names).

    ``known`` contains the gids of the peers' publishers. While the guard is open, the node of an unknown gid is
    looked up in the graph. If the graph has no such node yet, the last message is kept. In distributions without
    gids, only the bytes show whether a message belongs to this run. With ``early``, messages before the test may
    come from a node without a run.
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
        """True if all messages come from peers, according to gids or because there are no other publishers."""
        if not self._by_gid:
            self.look()
        return self._by_gid or not (self._others or self.nameless)

    @property
    def doubtful(self) -> int:
        """Number of publishers if the guard is uncertain only because a name is missing; otherwise 0."""
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
        """Query the graph for publishers or, once the guard is closed, only for names of foreign publishers."""
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
            if self._gids.get(speaker) not in gids:  # keep the first publisher
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
        """Decide on a message of an unknown publisher: accept it into ``waiting``, keep it, or drop it."""
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
        """Ignore a Trip of a run, because the guard of peers accepts or counts it."""


def reason_of(run: str, source: str, reason: str) -> str | None:
    if run or role_of(source) in (*ROLES, CONSOLE):
        return None
    source, reason = (
        "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST]) for text in (source, reason)
    )
    return ": ".join(filter(None, (f"trip requested by {source}" if source else "trip requested", reason)))


def request_in(data: bytes) -> str | None:
    """Return the reason (:func:`reason_of`) of a trip request of version 2 or 3; None for other messages."""
    with suppress(ValueError):
        values = decode("Trip", data)
        if not values["run"] and len(values["frame_id"]) != LENGTH_OF_MARK:  # such a Trip of version 2 has a run
            return reason_of("", values["source"], values["reason"])
    with suppress(ValueError):
        values = decode("Trip", data, VERSION_2)
        if not (values["frame_id"] or values["sample"]):  # version 3 has the length of ``run`` here, never 0
            return reason_of("", values["source"], values["reason"])
    return None
