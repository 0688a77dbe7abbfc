# SPDX-License-Identifier: Apache-2.0
"""Response of a linear structure in one piece, including its declared experimental part.

The response is computed by exact steps of a first-order system under loads that vary linearly within a step.
Degrees of freedom without mass are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array, Recent
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.mechanics.sparse import is_sparse
from rths_nodes.mechanics.structure import combined, combined_load, first_order, transition
from rths_nodes.numerical.structures.restoring_forces.linear import is_linear

BLOCK = 64
_displacements = Recent(2)
"""Displacements cached for further tests with the same structure and ground motion."""


@dataclass(frozen=True, eq=False)
class LinearResponse:
    """Response of a linear structure from the end of the soft start.

    ``states`` ``(steps + 1, n)`` satisfy z' = A z + B f, where A is ``system``, B is ``inputs``, and f is
    ``force``, the load of the degrees of freedom ``(steps + 1, n_dof)`` N.
    """

    states: Array
    force: Array
    system: Array
    inputs: Array
    rows: Array
    """Matrix from states to displacements of the degrees of freedom."""

    @property
    def displacement(self) -> Array:
        """Displacement relative to the ground, ``(steps + 1, n_dof)`` m."""
        return self.states @ self.rows.T

    @property
    def acceleration(self) -> Array:
        """Acceleration relative to the ground, ``(steps + 1, n_dof)`` m/s^2."""
        rates: Array = self.states @ self.system.T + self.force @ self.inputs.T
        return rates @ (self.rows @ self.system).T


def states_its_test(assembly: Assembly) -> bool:
    structure = assembly.structure
    if structure is None or is_sparse(structure.mass) or not is_linear(structure):
        return False
    return bool(structure.experimental_stiffness.any())


def linear_response(assembly: Assembly) -> LinearResponse:
    structure = assembly.structure
    if structure is None or not states_its_test(assembly):
        raise ConfigError(
            "structure: must be linear and declare experimental_stiffness, because the response of the whole "
            "structure is computed"
        )
    system, inputs, displacement = first_order(*combined(structure))
    phi, before, now = transition(system, inputs, assembly.scenario.step)
    force = assembly.force_on_whole
    driven = force[:-1] @ before.T + force[1:] @ now.T
    states = recursion(phi, driven)
    return LinearResponse(states, force, system, inputs, displacement)


def linear_displacement(assembly: Assembly) -> Array:
    """Return the displacement, ``(steps + 1, n_dof)`` m. Do not change the array, because tests may share it."""
    structure = assembly.structure
    if structure is None:
        return linear_response(assembly).displacement
    step = np.array(assembly.scenario.step)
    key = (step, *combined(structure), combined_load(structure), assembly.ground_acceleration)
    return _displacements.result(key, lambda: np.asfortranarray(linear_response(assembly).displacement))


def recursion(phi: Array, driven: Array) -> Array:
    """Return the states of z[k + 1] = phi z[k] + driven[k] from rest, ``(steps + 1, n)``.

    All blocks of steps are computed together from rest; then the responses to their initial states are added.
    """
    steps, n = driven.shape
    blocks = -(-steps // BLOCK)
    rows = np.zeros((blocks * BLOCK, n))
    rows[:steps] = driven
    rows = rows.reshape(blocks, BLOCK, n)
    powers = np.empty((BLOCK, n, n))
    powers[0] = phi
    for power in range(1, BLOCK):
        rows[:, power] += rows[:, power - 1] @ phi.T
        powers[power] = phi @ powers[power - 1]
    begins = np.zeros((blocks, n))
    for block in range(1, blocks):
        begins[block] = powers[-1] @ begins[block - 1] + rows[block - 1, -1]
    rows += (begins @ powers.reshape(BLOCK * n, n).T).reshape(blocks, BLOCK, n)
    return np.vstack([np.zeros((1, n)), rows.reshape(-1, n)[:steps]])
