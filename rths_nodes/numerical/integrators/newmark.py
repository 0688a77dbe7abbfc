"""Implicit Newmark method (gamma = 1/2, beta = 1/4): constant average acceleration, with the last measured force.

N. M. Newmark: A method of computation for structural dynamics. Journal of the Engineering Mechanics Division
(ASCE) 85, 1959. As the multi-axial benchmark uses it (Condori Uribe et al., Frontiers in Built Environment, 2023):

    (K + 2/dt C + 4/dt^2 M) x' = p' - f + M (4/dt^2 x + 4/dt v + a) + C (2/dt x + v)
    v' = 2/dt (x' - x) - v,   a' = 2/dt (v' - v) - a

with the load p' of the step's end and the force f measured at its beginning. Nothing divides by a mass, so
degrees of freedom may have none, as the rotations of most finite-element models.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.massless import have_damping, massless
from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import inverse, is_sparse, product, zero
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import refuse_growth
from rths_nodes.numerical.reductions import CraigBampton, reduced
from rths_nodes.numerical.structures.linear_force import refuse_yielding

JUDGED = 60
"""Modes of a large structure by which growth is judged."""


class _LargeSteps:
    """The step of a structure that is kept sparse: products and one solution."""

    def __init__(self, structure: Structure, dt: float) -> None:
        mass, damping = structure.mass, structure.damping
        self._dt = dt
        self._mass, self._damping = product(mass), product(damping)
        self._inverse = inverse(structure.stiffness + 2.0 / dt * damping + 4.0 / dt**2 * mass)

    def step(self, x: Array, v: Array, a: Array, load: Array) -> Array:
        """The displacement ``(n,)`` at the end of the step."""
        slope = 2.0 / self._dt * x + v
        moved = self._mass.dot(2.0 / self._dt * (slope + v) + a)
        return np.asarray(self._inverse.dot(load + moved + self._damping.dot(slope)))


class Newmark(Dynamics):
    """Constant average acceleration, solved at once for a linear structure; degrees of freedom may have no mass.

    The numerical substructure is stepped without a stability limit; the measured force, that of the step before,
    has one: a step at which the part under test that the structure states makes it grow is refused. Velocity and
    acceleration handed on are the method's own. Where there is no mass nothing would calm them: there the
    acceleration is the change of the velocity over the step, and without damping, which asks for one, the velocity
    that of the displacement. Raises ConfigError for a nonlinear restoring force.
    """

    memory = ("displacement", "velocity", "acceleration")
    takes_massless = True
    force_age = 1.0

    @params
    class Params:
        pass

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        structure = self.structure
        refuse_yielding("newmark", self.structure)
        self._massless = massless(structure.mass)
        self._large: _LargeSteps | None = None
        self._some = bool(self._massless.any())
        self._damped = self._some and have_damping(structure.mass, structure.damping, structure.stiffness)
        if is_sparse(structure.mass):
            self._large = _LargeSteps(structure, dt)
            self._refuse_growth_of_reduced(params)
        else:
            self._motion, self._per_force = self._steps(dt)
            refuse_growth("newmark", self._growth, dt)
        self.reset()

    def _refuse_growth_of_reduced(self, params: Params) -> None:
        """Growth by the lowest modes and the static shapes under forces at what is under test."""
        structure = self.structure
        if not zero(structure.experimental_mass):
            raise ConfigError(
                "integrator newmark: a mass under test is not judged for a structure that is kept sparse; give "
                "reduction"
            )
        tested = np.flatnonzero(
            ~(massless(structure.experimental_stiffness) & massless(structure.experimental_damping))
        )
        if len(tested):
            most = int((~self._massless).sum())
            kept: Any = CraigBampton(CraigBampton.Params(modes=min(JUDGED, most - len(tested))))
            model: Any = reduced(kept, structure, tested.tolist())
            type(self)(params, model, np.zeros((2, 1)), self.dt)

    def _steps(self, dt: float) -> tuple[Array, Array]:
        """x' from (x, v, a) ``(n, 3 n)`` and from the load p' - f ``(n, n)``."""
        mass, damping = self.structure.mass, self.structure.damping
        dynamic = self.structure.stiffness + 2.0 / dt * damping + 4.0 / dt**2 * mass
        per_force = np.asarray(np.linalg.inv(dynamic), float)
        motion = np.hstack([4.0 / dt**2 * mass + 2.0 / dt * damping, 4.0 / dt * mass + damping, mass])
        return per_force @ motion, per_force

    def _rates(self, change: Array, v: Array, a: Array, dt: float) -> tuple[Array, Array]:
        """Velocity and acceleration ``(n, ...)`` at the end of a step from the ``change`` of the displacement."""
        velocity = 2.0 / dt * change - v
        acceleration = 2.0 / dt * (velocity - v) - a
        if self._some:
            o = self._massless
            if not self._damped:
                velocity[o] = change[o] / dt
            acceleration[o] = (velocity[o] - v[o]) / dt
        return velocity, acceleration

    def _growth(self, dt: float) -> float:
        """Growth per step with a perfect actuator before the part under test."""
        structure, n = self.structure, self._n_dof
        motion, per_force = self._steps(dt)
        tested = (structure.experimental_stiffness, structure.experimental_damping, structure.experimental_mass)
        x = motion - per_force @ np.hstack(tested)
        before = np.split(np.eye(3 * n), 3)
        v, a = self._rates(x - before[0], before[1], before[2], dt)
        return float(np.abs(np.linalg.eigvals(np.vstack([x, v, a]))).max())

    def step(self, experimental_force: Array) -> None:
        """Finish the current step with the force measured there, ``(n_dof,)`` N, and go to the next."""
        x, v, a = self.displacement, self.velocity, self.acceleration
        exact = self._mass_inverse.dot(self._load - experimental_force)
        if self._some:
            exact[self._massless] = a[self._massless]
        self.exact_acceleration, self.restoring_force = exact, self._force
        self._index += 1
        load = self._external[self._index] - experimental_force
        if self._large is not None:
            now = self._large.step(x, v, a, load)
        else:
            now = self._motion.dot(np.concatenate((x, v, a))) + self._per_force.dot(load)
        self.velocity, self.acceleration = self._rates(now - x, v, a, self.dt)
        self.displacement = now
        self._force = self.structure.restoring_force.force(now)
        self._load = self._apart()
