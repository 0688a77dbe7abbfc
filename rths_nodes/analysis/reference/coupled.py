# SPDX-License-Identifier: Apache-2.0
"""The ideal response: the whole structure with its damper, neither split nor moved by actuators.

Case (a) of Phillips & Spencer (2012), with which the response of a hybrid simulation is compared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rths_nodes.core import channels, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.protocols import SemiActive, Specimen, Structure
from rths_nodes.core.samples import EMPTY, Array, Measurement
from rths_nodes.core.specimen import NoSpecimen
from rths_nodes.laboratory.rigs.linear_with_specimen import constants, rest_of, step_of, substeps_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.structures.linear_force import is_linear


class IdealResponse(NamedTuple):
    """Histories at every sample, ``samples`` long; displacement and velocity relative to the ground."""

    displacement: Array
    """``(samples, n_dof)`` m."""
    velocity: Array
    """``(samples, n_dof)`` m/s."""
    acceleration: Array
    """Absolute, ``(samples, n_dof)`` m/s^2."""
    damper_force: Array
    """``(samples,)`` N."""
    voltage: Array
    """``(samples,)`` V; at the driver since the sample before."""


def measured_names(n_dof: int) -> tuple[str, ...]:
    """The channels that the controller of an ideal response sees, as those of a rig."""
    return (*channels.accelerations(n_dof), channels.DAMPER_DISPLACEMENT, channels.DAMPER_FORCE)


def ideal_of(scenario: Scenario) -> IdealResponse:
    """The ideal response that belongs to a scenario with a coupled rig: its damper, controller and excitation."""
    assembly, rig = Assembly(scenario), scenario.rig
    structure = assembly.structure
    if structure is None:
        raise ConfigError("structure: missing; a test without one has no response of the whole structure")
    n = len(structure.influence)
    setup = assembly.setup
    damper: Specimen = NoSpecimen() if rig.damper is None else registry.build("specimen", rig.damper)
    controller = None
    if scenario.semi_active is not None:
        controller = registry.build(
            "semi_active", scenario.semi_active, structure, scenario.step, measured_names(n)
        )
    return ideal_response(
        structure,
        damper,
        assembly.ground_acceleration,
        scenario.step,
        controller,
        setup.forces(rig.location(), np.zeros(n)).copy(),
        rig.longest_substep,
    )


def ideal_response(
    structure: Structure,
    damper: Specimen,
    ground_acceleration: Array,
    dt: float,
    controller: SemiActive | None = None,
    location: Array | None = None,
    longest_substep: float = 1.0 / 8000.0,
) -> IdealResponse:
    """Response of the whole ``structure`` with ``damper``, from rest.

    ``ground_acceleration`` ``(samples,)`` m/s^2, every ``dt`` (s), runs straight between samples. ``location``
    ``(n_dof,)`` is the damper's elongation per displacement; it stands between ground and the first degree of
    freedom if left out. ``controller`` sets the damper's voltage at every sample; it must have been built for
    :func:`measured_names`. Raises ConfigError for a nonlinear restoring force.
    """
    if not is_linear(structure):
        raise ConfigError("structure: the ideal response needs a linear restoring force")
    n, samples = len(structure.influence), len(ground_acceleration)
    place = np.eye(n)[0] if location is None else np.asarray(location, float)
    system, column = _system(structure, place)
    ground = np.concatenate([np.zeros(n), -structure.influence])[:, None]
    rows = (np.concatenate([place, np.zeros(n)]), np.concatenate([np.zeros(n), place]))
    substeps = substeps_of(dt, longest_substep)
    plant = constants((system, ground), column, rows, np.zeros((0, 2 * n + 1)), damper, dt, substeps)
    step: Function = step_of(damper)
    state = rest_of(damper)(plant)
    state.whole[2 * n + 1] = ground_acceleration[0]
    absolute = np.column_stack([system[n:], column[n:]])
    seen, voltage = np.zeros((samples, 2 * n + 1)), np.zeros(samples)
    for k in range(samples):
        voltage[k] = damper.voltage or 0.0
        if k:
            state, _ = step(plant, state, ground_acceleration[k : k + 1], float(voltage[k]))
        whole, _, _, displacement, _, force = state
        seen[k, :-1], seen[k, -1] = whole[: 2 * n], force
        if controller is not None:
            relative = absolute @ seen[k] - structure.influence * ground_acceleration[k]
            auxiliary = np.array([*relative, displacement, force])
            measured = Measurement(k, EMPTY, EMPTY, EMPTY, auxiliary)
            damper.voltage = float(controller.step(measured, ground_acceleration[k])[0])
    return IdealResponse(seen[:, :n], seen[:, n : 2 * n], seen @ absolute.T, seen[:, -1], voltage)


def _system(structure: Structure, location: Array) -> tuple[Array, Array]:
    """A ``(2 n, 2 n)`` and the column ``(2 n,)`` of the damper's force of the whole structure, z = (x, x')."""
    mass, damping, stiffness = combined(structure)
    n = len(mass)
    lower = -np.linalg.solve(mass, np.column_stack([stiffness, damping, location]))
    system = np.vstack([np.hstack([np.zeros((n, n)), np.eye(n)]), lower[:, :-1]])
    return system, np.concatenate([np.zeros(n), lower[:, -1]])
