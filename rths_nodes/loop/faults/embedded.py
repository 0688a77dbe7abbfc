# SPDX-License-Identifier: Apache-2.0
"""Faults of message streams and sensors for all hosts, and the reference host with faults.

The faults depend on sample number and seed, not on a clock. Unlike in ``loop/embedded.py``, Targets and Commands
can be late or lost. The compensator bridges a missing Target, and the rig a missing Command. Sensor faults change
the Measurement.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import ROUNDING, Array, Command, Measurement, Target
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults.kinds import (
    CHANNELS,
    POISONED,
    Corrupt,
    Delay,
    Drop,
    Duplicate,
    Fault,
    Hydraulics,
    Interlock,
    Late,
    NotANumber,
    Reorder,
    Repeated,
    SensorSpike,
    SensorStuck,
    Slow,
    check,
    first_sample,
    stream_of,
)
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import outgoing_of

T = TypeVar("T")
S = TypeVar("S", Target, Command, Measurement)


Passage = Callable[[T], list[tuple[T, int]]]
"""One fault of a stream: a function from a message to the resulting messages, each with its delay in samples."""


class FaultyStream(Generic[T]):
    """Applies ``faults`` to the stream ``name`` of messages of type ``T`` (bytes or a sample type).

    Faults of other streams are ignored. ``corrupt(message, random)`` returns the message with a flipped bit, or
    None if it is then unreadable. ``poison(message, value, field)`` returns the message with a value that is not
    finite.
    """

    def __init__(
        self,
        name: str,
        faults: Iterable[Fault | None],
        rate: float,
        seed: int,
        corrupt: Callable[[T, np.random.Generator], T | None],
        poison: Callable[[T, float, str], T],
    ) -> None:
        self._corrupt, self._poison = corrupt, poison
        self._passages: list[tuple[int, Passage[T]]] = []
        for index, fault in enumerate(faults):
            if fault is not None and stream_of(fault) == name:
                random = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode()), index]))
                self._passages.append((first_sample(fault, rate), self._passage(fault, rate, random)))
        self._queue: deque[tuple[int, T]] = deque()

    def put(self, sample: int, message: T) -> None:
        messages = [(message, 0)]
        for first, passage in self._passages:
            if sample >= first:
                messages = [(changed, late + more) for sent, late in messages for changed, more in passage(sent)]
        for changed, late in messages:
            # a stream keeps the order of messages, so that a late message delays later messages
            due = max(sample + late, self._queue[-1][0] if self._queue else 0)
            self._queue.append((due, changed))

    def take(self, sample: float) -> list[T]:
        arrived = []
        while self._queue and self._queue[0][0] <= sample:
            arrived.append(self._queue.popleft()[1])
        return arrived

    def _passage(self, fault: Fault, rate: float, random: np.random.Generator) -> Passage[T]:
        count = fault.count if isinstance(fault, (Repeated, Delay, Slow)) else 1
        every = fault.every if isinstance(fault, (Repeated, Delay)) else None
        numbers, held = itertools.count(), list[T]()

        def pass_on(message: T) -> list[tuple[T, int]]:
            if isinstance(fault, Late):
                return [(message, fault.samples if random.random() < fault.share else 0)]
            if held:
                return [(message, 0), (held.pop(), 0)]
            number = next(numbers)
            if (number % every if every else number) >= count:
                return [(message, 0)]
            changed: T | None = message
            match fault:
                case Delay():
                    return [(message, fault.samples)]
                case Slow():
                    return [(message, math.ceil(fault.seconds * rate - ROUNDING))]
                case Duplicate():
                    return [(message, 0)] * 2
                case Corrupt():
                    changed = self._corrupt(message, random)
                case NotANumber():
                    changed = self._poison(message, float(fault.value), fault.field)
                case Drop():
                    changed = None
                case Reorder():
                    held.append(message)
                    changed = None
            return [] if changed is None else [(changed, 0)]

        return pass_on


def poison(stream: str, sample: S, value: float, field: str) -> S:
    name = field or POISONED[stream][0]
    return replace(sample, **{name: np.full_like(getattr(sample, name), value)})


def flip_bit(data: bytes, random: np.random.Generator) -> bytes:
    position = int(random.integers(8 * len(data)))
    flipped = bytearray(data)
    flipped[position // 8] ^= 1 << position % 8
    return bytes(flipped)


class FaultyPort(PortBefore):
    def __init__(self, port: Port, faults: Iterable[Fault], axes: Sequence[str], rate: float) -> None:
        super().__init__(port)
        self._rate = rate
        self._axes = list(axes)
        faults = [fault for fault in faults if of_port(fault)]
        self._switched = [fault for fault in faults if isinstance(fault, (Hydraulics, Interlock))]
        self._faults = [fault for fault in faults if fault not in self._switched]
        self._last: dict[str, Array] = {}

    def wait_tick(self) -> int:
        sample = self._port.wait_tick()
        for fault in self._switched:
            if sample == max(first_sample(fault, self._rate), 1):
                if isinstance(fault, Interlock):
                    self._port.set_interlock(closed=False)
                else:
                    self._port.set_hydraulics(fault.pressure)
        return sample

    def read(self) -> Measurement:
        measured = self._port.read()
        changed = replace(measured, displacement=measured.displacement.copy(), force=measured.force.copy())
        for fault in self._faults:
            self._apply(fault, changed)
        self._last = {channel: getattr(changed, channel).copy() for channel in CHANNELS}
        return changed

    def _apply(self, fault: Any, measured: Measurement) -> None:
        since = measured.sample - first_sample(fault, self._rate)
        if since < 0:
            return
        if isinstance(fault, NotANumber):
            if since == 0:
                field = fault.field or POISONED["measurement"][0]
                setattr(measured, field, np.full_like(getattr(measured, field), float(fault.value)))
            return
        axis = self._axes.index(fault.axis)
        shown = getattr(measured, fault.channel)
        if isinstance(fault, SensorSpike):
            shown[axis] += fault.size if since == 0 else 0.0
        elif fault.seconds is None or since < fault.seconds * self._rate:
            shown[axis] = self._last.get(fault.channel, shown)[axis]


def of_port(fault: Fault) -> bool:
    return isinstance(fault, (SensorStuck, SensorSpike, Hydraulics, Interlock)) or (
        isinstance(fault, NotANumber) and fault.stream == "measurement"
    )


class FaultyLoop(Loop):
    def __init__(self, assembly: Assembly, faults: Sequence[Fault]) -> None:
        super().__init__(assembly)
        self.commands.assume_realtime()
        self._arrived: deque[Command] = deque()
        self._guard = outgoing_of(assembly)
        self._sound_port = self.rig.port
        self.put_in(faults)

    def put_in(self, faults: Sequence[Fault]) -> None:
        scenario, codec = self.scenario, self.assembly.codec()
        check(faults, scenario, "embedded", "lockstep", recorded=False)
        rate, seed = scenario.servo_rate, scenario.seed
        corrupt_target = _corrupter(codec.pack_target, codec.unpack_target)
        corrupt_command = _corrupter(codec.pack_command, codec.unpack_command)
        poison_target, poison_command = partial(poison, "target"), partial(poison, "command")
        self._targets = FaultyStream[Target]("target", faults, rate, seed, corrupt_target, poison_target)
        self._commands = FaultyStream[Command]("command", faults, rate, seed, corrupt_command, poison_command)
        self.rig.port = FaultyPort(self._sound_port, faults, tuple(scenario.axes), rate)

    def _to_compensator(self, target: Target) -> None:
        self._targets.put(self.rig.ticks, deepcopy(target))

    def _command(self, measured: Measurement) -> Command | None:
        for target in self._targets.take(self.rig.ticks):
            try:
                self.commands.target(target)
            except ValueError as lost:  # in a node this error ends the node, and therefore the test
                self.rig.trip(f"compensator: {lost}")
        if measured.sample == 0:
            self._guard.start(measured)
        late = not self.commands.ready(measured.sample + 1)
        command = self.commands.bridge(measured) if late else self.commands.next(measured)
        if command is not None and (reason := self._guard.refusal(command)):
            self.rig.trip(reason)
            return None
        return command

    @property
    def _publishes(self) -> bool:
        """True, because Commands beyond a limit are refused earlier and stream faults act later."""
        return True

    def _to_rig(self, command: Command | None, before: Measurement) -> tuple[Command | None, Measurement]:
        made, measured = command, self._tick(command)
        while measured is None:  # during a pause a late Command can arrive, or an operator can hold the test
            self._await_operator()
            command = None if made is not None else self._command(before)
            made, measured = command or made, self._tick(command)
        return made, measured

    def _tick(self, command: Command | None) -> Measurement | None:
        rig, now = self.rig, self.rig.ticks
        if command is not None:
            self._commands.put(now, deepcopy(command))
        self._arrived += self._commands.take(now)
        in_time = self._due.kept()
        while in_time is None and self._arrived:  # as in a node, the next Command waits for the next tick
            in_time = self._due.arrived(self._arrived.popleft())
        return rig.tick(in_time, late=in_time is None)


def _corrupter(
    pack: Callable[[S, int], bytes], unpack: Callable[[bytes], tuple[S, int]]
) -> Callable[[S, np.random.Generator], S | None]:
    def corrupt(sample: S, random: np.random.Generator) -> S | None:
        try:
            return unpack(flip_bit(pack(sample, 0), random))[0]
        except ValueError:  # an unreadable message is dropped, as in a node
            return None

    return corrupt
