"""Whose messages count: those of the peers of this run. What others send is dropped and counted.

A publisher is known by its gid, which comes with every message; the graph tells which node it belongs to. Until
the test is under way a peer may still come, or come back with another publisher; then nobody else is let in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from rths_nodes.loop.pacing import Clock

MOST_FOREIGN = 64
"""Foreign publishers of one topic that are told apart; those beyond are counted together."""

UNKNOWN = "unknown"
"""What a publisher is called of which the graph knows no node, or that comes after too many others."""

_UNNAMED = "NODE_NAME_UNKNOWN"
_BEYOND = b""


def publishers(node: Any, topic: str) -> list[tuple[str, bytes]]:
    """Node (full name, empty while it is not known) and gid of every publisher of ``topic``."""
    return [(_full_name(info), bytes(info.endpoint_gid)) for info in node.get_publishers_info_by_topic(topic)]


def subscribers(node: Any, topic: str) -> set[str]:
    """Full names of the nodes that listen to ``topic``."""
    return {_full_name(info) for info in node.get_subscriptions_info_by_topic(topic)}


def nodes(node: Any) -> set[str]:
    """Full names of all nodes that are there."""
    return {f"{namespace.rstrip('/')}/{name}" for name, namespace in node.get_node_names_and_namespaces()}


def wait_until_gone(node: Any, others: Sequence[str], seconds: float, clock: Clock) -> None:
    """Until none of the nodes ``others`` (full names) is there any more, or ``seconds`` are over."""
    end = clock.monotonic_ns() + round(seconds * 1e9)
    while clock.monotonic_ns() < end and not nodes(node).isdisjoint(others):
        clock.sleep(0.01)


def duplicate_names(node: Any, topic: str, peers: Sequence[str]) -> str:
    """Nodes that have the name of the same one of ``peers``, by their publishers of ``topic``; empty: none."""
    there = publishers(node, topic)
    for peer in peers:
        gids = [gid.hex() for name, gid in there if name == peer]
        if len(gids) > 1:
            return f"{len(gids)} nodes are called {peer}: they publish on {topic} as {' and '.join(sorted(gids))}"
    return ""


def _full_name(info: Any) -> str:
    if _UNNAMED in info.node_name:
        return ""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class PublisherGuard:
    """Who may speak on one topic, to one subscription. ``speakers``: full names of the peers that do.

    ``known`` are their publishers' gids. While it is open, a gid that is not known yet is looked up; of a
    node that the graph does not name yet, the last message is kept (only latched messages come before the test).
    ``by_gid`` is False where the distribution tells no gids: then everything passes, and only the graph tells of
    others (:meth:`intruders`).
    """

    by_gid = True

    def __init__(self, node: Any, subscription: Any, speakers: Sequence[str]) -> None:
        self._node, self.subscription = node, subscription
        self.topic: str = subscription.topic_name
        self.speakers = tuple(speakers)
        self.known: set[bytes] = set()
        self.waiting: deque[bytes] = deque()
        """Messages that were kept, and are now known to be those of a peer."""
        self.open = True
        """Peers may still come."""
        self._gids: dict[str, bytes] = {}
        self._kept: dict[bytes, bytes] = {}
        self._dropped: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}
        self._asked = 0
        self.nameless = 0
        """Publishers at the last look whose nodes the graph did not name yet."""

    @classmethod
    def without_gids(cls) -> None:
        """No message tells whose it is: that is the distribution's, and holds for all topics."""
        cls.by_gid = False

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
        self.nameless = sum(not name for name, _ in there)
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
                self.waiting.append(self._kept.pop(gid))
            elif owners.get(gid, "") not in ("", *self.speakers):  # of two nodes of one name one may leave
                del self._kept[gid]
                self._drop(gid)

    def close(self) -> None:
        """From now on nobody else is let in."""
        if self.open:
            self.open = False
            for gid in self._kept:
                self._drop(gid)
            self._kept.clear()

    def meet(self, gid: bytes, data: bytes) -> None:
        """A message of a publisher that is not known: it is put into ``waiting``, kept for later, or dropped."""
        if not self.open or gid in self._dropped:
            self._drop(gid)
            return
        self._kept[gid] = data
        self._find(publishers(self._node, self.topic))
        if len(self._kept) > MOST_FOREIGN:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._drop(oldest)

    def _drop(self, gid: bytes) -> None:
        key = gid if gid in self._dropped or len(self._dropped) < MOST_FOREIGN else _BEYOND
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
        """How many messages were dropped, by the full name of the node that has sent them."""
        found: dict[str, int] = {}
        for gid, count in self._dropped.items():
            name = self._names.get(gid, UNKNOWN)
            found[name] = found.get(name, 0) + count
        return found

    @property
    def gone(self) -> bool:
        """True when the peers that spoke here have left."""
        if not self.subscription.get_publisher_count():
            return True
        return not any(gid in self.known for _, gid in publishers(self._node, self.topic))

    def intruders(self) -> list[str]:
        """Where no gids are told: the nodes that publish here, and must not."""
        if self.by_gid or self.subscription.get_publisher_count() <= len(self.speakers):
            return []
        return [name or UNKNOWN for name, gid in publishers(self._node, self.topic) if gid not in self.known]


class OpenGuard(PublisherGuard):
    """On a topic that is everybody's: nobody is foreign."""

    def meet(self, gid: bytes, data: bytes) -> None:
        """Whoever it is may come in."""
        self.waiting.append(data)
