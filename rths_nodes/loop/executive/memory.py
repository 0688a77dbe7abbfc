# SPDX-License-Identifier: Apache-2.0
"""Memory that the executive shares with Python (control block, arguments of the loop, ring of rows), and its rows.

The unit of all offsets is a word of 8 bytes. Rows become messages for monitor and sinks, in the order of the
embedded loop.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from rths_nodes.codegen.calling import is_handed, position_of
from rths_nodes.codegen.values import Arr, Scalar, Untranslatable, Value, leaves
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import type_of
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Array, Command, Measurement, Target
from rths_nodes.loop.compiled.parts import Parts
from rths_nodes.loop.compiled.text import laws, sample_columns, step_columns, told, width
from rths_nodes.loop.embedded import Sink
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import bounds_of
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.limits import LimitCheck

Integers = NDArray[np.int64]
Table = NDArray[np.generic]
LAYOUT = 1
WORD = 8
HEAD = 5
"""Number of words at the beginning of a row: sample, kind, steps, lateness (ns) and duration (ns)."""
DRIVEN, BROKEN, BRAKED, REFUSED, LAST, FIRST = range(1, 7)
"""Kinds of rows: sample with a Command; sample with a Command and an exceeded limit; sample of the safe stop;
values of a refused Command; compensator values after the last sample; Measurement 0 of a rig over UDP."""
FIELDS = (
    *("layout", "words", "period", "spin", "priority", "lock", "silence", "samples", "bare"),
    *("slots", "slot_words", "reserve", "ring", "at_marks", "numbers", "results", "asked"),
    *("pointers", "n_pointers", "copies", "n_copies", "fixed", "n_fixed", "moves", "n_moves"),
    *("at_stopped", "at_made", "at_driven", "at_stopping", "at_resting"),
    *("half", "felt", "terms", "report"),
    *("state", "go", "word", "trip_at", "alive", "head", "tail"),
    *("sample", "missed", "longest", "lost", "stopped_at", "stopped_by", "began", "ended"),
    *("no_priority", "no_lock", "opened", "fault"),
)


class Control(ctypes.Structure):
    """Control block; ``executive.c`` explains each word."""

    _fields_ = tuple((name, ctypes.c_int64) for name in FIELDS)


Links = tuple[list[tuple[int, int]], list[tuple[int, object]], list[tuple[int, int, int]]]
"""Assignments of results to the next arguments: changing numbers, constant numbers, and arrays."""


def links_of(states: Value, new: Value, arrays: Sequence[Table]) -> Links:
    """Return the links from the ``new`` states to the arguments ``states``. ``arrays`` belong to the call."""
    links: Links = [], [], []
    copies, fixed, moves = links
    for old, now in zip(leaves(states), leaves(new), strict=True):
        if isinstance(now, Scalar) and now.fixed:
            if is_handed(old):
                fixed.append((position_of(old), now.const))
        elif isinstance(now, Scalar):
            copies.append((position_of(old), position_of(now)))
        elif isinstance(now, Arr) and position_of(now) != position_of(old):
            moves.append((position_of(now), position_of(old), words_of(arrays[position_of(now)])))
    if {move[0] for move in moves} & {move[1] for move in moves}:
        raise Untranslatable("two arrays of the state are exchanged")
    return links


def words_of(array: Table) -> int:
    return -(-int(array.nbytes) // WORD)


class Memory:
    """Memory that the program inherits as ``descriptor``. The system frees it after the last user exits."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, bytes]] = []
        self._words = ctypes.sizeof(Control) // WORD
        self.descriptor = -1

    def add(self, content: bytes, length: int = 0) -> int:
        """Reserve memory for ``content``, at least ``length`` words. Return the offset."""
        offset = self._words
        self._parts.append((offset, content))
        self._words += max(-(-len(content) // WORD), length)
        return offset

    def add_array(self, array: Table) -> int:
        """Add an array in the order of its memory. Raises Untranslatable if the array has gaps."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise Untranslatable("an array of the loop is not contiguous")
        return self.add(array.tobytes("A"), words_of(array))

    def rows(self, rows: Sequence[tuple[object, ...]]) -> int:
        """Add a table of integers and floats. Return its offset."""
        values = (value for row in rows for value in row)
        return self.add(b"".join(struct.pack("<d" if isinstance(v, float) else "<q", v) for v in values))

    def open(self, fields: Mapping[str, int]) -> Control:
        """Allocate the memory; store all added contents, and ``fields`` of the control block.

        Raises ConfigError if the system refuses memory.
        """
        try:
            self.descriptor = os.memfd_create("rths_executive")
            os.ftruncate(self.descriptor, self._words * WORD)
            self.map = mmap.mmap(self.descriptor, self._words * WORD)
        except (OSError, AttributeError) as error:
            raise ConfigError(
                f"engine = 'executive': cannot allocate shared memory ({error}). Use engine python"
            ) from error
        for offset, content in self._parts:
            self.map[offset * WORD : offset * WORD + len(content)] = content
        self._parts.clear()
        control = Control.from_buffer(self.map)
        for name, word in {"layout": LAYOUT, "words": self._words, **fields}.items():
            setattr(control, name, word)
        return control

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.descriptor)

    def table(self, offset: int, rows: int, columns: int) -> Array:
        return np.frombuffer(self.map, np.float64, rows * columns, offset * WORD).reshape(rows, columns)


class RowLayout:
    """Positions of the numbers in a row. Their unit is a word of 8 bytes."""

    def __init__(self, parts: Parts) -> None:
        kind = parts.kind
        self.samples, self.steps = sample_columns(kind), step_columns(kind)
        self.at_shown = HEAD + width(self.samples)
        self.at_marks = self.at_shown + sum(count for *_, count in told(kind))
        self.at_steps = self.at_marks + 2 + laws(kind) * kind.renewed
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
        step, numbers = self._step, row[self._layout.at_steps :]
        x, v, a, exact, restoring, inputs = (numbers[at] for at in self._layout.steps.values())
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
        aims, commands = (row[HEAD:][self._layout.samples[name]].tolist() for name in ("target", "command"))
        if target is not None and not all(map(math.isfinite, target.displacement.tolist())):
            aims = commands = [math.nan] * len(aims)
        beyond = [value for value in commands if not math.isfinite(value)]
        if beyond and all(map(math.isfinite, aims)):
            self.reason, self.failed = f"{self._type}: command = {beyond[0]}: must be finite", True
        else:
            refused = Command(0, np.array(aims), np.array(commands), self._inputs)
            self.reason = self._check.command(refused, self._sent)

    def _sampled(self, row: Array, integers: Integers, sample: int, kind: int) -> None:
        numbers = row[HEAD:]
        values = {name: numbers[at] for name, at in self._layout.samples.items()}
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
        moved, force = values[f"{true}displacement"], values[f"{true}force"]
        for sink in () if self._parts.kind.remote else self._sinks:
            sink.truth(Measurement(sample, moved, force, applied, true_channels, marked, modes))
        self.sample, self._sent, self._stopping = sample, sent.tolist(), kind in (BRAKED, BROKEN)
        if kind == BROKEN:
            self.reason = self._check.measurement(measured, values["target"].tolist())
