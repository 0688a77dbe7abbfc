# SPDX-License-Identifier: Apache-2.0
"""Start of a test: the actuator node arms the rig, or refuses the test."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State, StopRequest
from rths_nodes.loop.timing import too_slow
from rths_nodes.ros import environment
from rths_nodes.ros.names import ACTUATOR, CONSOLE, LOOP
from rths_nodes.ros.nodes import parameters
from rths_nodes.ros.nodes.after_measurement import AfterMeasurement
from rths_nodes.ros.nodes.clock_exchange import ANSWER, ClockQuestions
from rths_nodes.ros.nodes.handshake import Handshake
from rths_nodes.ros.nodes.observers import RigContext
from rths_nodes.ros.nodes.phase import Phase
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport.middleware import FOUND_S


class StartRefused(Exception):
    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class Arming:
    """Arms the rig, or refuses the test, after the activation of the actuator node.

    All ``peers`` must report ready within ``peer_timeout``, with the same ``settings``. Then ``questions``
    compares the clocks of other machines. In real time a round trip to another machine may take at most 1 +
    ``hops.depth`` samples.

    After a refusal, the node waits up to ``farewell`` (s) for its peers to leave, because a peer accepts the
    refusal only after it has discovered this node. A real rig is armed only FOUND_S (s) after the activation, when
    clients that can stop the test have discovered the node.
    """

    def __init__(
        self,
        context: RigContext,
        settings: NodeSettings,
        handshake: Handshake,
        announcer: AfterMeasurement,
        questions: ClockQuestions,
    ) -> None:
        self.peers = tuple(peer for peer in settings.peers if peer not in (ACTUATOR, CONSOLE))
        self.farewell = 0.0
        self._settings, self._handshake, self._announcer = settings, handshake, announcer
        self._questions = questions
        self._rig, self._topics, self._clock = context.rig, context.topics, context.clock
        self._shutdown, self._phase = context.shutdown, context.phase
        self._period = math.inf if settings.lockstep else settings.scenario.dt
        self._depth = settings.scenario.hops.depth
        self._timeout = settings.value("peer_timeout")
        self._statuses: dict[str, Data] = {}
        self._active_since = 0

    def activate(self) -> None:
        self._active_since = self._clock.monotonic_ns()

    @property
    def _open_s(self) -> float:
        return (self._clock.monotonic_ns() - self._active_since) / SECOND

    def work(self) -> bool:
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
        for status in self._topics.received("node_status"):  # The last status of each node counts.
            # A node is not ready until it knows the run.
            self._statuses[status["node"]] = status if status["run"] else {**status, "ready": False}
        try:
            # on a real rig, clients that can stop the test must have discovered this node first
            stoppable = self._rig.port.simulated or self._open_s >= FOUND_S
            if not (self._may_begin() and stoppable and self._questions.done_before()):
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

    def _may_begin(self) -> bool:
        self._check_hashes()
        missing = [peer for peer in self.peers if not self._statuses.get(peer, {}).get("ready")]
        if missing or self._phase.now < Phase.READY or self._topics.missing():  # a ready peer may have left
            self._check_timeout(missing)
            return False
        self._check_values()
        return not self._handshake.duplicated()

    def _check_hashes(self) -> None:
        mine = self._settings.hash
        for node, status in self._statuses.items():
            if status["scenario_hash"] != mine:
                raise StartRefused(
                    f"{node} has another scenario or run id than {ACTUATOR}: its hash is "
                    f"{status['scenario_hash'] or 'none'} instead of {mine} ({self._settings.scenario.name})",
                    ExitCode.REFUSED,
                )

    def _check_timeout(self, missing: Sequence[str]) -> None:
        if self._open_s <= self._timeout:
            return
        problems = {peer: self._statuses.get(peer, {}).get("problem") for peer in missing}
        names = ", ".join(f"{peer} ({problem})" if problem else peer for peer, problem in problems.items())
        names = names or f"{ACTUATOR} (waits for {self._topics.missing()})"
        settings = environment.discovery_settings()
        perhaps = f"; discovery uses {settings}" if settings else ""
        raise StartRefused(f"not ready within {self._timeout:g} s: {names}{perhaps}", ExitCode.FAILED)

    def _check_values(self) -> None:
        first: dict[str, tuple[str, object]] = {}
        for node, status in sorted(self._statuses.items()):
            for section, values in parameters.reported_sections(status).items():
                other, expected = first.setdefault(section, (node, values))
                if values != expected:
                    raise StartRefused(
                        f"{section}: {other} and {node} have different values. Set overrides for all nodes",
                        ExitCode.REFUSED,
                    )

    def _check_ways(self) -> None:
        if silent := self._questions.silent:
            raise StartRefused(f"no answer from {', '.join(silent)} on {ANSWER}", ExitCode.FAILED)
        for peer in LOOP:
            problem = too_slow(peer, self._questions.before.get(peer, ()), self._period, self._depth)
            if problem:
                raise StartRefused(problem, ExitCode.REFUSED)

    def refuse(self, reason: str, exit_code: int = ExitCode.REFUSED) -> None:
        self._rig.machine.to(State.IDLE, f"refused: {reason}")
        self._announcer.announce()
        self._phase.end(exit_code, reason)
