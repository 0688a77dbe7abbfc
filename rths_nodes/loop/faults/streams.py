# SPDX-License-Identifier: Apache-2.0
"""Faults of message streams and sensors, for all hosts.

The faults depend on sample number and seed, not on a clock.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import ROUNDING, Array, Command, Measurement, Target
from rths_nodes.laboratory.ports.wrappers import PortBefore
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
    Repeated,
    SensorSpike,
    SensorStuck,
    Slow,
    first_sample,
    stream_of,
)

T = TypeVar("T")
S = TypeVar("S", Target, Command, Measurement)


Passage = Callable[[T], list[tuple[T, int]]]
"""One fault of a stream: a function from a message to the resulting messages, each with its delay in samples."""


def _hits(count: int, every: int | None) -> Callable[[], bool]:
    numbers = itertools.count()

    def hits() -> bool:
        number = next(numbers)
        return (number % every if every else number) < count

    return hits


def _reordered(hits: Callable[[], bool]) -> Passage[T]:
    held: list[tuple[T, int]] = []

    def pass_on(message: T) -> list[tuple[T, int]]:
        if not held and hits():
            held.append((message, 0))
            return []
        messages = [(message, 0), *held]
        held.clear()
        return messages

    return pass_on


def _edited(hits: Callable[[], bool], edit: Callable[[T], T | None]) -> Passage[T]:
    def pass_on(message: T) -> list[tuple[T, int]]:
        edited = edit(message) if hits() else message
        return [] if edited is None else [(edited, 0)]

    return pass_on


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
        if isinstance(fault, Late):
            return lambda message: [(message, fault.samples if random.random() < fault.share else 0)]
        if isinstance(fault, NotANumber):
            return _edited(_hits(1, None), lambda message: self._poison(message, float(fault.value), fault.field))
        if isinstance(fault, Slow):
            hits, samples = _hits(fault.count, None), math.ceil(fault.seconds * rate - ROUNDING)
            return lambda message: [(message, samples if hits() else 0)]
        assert isinstance(fault, (Repeated, Delay))
        hits = _hits(fault.count, fault.every)
        match fault:
            case Corrupt():
                return _edited(hits, lambda message: self._corrupt(message, random))
            case Delay():
                return lambda message: [(message, fault.samples if hits() else 0)]
            case Drop():
                return lambda message: [] if hits() else [(message, 0)]
            case Duplicate():
                return lambda message: [(message, 0)] * (2 if hits() else 1)
        return _reordered(hits)


def poison(sample: S, stream: str, value: float, field: str) -> S:
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
