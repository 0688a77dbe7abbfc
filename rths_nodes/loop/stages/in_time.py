# SPDX-License-Identifier: Apache-2.0
"""Velocities of Targets that belong to the moment of their displacements."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.samples import Target


def in_time(step: float, half: float, x: float, before: float, a: float) -> float:
    """The velocity (m/s) that belongs to ``x`` (m), with that of a ``step`` (s) ``before`` and half a step."""
    return (x - before) / step + half * a


class InTime:
    """Velocity of an integrator that publishes a late one, v = (x - x_before) / h + h a / 2.

    The difference is the velocity in the middle of the step, exactly so for ``cr``, whose own velocity it is; the
    rest is as ``central_difference`` predicts it. ``step`` h in s of the rig. Targets up to number ``start``, of a
    soft start or at rest, stay as they are.
    """

    def __init__(self, step: float, start: int) -> None:
        self._step, self._half, self._start = step, 0.5 * step, start
        self._before: list[float] = []

    def of(self, target: Target) -> Target:
        """The Target with its velocity in time; one call for each, in their order."""
        x, before, step, half = target.displacement.tolist(), self._before, self._step, self._half
        self._before = x
        if target.step <= self._start or not all(map(math.isfinite, target.velocity.tolist())):
            return target  # what is not finite the limits are to see
        rows = zip(x, before, target.acceleration.tolist(), strict=True)
        velocity = np.array([in_time(step, half, *each) for each in rows])
        return Target(  # by place: `replace` takes longer than all else here
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
