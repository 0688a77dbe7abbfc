# SPDX-License-Identifier: Apache-2.0
"""Velocities of Targets at the time of their displacements."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.samples import Target


def in_time(step: float, half: float, x: float, before: float, a: float) -> float:
    """Return the velocity (m/s) at ``x`` (m), from ``before``, a ``step`` (s) and half a step."""
    return (x - before) / step + half * a


class InTime:
    """Corrects late velocities of an integrator: v = (x - x_before) / h + h a / 2.

    The difference is the velocity in the middle of the step, exactly so for ``cr``; the rest is as predicted by
    ``central_difference``. ``step`` h in s of the rig. Targets up to number ``start``, of a soft start or at rest,
    are unchanged.
    """

    def __init__(self, step: float, start: int) -> None:
        self._step, self._half, self._start = step, 0.5 * step, start
        self._before: list[float] = []

    def resume(self, before: list[float]) -> None:
        """Continue after a Target with displacements ``before`` (m)."""
        self._before = before

    def of(self, target: Target) -> Target:
        """Return the Target with corrected velocity; called for each, in order."""
        x, before, step, half = target.displacement.tolist(), self._before, self._step, self._half
        self._before = x
        if target.step <= self._start or not all(map(math.isfinite, target.velocity.tolist())):
            return target  # left for the limits
        rows = zip(x, before, target.acceleration.tolist(), strict=True)
        velocity = np.array([in_time(step, half, *each) for each in rows])
        return Target(  # by position: `replace` takes longer than the rest
            target.step,
            target.displacement,
            velocity,
            target.acceleration,
            target.exact_acceleration,
            target.external_force,
            target.restoring_force,
            target.auxiliary,
            target.flags,
            target.energies,
        )
