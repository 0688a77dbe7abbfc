# SPDX-License-Identifier: Apache-2.0
"""Deliberate faults of an emulated rig or its network, written KIND@SAMPLE or KIND@SAMPLE:N."""

from __future__ import annotations

import math
import os
import random
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.laboratory.ports import datagrams

LOSE, MUTE, DUPLICATE, REORDER, DELAY, DIE, FREEZE, SESSION, GARBAGE, INTERLOCK, HYDRAULICS = (
    *("lose", "mute", "duplicate", "reorder", "delay", "die", "freeze", "session", "garbage", "interlock"),
    "hydraulics",
)
PRESSURES = ("off", "low", "high")
KINDS = {
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
    if kind not in KINDS:
        raise unknown("--misbehave", "kind", kind, KINDS)
    number = KINDS[kind][0] if count is None else int(count)
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
        """Return the number of ticks to freeze at tick ``sample``: 0 for no freeze, infinity for ever.

        Exit if the process must die at this tick.
        """
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
