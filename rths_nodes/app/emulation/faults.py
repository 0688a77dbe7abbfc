# SPDX-License-Identifier: Apache-2.0
"""Deliberate faults of an emulated rig.

A misbehaviour of the rig or its network is written KIND@SAMPLE or KIND@SAMPLE:N. A planted fault is not reported:
commissioning must detect it.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_CLOSED, Array
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.receiver import ReceiverLimits

LOSE, MUTE, DUPLICATE, REORDER, DELAY, DIE, FREEZE, SESSION, GARBAGE, INTERLOCK, HYDRAULICS = (
    *("lose", "mute", "duplicate", "reorder", "delay", "die", "freeze", "session", "garbage", "interlock"),
    "hydraulics",
)
PRESSURES = ("off", "low", "high")
MISBEHAVIOURS = {
    LOSE: (1, "N commands are lost on the way to the rig"),
    MUTE: (1, "N states are lost on the way to the test computer"),
    DUPLICATE: (1, "N datagrams arrive twice, in both directions"),
    REORDER: (2, "N datagrams arrive in pairs in reverse order, in both directions"),
    DELAY: (1, "from this sample on, commands arrive N ticks late"),
    DIE: (0, "the process exits without a message"),
    FREEZE: (0, "the rig and the receiver freeze for N ticks; 0: for ever"),
    SESSION: (1, "N states have the number of another session"),
    GARBAGE: (1, "N datagrams of random bytes are inserted, in both directions"),
    INTERLOCK: (0, "the interlock of the rig opens"),
    HYDRAULICS: (0, "the pressure is switched to N (0: off, 1: low, 2: high)"),
}
"""Default N and meaning of each kind of fault."""
_LONGEST = 1_000_000
_WORDS = re.compile(r"(\w+)@(\d{1,9})(?::(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class Misbehaviour:
    kind: str
    sample: int
    count: int


def parse(text: str) -> Misbehaviour:
    match = _WORDS.fullmatch(text)
    if not match:
        raise ConfigError(f"--misbehave = {show(text)}: must be KIND@SAMPLE or KIND@SAMPLE:N, e.g. lose@100:3")
    kind, sample, count = match.groups()
    if kind not in MISBEHAVIOURS:
        raise unknown("--misbehave", "kind", kind, MISBEHAVIOURS)
    number = MISBEHAVIOURS[kind][0] if count is None else int(count)
    if kind == HYDRAULICS and number >= len(PRESSURES):
        raise ConfigError(f"--misbehave = {show(text)}: N must be <= {len(PRESSURES) - 1}")
    if number > _LONGEST:
        raise ConfigError(f"--misbehave = {show(text)}: N must be <= {_LONGEST}")
    return Misbehaviour(kind, int(sample), number)


Came = tuple[bytes, int]
"""Datagram, and the sender's address and port encoded as one number."""


class Saboteur:
    def __init__(self, plans: Sequence[Misbehaviour]) -> None:
        self._plans = plans
        self._late: deque[tuple[int, Came]] = deque()
        self._kept: dict[str, Came] = {}
        self._done: Counter[tuple[str, Misbehaviour]] = Counter()
        self._random = random.Random(1)

    def _happens(self, kind: str, sample: int, way: str) -> bool:
        for plan in self._plans:
            if plan.kind == kind and sample >= plan.sample and self._done[way, plan] < plan.count:
                self._done[way, plan] += 1
                return True
        return False

    def incoming(self, sample: int, received: Iterable[Came]) -> list[Came]:
        passed = [datagram for came in received for datagram in self._way("in", sample, came, LOSE)]
        delays = [plan.count for plan in self._plans if plan.kind == DELAY and sample >= plan.sample]
        if not delays and not self._late:
            return passed
        self._late.extend((sample + max(delays, default=0), came) for came in passed)
        due = [came for at, came in self._late if at <= sample]
        self._late = deque((at, came) for at, came in self._late if at > sample)
        return due

    def outgoing(self, sample: int, data: bytes) -> list[bytes]:
        if self._happens(SESSION, sample, "out"):
            head = datagrams.head_of(data)
            head.session ^= 1
            data = datagrams.packed(head, data[datagrams.HEAD.size : -datagrams.CHECKSUM.size])
        return [sent for sent, _ in self._way("out", sample, (data, 0), MUTE)]

    def _way(self, way: str, sample: int, came: Came, loss: str) -> list[Came]:
        if self._happens(loss, sample, way):
            return []
        kept = self._kept.pop(way, None)
        if kept is not None:
            return [came, kept]
        if self._happens(REORDER, sample, way):
            self._kept[way] = came
            return []
        more = [came] if self._happens(DUPLICATE, sample, way) else []
        if self._happens(GARBAGE, sample, way):
            more.append((self._random.randbytes(self._random.randrange(2 * datagrams.LARGEST)), came[1]))
        return [came, *more]

    def frozen(self, sample: int) -> float:
        """Return the number of ticks to freeze at tick ``sample``, or infinity. Exit if the process must die."""
        for plan in self._plans:
            if plan.sample == sample and plan.kind == DIE:
                os._exit(1)
            if plan.sample == sample and plan.kind == FREEZE:
                return plan.count or math.inf
        return 0.0

    def interlock_open(self, sample: int) -> bool:
        return any(plan.kind == INTERLOCK and sample >= plan.sample for plan in self._plans)

    def pressure(self, sample: int) -> str:
        levels = [plan.count for plan in self._plans if plan.kind == HYDRAULICS and plan.sample == sample]
        return PRESSURES[levels[-1]] if levels else ""


BRAKING, HARD, STROKE, VELOCITY, WATCHDOG, ENDLESS, BRIDGE, SWAPPED, SIGN, DEAD_INTERLOCK, JUMP = (
    *("longer_braking", "hard_braking", "wider_stroke", "wider_velocity", "dead_watchdog", "endless_bridge"),
    *("longer_bridge", "swapped_axes", "wrong_sign", "dead_interlock", "jump_on_pressure"),
)
PLANTED = {
    BRAKING: "the receiver brakes with half of the deceleration that it states",
    HARD: "the receiver brakes with twice the deceleration that it states",
    STROKE: "the stroke limit of the receiver is a fifth wider than stated",
    VELOCITY: "the velocity limit of the receiver is twice the stated limit",
    WATCHDOG: "the receiver brakes if a command is missing, but continues with the next command, however late",
    ENDLESS: "the receiver continues for ever with constant velocity if commands are missing",
    BRIDGE: "the receiver bridges twice as many samples as it states",
    SWAPPED: "the displacement sensors of the first two axes are swapped",
    SIGN: "the displacement sensor of the first axis has the wrong sign",
    DEAD_INTERLOCK: "the receiver ignores the interlock",
    JUMP: "after pressure returns, the actuators are 1 mm away from their commands",
}
FACTORS = {BRAKING: ("acceleration", 0.5), HARD: ("acceleration", 2.0), STROKE: ("stroke", 1.2)}
FACTORS |= {VELOCITY: ("velocity", 2.0)}
JUMP_M = 1e-3
LONGEST_S = 9.9
"""Longest possible timeout of a receiver's watchdog, s. ``rths_init`` refuses 10 s and more."""


class Planted:
    """Applies planted faults. Raises ConfigError for an unknown fault, or swapped axes on a rig with one."""

    def __init__(self, kinds: Sequence[str], n_axes: int) -> None:
        for kind in kinds:
            if kind not in PLANTED:
                raise unknown("--plant", "fault", kind, PLANTED)
        if SWAPPED in kinds and n_axes < 2:
            raise ConfigError(f"--plant = {SWAPPED!r}: requires a rig with at least two axes")
        self._kinds = frozenset(kinds)
        self._pressure = HYDRAULICS_NOT_TOLD
        self._off = 0.0

    def limits(self, stated: Sequence[ReceiverLimits]) -> list[ReceiverLimits]:
        limits = list(stated)
        for kind, (name, factor) in FACTORS.items():
            if kind in self._kinds:
                limits = [row._replace(**{name: factor * getattr(row, name)}) for row in limits]
        return limits

    def waits(self, bridged: int, watchdog: int, dt: float) -> tuple[int, int]:
        """Return the samples that the receiver bridges, and those after which it ends the session."""
        longest = int(LONGEST_S / dt)
        if ENDLESS in self._kinds:
            return longest, longest + 1
        if WATCHDOG in self._kinds:
            return bridged, longest
        return (2 * bridged, watchdog + bridged) if BRIDGE in self._kinds else (bridged, watchdog)

    def answer(self, data: bytes, stated: Sequence[ReceiverLimits], bridged: int, watchdog: int) -> bytes:
        if not self._kinds & {*FACTORS, WATCHDOG, ENDLESS, BRIDGE}:
            return data
        head, start = datagrams.head_of(data), datagrams.HEAD.size
        rows = b""
        for index, limits in enumerate(stated):
            active = datagrams.ANSWER_ROW.unpack_from(data, start + index * datagrams.ANSWER_ROW.size)[:2]
            shown = (limits.stroke, limits.velocity, limits.acceleration, limits.force, limits.error)
            rows += datagrams.ANSWER_ROW.pack(*active, *shown)
        end = datagrams.ANSWER_END.unpack_from(data, start + len(rows))
        behind = data[start + len(rows) + datagrams.ANSWER_END.size : -datagrams.CHECKSUM.size]
        return datagrams.packed(head, rows + datagrams.ANSWER_END.pack(bridged, watchdog, *end[2:]) + behind)

    def shows(self, sensors: ctypes.Structure) -> None:
        shown = sensors.displacement
        if SIGN in self._kinds:
            shown[0] = -shown[0]
        if SWAPPED in self._kinds:
            shown[0], shown[1] = shown[1], shown[0]
        if DEAD_INTERLOCK in self._kinds:
            sensors.interlock = INTERLOCK_CLOSED

    def leads(self, command: Array, hydraulics: int) -> Array:
        if JUMP not in self._kinds:
            return command
        if self._pressure == HYDRAULICS_OFF != hydraulics:
            self._off = JUMP_M
        self._pressure = hydraulics
        return np.asarray(command + self._off)
