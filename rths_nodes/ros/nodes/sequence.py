# SPDX-License-Identifier: Apache-2.0
"""The Measurements of the rig, in order."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.samples import Measurement
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics


class MeasurementSequence:
    """Takes Measurement after Measurement from ``topics``; where one is missing, nothing comes after it.

    ``expected`` is the number of the next one. Each makes a ``shutdown`` patient; ``on_lost`` is called with the
    reason when a message of the loop is missing or makes no sense.
    """

    def __init__(self, topics: NodeTopics, shutdown: Shutdown, on_lost: Callable[[str], None]) -> None:
        self._topics, self._shutdown, self._on_lost = topics, shutdown, on_lost
        self.reset()

    def reset(self) -> None:
        self.expected = 0
        self.handed_over = False
        """True where our actuator node, in this process, hands them over, and nothing stands between."""
        self.broken = False
        """True when a message of the loop is missing: nothing is made of what follows."""

    def next(self) -> tuple[Measurement, int] | None:
        """The expected Measurement and its stamp, if it is here; older ones are dropped."""
        topics = self._topics
        while (found := topics.receive("measurement", topics.codec.unpack_measurement)) is not None:
            sample = found[0].sample
            if sample == self.expected and not self.broken:
                if sample == 0:
                    inbox = topics.opened["measurement"]
                    self.handed_over = inbox.by_hand and topics.inboxes["measurement"] is inbox
                self.expected += 1
                if self._shutdown.interrupted:
                    self._shutdown.be_patient()
                return found
            if sample > self.expected:
                self.lose(f"Measurement {sample} came where {self.expected} was expected")
        return None

    def lose(self, reason: str) -> None:
        """A message of the loop is missing, or makes no sense: the rig trips, this node stays to the end."""
        if not self.broken:
            self.broken = True
            self._on_lost(reason)
