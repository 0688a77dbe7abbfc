"""The state of the test, of which the actuator node is the authority, on the topic ``test_state``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.phase import PhaseMachine, StateOfTest
from rths_nodes.ros.transport.topics import NodeTopics


class StateAnnouncer:
    """Publishes the state of ``rig`` on ``topics``, with the ``constants`` of the test; ``phase`` follows it.

    ``announced`` is the state that was published last; None before the first.
    """

    def __init__(
        self, rig: RigStage, topics: NodeTopics, phase: PhaseMachine, constants: Mapping[str, Any]
    ) -> None:
        self._rig, self._topics, self._phase = rig, topics, phase
        self._constants = dict(constants)
        self.announced: State | None = None

    def announce(self) -> None:
        """Publish the state as it is now."""
        machine, sample = self._rig.machine, self._rig.sample
        self.announced = machine.state
        self._phase.follow(StateOfTest(machine.state, sample, machine.reason))
        state = {"state": int(machine.state), "sample": sample, "reason": machine.reason}
        self._topics.tell("test_state", self._constants | state)

    def announce_change(self) -> None:
        """Publish the state if it is another one than was published last."""
        if self._rig.machine.state != self.announced:
            self.announce()
