# SPDX-License-Identifier: Apache-2.0
"""Faults on streams of messages and on sensors, for all hosts.

A :class:`FaultyStream` delays, repeats, changes or drops messages, by sample numbers and a seed, without a clock.
A :class:`FaultyPort` wraps a port and lets its sensors fail.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import ROUNDING, Array, Command, Measurement, Target
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.faults.kinds import (
    CHANNELS,
    NODES,
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
    first_sample,
    stream_of,
)

T = TypeVar("T")
S = TypeVar("S", Target, Command, Measurement)


class Passage(Protocol[T]):
    def pass_on(self, message: T) -> list[tuple[T, int]]:
        """Return the resulting messages, in order, with their delays in samples."""
        ...


class _Counted:
    def __init__(self, fault: Repeated | Delay) -> None:
        self._count: int = fault.count
        self._every: int | None = fault.every
        self._number = -1

    def hits(self) -> bool:
        self._number += 1
        return (self._number % self._every if self._every else self._number) < self._count


class _Dropping(_Counted):
    def pass_on(self, message: T) -> list[tuple[T, int]]:
        return [] if self.hits() else [(message, 0)]


class _Delaying(_Counted):
    def __init__(self, fault: Delay) -> None:
        super().__init__(fault)
        self._samples = fault.samples

    def pass_on(self, message: T) -> list[tuple[T, int]]:
        return [(message, self._samples if self.hits() else 0)]


class _Duplicating(_Counted):
    def pass_on(self, message: T) -> list[tuple[T, int]]:
        return [(message, 0)] * (2 if self.hits() else 1)


class _Reordering(_Counted, Generic[T]):
    def __init__(self, fault: Reorder) -> None:
        super().__init__(fault)
        self._held: list[tuple[T, int]] = []

    def pass_on(self, message: T) -> list[tuple[T, int]]:
        held, self._held = self._held, []
        if not held and self.hits():
            self._held = [(message, 0)]
            return []
        return [(message, 0), *held]


class _Random:
    def __init__(self, fault: Late, random: np.random.Generator) -> None:
        self._fault, self._random = fault, random

    def pass_on(self, message: T) -> list[tuple[T, int]]:
        return [(message, self._fault.samples if self._random.random() < self._fault.share else 0)]


class _Edited(_Counted, Generic[T]):
    """A message that ``edit`` changes; None drops it."""

    def __init__(self, fault: Repeated, edit: Callable[[T], T | None]) -> None:
        super().__init__(fault)
        self._edit = edit

    def pass_on(self, message: T) -> list[tuple[T, int]]:
        edited = self._edit(message) if self.hits() else message
        return [] if edited is None else [(edited, 0)]


class FaultyStream(Generic[T]):
    """Stream with faults; ``T`` are bytes or sample types.

    ``corrupt(message, random)`` flips a bit and may return None if the message becomes unreadable;
    ``poison(message, value, field)`` inserts a value that is no number. Faults of other streams are ignored.
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
                messages = [
                    (changed, late + more) for sent, late in messages for changed, more in passage.pass_on(sent)
                ]
        for changed, late in messages:
            # a stream is reliable and in order: late messages delay later ones
            due = max(sample + late, self._queue[-1][0] if self._queue else 0)
            self._queue.append((due, changed))

    def take(self, sample: float) -> list[T]:
        """Remove and return the messages that have arrived by ``sample``, in order."""
        arrived = []
        while self._queue and self._queue[0][0] <= sample:
            arrived.append(self._queue.popleft()[1])
        return arrived

    def _passage(self, fault: Fault, rate: float, random: np.random.Generator) -> Passage[T]:
        if isinstance(fault, Slow):
            samples = math.ceil(fault.seconds * rate - ROUNDING)
            return _Delaying(
                Delay(time=fault.time, stream=NODES[fault.node], samples=samples, count=fault.count, every=None)
            )
        if isinstance(fault, Late):
            return _Random(fault, random)
        if isinstance(fault, Corrupt):
            return _Edited(fault, lambda message: self._corrupt(message, random))
        if isinstance(fault, NotANumber):
            once = Drop(time=fault.time, stream=fault.stream, count=1, every=None)
            return _Edited(once, lambda message: self._poison(message, float(fault.value), fault.field))
        kinds: dict[type, Callable[..., Passage[T]]] = {
            Drop: _Dropping,
            Delay: _Delaying,
            Duplicate: _Duplicating,
            Reorder: _Reordering,
        }
        return kinds[type(fault)](fault)


def poison(sample: S, stream: str, value: float, field: str) -> S:
    name = field or POISONED[stream][0]
    return replace(sample, **{name: np.full_like(getattr(sample, name), value)})


def flip_bit(data: bytes, random: np.random.Generator) -> bytes:
    position = int(random.integers(8 * len(data)))
    flipped = bytearray(data)
    flipped[position // 8] ^= 1 << position % 8
    return bytes(flipped)


class FaultyPort(PortBefore):
    """``port`` whose sensors fail, and whose rig is switched off."""

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
