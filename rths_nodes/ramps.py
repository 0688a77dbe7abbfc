"""Ramps: from Targets at the integration step to motions at the servo rate (Chen & Ricles 2010, Eq. 2).

A ramp hands on displacement, velocity and acceleration that belong together: those of its own curve, not the
integrator's.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.components import Motion, Target
from rths_nodes.params import params

TABLE = {"linear": "rths_nodes.ramps:LinearRamp", "quadratic": "rths_nodes.ramps:QuadraticRamp"}


class LinearRamp:
    """Straight line between targets, Eq. (2): the papers' ramp.

    Its slope jumps at each target; an inverse compensator turns that into a sawtooth at the step rate.
    """

    @params
    class Params:
        pass

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        self._step = dt * substeps
        self._substeps = substeps
        self._acceleration = np.zeros(n_dof)

    def start(self, target: Target) -> None:
        """Stand at Target 0."""
        self._from = self._to = target.displacement.copy()

    def follow(self, target: Target) -> None:
        self._from, self._to = self._to, target.displacement.copy()
        self._difference = self._to - self._from
        self._velocity = self._difference / self._step

    def step(self, substep: int) -> Motion:
        displacement = substep / self._substeps * self._difference + self._from
        return Motion(displacement, self._velocity, self._acceleration)


class QuadraticRamp:
    """Parabola through the last three targets: the slope jumps by a third difference only.

    The recommended ramp behind an inverse compensator. Before the first target the motion is continued
    backwards with the velocity and acceleration of the start.
    """

    @params
    class Params:
        pass

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        self._step = dt * substeps
        self._substeps = substeps

    def start(self, target: Target) -> None:
        """Stand at Target 0."""
        h = self._step
        self._to = target.displacement.copy()
        self._from = self._to - h * target.velocity + 0.5 * h**2 * target.acceleration

    def follow(self, target: Target) -> None:
        before, self._from, self._to = self._from, self._to, target.displacement.copy()
        self._slope = (self._to - before) / (2.0 * self._step)
        self._acceleration = (self._to - 2.0 * self._from + before) / self._step**2

    def step(self, substep: int) -> Motion:
        time = substep / self._substeps * self._step
        velocity = self._slope + time * self._acceleration
        displacement = self._from + time * (self._slope + 0.5 * time * self._acceleration)
        return Motion(displacement, velocity, self._acceleration)
