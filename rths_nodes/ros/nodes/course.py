# SPDX-License-Identifier: Apache-2.0
"""Course of a test in the actuator node: announcements, arming, and completion."""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.wire.layout import ENCAPSULATION, stamp_of
from rths_nodes.loop.outcomes import ExitCode, of_state
from rths_nodes.loop.supervision.states import ENDED, State, StopRequest
from rths_nodes.loop.timing import too_slow
from rths_nodes.ros import environment
from rths_nodes.ros.names import ACTUATOR, CLOCK, CONSOLE, LOOP, MONITOR
from rths_nodes.ros.nodes.handshake import Handshake
from rths_nodes.ros.nodes.participation import ANSWER, ClockQuestions, Phase, StateOfTest
from rths_nodes.ros.nodes.settings import NodeSettings, reported_sections
from rths_nodes.ros.nodes.tick_gate import KEPT, RigContext, TickGate
from rths_nodes.ros.transport.middleware import FOUND_S
from rths_nodes.ros.transport.topics import DeferredSends

PERIOD_S = 0.01
"""Period of ``/clock``, s of test time."""
LOGGED = (State.ARMED, State.RUNNING, *ENDED)
_TIME = struct.Struct("<iI")


class AfterMeasurement:
    """Publishes TestState and, while the loop does not wait, the messages that belong to each Measurement.

    TestState contains the ``constants`` of the test. If ``gathered``, axis nodes send the true states later. In
    lockstep, the time of every ``clock_every``-th sample is published on ``/clock``; 0 disables this.
    """

    def __init__(
        self,
        context: RigContext,
        deferred: DeferredSends,
        constants: Mapping[str, object],
        gathered: bool = False,
        clock_every: int = 0,
        log: Callable[[str], object] = str,
    ) -> None:
        self._rig, self._topics, self._phase = context.rig, context.topics, context.phase
        self._port: Any = context.rig.port
        self._deferred, self._constants = deferred, dict(constants)
        self._gathered, self._clock_every, self._log = gathered, clock_every, log
        self.announced: State | None = None
        self.due: tuple[int, int] | None = None
        self._of_ticks: deque[tuple[int, int, int]] = deque(maxlen=KEPT)

    def announce(self) -> None:
        machine, sample = self._rig.machine, self._rig.sample
        self.announced = machine.state
        self._phase.follow(StateOfTest(machine.state, sample, machine.reason))
        if machine.state in LOGGED:  # states during motion are not logged, because logging takes time
            self._log(f"{machine.state.name.lower()} at sample {max(sample, 0)}")
        state = {"state": int(machine.state), "sample": sample, "reason": machine.reason}
        self._topics.publish("test_state", self._constants | state)

    def announce_change(self) -> None:
        if self._rig.machine.state != self.announced:
            self.announce()

    def measured(self, sample: int, stamp: int) -> None:
        self.due = sample, stamp
        if self._gathered:
            self._of_ticks.append((self._rig.ticks, sample, stamp))

    def send(self) -> None:
        if self.due is None:
            return
        sample, stamp = self.due
        self.due = None
        if self._gathered:
            self.pass_on()
        else:  # the true state of a real rig is unknown
            self._deferred.put("true_state", self._topics.codec.pack_measurement, self._rig.truth, stamp)
        if self._clock_every and sample % self._clock_every == 0:
            self._topics.senders[CLOCK.name](ENCAPSULATION + _TIME.pack(*stamp_of(stamp)))
        if self._rig.machine.state != self.announced:
            self.announce()

    def pass_on(self) -> bool:
        if not self._gathered:
            return True
        pack = self._topics.codec.pack_measurement
        while (true_state := self._port.true_state()) is not None:
            true = true_state[0]
            if self._of_ticks and self._of_ticks[0][0] == true.sample:  # other ticks have no sample
                _, sample, stamp = self._of_ticks.popleft()
                self._deferred.put("true_state", pack, partial(replace, true, sample=sample), stamp)
        return bool(self._port.true_state_complete)


class StartRefused(Exception):
    """Has the reason and the exit code as arguments."""


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
            self.refuse(*refused.args)
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
            for section, values in reported_sections(status).items():
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


LINGER_NS = 5_000_000_000
"""Timeout for monitor and recorder to complete their work after the test, ns."""
JUDGED_NS = 2_000_000_000
"""Timeout for the monitor to check the last samples, ns."""
TRUTH_NS = 200_000_000
"""Timeout for the true states from axis nodes after the test, ns."""


class Completion:
    """Completes the work of the actuator node between the last sample of the rig and the end of the node.

    The monitor may still trip a finished test through ``gate``. After its verdict, the last true state, and
    another comparison of clocks, the node publishes its Summary. It leaves when all ``observers`` have finished.
    """

    def __init__(
        self,
        context: RigContext,
        gate: TickGate,
        announcer: AfterMeasurement,
        observers: Sequence[str],
        questions: ClockQuestions,
    ) -> None:
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._shutdown, self._phase, self._now = context.shutdown, context.phase, context.clock.monotonic_ns
        self._gate, self._announcer, self._questions = gate, announcer, questions
        self._waiting = set(observers)

    def work(self) -> None:
        rig, shutdown = self._rig, self._shutdown
        if not self._times.ended_at:
            self._times.ended_at = self._now()
            rig.port.disarm_watchdog()
        elapsed = self._now() - self._times.ended_at
        done = (message["node"] for message in self._topics.received("progress") if message["done"])
        self._waiting.difference_update(done, self._gate.observers.done)
        self._settle()
        if not shutdown.reported:
            if self._waits(elapsed):
                return
            shutdown.report()  # The recorder closes after this report.
        unneeded = shutdown.patience_over and not self._times.began_at  # The observers have received nothing.
        if not self._waiting or elapsed > LINGER_NS or shutdown.exit_now or unneeded:
            rig.close()
            self._phase.to(Phase.GONE)

    def _settle(self) -> None:
        self._gate.receive_trips()
        self._rig.settle()
        self._announcer.announce_change()
        machine = self._rig.machine
        code = ExitCode.FAILED if self._rig.failure else of_state(machine.state)
        if code is not ExitCode.FINISHED:
            self._phase.blame(self._phase.exit_code or code, machine.reason)

    def _waits(self, elapsed: int) -> bool:
        """Return True while the Summary waits for the monitor, the true states, or answers about clocks."""
        over = self._shutdown.exit_now
        finished = self._rig.machine.state == State.FINISHED
        if finished and not over and MONITOR in self._waiting and elapsed < JUDGED_NS:
            return True
        if not self._times.began_at:
            return False
        if not self._announcer.pass_on() and elapsed < TRUTH_NS:
            return True
        return not (over or elapsed > JUDGED_NS or self._questions.done_after())
