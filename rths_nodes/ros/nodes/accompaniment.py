"""What goes with a Measurement: true states, the time of the test, a change of its state."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import Any

from rths_nodes.core.wire.layout import ENCAPSULATION, stamp_of
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.names import CLOCK
from rths_nodes.ros.nodes.phase import PhaseMachine, StateOfTest
from rths_nodes.ros.transport.deferred import DeferredSends
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


PERIOD_S = 0.01
"""Between two messages on ``/clock``, in the time of the test."""
_TIME = struct.Struct("<iI")


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


class Accompaniment:
    """Sends what goes with each Measurement when the loop does not wait for it, for samples of ``dt`` (s).

    The time of a test in lockstep stands on ``/clock`` where it is ``told``, for tools that use_sim_time: it runs
    as fast as the test does.
    """

    def __init__(
        self, true_states: TrueStates, announcer: StateAnnouncer, topics: NodeTopics, dt: float, told: bool
    ) -> None:
        self._true_states, self._announcer, self._topics, self._told = true_states, announcer, topics, told
        self._every = max(1, round(PERIOD_S / dt))
        self._due: tuple[int, int] | None = None

    def measured(self, sample: int, stamp: int) -> None:
        """Measurement ``sample`` was sent, with this ``stamp``, ns."""
        self._due = sample, stamp

    def send(self) -> None:
        """Send what goes with the last Measurement, if that has not been done."""
        if self._due is not None:
            sample, stamp = self._due
            self._due = None
            self._true_states.measured(stamp)
            if self._told and sample % self._every == 0:
                self._topics.send(CLOCK.name, ENCAPSULATION + _TIME.pack(*stamp_of(stamp)))
            self._announcer.announce_change()
