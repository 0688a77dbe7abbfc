# SPDX-License-Identifier: Apache-2.0
"""The opening of a session: both ends agree before any motion, or the test is refused with the reason."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.port_readings import FarEnd
from rths_nodes.laboratory.calibration import Gains, limits_of_rig
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Answer, FarLimits, FarLoad, Head, Unreadable
from rths_nodes.laboratory.ports.link import GARBAGE, Link

log = logging.getLogger(__name__)

AGAIN_S = 0.02
"""s; interval of repeating an unanswered datagram that the rig waits for."""
PROBES, PROBING_S = 64, 1.0
"""Exchanges, and s, to measure the round trip."""
NO_LOCKSTEP, WRONG_AXES, WRONG_PERIOD, WRONG_EMULATOR = 11, 6, 7, 12
"""Reasons of a rig to refuse."""
_ROUNDING = 1.0 + 1e-6
_SAME = 0.01
"""Share by which the braking of a receiver may differ from the declared deceleration."""


@dataclass(frozen=True)
class Terms:
    """Terms of a test on its rig: ``head`` is common to all datagrams, the rest as in the port's parameters."""

    head: Head
    axes: tuple[str, ...]
    limits: tuple[Limits, ...]
    gains: tuple[Gains, ...]
    """Factors from the numbers in the datagrams to SI."""
    loads: tuple[FarLoad | None, ...]
    """Limits of the axes with a force loop in the controller, SI; None for the others."""
    channels: tuple[str, ...]
    emulator: bool
    ramp: bool
    trigger: bool
    start_tolerance: float
    connect_within: float
    dt: float


class Opening:
    """Opens the session of ``link`` on ``terms``, in lockstep if ``wanted`` and supported by the rig.

    ``answer`` is the answer of the receiver; ``can_warn``: it has a warning output. Raises ConfigError if the two
    ends do not agree.
    """

    def __init__(self, link: Link, terms: Terms, lockstep: bool) -> None:
        self._link, self._terms, self._number = link, terms, 0
        self._address = link.transport.address
        self.in_lockstep = lockstep
        transport = terms.head.transport
        head, data = self._ask()
        if head.reason == NO_LOCKSTEP and transport > 1:
            self.in_lockstep = False
            head, data = self._ask()
        if reason := self._objection(head):
            raise ConfigError(f"{link.label}: refused: {reason}")
        self.can_warn = bool(head.flags & datagrams.WARNING)
        try:
            self.answer = datagrams.answer_of(data, head)
        except Unreadable as error:
            raise ConfigError(f"{link.label}: its answer makes no sense: {error}") from error
        self._check_start()
        self._check_limits()
        self._check_loads(head)
        if not self.in_lockstep:
            self._check_transport(head.counter, transport)

    def _check_start(self) -> None:
        allowed = self._terms.start_tolerance
        for name, active, gains in zip(self._terms.axes, self.answer.active, self._terms.gains, strict=True):
            command = active * gains.command
            if not abs(command) <= allowed:
                raise ConfigError(
                    f"axes.{name}: the active command of the controller = {command:.6g} m: must be within "
                    f"+- {allowed:g} m (port.start_tolerance): the first command would be a jump from there"
                )

    def _check_limits(self) -> None:
        terms, wider = self._terms, list[str]()
        for name, declared, told, gains in zip(
            terms.axes, terms.limits, self.answer.limits, terms.gains, strict=True
        ):
            found = told.times(abs(gains.command), abs(gains.force))
            wider += [f"axes.{name}.limits.{words}" for words in _wider(declared, found)]
            if not terms.emulator and math.isinf(found.error):
                log.warning(
                    "axes.%s: the receiver at %s does not watch how far the rig is off",
                    name,
                    self._address,
                )
        if wider:
            raise ConfigError(*(f"{each} at {self._address}" for each in wider))

    def _check_loads(self, head: Head) -> None:
        """Raise ConfigError if the controller cannot close its force loops, or not within their limits."""
        terms, place = self._terms, self._address
        if any(terms.loads) and not head.flags & datagrams.NEWTONS:
            raise ConfigError(
                f"{self._link.label}: refused: its receiver takes no commands in N: put examples/udp_target of "
                "this package onto the target"
            )
        found: list[str] = []
        rows = (
            zip(terms.axes, terms.loads, self.answer.loads, terms.gains, strict=True) if any(terms.loads) else ()
        )
        for name, declared, told, gains in rows:
            if declared is None:
                continue
            if not told.rate:
                found.append(
                    f"axes.{name}.force_control.closed_by = 'controller': there is no force loop on this axis"
                )
                continue
            far = told.times(abs(gains.command), abs(gains.newtons))
            for path, unit, ours, there in (
                ("limits.force_rate", "N/s", declared.rate, far.rate),
                ("limits.force_error", "N", declared.error, far.error),
                ("force_control.largest_correction", "m", declared.travel, far.travel),
            ):
                if not there <= ours * _ROUNDING:
                    words = f"wider is that of the receiver, {there:.6g} {unit},"
                    found.append(f"axes.{name}.{path} = {ours:.6g} {unit}: {words}")
        if found:
            raise ConfigError(*(f"{each} at {place}" for each in found))

    def _ask(self) -> tuple[Head, bytes]:
        """Send OPEN until an answer comes, and return that. Raises ConfigError without one."""
        terms, link = self._terms, self._link
        self._number += 1
        flags = datagrams.EMULATOR if terms.emulator else 0
        flags |= datagrams.LOCKSTEP if self.in_lockstep else 0
        flags |= datagrams.RAMP if terms.ramp else 0
        flags |= datagrams.TRIGGER if terms.trigger else 0
        flags |= datagrams.NEWTONS if any(terms.loads) else 0
        asked = replace(terms.head, kind=datagrams.OPEN, counter=self._number, flags=flags)
        end = time.monotonic() + terms.connect_within
        while (now := time.monotonic()) < end:
            link.send(asked)
            until = min(now + AGAIN_S + 2.0 * terms.dt, end)
            while (left := until - time.monotonic()) > 0.0:
                link.transport.wait(left)
                for head, data in link.received():
                    if head.kind == datagrams.ANSWER and head.heard == self._number:
                        link.transport.settle()
                        return head, data
                if link.other_version:
                    raise ConfigError(
                        f"{link.label}: refused: its receiver speaks version "
                        f"{link.other_version} of the datagrams, here is version {datagrams.VERSION}: put "
                        "examples/udp_target of this package onto the target"
                    )
        other = link.counts[GARBAGE]
        spoken = f"; {other} datagrams came that are none of this version" if other else ""
        cause = "is the rig, or rths emulate, running there?"
        if link.other_sender:
            cause = f"answers came from {link.other_sender}: state that as port.address"
        elif link.transport.unsent:
            cause = f"this computer cannot send there: {link.transport.unsent}"
        raise ConfigError(
            f"{link.label}: cannot connect: no answer within {terms.connect_within:g} s: {cause}{spoken}"
        )

    def _objection(self, head: Head) -> str:
        """Return the reason why the two ends do not match; empty if they do."""
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
            words = datagrams.reason_of(head)
            return f"{words} ({differ[head.reason]})" if head.reason in differ else words
        if head.axes != len(terms.axes):
            return f"{datagrams.REASONS[WRONG_AXES]} ({axes})"
        if head.auxiliary != len(terms.channels):
            here = ", ".join(terms.channels) or "none"
            return f"it measures {head.auxiliary} auxiliary channels; declared here: {here}"
        return ""

    def _check_transport(self, ticks: int, declared: int) -> None:
        """Raise ConfigError for a round trip longer than declared; the rig counts the ticks."""
        found: list[int] = []
        end = time.monotonic() + PROBING_S
        while len(found) < PROBES and (time.monotonic() < end or len(found) < 3):
            head, _ = self._ask()
            found.append(max(head.counter - ticks, 1))
            ticks = head.counter
        needed, worst = round(statistics.median_high(found)), max(found)
        if needed > declared:
            raise ConfigError(
                f"port.transport_samples = {declared}: the way to the rig at {self._address} and back takes "
                f"{needed} samples (median of {len(found)}; at most {worst}): must be >= {needed}"
            )
        if worst > declared:
            longer = sum(each > declared for each in found)
            log.warning(
                "port.transport_samples = %d: %d of %d exchanges with the rig took longer, up to %d samples: such "
                "commands are bridged there",
                *(declared, longer, len(found), worst),
            )


def load_of(axis: Any) -> FarLoad | None:
    """Return a receiver's allowed limits for commands in N of an ``axis``; None: it gets none."""
    if not by_controller(axis):
        return None
    limits = limits_of_rig(axis)
    return FarLoad(limits.force_rate or 0.0, limits.force_error or 0.0, axis.force_control.largest_correction)


def stated_of(answer: Answer, gains: Sequence[Gains]) -> FarEnd:
    """Return a receiver's own limits from its ``answer``, SI."""
    rows = [each.times(abs(g.command), abs(g.force)) for each, g in zip(answer.limits, gains, strict=True)]
    stroke, velocity, deceleration, force, error = np.array(rows).T
    return FarEnd(stroke, velocity, deceleration, force, error, answer.bridged, answer.watchdog)


def _wider(declared: Limits, told: FarLimits) -> list[str]:
    """Return the limits of a receiver that are wider than ``declared``, with their values, as texts."""
    found = []
    for key, unit in (("stroke", "m"), ("velocity", "m/s"), ("force", "N")):
        ours, there = getattr(declared, key), getattr(told, key)
        if not there <= ours * _ROUNDING:
            found.append(f"{key} = {ours:.6g} {unit}: wider is that of the receiver, {there:.6g} {unit},")
    ours, there = declared.deceleration, told.acceleration
    if not abs(there - ours) <= _SAME * ours:
        worse = (
            "harder than any stop that is stated" if there > ours else "so that stops take longer than is stated"
        )
        found.append(f"deceleration = {ours:.6g} m/s^2: the receiver brakes at {there:.6g} m/s^2, {worse},")
    return found
