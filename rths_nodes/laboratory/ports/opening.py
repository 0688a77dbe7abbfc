# SPDX-License-Identifier: Apache-2.0
"""Opening of a session. Both ends must agree before any motion; otherwise the test is refused with the reason."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from rths_nodes.core.declarations import FarEnd
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.laboratory.calibration import Gains, limits_of_rig
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Answer, FarLimits, FarLoad, Head, Unreadable
from rths_nodes.laboratory.ports.link import GARBAGE, Link

log = logging.getLogger(__name__)

AGAIN_S = 0.02
PROBES, PROBING_S = 64, 1.0
"""Largest number of exchanges that measure the round trip, and their longest total duration, s."""
NO_LOCKSTEP, WRONG_AXES, WRONG_PERIOD, WRONG_EMULATOR = 11, 6, 7, 12
_ROUNDING = 1.0 + 1e-6
# tolerance for the receiver's deceleration, relative to the declared deceleration
_SAME = 0.01


@dataclass(frozen=True)
class Terms:
    """Settings on which a test and its rig must agree. ``head`` holds the header fields of all datagrams."""

    head: Head
    axes: tuple[str, ...]
    limits: tuple[Limits, ...]
    gains: tuple[Gains, ...]
    loads: tuple[FarLoad | None, ...]
    """Limits (SI) of axes whose controller closes a force loop; None for other axes."""
    channels: tuple[str, ...]
    params: Any
    start_tolerance: float
    dt: float

    def flags(self, lockstep: bool) -> int:
        flags = datagrams.EMULATOR if self.params.emulator else 0
        flags |= datagrams.LOCKSTEP if lockstep else 0
        flags |= datagrams.RAMP if self.params.hold == "ramp" else 0
        flags |= datagrams.TRIGGER if self.params.trigger else 0
        return flags | (datagrams.NEWTONS if any(self.loads) else 0)


def checked_answer(terms: Terms, label: str, address: str, head: Head, data: bytes) -> Answer:
    """Return the answer of the rig at ``address``. Raises ConfigError if the rig does not meet the ``terms``."""
    if reason := _objection(terms, head):
        raise ConfigError(f"{label}: refused: {reason}")
    try:
        answer = datagrams.answer_of(data, head)
    except Unreadable as error:
        raise ConfigError(f"{label}: the answer is invalid ({error})") from error
    allowed = terms.start_tolerance
    for name, active, gains in zip(terms.axes, answer.active, terms.gains, strict=True):
        command = active * gains.command
        if not abs(command) <= allowed:
            raise ConfigError(
                f"axes.{name}: the active command of the controller = {command:.6g} m: must be within +- "
                f"{allowed:g} m (port.start_tolerance), because the first command would otherwise be a jump"
            )
    wider: list[str] = []
    for name, declared, stated, gains in zip(terms.axes, terms.limits, answer.limits, terms.gains, strict=True):
        scaled = stated.times(abs(gains.command), abs(gains.force))
        wider += _wider_limits(f"axes.{name}.limits", declared, scaled)
        if not terms.params.emulator and math.isinf(scaled.error):
            log.warning("axes.%s: the receiver at %s does not limit the command error", name, address)
    if any(terms.loads) and not head.flags & datagrams.NEWTONS:
        raise ConfigError(
            f"{label}: refused: the receiver accepts no commands in N. Install examples/udp_target of this "
            "package on the target"
        )
    if wider := wider or _wider_loads(terms, answer):
        raise ConfigError(*(f"{problem} at {address}" for problem in wider))
    return answer


def _wider_loads(terms: Terms, answer: Answer) -> list[str]:
    wider: list[str] = []
    rows = zip(terms.axes, terms.loads, answer.loads, terms.gains, strict=True) if any(terms.loads) else ()
    for name, declared, stated, gains in rows:
        if declared is None:
            continue
        if not stated.rate:
            wider.append(
                f"axes.{name}.force_control.closed_by = 'controller': there is no force loop for this axis in "
                "the receiver"
            )
            continue
        far = stated.times(abs(gains.command), abs(gains.newtons))
        for path, unit, ours, there in (
            ("limits.force_rate", "N/s", declared.rate, far.rate),
            ("limits.force_error", "N", declared.error, far.error),
            ("force_control.largest_correction", "m", declared.travel, far.travel),
        ):
            wider += _wider(f"axes.{name}.{path}", unit, ours, there)
    return wider


def _objection(terms: Terms, head: Head) -> str:
    axes, emulator = f"{head.axes} on the rig, {len(terms.axes)} in the test", terms.params.emulator
    differ = {
        WRONG_AXES: axes,
        WRONG_PERIOD: f"period {head.period} ns on the rig, {terms.head.period} ns in the test",
    }
    is_emulator = bool(head.flags & datagrams.EMULATOR)
    if head.reason == NO_LOCKSTEP:
        return (
            "the rig has its own clock. Use pace = realtime (hosts composed and processes), or "
            "port.transport_samples >= 2 on the host embedded"
        )
    if head.reason == WRONG_EMULATOR or is_emulator != emulator:
        there = "an emulator" if is_emulator else "a rig that is not an emulator"
        return f"port.emulator = {str(emulator).lower()}: {there} has answered"
    if head.reason:
        reason = datagrams.reason_of(head.reason)
        return f"{reason} ({differ[head.reason]})" if head.reason in differ else reason
    if head.axes != len(terms.axes):
        return f"{datagrams.REASONS[WRONG_AXES]} ({axes})"
    if head.auxiliary != len(terms.channels):
        here = ", ".join(terms.channels) or "none"
        return f"the number of auxiliary channels is {head.auxiliary} on the rig; the scenario declares {here}"
    return ""


def check_transport(terms: Terms, address: str, delays: Sequence[int]) -> None:
    """Raise ConfigError if the median round trip exceeds the declared transport delay; ``delays`` are in ticks."""
    declared = terms.head.transport
    needed, worst = round(statistics.median_high(delays)), max(delays)
    if needed > declared:
        raise ConfigError(
            f"port.transport_samples = {declared}: must be >= {needed}, because the round trip to the rig at "
            f"{address} takes {needed} samples (median of {len(delays)} exchanges; longest: {worst})"
        )
    if worst > declared:
        longer = sum(delay > declared for delay in delays)
        log.warning(
            "port.transport_samples = %d: %d of %d exchanges with the rig took longer (up to %d samples). The "
            "receiver bridges commands that arrive late",
            *(declared, longer, len(delays), worst),
        )


def opened(link: Link, terms: Terms, lockstep: bool) -> tuple[Head, Answer, bool]:
    """Open the session of ``link`` under ``terms``.

    Return the header and the answer of the rig, and whether lockstep is used. Lockstep is requested if
    ``lockstep`` is true. Raises ConfigError if the ends do not agree.
    """
    numbers, address = count(1), link.transport.address
    head, data = _asked(link, terms, lockstep, next(numbers))
    if head.reason == NO_LOCKSTEP and terms.head.transport > 1:
        lockstep = False
        head, data = _asked(link, terms, lockstep, next(numbers))
    answer = checked_answer(terms, link.label, address, head, data)
    if not lockstep:
        delays: list[int] = []
        end, ticks = time.monotonic() + PROBING_S, head.counter
        while len(delays) < PROBES and (time.monotonic() < end or len(delays) < 3):
            now, _ = _asked(link, terms, lockstep, next(numbers))
            delays.append(max(now.counter - ticks, 1))
            ticks = now.counter
        check_transport(terms, address, delays)
    return head, answer, lockstep


def _asked(link: Link, terms: Terms, lockstep: bool, number: int) -> tuple[Head, bytes]:
    request = replace(terms.head, kind=datagrams.OPEN, counter=number, flags=terms.flags(lockstep))
    end = time.monotonic() + terms.params.connect_within
    while (now := time.monotonic()) < end:
        link.send(request)
        until = min(now + AGAIN_S + 2.0 * terms.dt, end)
        while (left := until - time.monotonic()) > 0.0:
            link.transport.wait(left)
            for head, data in link.received():
                if head.kind == datagrams.ANSWER and head.heard == number:
                    link.transport.settle()
                    return head, data
            if link.other_version:
                raise other_version(link.label, link.other_version)
    within, unsent = terms.params.connect_within, link.transport.unsent
    raise no_answer(link.label, within, link.counts[GARBAGE], link.other_sender, unsent)


def other_version(label: str, version: int) -> ConfigError:
    return ConfigError(
        f"{label}: refused: the receiver uses version {version} of the datagrams; must be version "
        f"{datagrams.VERSION}. Install examples/udp_target of this package on the target"
    )


def no_answer(label: str, within: float, garbage: int, other_sender: str, unsent: str) -> ConfigError:
    unread = f". Received datagrams of another version: {garbage}" if garbage else ""
    cause = "Check that the rig, or rths emulate, is running at this address"
    if other_sender:
        cause = f"Answers came from {other_sender}; set port.address to this address"
    elif unsent:
        cause = f"This computer cannot send datagrams to the address ({unsent})"
    return ConfigError(
        f"{label}: cannot connect, because no answer was received within {within:g} s. {cause}{unread}"
    )


def load_of(axis: Any) -> FarLoad | None:
    """Return the largest permitted receiver limits for force commands of ``axis``; None if it accepts none."""
    if not by_controller(axis):
        return None
    limits = limits_of_rig(axis)
    return FarLoad(limits.force_rate or 0.0, limits.force_error or 0.0, axis.force_control.largest_correction)


def stated_of(answer: Answer, gains: Sequence[Gains]) -> FarEnd:
    rows = [limits.times(abs(g.command), abs(g.force)) for limits, g in zip(answer.limits, gains, strict=True)]
    stroke, velocity, deceleration, force, error = np.array(rows).T
    return FarEnd(stroke, velocity, deceleration, force, error, answer.bridged, answer.watchdog)


def _wider(path: str, unit: str, ours: float, there: float) -> list[str]:
    if there <= ours * _ROUNDING:
        return []
    return [f"{path} = {ours:.6g} {unit}: the receiver allows {there:.6g} {unit}. Lower the limit of the receiver"]


def _wider_limits(path: str, declared: Limits, stated: FarLimits) -> list[str]:
    wider: list[str] = []
    for key, unit in (("stroke", "m"), ("velocity", "m/s"), ("force", "N")):
        wider += _wider(f"{path}.{key}", unit, getattr(declared, key), getattr(stated, key))
    ours, there = declared.deceleration, stated.acceleration
    if not abs(there - ours) <= _SAME * ours:
        worse = "harder" if there > ours else "longer"
        wider.append(
            f"{path}.deceleration = {ours:.6g} m/s^2: the receiver brakes {worse}; must be {there:.6g} m/s^2, "
            "as in the receiver"
        )
    return wider
