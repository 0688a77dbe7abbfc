# SPDX-License-Identifier: Apache-2.0
"""Quantities computed from a Run after the test: evaluated samples, running indices, energies.

The classes of ``loop/indices/tracking.py`` compute the indices here and during the test. The results differ only
by rounding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import FLAG_SOFT_START, FLAG_TRIPPED, Array
from rths_nodes.loop.indices.energy_monitor import EnergyMonitor
from rths_nodes.loop.indices.live_columns import columns_of, per_column
from rths_nodes.loop.indices.tracking import Delay, Tracking, frequency_evaluation
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Run, longest_stretch

_NO_PARAMETER = re.compile(r"(^|\.)(delta_|u_)|_indicator$")
"""Names of compensator states that are not parameters: indicators, and values derived from parameters."""
T = TypeVar("T")
Indices = NDArray[np.intp]
STILL = 0.1
"""Motion in a window, relative to the largest motion in any window, below which the target counts as at rest."""
CYCLES, LEAST = 3.0, 4
"""``CYCLES``: number of periods in a window. ``LEAST``: smallest number of windows for an evaluation."""


@dataclass(frozen=True, eq=False)
class Histories:
    """Running indices of a test, without soft start and safe stop.

    ``samples`` (sample numbers) and ``time`` (s) are ``(n,)``. ``control_error`` (target minus measured
    displacement, m) and ``tracking_indicator`` (m^2) are ``(n, n_axes)``. ``energy_error`` (J) and
    ``energy_error_percent`` are ``(n,)``. ``input_energy`` (J), up to each step, is ``(m,)``. ``elastic_energy``
    (J) is the strain energy at first yield, unless the scenario states another reference energy.
    """

    samples: Indices
    time: Array
    control_error: Array
    tracking_indicator: Array
    energy_error: Array
    energy_error_percent: Array
    input_energy: Array
    elastic_energy: float


@dataclass(frozen=True, eq=False)
class Windowed:
    """Delay and amplitude of a test in ``m`` windows of ``length`` s.

    ``delay`` (s, positive if late) and ``amplitude`` (ratio of measured displacement to target) are ``(m,
    n_axes)``. Both are NaN while the target is at rest. ``time`` (s) is the middle of each window, ``(m,)``.
    """

    time: Array
    delay: Array
    amplitude: Array
    length: float


def largest(values: Array) -> float:
    usable = np.abs(values[np.isfinite(values)])
    return float(usable.max()) if usable.size else math.nan


def strongest(time: Array, values: Array, length: float) -> tuple[float, float]:
    """Return start and end (s) of the interval of ``length`` s in which ``values`` ``(n, n_axes)`` vary most."""
    width = min(len(time), 1 + round(length / (time[1] - time[0])) if len(time) > 1 else 1)
    scale = np.abs(values).max(axis=0)
    scaled = values / np.where(scale > 0.0, scale, 1.0)
    first, second = (
        np.vstack((np.zeros(values.shape[1]), np.cumsum(power, axis=0))) for power in (scaled, scaled**2)
    )
    mean, square = ((sums[width:] - sums[:-width]) / width for sums in (first, second))
    start = int(np.argmax((square - mean**2).sum(axis=1)))
    return float(time[start]), float(time[start + width - 1])


def rows_of(numbers: Indices) -> slice:
    """Return consecutive ``numbers`` as a slice, because indexing with a slice does not copy."""
    return slice(int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else slice(0, 0)


class Evaluation:
    """Computes quantities of a Run. Each quantity is computed once, on first use.

    ``tracked`` (indices by axis and name) and ``delays`` (one for each axis) are results that the test has already
    computed.
    """

    def __init__(
        self,
        run: Run,
        tracked: dict[str, dict[str, float]] | None = None,
        assembly: Assembly | None = None,
        delays: Sequence[Delay] = (),
    ) -> None:
        self.run = run
        self.scenario = run.scenario
        self.assembly = assembly or Assembly(run.scenario)
        self.left_out: dict[str, str] = {}
        """Reason why a result is missing, by name of the result."""
        self._tracked = {} if tracked is None else {False: tracked}
        self._delays = {False: list(delays)} if delays else {}

    def or_left_out(self, part: str, compute: Callable[[], T], otherwise: T) -> T:
        """Return ``compute()``. If it raises ConfigError, set ``left_out[part]`` and return ``otherwise``."""
        try:
            return compute()
        except ConfigError as error:
            self.left_out[part] = str(error)
            return otherwise

    @property
    def structure(self) -> Structure | None:
        """Structure of the scenario, or None if the recording contains no names of degrees of freedom."""
        return self.assembly.structure if self.run.dof_names else None

    @cached_property
    def first_sample(self) -> int:
        prepared = np.flatnonzero(self.run.flags & FLAG_SOFT_START)
        first = int(prepared[-1]) + 1 if len(prepared) else 0
        steps, per_step = self.scenario.soft_start_steps, self.scenario.samples_per_step
        planned = steps * per_step + 1 if steps else 0
        lost = bool(np.isnan(self.run.displacement[first:planned]).all())  # true if planned <= first
        return max(first, planned) if lost else first

    @property
    def first_step(self) -> int:
        return max(0, self.first_sample - 1) // self.scenario.samples_per_step  # the last Target of the soft start

    @cached_property
    def counted(self) -> Indices:
        """Numbers of the evaluated samples: the longest interval without a gap, soft start or safe stop."""
        run = self.run
        complete = np.isfinite(run.target + run.displacement + run.force).all(axis=1)
        tested = np.arange(len(run.flags)) >= self.first_sample
        return longest_stretch(complete & tested & ((run.flags & FLAG_TRIPPED) == 0))

    @cached_property
    def gaps(self) -> str:
        return "" if len(self.counted) == self.scenario.samples + 1 else self.run.incomplete

    @cached_property
    def running(self) -> Histories:
        run, samples = self.run, self.counted
        elastic = self.or_left_out("running HSEM", lambda: self.assembly.reference_energy, math.nan)
        target, measured, force = (values[samples] for values in (run.target, run.displacement, run.force))
        tracking = self._tracking(run.displacement)
        indicator, error = tracking.over(target, measured, force)
        energy, residual = self._energy(elastic)
        # as in the test: Target i is known when sample (i - 1) n + 1 is processed
        step = np.minimum(-(-samples // self.scenario.samples_per_step), len(residual) - 1)
        percent = energy.running_percents(error, residual[step] if len(residual) else np.zeros(len(samples)))
        return Histories(
            samples, run.time[samples], target - measured, indicator, error, percent, residual[1:], elastic
        )

    @property
    def longest_delay(self) -> int:
        """Longest delay that can be detected, samples."""
        return max(1, math.ceil(self.scenario.monitor.longest_delay / self.scenario.dt))

    def _tracking(self, displacement: Array) -> Tracking:
        run = self.run
        tracking = Tracking(len(run.axes), self.longest_delay, self.scenario.energy_scale)
        first = int(next(iter(self.counted), self.first_sample))
        before = first if first > self.first_sample else first - 1
        if before >= 0:  # as in the test, start at the end of the soft start
            tracking.start(*(values[before].tolist() for values in (run.target, displacement, run.force)))
        return tracking

    def _energy(self, elastic: float) -> tuple[EnergyMonitor, Array]:
        run, n_steps, n_dof = self.run, len(self.run.step_time), self.run.dof_displacement.shape[1]
        first = min(n_steps, -(-self.first_sample // self.scenario.samples_per_step))
        external, elastic_energy = np.zeros((n_steps, n_dof)), np.full((n_steps, 1), math.nan)
        external[1:] = run.external_force  # the first Target causes no force, and no energy
        if len(run.energies):
            elastic_energy[1:, 0] = run.energies[:, 0]
        energy = EnergyMonitor(n_dof, elastic)
        if first:
            energy.start(run.dof_displacement[first - 1].tolist())
        residual = energy.over(run.dof_displacement[first:n_steps], external[first:], elastic_energy[first:])
        return energy, np.concatenate((np.zeros(first), residual))

    @cached_property
    def true_is_known(self) -> bool:
        """True if the recording is complete, and the true displacement differs from the measured displacement."""
        if self.gaps:
            return False
        rows = rows_of(self.counted)
        true = self.run.true_displacement[rows]
        finite = bool(len(true)) and bool(np.isfinite(true).all())
        return finite and not np.array_equal(true, self.run.displacement[rows])

    def displacement(self, true: bool) -> Array:
        return self.run.true_displacement if true else self.run.displacement

    def tracked(self, true: bool = False) -> dict[str, dict[str, float]]:
        """Return the tracking indices by axis and name; empty if no sample is evaluated.

        The indices describe the measured displacement or, if ``true``, the true displacement of a simulator. If
        samples are missing, the recorded indices of the measured displacement are returned instead, if available.
        """
        if not len(self.counted):
            return {}
        if self.gaps and (of_test := self.run.metrics.get("axes")):  # computed during the test, from all samples
            return dict(of_test)
        if true not in self._tracked:
            tracking = self._tracking(self.displacement(true))
            tracking.count(*self._followed(true))
            tracking.delays = self.delays(true)
            self._tracked[true] = tracking.indices(self.run.axes, self.scenario.dt)
        return self._tracked[true]

    def delays(self, true: bool = False) -> list[Delay]:
        if true not in self._delays:
            target, moved = self._followed(true)
            kept = self._delays.get(False, [])
            if kept and all(delay.kept is not None for delay in kept):
                self._delays[true] = [delay.again(column) for delay, column in zip(kept, moved.T, strict=True)]
            else:
                self._delays[true] = [Delay(self.longest_delay) for _ in self.run.axes]
                for delay, *columns in zip(self._delays[true], target.T, moved.T, strict=True):
                    delay.extend(*columns)
        return self._delays[true]

    def indices(self, true: bool = False) -> dict[str, dict[str, float]]:
        """Return the indices of :meth:`tracked` and, for a complete recording, of the frequency evaluation."""
        if self.gaps or not len(self.counted):
            return self.tracked(true)
        evaluation = frequency_evaluation(*self._followed(true), self.scenario.dt)
        names = ("fei_amplitude", "fei_delay_s", "fei_frequency_hz")
        return {
            axis: row | {name: float(values[number]) for name, values in zip(names, evaluation, strict=True)}
            for number, (axis, row) in enumerate(self.tracked(true).items())
        }

    def _followed(self, true: bool) -> tuple[Array, Array]:
        rows = rows_of(self.counted)
        return self.run.target[rows], self.displacement(true)[rows]

    @cached_property
    def states(self) -> dict[str, dict[str, Array]]:
        """Histories of the compensator's states by quantity and axis, e.g. ``states["alpha"]["story_1"]``."""
        states: dict[str, dict[str, Array]] = {}
        for column, name in enumerate(self.run.compensator_names):
            head, _, rest = name.partition(".")
            axis, _, quantity = rest.partition(".")
            if head != "axes" or not quantity:
                axis, quantity = "", name
            states.setdefault(quantity, {})[axis] = self.run.compensator[:, column]
        return states

    @property
    def parameters(self) -> dict[str, dict[str, Array]]:
        return {name: rows for name, rows in self.states.items() if not _NO_PARAMETER.search(name)}

    @cached_property
    def state_units(self) -> Mapping[str, str]:
        part = "units of the compensator's quantities"
        return self.or_left_out(part, lambda: self.assembly.compensator.state_units, {})

    @cached_property
    def state_limits(self) -> Mapping[str, tuple[float, float]]:
        part = "limits of the compensator's quantities"
        return self.or_left_out(part, lambda: self.assembly.compensator.state_limits, {})

    @cached_property
    def windowed(self) -> Windowed | None:
        """Frequency evaluation in half-overlapping windows of ``CYCLES`` periods; None for too few windows."""
        samples, dt = self.counted, self.scenario.dt
        target, measured = self.run.target[samples], self.run.displacement[samples]
        if len(samples) < 2:
            return None
        _, _, slowest = frequency_evaluation(target, measured, dt)
        slowest = slowest[np.isfinite(slowest) & (slowest > 0.0)]
        width = math.ceil(CYCLES / (float(slowest.min()) * dt)) if len(slowest) else len(samples) + 1
        starts = range(0, len(samples) - width + 1, max(1, width // 2))
        if len(starts) < LEAST:
            return None
        taper = np.hanning(width)[:, None]
        rows = []
        for start in starts:
            cut = slice(start, start + width)
            wanted, moved = (values[cut] - values[cut].mean(axis=0) for values in (target, measured))
            amplitude, delay, _ = frequency_evaluation(taper * wanted, taper * moved, dt)
            rows.append((delay, amplitude, np.abs(wanted).max(axis=0)))
        delay, amplitude, motion = (np.array(column) for column in zip(*rows, strict=True))
        moving = motion >= STILL * motion.max(axis=0)
        time = self.run.time[samples[np.array(starts) + width // 2]]
        return Windowed(time, np.where(moving, delay, math.nan), np.where(moving, amplitude, math.nan), width * dt)

    def parameter_ranges(self) -> dict[str, dict[str, tuple[float, float]]]:
        ranges: dict[str, dict[str, tuple[float, float]]] = {}
        rows = rows_of(self.counted) if len(self.run.compensator) == len(self.run.time) else slice(None)
        for quantity, histories in self.parameters.items():
            for axis, history in histories.items():
                values = history[rows]
                values = values if np.isfinite(values).all() else values[np.isfinite(values)]
                if len(values):
                    ranges.setdefault(quantity, {})[axis] = float(values.min()), float(values.max())
        return ranges


def live_columns(evaluation: Evaluation) -> Array:
    """Return the live display's curves, ``(columns, curves, 4)``: first, lowest, highest, last value per column.

    Force-controlled axes are omitted. The tracking indicator is NaN in columns without evaluated samples.
    """
    run, per = evaluation.run, per_column(evaluation.scenario.servo_rate)
    indicator = np.full(run.target.shape, np.nan)
    indicator[evaluation.counted] = evaluation.running.tracking_indicator
    error = run.target - run.displacement
    return columns_of(np.hstack([run.target, run.command, run.displacement, run.force, error, indicator]), per)


def experimental_force(evaluation: Evaluation) -> Array:
    """Return the measured force at the interface, ``(m, n_interface)`` N, up to the first missing value."""
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
    """Return each available energy by name, ``(m,)`` J, at steps 0, 1, ...

    The terms of M a + C v + r + r_e = F (Chen & Ricles 2010, Eq. 1a) are integrated over the displacement by the
    trapezoidal rule, beginning after the soft start. r is the computed and r_e the measured restoring force. The
    kinetic energy follows from the velocity. Without a structure, only the energy of the specimen is returned.
    """
    run = evaluation.run
    specimen = experimental_force(evaluation)
    m = len(specimen)
    moves = np.diff(run.dof_displacement[:m], axis=0)
    moves[: evaluation.first_step] = 0.0
    structure = evaluation.structure
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
    return {name: part for name, part in parts.items() if m < 2 or np.isfinite(part[1:]).any()}


def _work(force: Array, moves: Array) -> Array:
    done = np.zeros(len(force))
    if len(force) > 1:
        np.cumsum((0.5 * (force[1:] + force[:-1]) * moves).sum(axis=1), out=done[1:])
    return done


def ground_acceleration(evaluation: Evaluation) -> Array:
    """Return the ground acceleration at the steps, ``(m,)`` m/s^2; empty without a structure."""
    structure = evaluation.structure
    if structure is None:
        return np.zeros(0)
    if not evaluation.assembly.observation.complete:  # observed degrees of freedom may have no mass
        rows = np.append(np.zeros(evaluation.first_step), evaluation.assembly.ground_acceleration)
        return np.asarray(rows[: len(evaluation.run.external_force)])
    load = structure.ground_load
    return np.asarray(-(evaluation.run.external_force @ load) / (load @ load))


def absolute_acceleration(evaluation: Evaluation) -> Array:
    """Return the absolute accelerations ``(m, n_dof)`` m/s^2, on the time axis of the structure."""
    structure, time_ratio = evaluation.structure, evaluation.scenario.time_ratio
    relative = time_ratio**2 * evaluation.run.exact_acceleration
    if structure is None:
        return relative
    ground = ground_acceleration(evaluation)[:, None]
    return np.asarray(relative + ground * evaluation.assembly.observation.influence(structure))
