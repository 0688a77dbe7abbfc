"""Classical Runge-Kutta method of fourth order (Phillips & Spencer 2012, numerical examples)."""

from __future__ import annotations

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.dynamics import Dynamics, refuse_large, trial_force
from rths_nodes.numerical.integrators.experimental_part import refuse_growth
from rths_nodes.numerical.integrators.state_space import (
    LinearSteps,
    runge_kutta_transition,
    spectral_radius,
    state_space,
)
from rths_nodes.numerical.structures.linear_force import is_linear


class RungeKutta(Dynamics):
    """Four stages a step; the external force is interpolated, the measured one extrapolated, both linearly.

    So it is of fourth order for the numerical substructure under a load that runs straight within each step, of
    second order under any other load and through a specimen. The stages of a linear structure are one matrix, made
    beforehand. Raises ConfigError for a step at which it grows.
    """

    @params
    class Params:
        pass

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        refuse_large(
            "runge_kutta", self.structure, "its step matrices are full, and it is stable for short steps only"
        )
        refuse_growth("runge_kutta", self._growth, dt)
        self._linear = None
        if is_linear(self.structure):
            matrices = runge_kutta_transition(*state_space(self.structure), dt)
            self._linear = LinearSteps(matrices, external_force, extrapolated=True)
        self._damping_per_mass = self._mass_inverse @ self.structure.damping
        self.reset()

    def _growth(self, dt: float) -> float:
        matrices = runge_kutta_transition(*state_space(self.structure), dt)
        return spectral_radius(self.structure, matrices, extrapolated=True)

    def _advance(self, experimental_force: Array) -> None:
        if self._linear is not None:
            motion, forces = (self.displacement, self.velocity), (self._experimental, experimental_force)
            self.displacement, self.velocity = self._linear.step(self._index, motion, forces)
            return
        h, half = self.dt, 0.5 * self.dt
        load = self._external[self._index] - experimental_force
        end = self._external[self._index + 1] - 2.0 * experimental_force + self._experimental
        middle = 0.5 * (load + end)
        x, v1, a1 = self.displacement, self.velocity, self.exact_acceleration
        v2 = v1 + half * a1
        a2 = self._rate(middle, x + half * v1, v2)
        v3 = v1 + half * a2
        a3 = self._rate(middle, x + half * v2, v3)
        v4 = v1 + h * a3
        a4 = self._rate(end, x + h * v3, v4)
        self.displacement = x + h / 6.0 * (v1 + 2.0 * (v2 + v3) + v4)
        self.velocity = v1 + h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)

    def _rate(self, load: Array, x: Array, v: Array) -> Array:
        rate: Array = self._mass_inverse @ (load - trial_force(self.structure, x)) - self._damping_per_mass @ v
        return rate
