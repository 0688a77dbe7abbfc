"""What is computed from a Run after the test: running indices, energies, and curves thinned out for drawing.

No index is defined here: the streaming objects of :mod:`rths_nodes.monitors` are fed once more, in the blocks
in which they were fed during the test, so that the last values are those of the test to the bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rths_nodes import registry
from rths_nodes.components import FLAG_SOFT_START, FLAG_TRIPPED, Array, Target
from rths_nodes.monitors import BLOCK, EnergyMonitor, Tracking, TrackingIndicator, frequency_evaluation
from rths_nodes.record.run import Run

_NO_PARAMETER = re.compile(r"(^|\.)(delta_|u_)|_indicator$")
"""States of compensators that are not their parameters: indices, and what alpha or the delay already contain."""

Indices = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, eq=False)
class Histories:
    """Running indices over the samples that count: those of the test, neither soft start nor safe stop.

    ``samples (n,)`` their numbers, ``time (n,)`` s; ``control_error`` (target minus measured, m) and
    ``tracking_indicator`` (m^2) ``(n, n_axes)``; ``energy_error (n,)`` J and its running form
    ``energy_error_percent (n,)``; ``input_energy (n_steps,)`` J; ``elastic_energy`` J: at first
    yield, or what the scenario names in its place.
    """

    samples: Indices
    time: Array
    control_error: Array
    tracking_indicator: Array
    energy_error: Array
    energy_error_percent: Array
    input_energy: Array
    elastic_energy: float


def counted(run: Run) -> Indices:
    """Numbers of the samples that count in the indices; rows that never came do not, nor does a soft start."""
    complete = np.isfinite(run.target + run.displacement + run.force).all(axis=1)
    tested = np.arange(len(run.flags)) >= first_sample(run)
    return np.flatnonzero(complete & tested & ((run.flags & FLAG_TRIPPED) == 0))


def first_sample(run: Run) -> int:
    """The first sample of the test: 0, or the one after the soft start."""
    prepared = np.flatnonzero(run.flags & FLAG_SOFT_START)
    return int(prepared[-1]) + 1 if len(prepared) else 0


def first_step(run: Run) -> int:
    """The step at which the test begins: 0, or the last one of the soft start."""
    return first_sample(run) // run.scenario.samples_per_step


def histories(run: Run) -> Histories:
    """The running indices of a test."""
    samples = counted(run)
    structure = run.scenario.build_structure()
    elastic = run.scenario.reference_energy(structure)
    target, measured, force = (values[samples] for values in (run.target, run.displacement, run.force))
    n, n_axes = target.shape
    indicator, energy = TrackingIndicator(n_axes), EnergyMonitor(n_axes, elastic)
    before = first_sample(run) - 1
    if n and before >= 0:  # as in the test: it begins where the soft start has ended
        indicator.start(run.target[before], run.displacement[before])
        energy.start(run.target[before], run.displacement[before], run.force[before])
    running, error, percent = np.zeros((n, n_axes)), np.zeros(n), np.zeros(n)
    input_energy = np.zeros(len(run.step_time))
    step = 0
    for start in range(0, n, BLOCK):
        block = slice(start, min(start + BLOCK, n))
        last = samples[block.stop - 1]
        # as in the test: Target i is known when sample (i - 1) n + 1 is worked in
        while step < len(input_energy) and (step - 1) * run.scenario.samples_per_step < last:
            energy.target(_target(run, step))
            input_energy[step] = energy.input
            step += 1
        indicator.update(target[block], measured[block])
        running[block] = indicator.history
        error[block] = energy.update(target[block], measured[block], force[block])
        percent[block] = energy.running_percent(error[block])
    for late in range(step, len(input_energy)):
        energy.target(_target(run, late))
        input_energy[late] = energy.input
    return Histories(samples, run.time[samples], target - measured, running, error, percent, input_energy, elastic)


def _target(run: Run, step: int) -> Target:
    """Target ``step`` as it was recorded; the first brings no forces."""
    before = step - 1
    nothing = np.zeros(run.dof_displacement.shape[1])
    exact, external, restoring = (
        values[before] if step else nothing
        for values in (run.exact_acceleration, run.external_force, run.restoring_force)
    )
    moved = (run.dof_displacement[step], run.dof_velocity[step], run.dof_acceleration[step])
    flags = FLAG_SOFT_START if step * run.scenario.samples_per_step < first_sample(run) else 0
    return Target(step, *moved, exact, external, restoring, flags=flags)


def true_is_known(run: Run) -> bool:
    """True when the true state of a simulator was recorded and the sensors did not see just that."""
    samples = counted(run)
    true = run.true_displacement[samples]
    known = bool(len(samples)) and bool(np.isfinite(true).all())
    return known and not np.array_equal(true, run.displacement[samples])


def indices(run: Run, displacement: Array) -> dict[str, dict[str, float]]:
    """The indices by axis and name of another displacement ``(n, n_axes)`` than the measured one, m.

    From the same objects as during the test, and from the whole record ``fei_amplitude``, ``fei_delay_s`` and
    ``fei_frequency_hz``, which no monitor could know before the end. Empty if no sample counts.
    """
    samples = counted(run)
    if not len(samples):
        return {}
    target, moved, dt = run.target[samples], displacement[samples], run.scenario.dt
    tracking = Tracking(len(run.axes), max(1, math.ceil(run.scenario.monitor.longest_delay / dt)))
    before = first_sample(run) - 1
    if before >= 0:
        tracking.indicator.start(run.target[before], displacement[before])
    tracking.update(target, moved)
    found = tracking.indices(run.axes, dt)
    evaluation = frequency_evaluation(target, moved, dt)
    names = ("fei_amplitude", "fei_delay_s", "fei_frequency_hz")
    for axis, row in enumerate(found.values()):
        row |= {name: float(values[axis]) for name, values in zip(names, evaluation, strict=True)}
    return found


def parameters(run: Run) -> dict[str, dict[str, Array]]:
    """Histories of the compensator's parameters by quantity and axis: its :func:`states` without the others."""
    return {name: rows for name, rows in states(run).items() if not _NO_PARAMETER.search(name)}


def state_units(run: Run) -> Mapping[str, str]:
    """Units of the compensator's inner numbers by quantity, as the compensator states them."""
    units: Mapping[str, str] = getattr(run.scenario.build_compensator(), "state_units", {})
    return units


def parameter_ranges(run: Run) -> dict[str, dict[str, tuple[float, float]]]:
    """Smallest and largest value during the test of each parameter of the compensator, by quantity and axis."""
    samples = counted(run)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for quantity, rows in parameters(run).items():
        for axis, history in rows.items():
            values = history[samples]
            values = values[np.isfinite(values)]
            if len(values):
                found.setdefault(quantity, {})[axis] = (float(values.min()), float(values.max()))
    return found


def experimental_force(run: Run) -> Array:
    """Force of the experimental substructure on the degrees of freedom, steps 0, 1, ...: ``(m, n_dof)`` N."""
    scenario = run.scenario
    n_dof, n_axes = run.dof_displacement.shape[1], run.force.shape[1]
    setup = registry.class_of("setup", scenario.setup)(scenario.setup, n_dof, n_axes)
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
    structure = run.scenario.build_structure()
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
    structure = run.scenario.build_structure()
    if structure is None:
        return np.zeros(0)
    load = (structure.mass + structure.experimental_mass) @ structure.influence
    return np.asarray(-(run.external_force @ load) / (load @ load))


def absolute_acceleration(run: Run) -> Array:
    """Of the degrees of freedom, ``(m, n_dof)`` m/s^2: relative to the ground plus that of the ground.

    In the time of the structure: a rig on a slower time axis has less.
    """
    ground, relative = ground_acceleration(run), run.scenario.time_ratio**2 * run.exact_acceleration
    if not len(ground):
        return relative
    return np.asarray(relative + ground[:, None] * run.scenario.build_structure().influence)


def states(run: Run) -> dict[str, dict[str, Array]]:
    """Histories of the compensator by quantity, then by axis: ``axes.story_1.alpha`` -> alpha, story_1."""
    found: dict[str, dict[str, Array]] = {}
    for column, name in enumerate(run.compensator_names):
        head, _, rest = name.partition(".")
        axis, _, quantity = rest.partition(".")
        if head != "axes" or not quantity:
            axis, quantity = "", name
        found.setdefault(quantity, {})[axis] = run.compensator[:, column]
    return found


def largest(values: Array) -> float:
    """The largest magnitude; nan if there is no finite value."""
    usable = np.abs(values[np.isfinite(values)])
    return float(usable.max()) if usable.size else math.nan


def bars(histogram: Mapping[str, Any]) -> tuple[Array, Array]:
    """Edges (s) and counts of a recorded histogram, without the empty ends; both empty if nothing was counted."""
    edges, counts = (np.array(histogram.get(key, ()), dtype=float) for key in ("edges_s", "counts"))
    filled = np.flatnonzero(counts > 0.0)
    if not len(filled) or len(edges) != len(counts) + 1:
        return np.zeros(0), np.zeros(0)
    first, end = filled[0], filled[-1] + 1
    return edges[first : end + 1], counts[first:end]


def strongest(time: Array, values: Array, length: float) -> tuple[float, float]:
    """The ``length`` seconds in which ``values`` ``(n, n_axes)`` move most (largest variance, summed)."""
    width = min(len(time), 1 + round(length / (time[1] - time[0])) if len(time) > 1 else 1)
    scale = np.abs(values).max(axis=0)
    scaled = values / np.where(scale > 0.0, scale, 1.0)
    first, second = (
        np.vstack((np.zeros(values.shape[1]), np.cumsum(power, axis=0))) for power in (scaled, scaled**2)
    )
    mean, square = ((sums[width:] - sums[:-width]) / width for sums in (first, second))
    start = int(np.argmax((square - mean**2).sum(axis=1)))
    return float(time[start]), float(time[start + width - 1])


def envelope(n: int, values: Array, columns: int) -> Indices:
    """Which of ``n`` samples to draw: of each column's first, lowest, highest and last one; all if few.

    ``values (n,)``. The picture is the same as that of all samples, if it is ``columns`` dots wide.
    """
    if n <= 4 * columns:
        return np.arange(n)
    edges = np.linspace(0, n, columns + 1).astype(int)
    keep = np.unique(np.concatenate((edges[:-1], edges[1:] - 1)))
    extremes = [
        start + pick(values[start:stop]) for start, stop in pairwise(edges) for pick in (np.argmin, np.argmax)
    ]
    return np.union1d(keep, np.array(extremes, dtype=int))


def thinned(x: Array, y: Array, cells: int) -> Indices:
    """Which points of the curve y(x) to draw: not those that stay in the dot of the one before."""
    if not len(x):
        return np.arange(0)
    grid = [np.floor((v - v.min()) / (float(np.ptp(v)) or 1.0) * cells) for v in (x, y)]
    moved = (np.diff(grid[0]) != 0.0) | (np.diff(grid[1]) != 0.0)
    return np.union1d(np.concatenate(([0], 1 + np.flatnonzero(moved))), [len(x) - 1])


def intervals(marked: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """First and last number of each stretch of marked samples."""
    padded = np.concatenate(([0], np.asarray(marked, dtype=np.int8), [0]))
    starts, ends = np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1) - 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
