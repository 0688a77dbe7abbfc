"""Energies of a test: what went in, what is stored, what the parts have dissipated."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.histories import Histories, first_step
from rths_nodes.core import registry
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Run


def experimental_force(run: Run) -> Array:
    """Force of the experimental substructure on the degrees of freedom, steps 0, 1, ...: ``(m, n_dof)`` N."""
    scenario = run.scenario
    n_dof, n_axes = run.dof_displacement.shape[1], run.force.shape[1]
    setup = registry.build("setup", scenario.setup, n_dof, n_axes)
    rows = run.force[:: scenario.samples_per_step][: len(run.restoring_force)]
    usable = np.isfinite(rows).all(axis=1)
    length = len(rows) if usable.all() else int(np.argmin(usable))
    steps = zip(rows[:length], run.dof_displacement, strict=False)
    return np.array([setup.forces(*step).copy() for step in steps]).reshape(length, n_dof)


def energies(run: Run, running: Histories) -> dict[str, Array]:
    """Energies (J) at steps 0, 1, ... by trapezoids, all of one length: where the input energy went.

    M a + C v + r + r_e = F (Chen & Ricles 2010, Eq. 1a), each term integrated over the displacement, from the
    end of a soft start on. Without a structure only the work that the specimen absorbed.
    """
    specimen = experimental_force(run)
    m = len(specimen)
    start = first_step(run)
    moves = np.diff(run.dof_displacement[:m], axis=0)
    moves[:start] = 0.0
    structure = Assembly(run.scenario).structure
    absorbed = {"experimental substructure": _work(specimen, moves)}
    if structure is None:
        return absorbed
    velocity = run.scenario.time_ratio * run.dof_velocity[:m]
    velocity[:start] = 0.0
    return {
        "input": running.input_energy[:m],
        "kinetic": 0.5 * np.einsum("si,ij,sj->s", velocity, structure.mass, velocity),
        "viscous damping": _work(velocity @ structure.damping.T, moves),
        "numerical substructure": _work(run.restoring_force[:m], moves),
        **absorbed,
    }


def _work(force: Array, moves: Array) -> Array:
    done = np.zeros(len(force))
    if len(force) > 1:
        np.cumsum((0.5 * (force[1:] + force[:-1]) * moves).sum(axis=1), out=done[1:])
    return done


def ground_acceleration(run: Run) -> Array:
    """Ground acceleration (m/s^2) at steps 0, 1, ... from F = -M 1 a_g; empty without a structure.

    M is the mass of the whole structure, the part in the laboratory included.
    """
    structure = Assembly(run.scenario).structure
    if structure is None:
        return np.zeros(0)
    load = (structure.mass + structure.experimental_mass) @ structure.influence
    return np.asarray(-(run.external_force @ load) / (load @ load))


def absolute_acceleration(run: Run) -> Array:
    """Of the degrees of freedom, ``(m, n_dof)`` m/s^2: relative to the ground plus that of the ground.

    In the time of the structure: a rig on a slower time axis has less.
    """
    structure, relative = Assembly(run.scenario).structure, run.scenario.time_ratio**2 * run.exact_acceleration
    if structure is None:
        return relative
    return np.asarray(relative + ground_acceleration(run)[:, None] * structure.influence)
