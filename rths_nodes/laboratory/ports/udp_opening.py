"""The opening of a session: both ends agree before anything moves, or the test is refused with the reason."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass, replace

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, Unreadable
from rths_nodes.laboratory.ports.udp_link import GARBAGE, UdpLink

log = logging.getLogger(__name__)

AGAIN_S = 0.02
"""After so long without an answer a datagram is sent again, where the rig waits for it."""
PROBES, PROBING_S = 64, 1.0
"""Exchanges, and s, after which the way there and back is known."""
NO_LOCKSTEP, WRONG_AXES, WRONG_PERIOD, WRONG_EMULATOR = 11, 6, 7, 12
"""Reasons of a rig to refuse."""


@dataclass(frozen=True)
class Terms:
    """What a test declares of its rig: ``head`` as every datagram has it, the rest as in the port's parameters."""

    head: Head
    axes: tuple[str, ...]
    channels: tuple[str, ...]
    emulator: bool
    ramp: bool
    trigger: bool
    start_tolerance: float
    connect_within: float
    dt: float


class Opening:
    """Opens the session of ``link`` on ``terms``, in lockstep where that is ``wanted`` and the rig can do it.

    ``active`` are the controller's active commands, m. Raises ConfigError where the two ends do not agree.
    """

    def __init__(self, link: UdpLink, terms: Terms, lockstep: bool) -> None:
        self._link, self._terms, self._number = link, terms, 0
        self.in_lockstep = lockstep
        transport = terms.head.transport
        head, data = self._ask()
        if head.reason == NO_LOCKSTEP and transport > 1:
            self.in_lockstep = False
            head, data = self._ask()
        if reason := self._objection(head):
            raise ConfigError(f"port 'udp' at {link.place}: refused: {reason}")
        try:
            self.active = datagrams.active_of(data, head)
        except Unreadable as error:
            raise ConfigError(f"port 'udp' at {link.place}: its answer makes no sense: {error}") from error
        allowed = terms.start_tolerance
        for name, command in zip(terms.axes, self.active, strict=True):
            if not abs(command) <= allowed:
                raise ConfigError(
                    f"axes.{name}: the active command of the controller = {command:.6g} m: must be within "
                    f"+- {allowed:g} m (port.start_tolerance): the first command would be a jump from there"
                )
        if not self.in_lockstep:
            self._check_transport(head.counter, transport)

    def _ask(self) -> tuple[Head, bytes]:
        """The answer to an OPEN, which is sent until one comes. Raises ConfigError where none does."""
        terms, link = self._terms, self._link
        self._number += 1
        flags = datagrams.EMULATOR if terms.emulator else 0
        flags |= datagrams.LOCKSTEP if self.in_lockstep else 0
        flags |= datagrams.RAMP if terms.ramp else 0
        flags |= datagrams.TRIGGER if terms.trigger else 0
        asked = replace(terms.head, kind=datagrams.OPEN, counter=self._number, flags=flags)
        end = time.monotonic() + terms.connect_within
        while (now := time.monotonic()) < end:
            link.send(asked)
            until = min(now + AGAIN_S + 2.0 * terms.dt, end)
            while (left := until - time.monotonic()) > 0.0:
                link.wait(left)
                for head, data in link.received():
                    if head.kind == datagrams.ANSWER and head.heard == self._number:
                        return head, data
        other = link.counts[GARBAGE]
        spoken = f"; {other} datagrams came that are none of this version" if other else ""
        raise ConfigError(
            f"port 'udp' at {link.place}: cannot connect: no answer within {terms.connect_within:g} s: "
            f"is the rig, or rths emulate, running there?{spoken}"
        )

    def _objection(self, head: Head) -> str:
        """Why the two ends do not go together, in words; empty where they do."""
        terms = self._terms
        axes = f"{head.axes} there, {len(terms.axes)} here"
        differ = {WRONG_AXES: axes, WRONG_PERIOD: f"period {head.period} ns there, {terms.head.period} ns here"}
        is_emulator = bool(head.flags & datagrams.EMULATOR)
        if head.reason == NO_LOCKSTEP:
            return (
                "the rig has a clock of its own: pace must be realtime (hosts composed and processes); the host "
                "embedded needs port.transport_samples >= 2 declared, for it computes much between some samples"
            )
        if head.reason == WRONG_EMULATOR or is_emulator != terms.emulator:
            there = "an emulator" if is_emulator else "a rig that is no emulator"
            return f"port.emulator = {str(terms.emulator).lower()}: but {there} has answered"
        if head.reason:
            words = datagrams.REASONS.get(head.reason, f"reason {head.reason}")
            return f"{words} ({differ[head.reason]})" if head.reason in differ else words
        if head.axes != len(terms.axes):
            return f"{datagrams.REASONS[WRONG_AXES]} ({axes})"
        if head.auxiliary != len(terms.channels):
            here = ", ".join(terms.channels) or "none"
            return f"it measures {head.auxiliary} auxiliary channels; declared here: {here}"
        return ""

    def _check_transport(self, ticks: int, declared: int) -> None:
        """Raises ConfigError where the way there and back takes longer than declared; the rig counts the ticks."""
        found: list[int] = []
        end = time.monotonic() + PROBING_S
        while len(found) < PROBES and (time.monotonic() < end or len(found) < 3):
            head, _ = self._ask()
            found.append(max(head.counter - ticks, 1))
            ticks = head.counter
        needed, worst = round(statistics.median_high(found)), max(found)
        if needed > declared:
            raise ConfigError(
                f"port.transport_samples = {declared}: the way to the rig at {self._link.place} and back takes "
                f"{needed} samples (median of {len(found)}; at most {worst}): must be >= {needed}"
            )
        if worst > declared:
            longer = sum(each > declared for each in found)
            log.warning(
                "port.transport_samples = %d: %d of %d exchanges with the rig took longer, up to %d samples: such "
                "commands are bridged there",
                *(declared, longer, len(found), worst),
            )
