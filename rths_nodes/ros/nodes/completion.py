# SPDX-License-Identifier: Apache-2.0
"""After the last sample: judgement, the Summary, and what the actuator node waits for before it leaves."""

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
"""Time that the monitor and the recorder have, after the test, to say that they have everything."""

JUDGED_NS = 2_000_000_000
"""Time that the monitor has, after the test, to judge its last samples."""

TRUTH_NS = 200_000_000
"""Time that the true states of axes with a node each may take, after the test."""


class Completion:
    """Leads the actuator node from the last sample of its rig to its end.

    The monitor may still trip a finished test, by the trips that ``gate`` hears. Once that is judged and no true
    state is missing, the Summary is told; the node leaves when all ``observers`` (monitor, recorder) are done.
    ``announcer`` publishes the states, ``questions`` asks the clocks of other machines again.
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
        """Go on towards the end, as far as nothing has to be waited for."""
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
            shutdown.report()  # only now the recorder closes
        unneeded = shutdown.patience_over and not self._times.began_at  # no observer has seen anything of it
        if not self._waiting or elapsed > LINGER_NS or shutdown.exit_now or unneeded:
            rig.close()
            self._phase.to(Phase.GONE)

    def _settle(self) -> None:
        """Make a finished test a tripped one where the monitor has found a breach in the last samples."""
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
