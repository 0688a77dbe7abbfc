"""When a node warms up for its next integration step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.realtime import Starving
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.sequence import MeasurementSequence
from rths_nodes.ros.transport.topics import NodeTopics


class WarmUp:
    """Calls ``twin`` (``loop/warm_up.py``) once before every ``substeps``-th Measurement; None: there is none.

    Only in real time, where not every sample begins a step, something is gained by it. The node ``peer`` takes
    ``measurements``, and its ``topics`` have the codec that is to be warm, too.
    """

    def __init__(
        self,
        twin: Callable[[Codec], Any] | None,
        substeps: int,
        measurements: MeasurementSequence,
        topics: NodeTopics,
        phase: PhaseMachine,
        peer: str = "",
    ) -> None:
        self.twin, self._substeps, self._measurements, self._topics = twin, substeps, measurements, topics
        self._phase, self._peer = phase, peer
        self._done = 0
        """Number of the last Measurement that was prepared for."""

    @property
    def due(self) -> bool:
        """True when the next sample begins an integration step, which the node is not warmed up for yet."""
        if self.twin is None or self._measurements.expected % self._substeps:
            return False
        return self._measurements.expected > self._done

    def __call__(self) -> None:
        """Prepare for that sample. A component that cannot do it is not asked again."""
        assert self.twin is not None
        self._done = self._measurements.expected
        try:
            self.twin(self._topics.codec)
        except Starving:
            raise
        except Exception as error:  # it serves the speed only: no reason to stop a rig
            self.twin = None
            self._phase.remark(f"{self._peer}: no warm-up: {type(error).__name__}: {error}")
