# SPDX-License-Identifier: Apache-2.0
"""The Measurements of the rig, in order."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.samples import Measurement
from rths_nodes.ros.transport.topics import NodeTopics


class MeasurementSequence:
    """Takes Measurement after Measurement from ``topics``; where one is missing, nothing comes after it.

    ``expected`` is the number of the next one. ``on_found`` is called for each, ``on_lost`` with the reason when a
    message of the loop is missing or makes no sense.
    """

    def __init__(self, topics: NodeTopics, on_found: Callable[[], None], on_lost: Callable[[str], None]) -> None:
        self._topics, self._on_found, self._on_lost = topics, on_found, on_lost
        self.reset()

    def reset(self) -> None:
        self.expected = 0
        self.broken = False
        """True when a message of the loop is missing: nothing is made of what follows."""

    def next(self) -> tuple[Measurement, int] | None:
        """The expected Measurement and its stamp, if it is here; older ones are dropped."""
        topics = self._topics
        while (found := topics.receive("measurement", topics.codec.unpack_measurement)) is not None:
            sample = found[0].sample
            if sample == self.expected and not self.broken:
                self.expected += 1
                self._on_found()
                return found
            if sample > self.expected:
                self.lose(f"Measurement {sample} came where {self.expected} was expected")
        return None

    @property
    def handed_over(self) -> bool:
        """True where our actuator node, in this process, hands them over, and nothing stands between."""
        inbox = self._topics.opened["measurement"]
        return inbox.by_hand and self._topics.inboxes["measurement"] is inbox

    def lose(self, reason: str) -> None:
        """A message of the loop is missing, or makes no sense: the rig trips, this node stays to the end."""
        if not self.broken:
            self.broken = True
            self._on_lost(reason)
