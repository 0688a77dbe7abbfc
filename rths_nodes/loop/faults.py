# SPDX-License-Identifier: Apache-2.0
"""Injected faults, parsed from ``--fault KIND@TIME[:ARGUMENTS]`` (table: doc/faults.md).

:class:`FaultyLoop` is the reference host with faults of message streams and sensors. Unlike in
``loop/embedded.py``, Targets and Commands can be late or lost. The compensator bridges missing Targets, and the
rig bridges missing Commands. Sensor faults change the Measurement. ``ros/hosting/fault_injection.py`` applies
faults to nodes. Faults depend on sample number and seed, not on a clock.
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

from rths_nodes.core.errors import ConfigError, show, unknown, within
from rths_nodes.core.parameter_docs import table
from rths_nodes.core.parameters import Field, integer, number, params, text
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import ROUNDING, Array, Command, Measurement, Target
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import number_in
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import outgoing_of

STREAMS = ("target", "command", "measurement")
NODES = {"integrator": "target", "compensator": "command", "actuator": "measurement"}
PROCESSES = (*NODES, "monitor", "recorder")
CHANNELS = ("displacement", "force")


def _count() -> Field:
    return integer("number of messages", default=1, at_least=1)


def _every() -> Field:
    return integer("length of the repeated pattern, in messages; default: no repetition", default=None, at_least=1)


@params
class Fault:
    time: float = number("time from Measurement 0 until the fault begins", "s", at_least=0.0)


@params
class OfMessages(Fault):
    stream: str = text("affected messages", choices=STREAMS)


@params
class Repeated(OfMessages):
    count: int = _count()
    every: int | None = _every()


@params
class Drop(Repeated):
    """Messages are lost."""


@params
class Delay(OfMessages):
    """Messages are late, and later messages wait for them."""

    samples: int = integer("delay of the messages", "samples", at_least=1, at_most=1_000_000)
    count: int = _count()
    every: int | None = _every()


@params
class Late(OfMessages):
    share: float = number("share of delayed messages", more_than=0.0, at_most=1.0)
    samples: int = integer("delay of the messages", "samples", 1, at_least=1, at_most=1_000_000)


@params
class Duplicate(Repeated):
    """Messages arrive twice."""


@params
class Reorder(Repeated):
    """A message arrives after the next message."""


@params
class Corrupt(Repeated):
    """One bit of a message is flipped. The seed of the scenario selects the bit."""


@params
class NotANumber(OfMessages):
    value: str = text("replacement value", "nan", choices=("nan", "inf", "-inf"))
    field: str = text("affected field of the message; default: displacement, or command in a Command", "")


@params
class Slow(Fault):
    node: str = text("affected node", choices=NODES)
    seconds: float = number("additional computing time per message", "s", more_than=0.0, at_most=60.0)
    count: int = integer("number of slow messages", default=1, at_least=1)


@params
class SensorStuck(Fault):
    axis: str = text("axis of the sensor")
    channel: str = text("affected quantity", choices=CHANNELS)
    seconds: float | None = number(
        "duration of the fault; default: until the end of the test", "s", None, more_than=0.0
    )


@params
class SensorSpike(Fault):
    axis: str = text("axis of the sensor")
    channel: str = text("affected quantity", choices=CHANNELS)
    size: float = number("value added to one sample", "m or N")


@params
class Hydraulics(Fault):
    """The hydraulic pressure changes, as if switched at the pump."""

    pressure: str = text("new value", choices=("off", "low", "high"))


@params
class Interlock(Fault):
    """The interlock of the rig opens."""


@params
class Kill(Fault):
    """A node is killed (SIGKILL)."""

    node: str = text("affected node", choices=PROCESSES)


@params
class Freeze(Fault):
    node: str = text("affected node", choices=PROCESSES)
    seconds: float = number("duration", "s", more_than=0.0, at_most=3600.0)


@params
class DiskFull(Fault):
    """The recorder can no longer write."""


KINDS: dict[str, type] = {
    **{"drop": Drop, "delay": Delay, "late": Late, "duplicate": Duplicate, "reorder": Reorder},
    **{"corrupt": Corrupt, "nan": NotANumber, "slow": Slow},
    **{"sensor_stuck": SensorStuck, "sensor_spike": SensorSpike},
    **{"hydraulics": Hydraulics, "interlock": Interlock},
    **{"kill": Kill, "freeze": Freeze, "disk_full": DiskFull},
}
OF_NODE = (Slow, Kill, Freeze)
OF_AXIS = (SensorStuck, SensorSpike)
NEED_NODES = (Kill, Freeze, DiskFull)
NEED_REAL_TIME = (Delay, Late, Reorder, Slow)
"""Faults without effect in lockstep, where nodes wait for each other."""

POISONED = {
    "target": ("displacement", "velocity", "acceleration", "auxiliary"),
    "command": ("command", "target", "auxiliary"),
    "measurement": ("displacement", "force", "auxiliary"),
}
"""Fields, by stream, in which a fault can insert a value that is not finite. The first field is the default."""


def kind_of(fault: Fault) -> str:
    return next(name for name, cls in KINDS.items() if type(fault) is cls)


def first_sample(fault: Fault, rate: float) -> int:
    return math.ceil(fault.time * rate - ROUNDING)


def stream_of(fault: Fault | None) -> str:
    return NODES[fault.node] if isinstance(fault, Slow) else fault.stream if isinstance(fault, OfMessages) else ""


def node_of(fault: Fault) -> str:
    if isinstance(fault, DiskFull):
        return "recorder"
    return fault.node if isinstance(fault, OF_NODE) else ""


def check(faults: Iterable[Fault], scenario: Scenario, host: str, pace: str, recorded: bool) -> None:
    for fault in faults:
        kind = f"fault {kind_of(fault)}"
        _check_words(kind, fault, scenario)
        if host == "embedded":
            _check_embedded(kind, fault, scenario)
            continue
        if pace == "lockstep" and isinstance(fault, NEED_REAL_TIME):
            raise ConfigError(
                f"{kind}: this fault has no effect in lockstep, because the nodes wait for late messages. Use "
                "pace = realtime"
            )
        if node_of(fault) == "recorder" and not recorded:
            raise ConfigError(f"{kind}: the test is not recorded, so it has no recorder. Record the test")


def _check_words(kind: str, fault: Fault, scenario: Scenario) -> None:
    end = scenario.samples * scenario.dt
    if fault.time >= end:
        raise ConfigError(f"{kind}: time = {show(fault.time, 's')}: must be < {end:g} s, the end of the test")
    if isinstance(fault, NotANumber) and fault.field and fault.field not in POISONED[fault.stream]:
        raise unknown(kind, f"field of a {fault.stream}", fault.field, POISONED[fault.stream])
    if isinstance(fault, (Hydraulics, Interlock)) and not scenario.port.can_be_switched:
        kind_of_port = type(scenario.port).type_name
        raise ConfigError(
            f"{kind}: port.type = {kind_of_port!r} cannot switch pressure or interlock. Use port.type = simulator"
        )
    if isinstance(fault, OF_AXIS) and fault.axis not in scenario.axes:
        raise unknown(kind, "axis", fault.axis, list(scenario.axes))


def _check_embedded(kind: str, fault: Fault, scenario: Scenario) -> None:
    if isinstance(fault, NEED_NODES):
        raise ConfigError(f"{kind}: host = embedded has no nodes. Use host = composed or processes")
    if stream_of(fault) == "measurement" and not isinstance(fault, NotANumber):
        raise ConfigError(
            f"{kind}: host = embedded sends no measurements. Use a fault of target or command, or of a sensor"
        )
    if stream_of(fault) == "target" and scenario.hops.depth and scenario.bridge.pauses:
        raise ConfigError(
            f"{kind}: with host = embedded, no Measurement waits for a Target if hops.depth > 0 and the rig can "
            "pause. Use host = composed or processes"
        )


def parse(text: str) -> Fault:
    head, _, arguments = text.partition(":")
    kind, sign, time = head.partition("@")
    if not sign:
        raise ConfigError(f"fault {text!r}: must be KIND@TIME[:ARGUMENTS]; known: {', '.join(sorted(KINDS))}")
    if kind not in KINDS:
        raise unknown(f"fault {text!r}", "kind", kind, KINDS)
    cls = KINDS[kind]
    fields = {row.name: row.kind for row in table(cls)}
    values = [time, *(arguments.split(",") if arguments else ())]
    if len(values) > len(fields):
        arguments_known = ", ".join(list(fields)[1:]) or "no arguments"
        raise ConfigError(f"fault {text!r}: too many arguments; {kind}@TIME takes {arguments_known}")
    pairs = zip(fields.items(), values, strict=False)
    with within(f"fault {text!r}"):
        data = {name: word.strip() if kind == "text" else number_in(word) for (name, kind), word in pairs}
        return from_data(cls, data)


T = TypeVar("T")
S = TypeVar("S", Target, Command, Measurement)


Passage = Callable[[T], list[tuple[T, int]]]
"""Function that applies one fault. It maps a message to the resulting messages and their delays in samples."""


class FaultyStream(Generic[T]):
    """Applies ``faults`` to the message stream ``name``. ``T`` is the message type: bytes or a sample type.

    Faults of other streams are ignored. ``corrupt(message, random)`` returns the message with a flipped bit, or
    None if the result is unreadable. ``poison(message, value, field)`` returns the message with a value that is
    not finite.
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
            # the stream preserves the order of messages, so a late message delays later ones
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
            except ValueError as lost:  # in a node, this error terminates the node and thus the test
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
        """Always true, because :meth:`_command` refuses Commands beyond a limit before faults change them."""
        return True

    def _to_rig(self, command: Command | None, before: Measurement) -> tuple[Command | None, Measurement]:
        made, measured = command, self._tick(command)
        while measured is None:  # the rig pauses until a late Command arrives or the operator continues the test
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
