# SPDX-License-Identifier: Apache-2.0
"""Judging of a trial: verdict rows, and measured stops compared with the stated ones.

An axis moves with constant velocity v when its commands end. From the sample ``since``, the last that the far end
received, it may continue along its slope, and then brakes: with the deceleration a it rests after
n = ceil(v / (a dt)) further samples. All counts are samples of the rig's own counter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.loop.commissioning import FAILED, PASSED, CommissioningRow

SPARE = 1
"""Tolerance of a stop, samples: it begins and ends within a sample."""
ROUNDED = 0.25
"""Share of the first change by braking that is not visible."""


def judged(
    cause: str, what: str, stated: str, measured: str, good: bool, speed: str = "", resolution: str = ""
) -> CommissioningRow:
    return CommissioningRow(cause, what, stated, measured, PASSED if good else FAILED, speed, resolution)


def resolved(value: float, step: float, unit: str) -> str:
    """Return ``value`` as text, or that it is less than the resolution ``step``; both in ``unit``."""
    return f"less than {step:.3g} {unit}" if abs(value) < step else f"{value:.3g} {unit}"


def rest_words(samples: int, way: float, dt: float, step: float) -> str:
    """Return a stop after ``samples`` and ``way`` m as text; ``step`` m is the resolution."""
    return (
        f"rests after {resolved(1e3 * samples * dt, 1e3 * dt, 'ms')} and {resolved(1e3 * way, 1e3 * step, 'mm')}"
    )


def resolution_of(dt: float, step: float) -> str:
    return f"{1e3 * dt:.3g} ms, {1e3 * step:.3g} mm"


@dataclass(frozen=True)
class Line:
    """An axis in motion: at ``place`` (m) in the sample ``since``, with ``velocity`` (m/s)."""

    since: int
    place: float
    velocity: float


@dataclass(frozen=True)
class Stop:
    """Stop of an axis: samples from ``since`` to the first braking one and to rest (or None), and distance (m)."""

    first: int | None
    rest: int | None
    way: float


def rest_samples(velocity: float, deceleration: float, dt: float) -> int:
    """Return the samples of a stop from ``velocity`` (m/s)."""
    return max(1, math.ceil(abs(velocity) / (deceleration * dt) - 1e-6))


def way_of(velocity: float, bridged: int, deceleration: float, dt: float) -> float:
    """Return the stopping distance (m) from ``velocity`` (m/s): ``bridged`` samples ahead, then braking."""
    n = rest_samples(velocity, deceleration, dt)
    return velocity * (bridged + n) * dt - 0.5 * n * (n + 1) * min(deceleration * dt, velocity / n) * dt


def stop_of(
    line: Line, samples: Sequence[int], active: Array, deceleration: float, dt: float, step: float
) -> Stop:
    """Return the stop in commands ``active`` ``(n,)`` m at ``samples`` after ``line``; ``step``: resolution, m."""
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
    slowest = deceleration * dt**2 + step  # a receiver may end with the sample in which it rests
    rested = last + 1 < numbers[-1] or abs(places[-1] - places[-2:][0]) <= slowest
    rest = last + 1 if first is not None and rested else None
    return Stop(first, rest, float(sign * (places[-1] - line.place)))


def judge_stop(
    v: float, stop: Stop, bridged: int, deceleration: float, dt: float, step: float
) -> tuple[str, str, bool]:
    """Return stated and measured ``stop`` from ``v`` m/s as texts, and whether they agree.

    The far end states to brake after ``bridged`` samples; ``step``: resolution of its commands, m.
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
