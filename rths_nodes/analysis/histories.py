"""What is computed from a Run after the test: running indices and the samples that count.

No index is defined here: the streaming objects of ``loop/supervision/indices.py`` are fed once more, in the blocks
in which they were fed during the test, so that the last values are those of the test to the bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rths_nodes.core.samples import FLAG_SOFT_START, FLAG_TRIPPED, Array, Target
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.indices import (
    BLOCK,
    EnergyMonitor,
    Tracking,
    TrackingIndicator,
    frequency_evaluation,
)
from rths_nodes.recording.run import Run

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
    elastic = Assembly(run.scenario).reference_energy
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
    units: Mapping[str, str] = getattr(Assembly(run.scenario).compensator, "state_units", {})
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
