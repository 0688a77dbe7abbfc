# SPDX-License-Identifier: Apache-2.0
"""Stages for nodes that follow the executive. The stages return the executive's messages and compute nothing.

The nodes of one process share a :class:`Feed`. A Measurement is released only after the next row of the executive
has arrived, because this row completes the Command and the Target that answer the Measurement. The last
Measurement has no next row.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack

from rths_nodes.core.errors import PortError
from rths_nodes.core.samples import FLAG_BRIDGED, Command, Measurement, Target
from rths_nodes.loop.executive.running import ExecutiveLoop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.recorded import RecordedPort, RecordedTargets
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import LateData


class Feed:
    """Stores messages of the executive until the nodes receive them."""

    def __init__(self) -> None:
        self.targets: deque[Target] = deque()
        self.commands: deque[Command] = deque()
        self.measurements: deque[Measurement] = deque()
        self.truths: deque[Measurement] = deque()
        self.states: deque[tuple[int, Sequence[float]]] = deque()
        self.target, self.command = self.targets.append, self.commands.append
        self.measurement, self.truth = self.measurements.append, self.truths.append

    def state(self, sample: int, values: Sequence[float]) -> None:
        self.states.append((sample, values))

    def updating(self, sample: int, values: Sequence[float]) -> None: ...


class FollowedPort(RecordedPort):
    """Port that starts the program of ``loop`` and returns the program's Measurements."""

    def __init__(self, loop: ExecutiveLoop) -> None:
        super().__init__(loop.assembly.port, (), ())
        self.loop, self.feed = loop, Feed()
        self._true: Measurement | None = None
        self._leaving = ExitStack()

    def open(self, pacer: object = None) -> None:
        self._leaving.enter_context(self.loop.started([self.feed]))

    def numerical(self, assembly: Assembly) -> RecordedTargets:
        return RecordedTargets(self.feed.targets, assembly.scenario.samples_per_step)

    def commands(self, assembly: Assembly) -> FollowedCommands:
        return FollowedCommands(assembly, self.feed)

    def begin(self) -> None:
        self.loop.begin()

    def ready(self) -> bool:
        waiting, loop = self.feed.measurements, self.loop
        if len(waiting) < 2 and not loop.over:
            loop.take()
        if loop.over and not waiting:
            raise PortError(loop.ending()[1])
        return len(waiting) > 1 or loop.over

    @property
    def last(self) -> bool:
        return self.loop.over and not self.feed.measurements

    @property
    def failure(self) -> str:  # type: ignore[override]
        """Reason why a component failed, known after the last Measurement. Empty if no component failed."""
        _, reason, failed = self.loop.ending() if self.last else (None, "", False)
        return reason if failed else ""

    def read(self) -> Measurement:
        measured, truths = self.feed.measurements.popleft(), self.feed.truths
        self._true = truths.popleft() if truths and truths[0].sample == measured.sample else None
        return measured

    def truth(self) -> Measurement | None:
        return self._true

    def safe(self) -> None:
        self.loop.hold("the actuator node has failed")

    def close(self) -> None:
        self._leaving.close()


class FollowedRig(RigStage):
    """Rig stage that takes the state of the test from the executive, and forwards stop requests to it."""

    port: FollowedPort

    @property
    def ahead(self) -> int:  # type: ignore[override]
        """Number of samples by which the program may be ahead of the nodes in lockstep."""
        return self.port.loop.ahead

    def begin_tick(self, command: Command | None, late: bool = False) -> None:
        """Do nothing, because the program has sent the Command."""

    def complete(self) -> Measurement:
        port, loop, machine = self.port, self.port.loop, self.machine
        measured = port.read()
        self.sample = self.ticks = measured.sample
        self.bridged += bool(measured.flags & FLAG_BRIDGED)
        commands = port.feed.commands
        if not self.stopping and not (commands and commands[0].sample == measured.sample + 1):
            state, reason, _ = loop.ending()
            self.stopping = state is not State.FINISHED
            if self.stopping:
                machine.to(State.STOPPING, reason)
        if port.last:
            state, reason, _ = loop.ending()
            machine.to(state, reason)
            self.timing = loop.timing()
            late = LateData.from_timing(self.timing, self.bridged, loop.scenario.bridge.max_bridge)
            self.late = lambda bridged: late
        return measured

    @property
    def stop_due(self) -> bool:
        """Return False, because the program begins the stop."""
        return False

    def begin(self) -> None:
        super().begin()
        self._forward()  # the stop may have been requested while the rig was armed

    def trip(self, reason: str, sample: int = 0) -> None:
        super().trip(reason, sample)
        self._forward()

    def hold(self, reason: str) -> None:
        super().hold(reason)
        self._forward()

    def _forward(self) -> None:
        request, loop = self.stop_request, self.port.loop
        if request is None or self.machine.state is not State.RUNNING:
            return
        if request.end is State.HELD:
            loop.hold(request.reason)
        else:
            loop.trip(request.reason, request.sample)


class FollowedCommands(CommandStage):
    """Stage that returns the Commands of the program, and the state of the compensator at each sample."""

    def __init__(self, assembly: Assembly, feed: Feed) -> None:
        super().__init__(assembly)
        self._feed, self.state = feed, self.last_values
        self._values: Sequence[float] = ()

    def target(self, target: Target) -> None:
        reach = target.step * self.substeps
        self.ready_to = reach if reach < self.samples else math.inf

    def next(self, measured: Measurement) -> Command | None:
        states, commands = self._feed.states, self._feed.commands
        while states and states[0][0] <= measured.sample:
            self._values = states.popleft()[1]
        return commands.popleft() if commands and commands[0].sample == measured.sample + 1 else None

    def last_values(self) -> Sequence[float]:
        return self._values or self.compensator.state()
