"""Before the first sample: the actuator node arms the rig, or gives the test up."""

from __future__ import annotations

import math

from rths_nodes.loop.clock_offset import too_slow
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.supervision.stop_request import StopRequest
from rths_nodes.ros.names import LOOP
from rths_nodes.ros.nodes.clock_exchange import ANSWER, ClockQuestions
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.nodes.start_gate import StartGate, StartRefused
from rths_nodes.ros.nodes.state_announcer import StateAnnouncer
from rths_nodes.ros.transport.topics import NodeTopics

FAREWELL_S = 4.0
"""How long the node waits, where no test has begun, for its peers to leave. They may only just have found it,
and do not listen to a node whose name they do not know yet: the middleware repeats it every 3 s."""


class StartOfTest:
    """Leads the actuator node from its activation to the moment in which its rig is armed.

    ``gate`` decides when; then ``clocks`` asks those of other machines, to which the way and back may take
    ``longest_way``, s. ``farewell`` is how long the node has to wait for its peers before it leaves, s.
    """

    def __init__(
        self,
        gate: StartGate,
        rig: RigStage,
        announcer: StateAnnouncer,
        topics: NodeTopics,
        shutdown: Shutdown,
        phase: PhaseMachine,
        clocks: ClockQuestions,
        longest_way: float = math.inf,
    ) -> None:
        self.gate = gate
        self.farewell = 0.0
        self._rig, self._announcer, self._topics = rig, announcer, topics
        self._shutdown, self._phase = shutdown, phase
        self._clocks, self._longest_way = clocks, longest_way

    def work(self) -> bool:
        """Arm the rig once the gate is open; whether it was. The next turn begins the test."""
        announcer, machine = self._announcer, self._rig.machine
        if announcer.announced is None:
            announcer.announce()
        interrupted, request = self._shutdown.interrupted, self._rig.stop_request
        if interrupted or request is not None:
            request = request or StopRequest("interrupted")
            machine.to(State.HELD if interrupted else request.end, f"{request.reason} before the test began")
            announcer.announce()
            self.farewell = FAREWELL_S
            return False
        self.gate.hear(self._topics.heard("node_status"))
        try:
            if not (self.gate.may_begin() and self._clocks.done_before()):
                return False
            self._check_ways()
        except StartRefused as refused:
            self.farewell = FAREWELL_S
            self.refuse(str(refused), refused.exit_code)
            return False
        self._topics.close_guards()
        machine.to(State.ARMED)
        announcer.announce()
        return True

    def _check_ways(self) -> None:
        """Raises StartRefused where another machine does not answer, or is too far away for the loop."""
        if silent := self._clocks.silent:
            raise StartRefused(f"{', '.join(silent)}: no answer on {ANSWER}", ExitCode.FAILED)
        for peer in LOOP:
            words = too_slow(peer, self._clocks.before.get(peer, ()), self._longest_way)
            if words:
                raise StartRefused(words, ExitCode.REFUSED)

    def refuse(self, reason: str, exit_code: int = ExitCode.REFUSED) -> None:
        """The test must not begin: tell the peers, and be gone."""
        self._rig.machine.to(State.IDLE, f"refused: {reason}")
        self._announcer.announce()
        self._phase.end(exit_code, reason)
