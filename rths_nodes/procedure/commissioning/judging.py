# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a trial: verdict rows, and comparison of measured stops with the stated stops.

An axis moves with constant velocity v when its commands end. ``since`` is the last sample that the far end
received. Afterwards the axis may continue at v, and then brakes: with the deceleration a it comes to rest after n
= ceil(v / (a dt)) further samples. All counts are samples of the rig's own counter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def rest_samples(velocity: float, deceleration: float, dt: float) -> int:
    return max(1, math.ceil(abs(velocity) / (deceleration * dt) - 1e-6))


def way_of(velocity: float, bridged: int, deceleration: float, dt: float) -> float:
    """Return the stopping distance (m) from ``velocity`` (m/s): ``bridged`` samples unchanged, then braking."""
    n = rest_samples(velocity, deceleration, dt)
    return velocity * (bridged + n) * dt - 0.5 * n * (n + 1) * min(deceleration * dt, velocity / n) * dt


def judge_stop(
    since: int,
    place: float,
    velocity: float,
    samples: Sequence[int],
    active: Array,
    bridged: int,
    deceleration: float,
    dt: float,
    step: float,
) -> tuple[str, str, bool]:
    """Return the stated and the measured stop as texts, and whether they agree.

    The axis is at ``place`` (m) in sample ``since``, with ``velocity`` (m/s). The far end states that it brakes
    after ``bridged`` samples; ``step`` (m) is the resolution of its commands ``active`` ``(n,)`` m at ``samples``.
    """
    first, rest, way = _stop(since, place, velocity, samples, active, deceleration, dt, step)
    v = abs(velocity)
    n = rest_samples(v, deceleration, dt)
    unseen = 0
    while 0.5 * (unseen + 1) * (unseen + 2) * deceleration * dt**2 <= ROUNDED * deceleration * dt**2 + step:
        unseen += 1
    due, end, most = bridged + 1, bridged + n, way_of(v, bridged, deceleration, dt)
    stated = _words(due, end, most, dt, step)
    if first is None or rest is None:
        what = "it does not brake" if first is None else "it does not come to rest"
        return stated, f"{what}, after {way * 1e3:.3g} mm", False
    took, harder = rest - first + 1 + unseen, n - 1 - max(1, n // 5)
    wrong = first > due + unseen + SPARE or rest > end + SPARE
    wrong |= way > most + (v * dt + step) * (1 + SPARE) or took < harder
    measured = _words(first, rest, way, dt, step)
    if took < harder:
        measured += f"; brakes within {took} samples, harder than stated ({n})"
    return stated, measured, not wrong


def _stop(
    since: int,
    place: float,
    velocity: float,
    samples: Sequence[int],
    active: Array,
    deceleration: float,
    dt: float,
    step: float,
) -> tuple[int | None, int | None, float]:
    """Return the number of samples until the axis brakes and until it rests, or None, and its distance (m)."""
    seen = ROUNDED * deceleration * dt**2 + step
    numbers = np.asarray(samples) - since
    later = numbers > 0
    numbers, places = numbers[later], np.asarray(active)[later]
    if not len(numbers):
        return None, None, 0.0
    sign = math.copysign(1.0, velocity)
    short = sign * (place + velocity * numbers * dt - places)
    braking = np.flatnonzero(short > seen)
    first = int(numbers[braking[0]]) if len(braking) else None
    moving = np.flatnonzero(np.abs(places - places[-1]) > 1e-3 * seen + step)
    last = int(numbers[moving[-1]]) if len(moving) else 0
    slowest = deceleration * dt**2 + step  # the last sample of a receiver may be the first at rest
    rested = last + 1 < numbers[-1] or abs(places[-1] - places[-2:][0]) <= slowest
    rest = last + 1 if first is not None and rested else None
    return first, rest, float(sign * (places[-1] - place))


def _words(first: int, rest: int, way: float, dt: float, step: float) -> str:
    return f"brakes after {first * dt * 1e3:.3g} ms, {rest_words(rest, way, dt, max(step, 1e-6))}"
