# SPDX-License-Identifier: Apache-2.0
"""Reference host: the complete loop in one process, without ROS.

The order of one sample is:

    Measurement k -> Target (if a step begins) -> Command k + 1 -> rig -> Measurement k + 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter_ns, sleep
from typing import Protocol

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.durations import Durations
from rths_nodes.core.errors import ClientLeft, ComponentError, ConfigError, IntegratorError, PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import CommandStage, DueCommands, outgoing_of
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.handover import Handover
from rths_nodes.loop.supervision.states import ENDED, LOCKSTEP_WINDOW, State
from rths_nodes.loop.timing import port_numbers, timing

LOOK_S = 0.002
"""Polling interval while waiting for external programs, s."""


class Sink(Protocol):
    """Receives every sample of a test, for a recording or for histories in memory.

    Arrays are valid only during the call.
    """

    def target(self, target: Target) -> None: ...

    def command(self, command: Command) -> None: ...

    def measurement(self, measured: Measurement) -> None: ...

    def truth(self, true: Measurement) -> None: ...

    def state(self, sample: int, values: Sequence[float]) -> None: ...

    def updating(self, sample: int, values: Sequence[float]) -> None: ...


@dataclass
class Outcome:
    """Outcome of a test. ``samples`` is the number of the last sample.

    ``compensator`` holds the last state of the compensator. ``timing`` holds statistics of computing times and
    counts of late periods. ``failed`` is true if a component failed and stopped the rig. ``integrator`` holds the
    integrator's own results by name.
    """

    state: State
    reason: str
    samples: int
    metrics: Data
    compensator: dict[str, float]
    timing: Data
    failed: bool = False
    integrator: Data = field(default_factory=dict)


def checked_loop(
    scenario: Scenario, make: Callable[[Assembly], Loop] | None = None, port: Port | None = None
) -> Loop:
    """Build a scenario's loop, or raise ConfigError. ``make`` replaces Loop, and ``port`` the scenario's port."""
    assembly = Assembly(scenario, port)
    try:
        assembly.codec()
        return (make or Loop)(assembly)
    except ComponentError as error:  # the rig has not moved yet, so this is not a failure of the test
        raise ConfigError(str(error)) from error


class Loop:
    """Runs the stages of an assembly in the reference order. Raises ConfigError if a stage cannot be built."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.scenario = assembly.scenario
        self.substructure = NumericalStage(assembly)
        self.commands = CommandStage(assembly)
        self.rig = RigStage(assembly.scenario, assembly.port)
        self._due = DueCommands(self.rig)
        self._outgoing = outgoing_of(assembly) if assembly.scenario.hops.depth else None
        self.monitor = MonitorStage.of(assembly)
        self._breach_known = self._failed = self._abandoned = False
        self._sinks: Sequence[Sink] = ()
        self._interrupted: Callable[[], bool] | None = None

    def run(
        self,
        sinks: Sequence[Sink] = (),
        progress: Callable[[int], None] | None = None,
        interrupted: Callable[[], bool] | None = None,
        begin: Callable[[], Measurement] | None = None,
    ) -> Outcome:
        """Run the test and return its outcome. ``progress(sample)`` is called once per integration step.

        ``begin`` starts the connected stages at a later sample and returns the Measurement of this sample. The
        test stops safely once ``interrupted()`` returns true. KeyboardInterrupt is raised instead while the run
        waits for external programs.
        """
        self._sinks, self._interrupted = sinks, interrupted
        try:
            self.substructure.open()
            self.commands.open()
            while self.substructure.missing():
                if interrupted and interrupted():
                    raise KeyboardInterrupt
                sleep(LOOK_S)
            self.rig.connect()
            return self._run(progress, begin or self._begin)
        except BaseException:
            with suppress(Exception):  # report the original exception
                self.rig.port.safe()
            raise
        finally:
            self.rig.close()
            self.substructure.close()
            self.commands.close()

    def _run(self, progress: Callable[[int], None] | None, begin: Callable[[], Measurement]) -> Outcome:
        rig, loop, per_step = self.rig, Durations(self.scenario.samples), self.scenario.samples_per_step
        rig.machine.to(State.ARMED)
        measured = begin()
        try:
            while rig.machine.state not in ENDED:
                started = perf_counter_ns()
                command = self._answer(measured)
                command, measured = self._to_rig(command, measured)
                if command is not None and self._publishes:
                    self.monitor.command(command)
                    for sink in self._sinks:
                        sink.command(command)
                self._show(measured)
                loop.add(perf_counter_ns() - started)
                if measured.sample % per_step == 0:
                    if progress:
                        progress(measured.sample)
                    self._hold_if_interrupted()
        except (PortError, ComponentError) as error:  # raised by the rig or its simulator
            self._lose_rig(str(error))
        self._answer(measured)
        self.monitor.work()
        self._heed_monitor()
        rig.settle()
        metrics = self.monitor.metrics()
        state = dict(zip(self.commands.state_names, self.commands.state(), strict=True))
        late = rig.late(rig.bridged)
        times = timing(loop.seconds.sum(), loop.seconds, np.zeros(0), 0, late.bridged, gap=late.gap)
        times |= rig.counts
        with suppress(PortError):  # a failed port cannot report its counters
            times |= port_numbers(rig.port)
        result = rig.machine.state, rig.machine.reason, measured.sample, metrics, state, times
        return Outcome(*result, self._failed or bool(rig.failure), self.substructure.numbers())

    def _begin(self) -> Measurement:
        self._hand_on(self.substructure.first())
        measured = self.rig.first()
        self._show(measured)
        return measured

    def _lose_rig(self, reason: str) -> None:
        self._abandoned = self._failed = True
        with suppress(Exception):
            self.rig.port.safe()
        if self.rig.machine.state is State.RUNNING:
            self.rig.machine.to(State.STOPPING, reason)
        self.rig.machine.to(State.TRIPPED, reason)

    def _answer(self, measured: Measurement) -> Command | None:
        silent = self._abandoned
        try:
            if (target := self._next_target(measured)) is not None:
                self._hand_on(target)
            command = None if self._abandoned else self._command(measured)
            learning = self.substructure.learning
            if learning is not None and (learnt := learning.learn()) is not None:
                for sink in self._sinks:
                    sink.updating(*learnt)
            if not (silent or self.rig.stopping):
                for sink in self._sinks:
                    sink.state(measured.sample, self.commands.state())
            return command
        except ComponentError as error:
            self._abandoned = self._failed = True
            self.rig.trip(str(error))
            return None

    def _next_target(self, measured: Measurement) -> Target | None:
        try:
            target = self.substructure.next(measured)
            return self.substructure.answer(wait=True) if self.substructure.pending else target
        except IntegratorError as error:
            self._abandoned, self._failed = True, not isinstance(error, ClientLeft)
            self.rig.trip(f"integrator: {error}")
            return None

    def _to_compensator(self, target: Target) -> None:
        self.commands.target(target)

    def _command(self, measured: Measurement) -> Command | None:
        command, outgoing = self.commands.next(measured), self._outgoing
        if outgoing is None:
            return command
        if measured.sample == 0:
            outgoing.start(measured)
        if command is not None and (reason := outgoing.refusal(command)):
            self._abandoned = True
            self.rig.trip(reason, command.sample + self.rig.under_way.depth)
            return None
        return command

    @property
    def _publishes(self) -> bool:
        return not self.rig.refused

    def _to_rig(self, command: Command | None, before: Measurement) -> tuple[Command | None, Measurement]:
        measured = self.rig.tick(self._due.of(command))
        while measured is None:  # the operator holds the test; Commands are never late in this host
            self._await_operator()
            measured = self.rig.tick(None, late=True)
        return command, measured

    def _await_operator(self) -> None:
        handover: Handover | None = self.rig.port.handover
        if handover is not None and self.rig.pause.rests and not self.rig.stop_due:
            handover.requests.wait()
        self._hold_if_interrupted()

    def _hold_if_interrupted(self) -> None:
        if self._interrupted and self._interrupted():
            self.rig.hold("interrupted")

    def _hand_on(self, target: Target) -> None:
        self._to_compensator(target)
        self.monitor.target(target)
        for sink in self._sinks:
            sink.target(target)

    def _show(self, measured: Measurement) -> None:
        self.monitor.measurement(measured)
        if self.monitor.monitor.breach:
            self._heed_monitor()
        if not self._sinks:
            return
        true = self.rig.truth()
        for sink in self._sinks:
            sink.measurement(measured)
            if true is not None:
                sink.truth(true)

    def _heed_monitor(self) -> None:
        breach = self.monitor.monitor.breach
        if breach and not self._breach_known:
            self._breach_known = True
            self.rig.trip(breach[1], breach[0] + LOCKSTEP_WINDOW)
