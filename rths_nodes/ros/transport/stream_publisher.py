# SPDX-License-Identifier: Apache-2.0
"""Publisher of bytes to neighbours, lines and the middleware."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rclpy.publisher import Publisher

from rths_nodes.ros.transport.endpoints import Inbox
from rths_nodes.ros.transport.line import SENT_AT, SocketWriter
from rths_nodes.ros.transport.rclpy_private import publish_bytes


class StreamPublisher:
    """One publisher of bytes; ``sent`` counts them.

    ``neighbours``: inboxes of nodes in this process, which get every message directly; other nodes of this machine
    get it on ``lines``, by full name. The middleware gets it only if ``heard_elsewhere``; at once or, with
    ``holds``, on request, so that the loop does not wait for it.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.sent = 0
        self.neighbours: tuple[Inbox, ...] = ()
        self.lines: dict[str, SocketWriter] = {}
        self._hands: list[Callable[[tuple[bytes, int]], None]] = []
        self.heard_elsewhere = True
        self.holds = False
        self._gone = 0
        self._held: list[bytes] = []
        self._publish = publish_bytes(publisher)

    def send(self, data: bytes) -> None:
        self.sent += 1
        if self._hands:
            handed = (data, time.time_ns())
            for hand in self._hands:
                hand(handed)
        if self.lines:
            packed = SENT_AT.pack(time.time_ns()) + data
            for line in self.lines.values():
                if not line.send(packed):  # given back: from this message on by the middleware
                    self.heard_elsewhere = True
        if not self.heard_elsewhere:
            return
        if self.holds:
            self._held.append(data)
        else:
            self._publish_elsewhere(data)

    def publish_held(self) -> None:
        """Publish messages that only the neighbours have, and queued ones of lines."""
        for line in self.lines.values():
            if line.behind:
                line.send_kept()
        if self._held:
            held, self._held = self._held, []
            for data in held:
                self._publish_elsewhere(data)

    def _publish_elsewhere(self, data: bytes) -> None:
        self._publish(data)
        for inbox in self.neighbours:  # the middleware delivers them a second copy
            inbox.drop(1)

    def hand_to(self, neighbours: Sequence[Inbox], holds: bool) -> None:
        """Pass messages directly to ``neighbours``; none may be in transit to them."""
        self.neighbours, self.holds = tuple(neighbours), holds
        for inbox in neighbours:
            if inbox.owner in self.lines:
                self.lines.pop(inbox.owner).close()
        self._hands = [inbox.hand for inbox in neighbours]
        for inbox in neighbours:
            inbox.fill_by_hand(True)
        self.look()

    def speak_to(self, partner: str, line: SocketWriter, holds: bool, order: Sequence[str] = ()) -> None:
        """Send messages to the node ``partner`` on ``line``; none may be in transit to it.

        ``order``: the partners in sending order, nodes of the loop first.
        """
        lines = self.lines | {partner: line}
        self.lines = {name: lines[name] for name in (*order, *lines) if name in lines}
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
        self.heard_elsewhere = True

    def look(self) -> None:
        for partner in [partner for partner, line in self.lines.items() if not line.look()]:
            self._gone += self.lines.pop(partner).lost
        here = sum(inbox.by_hand for inbox in self.neighbours) + len(self.lines)
        self.heard_elsewhere = not here or self.publisher.get_subscription_count() > here
