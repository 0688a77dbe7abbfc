"""Velocities of Targets that belong to the moment of their displacements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rths_nodes.core.samples import EMPTY, Target


class InTime:
    """Velocity of an integrator that publishes a late one, v = (x - x_before) / h + h a / 2.

    The difference is the velocity in the middle of the step, exactly so for ``cr``, whose own velocity it is; the
    rest is as ``central_difference`` predicts it. ``step`` h in s of the rig. Targets up to number ``start``, of a
    soft start or at rest, stay as they are.
    """

    def __init__(self, step: float, start: int) -> None:
        self._step, self._start = step, start
        self._before = EMPTY

    def of(self, target: Target) -> Target:
        """The Target with its velocity in time; one call for each, in their order."""
        x = target.displacement
        if target.step > self._start and np.isfinite(target.velocity).all():  # else the limits are to see it
            velocity = (x - self._before) / self._step + 0.5 * self._step * target.acceleration
            target = replace(target, velocity=velocity)
        self._before = x.copy()
        return target
