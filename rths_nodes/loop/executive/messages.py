# SPDX-License-Identifier: Apache-2.0
"""Conversion of the executive's rows to messages for monitor and sinks, in the order of the embedded loop."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.parameters import type_of
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Array, Command, Measurement, Target
from rths_nodes.loop.compiled.parts import Parts
from rths_nodes.loop.compiled.text import laws, sample_columns, step_columns, told, width
from rths_nodes.loop.embedded import Sink
from rths_nodes.loop.executive.memory import HEAD
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import bounds_of
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.limits import LimitCheck

Integers = NDArray[np.int64]
DRIVEN, BROKEN, BRAKED, REFUSED, LAST, FIRST = range(1, 7)
"""Kinds of rows: sample with a Command; sample with a Command and an exceeded limit; sample of the safe stop;
values of a refused Command; compensator values after the last sample; Measurement 0 of a rig over UDP."""


class RowLayout:
    """Positions of the numbers in a row. Their unit is a word of 8 bytes."""

    def __init__(self, parts: Parts) -> None:
        kind = parts.kind
        self.samples, self.steps = sample_columns(kind), step_columns(kind)
        self.shown = sum(count for *_, count in told(kind))
        self.marks = 2 + laws(kind) * kind.renewed
        self.at_shown = HEAD + width(self.samples)
        self.at_marks = self.at_shown + self.shown
        self.at_steps = self.at_marks + self.marks
        self.words = self.at_steps + width(self.steps)

    def begins(self) -> tuple[int, int, int, int]:
        return HEAD, self.at_shown, self.at_marks, self.at_steps


class Messages:
    """Converts rows to messages for the monitor and the ``sinks``.

    ``reason`` states the refused Command or the exceeded limit that stopped the rig, or is empty. ``failed`` is
    true if a component failed. ``shown`` holds the compensator's last values. Unless ``judges``, the monitor of
    ``parts`` receives no messages.
    """

    def __init__(self, parts: Parts, assembly: Assembly, sinks: Sequence[Sink], judges: bool = True) -> None:
        self._parts, self._sinks, self._layout = parts, sinks, RowLayout(parts)
        self._all: list[MonitorStage | Sink] = [*[parts.monitor] * judges, *sinks]
        scenario = assembly.scenario
        self._type = f"compensator.type = {type_of(scenario.compensator)!r}"
        self._external, self._before = assembly.external_force, scenario.soft_start_steps
        self._bounds = bounds_of(assembly.compensator)
        names = assembly.port.auxiliary_inputs, assembly.port.auxiliary_names
        self._check = LimitCheck(scenario.limits, scenario.dt, *names, None, scenario.stop_groups)
        columns = self._layout.samples.items()
        self._places = {name: slice(HEAD + at.start, HEAD + at.stop) for name, at in columns}
        first = self._layout.at_steps
        self._of_step = {name: slice(first + at.start, first + at.stop) for name, at in self._layout.steps.items()}
        self.sample, self._step, self._inputs = 0, 0, parts.target.auxiliary
        self._sent = parts.measured.command.tolist()
        self.shown: list[float] = []
        self.reason, self.failed, self._stopping = "", False, False
        self.bridged: list[int] = []
        """Numbers of the samples whose Measurement was bridged, for a rig over UDP."""

    def begin(self) -> None:
        """Pass Target 0 and, if known, Measurement 0 to the sinks. The monitor already has them."""
        for sink in self._sinks:
            sink.target(self._parts.target)
            if not self._parts.kind.remote:
                sink.measurement(self._parts.measured)
                sink.truth(self._parts.true)

    def take(self, row: Array, integers: Integers) -> None:
        """Convert a row ``(words,)`` to messages for the monitor and the sinks.

        ``integers`` is a view of the row as integers.
        """
        sample, kind, made = integers[:3].tolist()
        target = self._target(row, integers) if made else None
        if kind != FIRST and (kind != BRAKED or not self._stopping):
            self._state(row, sample if kind == LAST else sample - 1)
        if kind == REFUSED:
            self._refuse(row, target)
        elif kind != LAST:
            self._sampled(row, integers, sample, kind)

    def _target(self, row: Array, integers: Integers) -> Target:
        self._step += 1
        step, of_step = self._step, self._of_step
        x, v, a, exact, restoring, inputs = (row[of_step[name]] for name in self._layout.steps)
        if self._inputs.size:
            self._inputs = inputs
        flags = int(self._parts.constants["soft_flags"][step]) if step <= self._before else 0  # type: ignore[index]
        external = self._external[step - 1 - self._before] if step > self._before else np.zeros(len(x))
        target = Target(step, x, v, a, exact, external, restoring, self._inputs, flags)
        for sink in self._all:
            sink.target(target)
        return target

    def _state(self, row: Array, sample: int) -> None:
        self.shown = row[self._layout.at_shown : self._layout.at_marks].tolist()
        for sink in self._sinks:
            sink.state(sample, self.shown)

    def _refuse(self, row: Array, target: Target | None) -> None:
        self._stopping = True
        aims, commands = row[self._places["target"]].tolist(), row[self._places["command"]].tolist()
        if target is not None and not all(map(math.isfinite, target.displacement.tolist())):
            aims = commands = [math.nan] * len(aims)
        beyond = [value for value in commands if not math.isfinite(value)]
        if beyond and all(map(math.isfinite, aims)):
            self.reason, self.failed = f"{self._type}: command = {beyond[0]}: must be finite", True
        else:
            self.reason = self._check.command(
                Command(0, np.array(aims), np.array(commands), self._inputs), self._sent
            )

    def _sampled(self, row: Array, integers: Integers, sample: int, kind: int) -> None:
        values = {name: row[at] for name, at in self._places.items()}
        marks, sent = integers[self._layout.at_marks :], values["command"]
        flags, marked = int(marks[0]), int(marks[1])
        applied = values["applied"] if self._parts.kind.converts else sent
        moved, force, modes = values["displacement"], values["force"], self._parts.measured.control_mode
        true = "true_" if any(self._parts.kind.sensors) else ""
        if kind not in (BRAKED, FIRST):
            self.bridged += [sample] * (marked & FLAG_BRIDGED > 0)
            if any(not low < self.shown[index] < high for index, low, high in self._bounds):
                flags |= FLAG_AT_BOUND
            command = Command(sample, values["target"], sent, self._inputs, flags)
            for sink in self._all:
                sink.command(command)
        channels = values["channels"]
        true_channels = values["true_channels"] if self._parts.kind.channel_noise else channels
        measured = Measurement(sample, moved, force, applied, channels, marked, modes)
        for sink in self._all:
            sink.measurement(measured)
        for sink in () if self._parts.kind.remote else self._sinks:
            pushed = values[f"{true}force"]
            sink.truth(
                Measurement(sample, values[f"{true}displacement"], pushed, applied, true_channels, marked, modes)
            )
        self.sample, self._sent, self._stopping = sample, sent.tolist(), kind in (BRAKED, BROKEN)
        if kind == BROKEN:
            self.reason = self._check.measurement(measured, values["target"].tolist())
