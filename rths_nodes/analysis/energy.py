# SPDX-License-Identifier: Apache-2.0
"""Energies of a test: input energy, and stored and dissipated energy of each part."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.samples import Array

FEWEST = 2


def experimental_force(evaluation: Evaluation) -> Array:
    """Return the measured force at the interface, ``(m, n_interface)`` N, at the steps before missing values."""
    run, setup = evaluation.run, evaluation.assembly.setup
    loads = run.loads if setup.takes_loads else None
    measured = run.force if loads is None else np.hstack((run.force, loads.force))
    rows = measured[:: evaluation.scenario.samples_per_step][: len(run.restoring_force)]
    usable = np.isfinite(rows).all(axis=1)
    length = len(rows) if usable.all() else int(np.argmin(usable))
    n = evaluation.assembly.observation.n_interface
    steps = zip(rows[:length], run.dof_displacement[:, :n], strict=False)
    forces = np.array([setup.forces(*step).copy() for step in steps])
    return forces.reshape(length, n)


def energies(evaluation: Evaluation) -> dict[str, Array]:
    """Return the energy of each part, ``(m,)`` J, at steps 0, 1, ...; energies that were not recorded are omitted.

    The terms of M a + C v + r + r_e = F (Chen & Ricles 2010, Eq. 1a), with the computed restoring force r and the
    measured force r_e, are integrated over the displacement by the trapezoidal rule. The kinetic energy follows
    from the velocity. The integration begins after a soft start. Without a structure, only the energy of the
    specimen is returned.
    """
    run = evaluation.run
    specimen = experimental_force(evaluation)
    m = len(specimen)
    moves = np.diff(run.dof_displacement[:m], axis=0)
    moves[: evaluation.first_step] = 0.0
    structure = evaluation.assembly.structure
    absorbed = {"experimental substructure": _work(specimen, moves[:, : specimen.shape[1]])}
    if structure is None:
        return absorbed
    if not evaluation.assembly.observation.complete:
        _, kinetic, strain, damped = run.energies[:m].T
        rest = {"kinetic": kinetic, "viscous damping": damped, "numerical substructure": strain}
        return {"input": evaluation.running.input_energy[:m], **rest, **absorbed}
    velocity = evaluation.scenario.time_ratio * run.dof_velocity[:m]
    velocity[: evaluation.first_step] = 0.0
    parts = {
        "input": evaluation.running.input_energy[:m],
        "kinetic": 0.5 * np.einsum("si,ij,sj->s", velocity, structure.mass, velocity),
        "viscous damping": _work(velocity @ structure.damping.T, moves),
        "numerical substructure": _work(run.restoring_force[:m], moves),
        **absorbed,
    }
    return {name: part for name, part in parts.items() if m < FEWEST or np.isfinite(part[1:]).any()}


def _work(force: Array, moves: Array) -> Array:
    done = np.zeros(len(force))
    if len(force) > 1:
        np.cumsum((0.5 * (force[1:] + force[:-1]) * moves).sum(axis=1), out=done[1:])
    return done


def ground_acceleration(evaluation: Evaluation) -> Array:
    """Return the ground acceleration at the steps, m/s^2; an empty array if there is no structure."""
    structure = evaluation.assembly.structure
    if structure is None:
        return np.zeros(0)
    if not evaluation.assembly.observation.complete:  # observed degrees of freedom may have no mass
        rows = np.append(np.zeros(evaluation.first_step), evaluation.assembly.ground_acceleration)
        return np.asarray(rows[: len(evaluation.run.external_force)])
    load = structure.ground_load
    return np.asarray(-(evaluation.run.external_force @ load) / (load @ load))


def absolute_acceleration(evaluation: Evaluation) -> Array:
    """Return absolute accelerations ``(m, n_dof)`` m/s^2, on the time axis of the structure."""
    structure, time_ratio = evaluation.assembly.structure, evaluation.scenario.time_ratio
    relative = time_ratio**2 * evaluation.run.exact_acceleration
    if structure is None:
        return relative
    ground = ground_acceleration(evaluation)[:, None]
    return np.asarray(relative + ground * evaluation.assembly.observation.influence(structure))
