# SPDX-License-Identifier: Apache-2.0
"""Completion of a test by the actuator node: final judgement and Summary."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.loop.outcomes import ExitCode, of_state
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.names import MONITOR
from rths_nodes.ros.nodes.after_measurement import AfterMeasurement
from rths_nodes.ros.nodes.clock_exchange import ClockQuestions
from rths_nodes.ros.nodes.phase import Phase
from rths_nodes.ros.nodes.rig_context import RigContext
from rths_nodes.ros.nodes.tick_gate import TickGate

LINGER_NS = 5_000_000_000
"""Timeout for monitor and recorder to be complete after the test."""

JUDGED_NS = 2_000_000_000
"""Timeout for the monitor to judge its last samples."""

TRUTH_NS = 200_000_000
"""Timeout for the true states of axes with a node each."""


class Completion:
    """Leads the actuator node from the last sample of its rig to its end.

    The monitor may still trip a finished test through ``gate``. After its judgement and the last true state the
    Summary is published; the node leaves when all ``observers`` (monitor, recorder) are done. ``announcer``
    publishes the state, ``questions`` compares the clocks of other machines again.
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
        """Continue until something has to be waited for."""
        rig, shutdown = self._rig, self._shutdown
        if not self._times.ended_at:
            self._times.end()
            rig.port.disarm_watchdog()
        elapsed = self._now() - self._times.ended_at
        done = (message["node"] for message in self._topics.heard("progress") if message["done"])
        self._waiting.difference_update(done, self._gate.observers.done)
        self._settle()
        if not shutdown.reported:
            if self._unjudged(elapsed) or self._truth_missing(elapsed) or self._asks(elapsed):
                return
            shutdown.report()  # the recorder closes after this
        unneeded = shutdown.patience_over and not self._times.began_at  # no observer has received anything
        if not self._waiting or elapsed > LINGER_NS or shutdown.exit_now or unneeded:
            rig.close()
            self._phase.to(Phase.GONE)

    def _settle(self) -> None:
        """Trip a finished test if the monitor found a breach in the last samples."""
        self._gate.hear_trips()
        self._rig.settle()
        self._announcer.announce_change()
        machine = self._rig.machine
        code = ExitCode.FAILED if self._rig.failure else of_state(machine.state)
        if code is not ExitCode.FINISHED:
            self._phase.blame(self._phase.exit_code or code, machine.reason)

    def _unjudged(self, elapsed: int) -> bool:
        if self._rig.machine.state != State.FINISHED or self._shutdown.exit_now:
            return False
        return MONITOR in self._waiting and elapsed < JUDGED_NS

    def _asks(self, elapsed: int) -> bool:
        if not self._times.began_at or self._shutdown.exit_now or elapsed > JUDGED_NS:
            return False
        return not self._questions.done_after()

    def _truth_missing(self, elapsed: int) -> bool:
        if not self._times.began_at:
            return False
        return not self._announcer.pass_on() and elapsed < TRUTH_NS
