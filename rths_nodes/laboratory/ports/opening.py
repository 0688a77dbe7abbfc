# SPDX-License-Identifier: Apache-2.0
"""Opening of a session: both ends agree before any motion, or the test is refused with the reason."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
"""Interval for repeating an unanswered datagram, s."""
PROBES, PROBING_S = 64, 1.0
"""Number of exchanges that measure the round trip, and their duration, s."""
NO_LOCKSTEP, WRONG_AXES, WRONG_PERIOD, WRONG_EMULATOR = 11, 6, 7, 12
_ROUNDING = 1.0 + 1e-6
_SAME = 0.01
"""Largest relative difference between the receiver's braking and the declared deceleration."""


@dataclass(frozen=True)
class Terms:
    """Conditions of a test on its rig. ``head`` is common to all datagrams; for the other fields see the port's
    parameters.
    """

    head: Head
    axes: tuple[str, ...]
    limits: tuple[Limits, ...]
    gains: tuple[Gains, ...]
    loads: tuple[FarLoad | None, ...]
    """Limits of the axes with a force loop in the controller, SI; None for the others."""
    channels: tuple[str, ...]
    emulator: bool
    ramp: bool
    trigger: bool
    start_tolerance: float
    connect_within: float
    dt: float

    def flags(self, lockstep: bool) -> int:
        flags = datagrams.EMULATOR if self.emulator else 0
        flags |= datagrams.LOCKSTEP if lockstep else 0
        flags |= datagrams.RAMP if self.ramp else 0
        flags |= datagrams.TRIGGER if self.trigger else 0
        return flags | (datagrams.NEWTONS if any(self.loads) else 0)


class Agreement(NamedTuple):
    answer: Answer
    in_lockstep: bool
    can_warn: bool


class Judgement:
    """Checks the rig at ``address`` against the ``terms``. Raises ConfigError."""

    def __init__(self, terms: Terms, label: str, address: str) -> None:
        self._terms, self._label, self._address = terms, label, address

    def agreement(self, head: Head, data: bytes, in_lockstep: bool) -> Agreement:
        if reason := self._objection(head):
            raise ConfigError(f"{self._label}: refused: {reason}")
        try:
            answer = datagrams.answer_of(data, head)
        except Unreadable as error:
            raise ConfigError(f"{self._label}: its answer is invalid: {error}") from error
        self._check_start(answer)
        self._check_limits(answer)
        self._check_loads(head, answer)
        return Agreement(answer, in_lockstep, bool(head.flags & datagrams.WARNING))

    def _check_start(self, answer: Answer) -> None:
        allowed = self._terms.start_tolerance
        for name, active, gains in zip(self._terms.axes, answer.active, self._terms.gains, strict=True):
            command = active * gains.command
            if not abs(command) <= allowed:
                raise ConfigError(
                    f"axes.{name}: the active command of the controller = {command:.6g} m: must be within "
                    f"+- {allowed:g} m (port.start_tolerance): the first command would be a jump from there"
                )

    def _check_limits(self, answer: Answer) -> None:
        terms, wider = self._terms, list[str]()
        for name, declared, stated, gains in zip(
            terms.axes, terms.limits, answer.limits, terms.gains, strict=True
        ):
            scaled = stated.times(abs(gains.command), abs(gains.force))
            wider += [f"axes.{name}.limits.{text}" for text in _wider(declared, scaled)]
            if not terms.emulator and math.isinf(scaled.error):
                log.warning(
                    "axes.%s: the receiver at %s does not limit the command error",
                    name,
                    self._address,
                )
        if wider:
            raise ConfigError(*(f"{problem} at {self._address}" for problem in wider))

    def _check_loads(self, head: Head, answer: Answer) -> None:
        terms = self._terms
        if any(terms.loads) and not head.flags & datagrams.NEWTONS:
            raise ConfigError(
                f"{self._label}: refused: its receiver accepts no commands in N: install examples/udp_target of "
                "this package on the target"
            )
        wider: list[str] = []
        rows = zip(terms.axes, terms.loads, answer.loads, terms.gains, strict=True) if any(terms.loads) else ()
        for name, declared, stated, gains in rows:
            if declared is None:
                continue
            if not stated.rate:
                wider.append(
                    f"axes.{name}.force_control.closed_by = 'controller': there is no force loop on this axis"
                )
                continue
            far = stated.times(abs(gains.command), abs(gains.newtons))
            for path, unit, ours, there in (
                ("limits.force_rate", "N/s", declared.rate, far.rate),
                ("limits.force_error", "N", declared.error, far.error),
                ("force_control.largest_correction", "m", declared.travel, far.travel),
            ):
                if not there <= ours * _ROUNDING:
                    text = f"the receiver allows {there:.6g} {unit}; lower its limit"
                    wider.append(f"axes.{name}.{path} = {ours:.6g} {unit}: {text}")
        if wider:
            raise ConfigError(*(f"{problem} at {self._address}" for problem in wider))

    def _objection(self, head: Head) -> str:
        terms = self._terms
        axes = f"{head.axes} there, {len(terms.axes)} here"
        differ = {WRONG_AXES: axes, WRONG_PERIOD: f"period {head.period} ns there, {terms.head.period} ns here"}
        is_emulator = bool(head.flags & datagrams.EMULATOR)
        if head.reason == NO_LOCKSTEP:
            return (
                "the rig has its own clock: use pace = realtime (hosts composed and processes), or "
                "port.transport_samples >= 2 on the host embedded"
            )
        if head.reason == WRONG_EMULATOR or is_emulator != terms.emulator:
            there = "an emulator" if is_emulator else "a rig that is no emulator"
            return f"port.emulator = {str(terms.emulator).lower()}: but {there} has answered"
        if head.reason:
            reason = datagrams.reason_of(head.reason)
            return f"{reason} ({differ[head.reason]})" if head.reason in differ else reason
        if head.axes != len(terms.axes):
            return f"{datagrams.REASONS[WRONG_AXES]} ({axes})"
        if head.auxiliary != len(terms.channels):
            here = ", ".join(terms.channels) or "none"
            return f"it measures {head.auxiliary} auxiliary channels; declared here: {here}"
        return ""

    def check_transport(self, delays: Sequence[int]) -> None:
        """Raise ConfigError if the round trip exceeds the declared one. ``delays``: rig ticks per exchange."""
        declared = self._terms.head.transport
        needed, worst = round(statistics.median_high(delays)), max(delays)
        if needed > declared:
            raise ConfigError(
                f"port.transport_samples = {declared}: the round trip to the rig at {self._address} takes "
                f"{needed} samples (median of {len(delays)}; at most {worst}): must be >= {needed}"
            )
        if worst > declared:
            longer = sum(delay > declared for delay in delays)
            log.warning(
                "port.transport_samples = %d: %d of %d exchanges with the rig took longer, up to %d samples: the "
                "receiver bridges such commands",
                *(declared, longer, len(delays), worst),
            )


class Opening:
    """Opens the session of ``link`` on ``terms``, in ``lockstep`` if the rig supports it. Raises ConfigError."""

    def __init__(self, link: Link, terms: Terms, lockstep: bool) -> None:
        self._link, self._terms, self._number = link, terms, 0
        self._in_lockstep = lockstep
        head, data = self._ask()
        if head.reason == NO_LOCKSTEP and terms.head.transport > 1:
            self._in_lockstep = False
            head, data = self._ask()
        judgement = Judgement(terms, link.label, link.transport.address)
        self.agreement = judgement.agreement(head, data, self._in_lockstep)
        if not self._in_lockstep:
            judgement.check_transport(self._probed(head.counter))

    def _ask(self) -> tuple[Head, bytes]:
        terms, link = self._terms, self._link
        self._number += 1
        asked = replace(
            terms.head, kind=datagrams.OPEN, counter=self._number, flags=terms.flags(self._in_lockstep)
        )
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
                    raise other_version(link.label, link.other_version)
        unsent = link.transport.unsent
        raise no_answer(link.label, terms.connect_within, link.counts[GARBAGE], link.other_sender, unsent)

    def _probed(self, ticks: int) -> list[int]:
        """Return the ticks of the rig per exchange; the first begins at ``ticks``."""
        delays: list[int] = []
        end = time.monotonic() + PROBING_S
        while len(delays) < PROBES and (time.monotonic() < end or len(delays) < 3):
            head, _ = self._ask()
            delays.append(max(head.counter - ticks, 1))
            ticks = head.counter
        return delays


def other_version(label: str, version: int) -> ConfigError:
    return ConfigError(
        f"{label}: refused: its receiver uses version {version} of the datagrams, must be {datagrams.VERSION}: "
        "install examples/udp_target of this package on the target"
    )


def no_answer(label: str, within: float, garbage: int, other_sender: str, unsent: str) -> ConfigError:
    unread = f"; {garbage} received datagrams are not of this version" if garbage else ""
    cause = "is the rig, or rths emulate, running there?"
    if other_sender:
        cause = f"answers came from {other_sender}: set port.address to it"
    elif unsent:
        cause = f"this computer cannot send there: {unsent}"
    return ConfigError(f"{label}: cannot connect: no answer within {within:g} s: {cause}{unread}")


def load_of(axis: Any) -> FarLoad | None:
    """Return the limits that a receiver may have for force commands of ``axis``; None if it receives none."""
    if not by_controller(axis):
        return None
    limits = limits_of_rig(axis)
    return FarLoad(limits.force_rate or 0.0, limits.force_error or 0.0, axis.force_control.largest_correction)


def stated_of(answer: Answer, gains: Sequence[Gains]) -> FarEnd:
    rows = [limits.times(abs(g.command), abs(g.force)) for limits, g in zip(answer.limits, gains, strict=True)]
    stroke, velocity, deceleration, force, error = np.array(rows).T
    return FarEnd(stroke, velocity, deceleration, force, error, answer.bridged, answer.watchdog)


def _wider(declared: Limits, stated: FarLimits) -> list[str]:
    wider = []
    for key, unit in (("stroke", "m"), ("velocity", "m/s"), ("force", "N")):
        ours, there = getattr(declared, key), getattr(stated, key)
        if not there <= ours * _ROUNDING:
            wider.append(f"{key} = {ours:.6g} {unit}: the receiver allows {there:.6g} {unit}; lower its limit")
    ours, there = declared.deceleration, stated.acceleration
    if not abs(there - ours) <= _SAME * ours:
        worse = "harder" if there > ours else "longer"
        wider.append(f"deceleration = {ours:.6g} m/s^2: the receiver brakes {worse}, at {there:.6g} m/s^2,")
    return wider
