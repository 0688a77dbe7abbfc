# SPDX-License-Identifier: Apache-2.0
"""Braking distances of axes that stop together, with their declared decelerations.

d is the difference of two successive commands of an axis. The deceleration a lets d change by a dt^2 per sample
period dt. For the axes j of a group, which stop together:

    N = ceil(max_j |d_j| / (a_j dt^2))       samples to rest, the same for all axes of the group
    d_m = d (1 - m / N),  m = 1 .. N         steps of the stop: successive steps differ by |d| / N <= a dt^2
    w = |d| (N - 1) / 2                      braking distance, the sum of the steps

Therefore w < |v| T / 2 with v = d / dt and T = max_j |v_j| / a_j; for one axis w < v^2 / (2 a). An axis with |v|
<= sqrt(2 a l) stops within the remaining distance l. An axis with |d| <= a dt^2 may stop at the limit of its
stroke.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rths_nodes.core.arithmetic import INF, ceiling
from rths_nodes.core.limits import Limits

LONGEST = 2.0**40
"""Largest duration of a stop, samples. Longer and infinite durations are replaced by this value."""


def changes_of_step(limits: Iterable[Limits], dt: float) -> list[float]:
    """Return, for each axis, the largest change of its command step per sample while braking, m."""
    return [limit.deceleration * dt * dt for limit in limits]


def samples_to_rest(steps: Iterable[float], changes: Iterable[float]) -> int:
    """Return the number of samples in which axes that stop together come to rest.

    ``steps`` (m) are the command steps of the axes, ``changes`` (m) the permitted changes of a step per sample.
    """
    return int(
        full_samples(max((abs(step) / change for step, change in zip(steps, changes, strict=True)), default=0.0))
    )


def full_samples(samples: float) -> float:
    return ceiling(samples) if samples < LONGEST else LONGEST


def braking_way(step: float, samples: float) -> float:
    """Return the braking distance (m) of a stop that begins with ``step`` (m per sample) and takes ``samples``."""
    return 0.5 * abs(step) * max(samples - 1.0, 0.0)


def samples_within(step: float, way: float) -> float:
    """Return the duration (samples) of the longest stop from ``step`` (m per sample) within ``way`` (m)."""
    longest = 2.0 * max(way, 0.0) / abs(step) if step != 0.0 else INF
    return 1.0 - ceiling(-longest) if longest < LONGEST else LONGEST


def way_left(position: float, step: float, stroke: float) -> float:
    return stroke - position if step > 0.0 else stroke + position


def braked_together(limits: Iterable[Limits], groups: Sequence[int] = ()) -> list[list[int]]:
    """Return a list of axis indices for each group of axes that stop together.

    Axes with the same number in ``groups`` form a group. Force axes, and axes without ``groups``, stop alone.
    """
    together: dict[int, list[int]] = {}
    for axis, limit in enumerate(limits):
        alone = limit.of_force or not groups
        together.setdefault(-1 - axis if alone else groups[axis], []).append(axis)
    return list(together.values())
