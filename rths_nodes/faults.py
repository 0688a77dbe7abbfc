"""Faults on purpose: what goes wrong, when, and how long, as ``--fault KIND@TIME[:ARGUMENTS]`` says it.

    drop@2:target                   Target lost                         drop@TIME:STREAM[,COUNT[,EVERY]]
    delay@2:command,3,5             five Commands, three samples late   delay@TIME:STREAM,SAMPLES[,COUNT[,EVERY]]
    late@0:target,0.05              one of twenty at random             late@TIME:STREAM,SHARE[,SAMPLES]
    duplicate@2:target              comes twice                         duplicate@TIME:STREAM[,COUNT[,EVERY]]
    reorder@2:command               comes after the next one            reorder@TIME:STREAM[,COUNT[,EVERY]]
    corrupt@2:target                one bit flipped                     corrupt@TIME:STREAM[,COUNT[,EVERY]]
    nan@2:command,inf               a value that is no number           nan@TIME:STREAM[,VALUE[,FIELD]]
    slow@2:compensator,0.002,5      answers take 2 ms longer            slow@TIME:NODE,SECONDS[,COUNT]
    sensor_stuck@2:story_1,force    a sensor stands still               sensor_stuck@TIME:AXIS,CHANNEL[,SECONDS]
    sensor_spike@2:story_1,force,1e5    and jumps, for a sample         sensor_spike@TIME:AXIS,CHANNEL,SIZE
    kill@2:compensator   freeze@2:integrator,0.1   disk_full@2   monitor_dead@2   recorder_dead@2

Times are in s from Measurement 0. Streams: target (integrator to compensator), command (compensator to actuator),
measurement (actuator to both). ``FaultyStream`` and ``FaultyPort`` put them into any host.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import attrs
import numpy as np

from rths_nodes.components import Array, Measurement, Port
from rths_nodes.params import ConfigError, build, integer, number, params, spec_of, text, unknown

STREAMS = ("target", "command", "measurement")
NODES = {"integrator": "target", "compensator": "command", "actuator": "measurement"}
"""The nodes of the loop, and what they publish."""
PROCESSES = (*NODES, "monitor", "recorder")
CHANNELS = ("displacement", "force")

T = TypeVar("T")


def _time() -> Any:
    return number("when it begins, from Measurement 0", "s", at_least=0.0)


def _stream() -> Any:
    return text("which messages", choices=STREAMS)


def _count() -> Any:
    return integer("messages", default=1, at_least=1)


def _every() -> Any:
    return integer("length of the pattern that is repeated, messages; once if left out", default=None, at_least=1)


@params
class Drop:
    """Messages get lost."""

    time: float = _time()
    stream: str = _stream()
    count: int = _count()
    every: int | None = _every()


@params
class Delay:
    """Messages come late; those behind them wait."""

    time: float = _time()
    stream: str = _stream()
    samples: int = integer("by which they are late", "samples", at_least=1, at_most=1_000_000)
    count: int = _count()
    every: int | None = _every()


@params
class Late:
    """A share of the messages, at random with the scenario's seed, comes late."""

    time: float = _time()
    stream: str = _stream()
    share: float = number("of the messages", "1", more_than=0.0, at_most=1.0)
    samples: int = integer("by which they are late", "samples", 1, at_least=1, at_most=1_000_000)


@params
class Duplicate:
    """Messages come twice."""

    time: float = _time()
    stream: str = _stream()
    count: int = _count()
    every: int | None = _every()


@params
class Reorder:
    """A message comes after the next one."""

    time: float = _time()
    stream: str = _stream()
    count: int = _count()
    every: int | None = _every()


@params
class Corrupt:
    """One bit of a message is flipped, at random with the scenario's seed."""

    time: float = _time()
    stream: str = _stream()
    count: int = _count()
    every: int | None = _every()


@params
class NotANumber:
    """The values of one field of a message are no numbers; of a measurement: those of the sensors."""

    time: float = _time()
    stream: str = _stream()
    value: str = text("what they are instead", "nan", choices=("nan", "inf", "-inf"))
    field: str = text("which; by default the displacement or the command", "")


@params
class Slow:
    """A node takes longer for its answers."""

    time: float = _time()
    node: str = text("which", choices=NODES)
    seconds: float = number("that an answer takes longer", "s", more_than=0.0, at_most=60.0)
    count: int = integer("answers", default=1, at_least=1)


@params
class SensorStuck:
    """A sensor shows what it showed last."""

    time: float = _time()
    axis: str = text("whose sensor")
    channel: str = text("which", choices=CHANNELS)
    seconds: float | None = number("how long; to the end if left out", "s", None, more_than=0.0)


@params
class SensorSpike:
    """A sensor shows too much, for one sample."""

    time: float = _time()
    axis: str = text("whose sensor")
    channel: str = text("which", choices=CHANNELS)
    size: float = number("that is added", "m or N")


@params
class Kill:
    """A node dies at once (SIGKILL)."""

    time: float = _time()
    node: str = text("which", choices=PROCESSES)


@params
class Freeze:
    """A node stands still for a while (SIGSTOP, SIGCONT)."""

    time: float = _time()
    node: str = text("which", choices=PROCESSES)
    seconds: float = number("how long", "s", more_than=0.0, at_most=3600.0)


@params
class DiskFull:
    """The recorder cannot write any more."""

    time: float = _time()


@params
class MonitorDead:
    """The monitor dies."""

    time: float = _time()


@params
class RecorderDead:
    """The recorder dies."""

    time: float = _time()


KINDS: dict[str, type] = {
    **{"drop": Drop, "delay": Delay, "late": Late, "duplicate": Duplicate, "reorder": Reorder},
    **{"corrupt": Corrupt, "nan": NotANumber, "slow": Slow},
    **{"sensor_stuck": SensorStuck, "sensor_spike": SensorSpike},
    **{"kill": Kill, "freeze": Freeze},
    **{"disk_full": DiskFull, "monitor_dead": MonitorDead, "recorder_dead": RecorderDead},
}
NEED_PROCESSES = (Kill, Freeze, DiskFull, MonitorDead, RecorderDead)


def parse(words: str) -> Any:
    """``KIND@TIME[:ARGUMENTS]`` -> an object of a class in KINDS. Raises ConfigError with what is known."""
    head, _, arguments = words.partition(":")
    kind, sign, time = head.partition("@")
    if not sign:
        raise ConfigError(f"fault {words!r}: must be KIND@TIME[:ARGUMENTS]; known: {', '.join(sorted(KINDS))}")
    if kind not in KINDS:
        raise unknown(f"fault {words!r}", "kind", kind, KINDS)
    cls = KINDS[kind]
    fields = {field.name: spec_of(field).kind for field in attrs.fields(cls)}
    given = [time, *(arguments.split(",") if arguments else ())]
    if len(given) > len(fields):
        raise ConfigError(
            f"fault {words!r}: too much; {kind}@TIME takes {', '.join(list(fields)[1:]) or 'nothing'}"
        )
    pairs = zip(fields.items(), given, strict=False)
    data = {name: word.strip() if kind == "text" else _value(word) for (name, kind), word in pairs}
    try:
        return build(cls, data)
    except ConfigError as error:
        raise ConfigError(f"fault {words!r}: {error}") from None


def _value(word: str) -> Any:
    """A number, or the word for the check to refuse."""
    try:
        return float(word)
    except ValueError:
        return word


# -- messages ---------------------------------------------------------------------------------------------


class Passage(Protocol):
    """One fault on a stream: what becomes of a message that is sent now."""

    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        """What comes of it, in order, and by how many samples each is late."""
        ...


class _Counted:
    """The first ``count`` messages, or so many of ``every``."""

    def __init__(self, fault: Any) -> None:
        self._count, self._every, self._number = fault.count, fault.every, -1

    def hits(self) -> bool:
        self._number += 1
        return (self._number % self._every if self._every else self._number) < self._count


class _Dropping(_Counted):
    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        return [] if self.hits() else [(message, 0)]


class _Delaying(_Counted):
    def __init__(self, fault: Delay) -> None:
        super().__init__(fault)
        self._samples = fault.samples

    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        return [(message, self._samples if self.hits() else 0)]


class _Duplicating(_Counted):
    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        return [(message, 0)] * (2 if self.hits() else 1)


class _Reordering(_Counted):
    def __init__(self, fault: Reorder) -> None:
        super().__init__(fault)
        self._held: list[tuple[Any, int]] = []

    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        held, self._held = self._held, []
        if not held and self.hits():
            self._held = [(message, 0)]
            return []
        return [(message, 0), *held]


class _Random:
    def __init__(self, fault: Late, random: np.random.Generator) -> None:
        self._fault, self._random = fault, random

    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        return [(message, self._fault.samples if self._random.random() < self._fault.share else 0)]


class _Edited(_Counted):
    """A message that ``edit`` changes; one of which it makes None is lost."""

    def __init__(self, fault: Any, edit: Callable[[Any], Any]) -> None:
        super().__init__(fault)
        self._edit = edit

    def pass_on(self, message: Any) -> list[tuple[Any, int]]:
        edited = self._edit(message) if self.hits() else message
        return [] if edited is None else [(edited, 0)]


class FaultyStream(Generic[T]):
    """Messages of one stream in, what is left of them out; ``T`` are bytes or sample types.

    ``corrupt(message, random)`` flips a bit and may give None for what cannot be read any more; ``poison(message,
    value, field)`` puts a value that is no number in. Faults of other streams are left to others.
    """

    def __init__(
        self,
        name: str,
        faults: Iterable[Any],
        rate: float,
        seed: int,
        corrupt: Callable[[T, np.random.Generator], T | None],
        poison: Callable[[T, float, str], T],
    ) -> None:
        self._corrupt, self._poison = corrupt, poison
        self._passages: list[tuple[int, Any]] = []
        for index, fault in enumerate(faults):
            if getattr(fault, "stream", "") == name or NODES.get(getattr(fault, "node", "")) == name:
                random = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode()), index]))
                self._passages.append((first_sample(fault, rate), self._passage(fault, rate, random)))
        self._queue: deque[tuple[int, T]] = deque()

    def put(self, sample: int, message: T) -> None:
        """``message`` is sent at ``sample``."""
        messages = [(message, 0)]
        for first, passage in self._passages:
            if sample >= first:
                messages = [
                    (changed, late + more) for sent, late in messages for changed, more in passage.pass_on(sent)
                ]
        for changed, late in messages:
            # a stream is reliable and in order: nothing overtakes what is late
            due = max(sample + late, self._queue[-1][0] if self._queue else 0)
            self._queue.append((due, changed))

    def take(self, sample: int) -> list[T]:
        """What has arrived by ``sample``, in order of arrival."""
        arrived = []
        while self._queue and self._queue[0][0] <= sample:
            arrived.append(self._queue.popleft()[1])
        return arrived

    def _passage(self, fault: Any, rate: float, random: np.random.Generator) -> Passage:
        if isinstance(fault, Slow):
            samples = math.ceil(fault.seconds * rate - _ROUNDING)
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
        kinds: dict[type, type[Any]] = {
            Drop: _Dropping,
            Delay: _Delaying,
            Duplicate: _Duplicating,
            Reorder: _Reordering,
        }
        passage: Passage = kinds[type(fault)](fault)
        return passage


_ROUNDING = 1e-9


def first_sample(fault: Any, rate: float) -> int:
    """The first sample of ``fault`` at ``rate`` Hz."""
    return math.ceil(fault.time * rate - _ROUNDING)


def flip_bit(data: bytes, random: np.random.Generator) -> bytes:
    """``data`` with one bit flipped."""
    position = int(random.integers(8 * len(data)))
    flipped = bytearray(data)
    flipped[position // 8] ^= 1 << position % 8
    return bytes(flipped)


# -- sensors ----------------------------------------------------------------------------------------------


class FaultyPort:
    """A port whose sensors fail; everything else is that of ``port``.

    Raises ConfigError for an axis that the rig does not have.
    """

    def __init__(self, port: Port, faults: Iterable[Any], axes: Sequence[str], rate: float) -> None:
        self._port = port
        self._rate = rate
        self._axes = list(axes)
        self._faults = [fault for fault in faults if _of_sensors(fault)]
        self._last: dict[str, Array] = {}
        for fault in self._faults:
            if getattr(fault, "axis", self._axes[0]) not in self._axes:
                raise unknown("fault", "axis", fault.axis, self._axes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def read(self) -> Measurement:
        """What the sensors show."""
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
                field = fault.field or "displacement"
                setattr(measured, field, np.full_like(getattr(measured, field), float(fault.value)))
            return
        axis = self._axes.index(fault.axis)
        shown = getattr(measured, fault.channel)
        if isinstance(fault, SensorSpike):
            shown[axis] += fault.size if since == 0 else 0.0
        elif fault.seconds is None or since < fault.seconds * self._rate:
            shown[axis] = self._last.get(fault.channel, shown)[axis]


def _of_sensors(fault: Any) -> bool:
    return isinstance(fault, (SensorStuck, SensorSpike)) or (
        isinstance(fault, NotANumber) and fault.stream == "measurement"
    )
