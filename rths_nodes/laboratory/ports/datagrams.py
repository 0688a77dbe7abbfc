# SPDX-License-Identifier: Apache-2.0
"""Layout of the datagrams between the test computer and a rig, in both directions.

A datagram consists of a header, a row for each axis, the auxiliary channels as reals, and a checksum (CRC-32 of
the preceding bytes). All numbers are little-endian, and reals are IEEE 754 binary64.
``examples/udp_target/rths_target.h`` has the same layout in C. Tests compare the two layouts.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from rths_nodes.core.samples import EMPTY, MODE_DISPLACEMENT, Array

MAGIC, VERSION = 0x53485452, 2

OPEN, BEGIN, COMMAND, CLOSE, ANSWER, STATE = 1, 2, 3, 4, 17, 18
"""Kinds of datagrams. The rig sends ANSWER and STATE, the test computer the others."""

EMULATOR, LOCKSTEP, RAMP, BRIDGED, LIMITED, SATURATED, TRIGGER, NEWTONS, WARNING = (1 << bit for bit in range(9))

IDLE, WAITING, RUNNING, BRAKING, STOPPED = range(5)

REASONS = {
    0: "no reason reported",
    1: "no command came in time",
    2: "the session was closed",
    3: "the interlock of the rig is open",
    4: "another session is open, or has ended: an operator must begin a new one at the rig",
    5: "it uses another version of the datagrams",
    6: "it has another number of axes",
    7: "it has another servo rate",
    8: "it does not support this transport_samples",
    9: "it has other auxiliary inputs",
    10: "its controller follows the command differently within a sample (hold)",
    11: "its tick does not wait for commands",
    12: "one end is an emulator, but the other expects a rig",
    13: "it has no digital output for other data acquisition (trigger)",
    14: "a measured force exceeds the limit of the receiver",
    15: "the difference of command and measured displacement exceeds the limit of the receiver",
    16: "the session has reached the end of its counter",
    17: "no axis accepts commands in N",
    18: "the difference of command and measured force exceeds the limit of the receiver",
    19: "a force loop has moved its axis further than stiffness and drift explain: "
    "the specimen or the load cell has failed",
    20: "a controller is not in the commanded mode",
    21: "the value of a load cell has not changed for too long",
}
"""Reasons why a receiver stops the rig or refuses a session."""

ANSWER_ROW, COMMAND_ROW, STATE_ROW = struct.Struct("<7d"), struct.Struct("<ddB7x"), struct.Struct("<dddBB6x")
"""Layouts of a row, which describes one axis. An answer has the active command (m), its velocity (m/s), and the
fields of :class:`FarLimits`. A command has a value (m), a slope (m/s) and a mode; force mode uses N and N/s. A
state has displacement (m), force (N), active command, mode, and 1 if this command is in N, otherwise 0."""
LOAD_ROW = struct.Struct("<3d")
"""Fields of :class:`FarLoad` for an axis, at the end of an answer if commands in N were requested."""
ANSWER_END = struct.Struct("<IIIQ")
"""Numbers after the rows of an answer: bridged samples, watchdog and persistence (samples), and build number."""
CHECKSUM = struct.Struct("<I")
LARGEST_QUEUE = 31
"""Largest transport delay, samples, for which a receiver can store commands."""
LARGEST_AXES = LARGEST_AUXILIARY = 8
LARGEST = 768

LAYOUT = {
    "magic": ("I", "0x53485452, the letters RTHS"),
    "version": ("H", "version of this layout: 2"),
    "kind": ("B", "1 open, 2 begin, 3 command, 4 close; from the rig 17 answer, 18 state"),
    "axes": ("B", "number of axes, 1 to 8"),
    "session": ("I", "number of the session, not 0; random for each test"),
    "counter": (
        "I",
        "state, command: number of the sample; open: number of the datagram; answer: number of ticks so far",
    ),
    "heard": ("I", "newest counter received from the other end; in an answer, the counter of the open datagram"),
    "period": ("I", "period of the tick, ns"),
    "flags": (
        "H",
        "1 emulator, 2 lockstep, 4 ramp, 8 bridged, 16 limited, 32 saturated, 64 trigger, 128 newtons, "
        "256 warning",
    ),
    "transport": ("B", "number of samples after which a command takes effect"),
    "auxiliary": ("B", "number of auxiliary channels after the axes, 0 to 8"),
    "state": ("B", "0 idle, 1 waiting, 2 running, 3 braking, 4 stopped; 0 from the test computer"),
    "reason": ("B", "reason of a stop or a refusal; 0 from the test computer"),
    "hydraulics": ("B", "0 unknown, 1 off, 2 low, 3 high; 0 from the test computer"),
    "interlock": ("B", "0 unknown, 1 closed, 2 open; 0 from the test computer"),
}
"""Fields of the header: name -> type (as in ``struct``) and meaning."""
HEAD = struct.Struct("<" + "".join(kind for kind, _ in LAYOUT.values()))
_NUMBERS = attrgetter(*list(LAYOUT)[2:])


@dataclass(slots=True)
class Head:
    """Header of a datagram, without the constant fields magic and version."""

    kind: int
    axes: int
    session: int
    counter: int = 0
    heard: int = 0
    period: int = 0
    flags: int = 0
    transport: int = 0
    auxiliary: int = 0
    state: int = 0
    reason: int = 0
    hydraulics: int = 0
    interlock: int = 0


def reason_of(reason: int) -> str:
    return REASONS.get(reason, f"reason {reason}")


assert [field.name for field in fields(Head)] == list(LAYOUT)[2:]


class Unreadable(ValueError):
    """Raised for bytes that do not form a datagram of this layout. The message states why.

    ``version`` and ``session`` are 0 unless the datagram has another version of the layout.
    """

    def __init__(self, reason: str, version: int = 0, session: int = 0) -> None:
        super().__init__(reason)
        self.version, self.session = version, session


def packed(head: Head, rows: bytes = b"") -> bytes:
    body = HEAD.pack(MAGIC, VERSION, *_NUMBERS(head)) + rows
    return body + CHECKSUM.pack(zlib.crc32(body))


def head_of(data: bytes) -> Head:
    """Return the header of a complete datagram. Raises Unreadable if ``data`` is not such a datagram."""
    if not HEAD.size + CHECKSUM.size <= len(data) <= LARGEST:
        raise Unreadable(f"wrong length, {len(data)} bytes")
    magic, version, *values = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Unreadable("the datagram does not begin with RTHS")
    if CHECKSUM.unpack_from(data, len(data) - CHECKSUM.size)[0] != zlib.crc32(data[: -CHECKSUM.size]):
        raise Unreadable("wrong checksum")
    head = Head(*values)
    if version != VERSION:
        raise Unreadable(f"the version is {version}; must be {VERSION}", version, head.session)
    return head


@dataclass(slots=True)
class RigState:
    """State of a rig at one tick.

    ``command`` ``(n_axes,)`` is the active command, in N for axes whose ``in_newtons`` is 1, otherwise in m.
    """

    head: Head
    displacement: Array
    force: Array
    command: Array
    modes: bytes
    in_newtons: bytes
    auxiliary: Array


def state_of(data: bytes, head: Head) -> RigState:
    axes, end = head.axes, HEAD.size + head.axes * STATE_ROW.size
    if not axes or len(data) != end + 8 * head.auxiliary + CHECKSUM.size:
        raise Unreadable(f"a length of {len(data)} bytes does not match {axes} axes and {head.auxiliary} channels")
    rows = [STATE_ROW.unpack_from(data, HEAD.size + i * STATE_ROW.size) for i in range(axes)]
    displacement, force, command, modes, newtons = zip(*rows, strict=True)
    channels = np.frombuffer(data, "<f8", head.auxiliary, end).astype(float) if head.auxiliary else EMPTY
    seen = np.array(displacement), np.array(force), np.array(command)
    return RigState(head, *seen, bytes(modes), bytes(newtons), channels)


class FarLimits(NamedTuple):
    """Limits of a receiver for one axis, in units of its datagrams. ``inf`` means no limit."""

    stroke: float
    velocity: float
    acceleration: float
    force: float
    error: float
    """Largest magnitude of command minus measured displacement."""

    def times(self, command: float, force: float) -> FarLimits:
        """Return the limits in SI units. ``command`` and ``force`` are the datagram units, in m and in N."""
        units = (command, command, command, force, command)
        return FarLimits(*(limit * unit for limit, unit in zip(self, units, strict=True)))


class FarLoad(NamedTuple):
    """Limits of a receiver for force commands of one axis, in units of its datagrams.

    The axis accepts no force commands if ``rate`` is 0.
    """

    rate: float
    error: float
    """Largest magnitude of command minus measured force."""
    travel: float
    """Largest distance of the axis from the position that stiffness and drift explain."""

    def times(self, command: float, newtons: float) -> FarLoad:
        return FarLoad(newtons * self.rate, newtons * self.error, command * self.travel)


@dataclass(slots=True)
class Answer:
    """Answer of a receiver, in units of its datagrams. ``loads`` is empty unless commands in N were requested."""

    active: list[float]
    limits: list[FarLimits]
    loads: list[FarLoad]
    bridged: int
    watchdog: int
    persistence: int
    build: int


def answer_of(data: bytes, head: Head) -> Answer:
    end = HEAD.size + head.axes * ANSWER_ROW.size
    rest, loaded = end + ANSWER_END.size, head.axes if head.flags & NEWTONS else 0
    if len(data) != rest + loaded * LOAD_ROW.size + CHECKSUM.size:
        raise Unreadable(f"a length of {len(data)} bytes does not match an answer for {head.axes} axes")
    rows = [ANSWER_ROW.unpack_from(data, HEAD.size + i * ANSWER_ROW.size) for i in range(head.axes)]
    limits = [FarLimits(*row[2:]) for row in rows]
    loads = [FarLoad(*LOAD_ROW.unpack_from(data, rest + i * LOAD_ROW.size)) for i in range(loaded)]
    return Answer([row[0] for row in rows], limits, loads, *ANSWER_END.unpack_from(data, end))


def command_rows(command: list[float], slope: list[float], auxiliary: Array, modes: bytes = b"") -> bytes:
    """Return the rows of the commands (m, or N) and their slopes (per s), followed by the auxiliary inputs.

    ``modes`` has one byte per axis: MODE_FORCE if its command is in N. If empty, all commands are in m.
    """
    modes = modes or bytes([MODE_DISPLACEMENT]) * len(command)
    rows = [COMMAND_ROW.pack(*row) for row in zip(command, slope, modes, strict=True)]
    return b"".join(rows) + struct.pack(f"<{len(auxiliary)}d", *auxiliary)


def between(before: RigState, after: RigState, counter: int) -> RigState:
    """Return a substitute for the lost state ``counter``, interpolated between ``before`` and ``after``."""
    other_unit = [a != b for a, b in zip(before.in_newtons, after.in_newtons, strict=True)]
    before_command = np.where(other_unit, after.command, before.command)
    share = (counter - before.head.counter) / max(after.head.counter - before.head.counter, 1)
    flags = BRIDGED | (before.head.flags & TRIGGER)
    return RigState(
        replace(before.head, counter=counter, heard=0, flags=flags, state=IDLE, reason=0),
        before.displacement + share * (after.displacement - before.displacement),
        before.force + share * (after.force - before.force),
        before_command + share * (after.command - before_command),
        before.modes,
        after.in_newtons,
        before.auxiliary + share * (after.auxiliary - before.auxiliary),
    )
