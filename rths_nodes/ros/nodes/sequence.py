# SPDX-License-Identifier: Apache-2.0
"""Measurements of the rig in order, and warm-up of a node for the next integration step."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.samples import Measurement
from rths_nodes.core.wire import Codec
from rths_nodes.loop.realtime import Starving
from rths_nodes.ros.nodes.phase import NodeContext
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics


class MeasurementSequence:
    """Receives Measurements in order from ``topics``, until one is missing.

    Each Measurement extends the time that an interrupted node waits (``shutdown``). ``on_lost`` receives the
    reason if a message is missing or malformed.
    """

    def __init__(self, topics: NodeTopics, shutdown: Shutdown, on_lost: Callable[[str], None]) -> None:
        self._topics, self._shutdown, self._on_lost = topics, shutdown, on_lost
        self.reset()

    def reset(self) -> None:
        self.expected = 0
        self.handed_over = False
        """True if the actuator node is in this process and passes Measurements directly."""
        self.broken = False

    def next(self) -> tuple[Measurement, int] | None:
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
                self.lose(f"received Measurement {sample}, expected Measurement {self.expected}")
        return None

    def lose(self, reason: str) -> None:
        if not self.broken:
            self.broken = True
            self._on_lost(reason)


class WarmUp:
    """Calls ``twin`` (``loop/warm_up.py``) once per integration step of ``substeps`` samples.

    ``twin`` is None if there is no warm-up.
    """

    def __init__(
        self,
        context: NodeContext,
        measurements: MeasurementSequence,
        twin: Callable[[Codec], object] | None = None,
        substeps: int = 1,
    ) -> None:
        self._context, self._measurements = context, measurements
        self.twin, self._substeps = twin, substeps
        self._done = 0

    @property
    def due(self) -> bool:
        if self.twin is None or self._measurements.expected % self._substeps:
            return False
        return self._measurements.expected > self._done

    def __call__(self) -> None:
        assert self.twin is not None
        self._done = self._measurements.expected
        try:
            self.twin(self._context.topics.codec)
        except Starving:
            raise
        except Exception as error:  # a warm-up only improves speed, so a failure does not stop the rig
            self.twin = None
            peer = self._context.location.peer
            self._context.phase.remark(f"{peer}: the warm-up failed ({type(error).__name__}: {error})")
