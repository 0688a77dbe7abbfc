"""Before the first sample: the actuator node arms the rig, or gives the test up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rths_nodes.core.durations import SECOND
from rths_nodes.loop.clock_offset import too_slow
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.supervision.stop_request import StopRequest
from rths_nodes.ros import environment
from rths_nodes.ros.names import LOOP
from rths_nodes.ros.nodes.accompaniment import StateAnnouncer
from rths_nodes.ros.nodes.clock_exchange import ANSWER, ClockQuestions
from rths_nodes.ros.nodes.handshake import Handshake
from rths_nodes.ros.nodes.phase import Phase, PhaseMachine
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics

FOUND_S = 4.0
"""Time after which nodes that are here have found each other: the middleware repeats names every 3 s.

A rig that is not simulated waits for it before its first sample: an emergency stop of a publisher that has not
found the node is lost. And where no test has begun, the node waits as long for its peers to leave: they do not
listen to a node whose name they do not know yet.
"""


class StartRefused(Exception):
    """The test must not begin; the message is for people, ``exit_code`` for the process."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class StartGate:
    """Collects the NodeStatus of the peers and decides whether the test may begin.

    ``role`` is the node that asks, ``peers`` are those that must be ready, ``scenario_hash`` and ``scenario`` (its
    name) what they must run, ``timeout`` how long they may take from :meth:`activate` on, s. ``phase``, ``topics``
    and ``handshake`` are those of the node itself. ``sections_of`` reads the sections of the scenario, with their
    values, out of a NodeStatus.
    """

    def __init__(
        self,
        role: str,
        peers: Sequence[str],
        scenario_hash: str,
        scenario: str,
        timeout: float,
        phase: PhaseMachine,
        topics: NodeTopics,
        handshake: Handshake,
        sections_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._role, self._peers = role, tuple(peers)
        self._hash, self._scenario = scenario_hash, scenario
        self._timeout = timeout
        self._phase, self._topics, self._handshake = phase, topics, handshake
        self._sections_of = sections_of
        self._clock = clock
        self._statuses: dict[str, Mapping[str, Any]] = {}
        self._active_since = 0

    def activate(self) -> None:
        """From now on the peers are waited for."""
        self._active_since = self._clock.monotonic_ns()

    @property
    def open_s(self) -> float:
        """Time for which the peers, and requests to stop, have been listened to, s."""
        return (self._clock.monotonic_ns() - self._active_since) / SECOND

    def hear(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """Take in NodeStatus messages; of each node the last one counts."""
        for status in statuses:
            # who does not know the run yet is not ready, whatever it says
            self._statuses[status["node"]] = status if status["frame_id"] else {**status, "ready": False}

    def may_begin(self) -> bool:
        """True when the test may begin, False while somebody is waited for. Raises StartRefused."""
        self._check_hashes()
        missing = [peer for peer in self._peers if not self._statuses.get(peer, {}).get("ready")]
        if missing or self._phase.now < Phase.READY:
            self._check_timeout(missing)
            return False
        self._check_values()
        return not self._handshake.duplicated()

    def _check_hashes(self) -> None:
        for node, status in self._statuses.items():
            if status["scenario_hash"] != self._hash:
                raise StartRefused(
                    f"{node} runs another scenario, or another run, than {self._role}: hash "
                    f"{status['scenario_hash'] or 'none'}, here {self._hash} ({self._scenario})",
                    ExitCode.REFUSED,
                )

    def _check_timeout(self, missing: Sequence[str]) -> None:
        if self.open_s <= self._timeout:
            return
        own = f"{self._role} (waits for {self._topics.missing()})"
        names = ", ".join(map(self._with_problem, missing)) or own
        given = environment.discovery_settings()
        perhaps = f"; they look for each other as the environment says: {given}" if given else ""
        raise StartRefused(f"not ready within {self._timeout:g} s: {names}{perhaps}", ExitCode.FAILED)

    def _with_problem(self, peer: str) -> str:
        problem = self._statuses.get(peer, {}).get("problem")
        return f"{peer} ({problem})" if problem else peer

    def _check_values(self) -> None:
        """Two nodes may run with different values of a section, by parameters of their own: that is refused."""
        first: dict[str, tuple[str, Any]] = {}
        for node, status in sorted(self._statuses.items()):
            for section, values in self._sections_of(status).items():
                other, known = first.setdefault(section, (node, values))
                if values != known:
                    differ = f"{section}: {other} and {node} run with different values"
                    raise StartRefused(f"{differ}; use overrides, for all nodes", ExitCode.REFUSED)


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
            self.farewell = FOUND_S
            return False
        self.gate.hear(self._topics.heard("node_status"))
        try:
            if not (self.gate.may_begin() and self._can_be_stopped() and self._clocks.done_before()):
                return False
            self._check_ways()
        except StartRefused as refused:
            self.farewell = FOUND_S
            self.refuse(str(refused), refused.exit_code)
            return False
        self._topics.close_guards()
        machine.to(State.ARMED)
        announcer.announce()
        return True

    def _can_be_stopped(self) -> bool:
        """True once whoever may ask the rig to stop has found it; a simulated one hurts nobody."""
        return self._rig.port.simulated or self.gate.open_s >= FOUND_S

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
