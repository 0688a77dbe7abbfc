"""HHT-alpha method with a fixed number of sub-step iterations.

H. M. Hilber, T. J. R. Hughes, R. L. Taylor: Improved numerical dissipation for time integration algorithms in
structural dynamics. Earthquake Engineering & Structural Dynamics 5, 1977. R.-Y. Jung, P. B. Shing: Performance
evaluation of a real-time pseudodynamic test system, the same journal 35, 2006; O. Mercan, J. M. Ricles: Stability
and accuracy analysis of outer loop dynamics in real-time pseudodynamic testing, 36, 2007. Chen & Ricles (2010)
compare the CR algorithm with it.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import inverse, product, zero
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness


class HilberHughesTaylor(Dynamics):
    """Each ``step`` is one iteration with the newest measured force; ``iterations`` of them make a time step h.

    M a' + (1 + alpha) (C v' + r') - alpha (C v + r) = (1 + alpha) F' - alpha F, r with the measured force;
    x' = x~ + beta h^2 a', v' = v~ + gamma h a', beta = (1 - alpha)^2 / 4, gamma = 1/2 - alpha.

    An iteration solves this with r' linearised about the position and velocity at which it was measured (initial
    stiffness; what is under test counts). Displacements in between lie on the parabola through the last two time
    steps and the newest iterate, so that all are reached in order and evenly; the last iterate ends the step.
    """

    memory = (*Dynamics.memory, "_x", "_x_before", "_x_next", "_x_predicted", "_v_predicted", "_known")

    @params
    class Params(Equivalent):
        alpha: float = number(
            "numerical damping alpha; 0: none, the trapezoidal rule",
            default=-0.05,
            at_least=-1.0 / 3.0,
            at_most=0.0,
        )
        iterations: int = integer(
            "iterations in one time step, each a step here", default=10, at_least=1, at_most=1000
        )

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of iterations that are longer than a sample."""
            if test.substeps == 1:
                return []
            return ["its iterations are made for substeps = 1: one in each sample"]

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        if not zero(self.structure.experimental_mass):
            raise ConfigError("integrator hht_alpha: a mass under test is not provided for: its inertia jumps")
        self._n = self.period = params.iterations
        self._h = h = params.iterations * dt
        alpha = params.alpha
        self._alpha, self._share = alpha, 1.0 + alpha
        self._beta, self._gamma = 0.25 * (1.0 - alpha) ** 2, 0.5 - alpha
        self._tested_damping, tested_stiffness = damping_and_stiffness(params, self.structure)
        damping, stiffness = (
            self.structure.damping + self._tested_damping,
            self.structure.stiffness + tested_stiffness,
        )
        tangent = self._gamma * h * damping + self._beta * h**2 * stiffness
        self._inverse = inverse(self.structure.mass + self._share * tangent)
        self._total_damping, self._stiffness = product(damping), product(stiffness)
        self.reset()

    def reset(self) -> None:
        """At rest at step 0."""
        super().reset()
        self._x = self._x_before = self._x_next = self._x_predicted = np.zeros(self._n_dof)
        self._v = self._v_predicted = self._a = self._known = np.zeros(self._n_dof)

    def _advance(self, experimental_force: Array) -> None:
        iteration = self._index % self._n
        measured = self._force + experimental_force
        if iteration == 0:
            self._begin(measured)
        acceleration = self._solve(measured)
        self._x_next = self._x_predicted + self._beta * self._h**2 * acceleration
        self._interpolate((iteration + 1) / self._n)

    def _solve(self, measured: Array) -> Array:
        """Acceleration at the end of the time step, with the force linearised about where it was measured."""
        off = measured - self._stiffness @ self.displacement - self._tested_damping @ self.velocity
        acceleration: Array = self._inverse @ (self._known - self._share * off)
        return acceleration

    def _begin(self, measured: Array) -> None:
        """Close a time step with the force measured at its end, and begin the next: what does not change in it.

        The displacement has been reached and stays; acceleration and velocity can still be corrected.
        """
        h = self._h
        if self._index == 0:
            self._a = self.exact_acceleration
            self._x_before = self._x + 0.5 * h**2 * self._a
        else:
            self._x_before, self._x = self._x, self._x_next
            self._a = self._solve(measured)
            self._v = self._v_predicted + self._gamma * h * self._a
        self._x_predicted = self._x + h * self._v + (0.5 - self._beta) * h**2 * self._a
        self._v_predicted = self._v + (1.0 - self._gamma) * h * self._a
        # the force at the end of the time step, at its own velocity instead of the parabola's
        now = measured + self._tested_damping @ (self._v - self.velocity) + self._damping @ self._v
        end = min(self._index + self._n, len(self._external) - 1)
        self._known = self._share * self._external[end] - self._alpha * (self._external[self._index] - now)
        predicted = self._total_damping @ self._v_predicted + self._stiffness @ self._x_predicted
        self._known = self._known - self._share * predicted

    def _interpolate(self, part: float) -> None:
        slope = 0.5 * (self._x_next - self._x_before)
        curvature = self._x_next - 2.0 * self._x + self._x_before
        self.displacement = self._x + part * (slope + 0.5 * part * curvature)
        self.velocity = (slope + part * curvature) / self._h
