# SPDX-License-Identifier: Apache-2.0
"""The limits of the axes on our side of whatever drives the rig: a driver node of somebody else may keep none.

Our actuator node keeps them as well: what it has measured it has judged first; nobody else does in its process.
"""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import FLAG_TRIPPED, INTERLOCK_OPEN, Command, Measurement
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import outgoing_of
from rths_nodes.loop.supervision.hops import TakenAtOnce
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.phase import PhaseMachine, StateOfTest

WENT_ON = "the actuator node went on after the Trip"
LATER_NS = 2 * SECOND
"""A driver is given so much longer than two nodes in a row may take, and after the Trip once more."""


def ended_early(test: StateOfTest, samples: int) -> str:
    """Say that the actuator node calls a test finished at another sample than ``samples``; else empty."""
    if test.state is not State.FINISHED or test.sample == samples:
        return ""
    return f"the actuator node has called the test finished at sample {test.sample} of {samples}"


class DriverGuard:
    """Checks what goes to the driver of the rig, and what comes from it; the first breach trips.

    ``trip`` gets the reason, the sample, and the tick from which the rig has no Command, 0 where it waits for that
    one. ``tripped`` is that reason, with the sample; empty before. A driver that ends the test as if nothing had
    been makes a tripped test all the same, and one that ends it before its last sample a failed one
    (:meth:`judge`).
    """

    def __init__(
        self,
        assembly: Assembly,
        phase: PhaseMachine,
        trip: Callable[[str, int, int], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        scenario = assembly.scenario
        self.tripped = ""
        self._samples, self._depth = scenario.samples, scenario.hops.depth
        self._check = outgoing_of(assembly)
        self._levels = LevelWatch.of(scenario.limits, scenario.dt, assembly.names.auxiliary)
        self._at_once = TakenAtOnce(self._depth) if self._depth else None
        self._command: Command | None = None
        """The last one that was published."""
        self._phase, self._trip, self._now = phase, trip, clock.monotonic_ns
        self._patience = round(2 * scenario.port.longest_wait * SECOND) + LATER_NS
        self._sample = -1
        self._heard_at = 0

    def measurement(self, measured: Measurement, judged: bool = False) -> bool:
        """Return whether the rig may go on after ``measured``, which is not judged in a safe stop.

        ``judged``: by our actuator node, from whose hands it came.
        """
        self._heard_at, self._sample = self._now(), measured.sample
        if measured.sample == 0:
            self._check.start(measured)
            if self._at_once is not None:
                self._at_once.start(measured)
        if judged or self.tripped or measured.flags & FLAG_TRIPPED:
            return not self.tripped
        reason = self._check.measurement(measured, measured.displacement)
        if self._levels is not None and (breach := self._levels.judge(self._command, measured)):
            reason = reason or breach.reason
        if self._at_once is not None and (found := self._at_once.reason(measured)):
            return self._passes(reason or found, measured.sample, 0)  # it waits for the next one: at once
        if measured.interlock == INTERLOCK_OPEN:
            reason = reason or "the interlock of the rig is open"
        return self._passes(reason, measured.sample, measured.sample + 1)

    def command(self, command: Command) -> bool:
        """Return whether ``command`` may be published: none may be after a breach."""
        self._command = command
        if self._at_once is not None:
            self._at_once.made(command)
        if self.tripped:
            return False
        reason = self._check.refusal(command)
        return not reason or self._passes(reason, command.sample, command.sample)

    def overdue(self) -> bool:
        """True when the driver has been silent for so long, also after the Trip, that nobody waits any more."""
        if not self._heard_at or self._phase.test.state not in (State.RUNNING, State.STOPPING):
            return False
        waited = self._now() - self._heard_at
        if waited < self._patience:
            return False
        self._passes(f"no Measurement {self._sample + 1} for {waited / SECOND:.3g} s", self._sample, 0)
        return waited > self._patience + LATER_NS

    def judge(self) -> None:
        """The test is over: one that went on after a Trip counts as tripped, whatever its driver says.

        One that it calls finished at another sample than the last has failed.
        """
        if self.tripped and self._phase.test.state is State.FINISHED:
            self._phase.blame(self._phase.exit_code or ExitCode.TRIPPED, f"{self.tripped}; {WENT_ON}")
        elif early := ended_early(self._phase.test, self._samples):
            self._phase.blame(ExitCode.FAILED, early)

    def _passes(self, reason: str, sample: int, command: int) -> bool:
        """Return whether there is no ``reason`` to trip; ``command`` is the first one that is not published."""
        if reason and not self.tripped:
            self.tripped = f"sample {sample}: {reason}"
            self._trip(reason, sample, command + self._depth if command and self._depth else 0)
        return not reason
