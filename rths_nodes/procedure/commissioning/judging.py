# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a trial: verdict rows, and comparison of measured stops with the stated stops.

An axis moves with constant velocity v when its commands end. ``since`` is the last sample that the far end
received. Afterwards the axis may continue at v, and then brakes: with the deceleration a it comes to rest after n
= ceil(v / (a dt)) further samples. All counts are samples of the rig's own counter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.loop.commissioning import FAILED, PASSED, CommissioningRow

SPARE = 1
"""Tolerance of a stop, samples, because a stop begins and ends within a sample."""
ROUNDED = 0.25
"""Fraction of the first change by braking that cannot be detected."""


def judged(
    cause: str, what: str, stated: str, measured: str, good: bool, speed: str = "", resolution: str = ""
) -> CommissioningRow:
    return CommissioningRow(cause, what, stated, measured, PASSED if good else FAILED, speed, resolution)


def resolved(value: float, step: float, unit: str) -> str:
    """Return ``value`` as text, or "less than" with the resolution ``step``; both are in ``unit``."""
    return f"less than {step:.3g} {unit}" if abs(value) < step else f"{value:.3g} {unit}"


def rest_words(samples: int, way: float, dt: float, step: float) -> str:
    """Return the statement that an axis rests after ``samples`` and ``way`` m; ``step`` is the resolution, m."""
    return (
        f"rests after {resolved(1e3 * samples * dt, 1e3 * dt, 'ms')} and {resolved(1e3 * way, 1e3 * step, 'mm')}"
    )


def resolution_of(dt: float, step: float) -> str:
    return f"{1e3 * dt:.3g} ms, {1e3 * step:.3g} mm"


@dataclass(frozen=True)
class Line:
    """State of an axis in motion: ``place`` (m) at the sample ``since``, and ``velocity`` (m/s)."""

    since: int
    place: float
    velocity: float


@dataclass(frozen=True)
class Stop:
    """Stop of an axis: distance (m), and number of samples after ``since`` until it brakes and until it rests, or
    None.
    """

    first: int | None
    rest: int | None
    way: float


def rest_samples(velocity: float, deceleration: float, dt: float) -> int:
    return max(1, math.ceil(abs(velocity) / (deceleration * dt) - 1e-6))


def way_of(velocity: float, bridged: int, deceleration: float, dt: float) -> float:
    """Return the stopping distance (m) from ``velocity`` (m/s): ``bridged`` samples unchanged, then braking."""
    n = rest_samples(velocity, deceleration, dt)
    return velocity * (bridged + n) * dt - 0.5 * n * (n + 1) * min(deceleration * dt, velocity / n) * dt


def stop_of(
    line: Line, samples: Sequence[int], active: Array, deceleration: float, dt: float, step: float
) -> Stop:
    """Return the stop in commands ``active`` ``(n,)`` m at ``samples`` after ``line``; ``step`` is the resolution,
    m.
    """
    seen = ROUNDED * deceleration * dt**2 + step
    numbers = np.asarray(samples) - line.since
    behind = numbers > 0
    numbers, places = numbers[behind], np.asarray(active)[behind]
    if not len(numbers):
        return Stop(None, None, 0.0)
    sign = math.copysign(1.0, line.velocity)
    short = sign * (line.place + line.velocity * numbers * dt - places)
    braking = np.flatnonzero(short > seen)
    first = int(numbers[braking[0]]) if len(braking) else None
    moving = np.flatnonzero(np.abs(places - places[-1]) > 1e-3 * seen + step)
    last = int(numbers[moving[-1]]) if len(moving) else 0
    slowest = deceleration * dt**2 + step  # the last sample of a receiver may be the first at rest
    rested = last + 1 < numbers[-1] or abs(places[-1] - places[-2:][0]) <= slowest
    rest = last + 1 if first is not None and rested else None
    return Stop(first, rest, float(sign * (places[-1] - line.place)))


def judge_stop(
    v: float, stop: Stop, bridged: int, deceleration: float, dt: float, step: float
) -> tuple[str, str, bool]:
    """Return the stated stop and the measured ``stop`` from ``v`` m/s as texts, and whether they agree.

    The far end states that it brakes after ``bridged`` samples; ``step`` is the resolution of its commands, m.
    """
    v, n = abs(v), rest_samples(v, deceleration, dt)
    unseen = 0
    while 0.5 * (unseen + 1) * (unseen + 2) * deceleration * dt**2 <= ROUNDED * deceleration * dt**2 + step:
        unseen += 1
    first, rest = bridged + 1, bridged + n
    way = way_of(v, bridged, deceleration, dt)
    stated = _words(first, rest, way, dt, step)
    if stop.first is None or stop.rest is None:
        what = "it does not brake" if stop.first is None else "it does not come to rest"
        return stated, f"{what}, after {stop.way * 1e3:.3g} mm", False
    took, harder = stop.rest - stop.first + 1 + unseen, n - 1 - max(1, n // 5)
    wrong = stop.first > first + unseen + SPARE or stop.rest > rest + SPARE
    wrong |= stop.way > way + (v * dt + step) * (1 + SPARE) or took < harder
    measured = _words(stop.first, stop.rest, stop.way, dt, step)
    if took < harder:
        measured += f"; brakes within {took} samples, harder than stated ({n})"
    return stated, measured, not wrong


def _words(first: int, rest: int, way: float, dt: float, step: float) -> str:
    return f"brakes after {first * dt * 1e3:.3g} ms, {rest_words(rest, way, dt, max(step, 1e-6))}"
