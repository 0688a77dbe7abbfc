# SPDX-License-Identifier: Apache-2.0
"""Check of the axis limits, in case a third-party driver node does not check them."""

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
from rths_nodes.ros.nodes.participation import PhaseMachine, StateOfTest

WENT_ON = "the actuator node continued after the Trip"
LATER_NS = 2 * SECOND
"""Additional time to wait for a driver's Measurement before the Trip, and again after the Trip, ns."""


def ended_early(test: StateOfTest, samples: int) -> str:
    if test.state is not State.FINISHED or test.sample == samples:
        return ""
    return f"the actuator node reported the test as finished at sample {test.sample} of {samples}"


class DriverGuard:
    """Checks Commands to a driver of the rig and Measurements from the driver. The first breach causes a trip.

    ``trip`` receives the reason, the sample, and the first tick without a Command (0: the pending tick).
    ``tripped`` is the reason with the sample, empty before a trip. If a driver ignores a Trip, the test ends
    as tripped. A test that ends before the last sample has failed.
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
        self._levels = LevelWatch(scenario.limits, scenario.dt, assembly.names.auxiliary) or None
        self._at_once = TakenAtOnce(self._depth) if self._depth else None
        self._command: Command | None = None
        self._phase, self._trip, self._now = phase, trip, clock.monotonic_ns
        self._patience = round(2 * scenario.port.longest_wait * SECOND) + LATER_NS
        self._sample = -1
        self._received_at = 0

    def measurement(self, measured: Measurement, judged: bool = False) -> bool:
        """Return True if the rig may continue. If ``judged``, our actuator node has checked ``measured``."""
        self._received_at, self._sample = self._now(), measured.sample
        if measured.sample == 0:
            self._check.start(measured)
            if self._at_once is not None:
                self._at_once.start(measured)
        if judged or self.tripped or measured.flags & FLAG_TRIPPED:
            return not self.tripped
        reason = self._check.measurement(measured, measured.displacement)
        if self._levels is not None and (breach := self._levels.judge(self._command, measured)):
            reason = reason or breach.reason
        if self._at_once is not None and (problem := self._at_once.reason(measured)):
            return self._passes(reason or problem, measured.sample, 0)  # trip now: the driver waits for a Command
        if measured.interlock == INTERLOCK_OPEN:
            reason = reason or "the interlock of the rig is open"
        return self._passes(reason, measured.sample, measured.sample + 1)

    def command(self, command: Command) -> bool:
        """Return True if ``command`` may be published; after a breach, False."""
        self._command = command
        if self._at_once is not None:
            self._at_once.made(command)
        if self.tripped:
            return False
        reason = self._check.refusal(command)
        return not reason or self._passes(reason, command.sample, command.sample)

    def overdue(self) -> bool:
        """Trip if the driver has sent nothing for too long. Return True if the driver also ignores the Trip."""
        if not self._received_at or self._phase.test.state not in (State.RUNNING, State.STOPPING):
            return False
        waited = self._now() - self._received_at
        if waited < self._patience:
            return False
        self._passes(f"no Measurement {self._sample + 1} for {waited / SECOND:.3g} s", self._sample, 0)
        return waited > self._patience + LATER_NS

    def judge(self) -> None:
        if self.tripped and self._phase.test.state is State.FINISHED:
            self._phase.blame(self._phase.exit_code or ExitCode.TRIPPED, f"{self.tripped}; {WENT_ON}")
        elif early := ended_early(self._phase.test, self._samples):
            self._phase.blame(ExitCode.FAILED, early)

    def _passes(self, reason: str, sample: int, command: int) -> bool:
        if reason and not self.tripped:
            self.tripped = f"sample {sample}: {reason}"
            self._trip(reason, sample, command + self._depth if command and self._depth else 0)
        return not reason
