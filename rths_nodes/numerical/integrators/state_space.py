"""A linear structure in state space, y = (x, v), and the stability of its steps with a specimen behind it.

Step matrices are Phi, Gamma_0, Gamma_1 of y' = Phi y + Gamma_0 p + Gamma_1 p' for a load that runs straight from p
to p', as :func:`rths_nodes.core.discretisation.transition` gives them.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.partition import whole
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array

Matrices = tuple[Array, Array, Array]


def state_space(structure: Structure) -> tuple[Array, Array]:
    """A ``(2 n, 2 n)`` and B ``(2 n, n)`` of dy/dt = A y + B p for the numerical substructure; p in N."""
    n = len(structure.influence)
    inverse = np.linalg.inv(structure.mass)
    nothing, identity = np.zeros((n, n)), np.eye(n)
    system = np.block([[nothing, identity], [-inverse @ structure.stiffness, -inverse @ structure.damping]])
    return system, np.vstack([nothing, inverse])


def runge_kutta_transition(system: Array, inputs: Array, dt: float) -> Matrices:
    """Step matrices of the classical Runge-Kutta method: the exact ones as far as the fourth power of ``dt``."""
    z, identity = dt * system, np.eye(len(system))
    sloped = 0.5 * identity + z @ (identity / 6.0 + z / 24.0)
    held = identity + z @ sloped
    return identity + z @ held, dt * (held - sloped) @ inputs, dt * sloped @ inputs


class LinearSteps:
    """Steps of the numerical substructure by step matrices, under the ``external_force`` ``(steps + 1, n)`` N.

    The measured force is held over the step, or ``extrapolated`` from the step before.
    """

    def __init__(self, matrices: Matrices, external_force: Array, extrapolated: bool) -> None:
        phi, before, now = matrices
        slope = now if extrapolated else np.zeros_like(now)
        self._matrix = np.hstack([phi, -(before + now), -slope])
        self._loads = external_force[:-1] @ before.T + external_force[1:] @ now.T
        n = self._n = external_force.shape[1]
        self._known = np.zeros(4 * n)
        self._parts = tuple(self._known[part * n : part * n + n] for part in range(4))

    def step(self, index: int, motion: tuple[Array, Array], forces: tuple[Array, Array]) -> tuple[Array, Array]:
        """Displacement and velocity at ``index`` + 1 from those at ``index`` and the forces before and now."""
        before, now = forces
        x, v, f, change = self._parts
        x[:], v[:] = motion
        f[:] = now
        np.subtract(now, before, out=change)
        after = self._matrix.dot(self._known)
        after += self._loads[index]
        return after[: self._n], after[self._n :]


def spectral_radius(structure: Structure, matrices: Matrices, extrapolated: bool) -> float:
    """Growth per step of the slowest to fade motion, with a perfect actuator before the part under test.

    The measured force is that of the start of the step, held or ``extrapolated`` from the step before.
    """
    phi, before, now = matrices
    mass, damping, stiffness = whole(structure)
    state = np.hstack([-stiffness, -damping])
    force = structure.experimental_mass @ np.linalg.solve(mass, state)
    force += np.hstack([structure.experimental_stiffness, structure.experimental_damping])
    slope = now @ force if extrapolated else np.zeros_like(phi)
    size = len(phi)
    step = np.block([[phi - (before + now) @ force - slope, slope], [np.eye(size), np.zeros((size, size))]])
    return float(np.abs(np.linalg.eigvals(step)).max())
