"""The time of a test in lockstep on ``/clock``, for tools that use_sim_time: it runs as fast as the test does."""

from __future__ import annotations

import struct

from rths_nodes.core.wire.layout import ENCAPSULATION, stamp_of
from rths_nodes.ros.names import CLOCK
from rths_nodes.ros.transport.topics import NodeTopics

PERIOD_S = 0.01
"""Between two messages, in the time of the test."""

_TIME = struct.Struct("<iI")


class SimulatedTime:
    """Tells the stamps of Measurements, ``dt`` apart, every ``PERIOD_S`` on ``topics``, if it is ``told``."""

    def __init__(self, topics: NodeTopics, dt: float, told: bool) -> None:
        self._topics, self._told = topics, told
        self._every = max(1, round(PERIOD_S / dt))

    def measured(self, sample: int, stamp: int) -> None:
        """A Measurement was sent, with this ``stamp``, ns."""
        if self._told and sample % self._every == 0:
            self._topics.send(CLOCK.name, ENCAPSULATION + _TIME.pack(*stamp_of(stamp)))
