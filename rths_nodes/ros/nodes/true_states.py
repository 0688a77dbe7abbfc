"""The true, noise-free states of a simulated rig: only the recorder wants them."""

from __future__ import annotations

from functools import partial
from typing import Any

from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.ros.transport.deferred import DeferredSends
from rths_nodes.ros.transport.topics import NodeTopics


class TrueStates:
    """Sends the true states of ``rig``, deferred until the loop does not wait.

    ``gathered``: the axes have a node each, and their true states come later than their Measurements.
    """

    def __init__(self, rig: RigStage, gathered: bool, topics: NodeTopics, deferred: DeferredSends) -> None:
        self._rig, self._gathered = rig, gathered
        self._port: Any = rig.port
        self._topics, self._deferred = topics, deferred

    def measured(self, stamp: int) -> None:
        """A Measurement was sent, with this ``stamp``, ns. A real rig does not know its true state."""
        if self._gathered:
            self.pass_on()
        else:
            pack, truth = self._topics.codec.pack_measurement, self._rig.truth
            self._deferred.put("true_state", pack, lambda: (true, stamp) if (true := truth()) else None)

    def pass_on(self) -> bool:
        """Send the true states of the axes that have come; True when none is missing."""
        if not self._gathered:
            return True
        pack = self._topics.codec.pack_measurement
        while (found := self._port.true_state()) is not None:
            self._deferred.put("true_state", pack, partial(tuple, found))
        return bool(self._port.true_state_complete)
