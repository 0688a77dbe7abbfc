# SPDX-License-Identifier: Apache-2.0
"""Measurements of the rig, in order."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.samples import Measurement
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics


class MeasurementSequence:
    """Takes Measurements in order from ``topics``, and none after a missing one.

    ``expected`` is the number of the next one. Each extends the patience of ``shutdown``; ``on_lost`` gets the
    reason if a message of the loop is missing or malformed.
    """

    def __init__(self, topics: NodeTopics, shutdown: Shutdown, on_lost: Callable[[str], None]) -> None:
        self._topics, self._shutdown, self._on_lost = topics, shutdown, on_lost
        self.reset()

    def reset(self) -> None:
        self.expected = 0
        self.handed_over = False
        """True if our actuator node, in this process, passes them directly."""
        self.broken = False
        """True once a message of the loop is missing: later ones are ignored."""

    def next(self) -> tuple[Measurement, int] | None:
        """Return the expected Measurement and its stamp, or None; drop older ones."""
        topics = self._topics
        while (measurement := topics.receive("measurement", topics.codec.unpack_measurement)) is not None:
            sample = measurement[0].sample
            if sample == self.expected and not self.broken:
                if sample == 0:
                    inbox = topics.opened["measurement"]
                    self.handed_over = inbox.by_hand and topics.inboxes["measurement"] is inbox
                self.expected += 1
                if self._shutdown.interrupted:
                    self._shutdown.be_patient()
                return measurement
            if sample > self.expected:
                self.lose(f"Measurement {sample} came where {self.expected} was expected")
        return None

    def lose(self, reason: str) -> None:
        """Report a missing or malformed message; the rig trips, this node stays to the end."""
        if not self.broken:
            self.broken = True
            self._on_lost(reason)
