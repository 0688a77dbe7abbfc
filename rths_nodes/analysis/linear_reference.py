# SPDX-License-Identifier: Apache-2.0
"""Response of a linear structure in one piece, including its declared experimental part.

The response is computed by exact steps of a first-order system under loads that vary linearly within a step.
Degrees of freedom without mass are allowed.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array, Recent
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.mechanics.sparse import is_sparse
from rths_nodes.mechanics.structure import combined, combined_load, first_order, transition
from rths_nodes.numerical.structures.restoring_forces import is_linear

BLOCK = 64
_displacements = Recent(2)
"""Displacements cached for further tests with the same structure and ground motion."""


class Response:
    """Computes the motion of axes of a linear structure at the servo rate.

    ``matrices`` are mass, damping and stiffness. ``axes`` ``(n_axes, n_dof)`` maps degrees of freedom to axes.
    """

    def __init__(self, matrices: tuple[Array, Array, Array], axes: Array, dt: float) -> None:
        self._system, self._inputs, rows = first_order(*matrices)
        self._rows = axes @ rows
        self._steps = transition(self._system, self._inputs, dt)

    def motion(self, force: Array) -> Array:
        """Return x, v and a ``(samples, 3, n_axes)`` from rest, under a ``force`` ``(samples, n_dof)`` N."""
        states = self._states(force)
        rates = states @ self._system.T + force @ self._inputs.T
        over_rates = self._rows @ self._system
        return np.stack([states @ self._rows.T, rates @ self._rows.T, rates @ over_rates.T], axis=1)

    def displacement(self, force: Array) -> Array:
        return np.asarray(self._states(force) @ self._rows.T)

    def _states(self, force: Array) -> Array:
        phi, before, now = self._steps
        return recursion(phi, force[:-1] @ before.T + force[1:] @ now.T)


def states_its_test(assembly: Assembly) -> bool:
    structure = assembly.structure
    if structure is None or is_sparse(structure.mass) or not is_linear(structure):
        return False
    return bool(structure.experimental_stiffness.any())


def linear_response(assembly: Assembly) -> Array:
    """Return x, v and a relative to the ground from the end of the soft start, ``(steps + 1, 3, n_dof)``."""
    return _response(assembly).motion(assembly.force_on_whole)


def _response(assembly: Assembly) -> Response:
    structure = assembly.structure
    if structure is None or not states_its_test(assembly):
        raise ConfigError(
            "structure: must be linear and declare experimental_stiffness, because the response of the whole "
            "structure is computed"
        )
    return Response(combined(structure), np.eye(len(structure.influence)), assembly.scenario.step)


def linear_displacement(assembly: Assembly) -> Array:
    """Return the displacement, ``(steps + 1, n_dof)`` m. Do not change the array, because tests may share it."""
    structure = assembly.structure
    assert structure is not None  # states_its_test
    step = np.array(assembly.scenario.step)
    key = (step, *combined(structure), combined_load(structure), assembly.ground_acceleration)
    return _displacements.result(
        key, lambda: np.asfortranarray(_response(assembly).displacement(assembly.force_on_whole))
    )


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
