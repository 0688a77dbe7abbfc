# SPDX-License-Identifier: Apache-2.0
"""Iterative test (``doc/iterate.md``): evaluation of a run, and target and commands of the next run.

Run j measures displacements y and forces f. Under f the numerical substructure moves by x = S(f). The residual is
r = Q (x - y), with the low-pass filter Q. Let G be the receptance of the numerical substructure, and E the dynamic
stiffness of a linear specimen. The plain iteration z = x multiplies the residual by -G E at each frequency. The
next target z is

    constant       z = x - (1 - w) r, with the factor w
    aitken         the same, w_j = -w_j-1 r_j-1 (r_j - r_j-1) / |r_j - r_j-1|^2   (Irons & Tuck 1969; Kuettler &
                   Wall 2008)
    quasi_newton   z = x + sum c_i (x_i - x_j), with the least-squares solution c of r_j + sum c_i (r_i - r_j) = 0,
                   summed over the previous runs i   (IQN-ILS, Degroote, Bathe & Vierendeels 2009); the first step
                   is ``constant``
    model          z = y + (1 + G E)^-1 r, where E is the spring, dashpot and mass identified in the run:
                   z = x - (response of the structure with E to the force E r)

All relaxations start from the measured displacement, so poor tracking causes no wrong correction.
An iteration continues until its error is small (:meth:`Settings.verdict`). A small residual is not sufficient:
near a resonance the error may still be large.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis.identification.experiments import WITHOUT_STRUCTURE
from rths_nodes.analysis.iteration import learning
from rths_nodes.analysis.iteration.learning import Spectra, noise_rms, rms
from rths_nodes.analysis.response_errors import LinearResponse
from rths_nodes.analysis.share_of_structure import MODEL, of_axes, partition
from rths_nodes.analysis.units import PERCENT
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.validation import walk
from rths_nodes.loop.scenario.assembly import Assembly, transformation
from rths_nodes.loop.scenario.files import override, replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.history import History
from rths_nodes.numerical.structures.restoring_forces import is_linear
from rths_nodes.recording.run import Run

TRACKING, HISTORY = "tracking", "history"
"""Modes. ``TRACKING`` corrects only the commands. ``HISTORY`` corrects targets and commands."""
CONVERGED, SOFTENED, DIVERGED, ENDED, EXHAUSTED = "converged", "softened", "diverged", "ended", "not converged"
HELD = "held"
"""Verdict if the next run would exceed its bounds. Like every verdict, it ends the iteration."""
RISES = 2
SOFTER = 0.05
"""Largest permitted decrease of a specimen's force for the same motion, relative to the first run."""
TOLERANCE = 0.5
"""Default tolerance of the error, % of the rms of the target."""
AT_FLOOR = 2.0
"""Largest ratio of error to noise at which an iteration has converged. The difference of two runs that differ only
in noise has a ratio of sqrt(2)."""
UNITS = {"command": "m", "velocity": "m/s", "force": "N"}
LINEAR = ("kelvin_voigt", "with_mass", "parallel", "maxwell_damper")
"""Specimens whose force is linear in their motion if the specimens that they contain are linear."""
STRAIGHT = 1e-3
"""Largest permitted relative deviation of the setup from a linear transformation."""
WEAKEST = 1e-3
"""Relative singular value below which a difference of residuals is treated as noise."""
LARGEST = 2.0
"""Largest magnitude of Aitken's relaxation factor, which is undetermined if two residuals are equal."""
RELAXATIONS = "constant", "aitken", "quasi_newton", "model"
PLAYED = WITHOUT_STRUCTURE | {
    "semi_active": None,
    "setup": {"type": "identity"},
    "ramp": {"type": "hermite"},
    "scatter": {},
}


@dataclass(frozen=True)
class Row:
    """Results of a run. Percentages are for the worst axis and, except ``true``, relative to the target's rms.

    ``error`` (%) is the remaining error, ``noise`` (%) the noise below the cut-off, and ``residual`` (%) the
    residual of whole histories. ``missed`` (m) is the rms of target minus displacement, at all frequencies.
    ``true`` (%) is the error of a simulator's true displacement: relative to the target in the mode ``tracking``,
    otherwise to the response of the complete structure. ``answer`` is the ratio of each specimen's force to its
    force for the same motion in the first run. ``command``, ``velocity`` and ``force`` are peaks relative to the
    first run.
    """

    number: int
    outcome: str
    reason: str = ""
    error: float = math.nan
    noise: float = math.nan
    residual: float = math.nan
    missed: float = math.nan
    true: float = math.nan
    answer: dict[str, float] = field(default_factory=dict)
    command: float = math.nan
    velocity: float = math.nan
    force: float = math.nan
    recording: str = ""


def enough(error: float, noise: float, tolerance: float = TOLERANCE) -> str:
    """Return the bound that ``error`` meets, as text: ``tolerance`` or twice ``noise`` (all %); empty if none."""
    if not error <= max(tolerance, AT_FLOOR * noise):
        return ""
    return "the tolerance" if error <= tolerance else "twice the noise of the sensor"


def softened(answer: Mapping[str, float]) -> list[str]:
    return [
        f"axes.{axis}: the force for the same motion is {100.0 * (1.0 - part):.3g} % smaller than in run 1; the "
        f"reduction must be <= {100.0 * SOFTER:g} %"
        for axis, part in answer.items()
        if part < 1.0 - SOFTER
    ]


def force_of(specimens: Array, motion: Array) -> Array:
    """Return the force of :func:`fitted` specimens, ``(samples, n_axes)`` N.

    ``motion`` is ``(samples, 3, n_axes)``.
    """
    (stiffness, damping, mass), (x, v, a) = specimens, np.moveaxis(motion, 1, 0)
    return np.asarray(stiffness * x + damping * v + mass * a)


def answer(spectra: Spectra, expected: Array, moved: Array, force: Array, cutoff: float) -> Array:
    """Return the ratio of ``force`` to the force of ``expected`` specimens below ``cutoff`` (Hz), ``(n_axes,)``.

    Both forces belong to the same motion. The ratio is a least-squares factor, or NaN without expected force.
    """
    by, f = force_of(expected, spectra.motion(moved, cutoff)), spectra.low_passed(force, cutoff)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((by * f).sum(axis=0) / (by * by).sum(axis=0))


def fitted(spectra: Spectra, moved: Array, force: Array, cutoff: float) -> Array:
    """Fit specimens to ``force`` below ``cutoff`` (Hz) by non-negative least squares.

    Return stiffness (N/m), damping (N s/m) and mass (kg) of each axis, ``(3, n_axes)``.
    """
    from scipy.optimize import nnls

    motion, f = spectra.motion(moved, cutoff), spectra.low_passed(force, cutoff)
    rows = []
    for axis in range(moved.shape[1]):
        columns = motion[:, :, axis]
        size = np.sqrt(np.square(columns).sum(axis=0))
        size[size == 0.0] = 1.0
        shares, _ = nnls(columns / size, f[:, axis])
        rows.append(shares / size)
    return np.array(rows).T


PEAKS = ("command", "velocity", "displacement", "force")
Peaks = Mapping[str, Mapping[str, float]]
"""Largest magnitudes by axis and name: command (m), its velocity (m/s), displacement (m), force (N)."""


def of_first(name: str, now: Peaks, first: Peaks) -> float:
    largest = [max(row[name] for row in run.values()) for run in (now, first)]
    return float(largest[0] / max(largest[1], 1e-300))


def above_first(number: int, planned: Peaks, first: Peaks, factor: float) -> list[str]:
    return [
        f"axes.{axis}: run {number} would have a {name} of {value:.6g} {unit}, {value / before:.3g} times the "
        f"value in run 1; must be <= {factor:g} times, i.e. {factor * before:.6g} {unit}"
        for axis, most in first.items()
        for name, unit in UNITS.items()
        if (value := planned[axis][name]) > factor * (before := most[name])
    ]


def beyond_elastic(number: int, reached: Peaks, elastic: Mapping[str, float]) -> list[str]:
    return [
        f"axes.{axis}: run {number} has a displacement of {1e3 * far:.4g} mm; must be < elastic_limit = "
        f"{1e3 * limit:.4g} mm (rig file)"
        for axis, limit in elastic.items()
        if not (far := max(reached[axis]["command"], reached[axis]["displacement"])) < limit
    ]


class Substructure:
    """Computes complete histories of a numerical substructure, with one step per sample.

    Raises ConfigError if the structure or the setup is nonlinear, if the structure is too large, or if the
    experimental part is unknown.
    """

    def __init__(self, scenario: Scenario) -> None:
        assembly = Assembly(scenario)
        structure = assembly.structure
        if structure is None or not is_linear(structure):
            raise ConfigError(
                "structure: must be present and linear, because an iteration of whole histories computes the "
                "response of the structure by exact steps"
            )
        measured = {
            name: axis.rig_axis.stiffness
            for name, axis in scenario.axes.items()
            if axis.rig_axis is not None and axis.rig_axis.stiffness is not None
        }
        parts = partition(assembly, measured)
        if not parts.source:
            raise ConfigError(
                "structure: the experimental part is not declared, so the first history cannot be predicted. "
                "Set experimental_stiffness"
            )
        self.dt = scenario.dt
        self._axes, self._spread = transformation(assembly)
        self._ground, self._own = assembly.external_force, parts.numerical
        self._numerical = LinearResponse(self._own, self._axes, self.dt)
        self.predicted = self._with(parts.experimental).motion(assembly.force_on_whole)
        """Motion of the axes, ``(samples, 3, n_axes)``, for the declared structure computed in one piece."""
        self.reference: Array | None = None
        """Displacement with the simulated specimens, ``(samples, n_axes)`` m; None if a specimen is not linear."""
        if scenario.rig is None and all(_linear(axis.specimen) for axis in scenario.axes.values()):
            specimens, source = of_axes(scenario, {})
            if source == MODEL:
                self.reference = self._with(self._spread_out(specimens)).motion(assembly.force_on_whole)[:, 0]
        _check_straight(assembly, self.predicted[:, 0])

    def _with(self, tested: Sequence[Array]) -> LinearResponse:
        mass, damping, stiffness = (matrix + lab for matrix, lab in zip(self._own, tested, strict=True))
        return LinearResponse((mass, damping, stiffness), self._axes, self.dt)

    def _spread_out(self, specimens: Sequence[Array]) -> list[Array]:
        return [self._spread @ matrix @ self._axes for matrix in specimens]

    def under(self, force: Array) -> Array:
        """Return the motion ``(samples, 3, n_axes)`` under the specimens' ``force``, ``(samples, n_axes)`` N."""
        return self._numerical.motion(self._ground - force @ self._spread.T)

    def distance(self, residual: Array, specimens: Array) -> Array:
        """Return the solution minus the measured displacement, (1 + G E)^-1 r, ``(samples, n_axes)`` m."""
        return np.asarray((residual - self.pushed(residual, specimens))[:, 0])

    def pushed(self, residual: Array, specimens: Array) -> Array:
        """Return the structure's motion ``(samples, 3, n_axes)`` under the specimens' force from ``residual``."""
        stiffness, damping, mass = map(np.diag, specimens)
        tested = self._spread_out([mass, damping, stiffness])
        return self._with(tested).motion(force_of(specimens, residual) @ self._spread.T)


def _linear(specimen: object) -> bool:
    inner = [value for _, value in walk(specimen)] if specimen is not None else [None]
    return all(model is not None and type(model).type_name in LINEAR for model in inner)


def _check_straight(assembly: Assembly, moved: Array) -> None:
    peak = moved[np.argmax(np.abs(moved).max(axis=1))]
    pose = assembly.setup.degrees_of_freedom(peak)
    half = assembly.setup.histories(np.array([0.5 * pose, pose]))
    if np.abs(2.0 * half[0] - half[1]).max() > STRAIGHT * np.abs(half[1]).max():
        raise ConfigError(
            "setup: the axes do not move in proportion to the structure in the expected motion; an iteration of "
            "whole histories requires a linear setup"
        )


@dataclass(frozen=True)
class Settings:
    """Settings of an iteration.

    The iteration ends after ``runs`` runs, or once the error is within the ``tolerance`` (% of the target's rms).
    ``omega`` is the constant or initial relaxation factor. Corrections end at ``cutoff`` (Hz). ``within`` limits
    the peaks of command, velocity and force, relative to the first run. ``changes`` are overrides of the scenario,
    by the number of the first run in which they apply.
    """

    mode: str
    runs: int = 5
    tolerance: float = TOLERANCE
    relaxation: str = "model"
    omega: float = 1.0
    cutoff: float | None = None
    within: float | None = None
    changes: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in (TRACKING, HISTORY):
            raise unknown("--mode", "mode", self.mode, (TRACKING, HISTORY))
        if self.relaxation not in RELAXATIONS:
            raise unknown("--relaxation", "relaxation", self.relaxation, RELAXATIONS)
        if not 0.0 < self.omega <= 2.0:
            raise ConfigError(f"--omega {self.omega:g}: must be > 0 and <= 2")
        if self.cutoff is not None and not self.cutoff > 0.0:
            raise ConfigError(f"--cutoff {self.cutoff:g} Hz: must be > 0")
        if not 1 <= self.runs <= 50:
            raise ConfigError(f"--runs {self.runs}: must be >= 1 and <= 50")
        if not 0.0 < self.tolerance <= 100.0:
            raise ConfigError(f"--tolerance {self.tolerance:g} %: must be > 0 and <= 100 %")
        if self.within is not None and not self.within >= 1.0:
            raise ConfigError(f"--within {self.within:g}: must be >= 1")
        if (last := max(self.changes, default=0)) > self.runs:
            raise ConfigError(f"--change {last}:...: the number of the run must be <= --runs {self.runs}")

    def verdict(self, rows: Sequence[Row]) -> tuple[str, str]:
        last = rows[-1]
        if last.outcome != "finished":
            return ENDED, f"run {last.number} {last.outcome}: {last.reason}"
        if losses := softened(last.answer):
            return SOFTENED, "; ".join(losses)
        if by := enough(last.error, last.noise, self.tolerance):
            return CONVERGED, f"the error of {last.error:.3g} % is within {by}"
        tail = [row.error for row in rows[-RISES - 1 :]]
        if len(tail) > RISES and all(after > before for before, after in pairwise(tail)):
            errors = ", ".join(f"{error:.3g}" for error in tail)
            return DIVERGED, f"the error has risen {RISES} times in succession: {errors} %"
        if last.number >= self.runs:
            return EXHAUSTED, f"the error is {last.error:.3g} % after run {last.number}, the last run"
        return "", ""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Result of a simulation of the next run on the identified model."""

    peaks: Peaks
    missed: float
    """Rms error below the cut-off, % of the target's rms."""


def check(scenario: Scenario) -> None:
    if scenario.time_ratio != 1:
        raise ConfigError(f"time_ratio = {scenario.time_ratio:g}: must be 1, because iterations run in real time")
    if scenario.force_axes:
        raise ConfigError(
            f"axes.{scenario.force_axes[0]}: is controlled by force, but an iteration repeats only displacements"
        )
    if scenario.semi_active is not None:
        raise ConfigError("semi_active: must be omitted, because a predefined history has no auxiliary inputs")
    if scenario.scaled:
        raise ConfigError("similitude: a test with scaled specimens cannot be iterated")


class Corrections:
    """Computes the target and commands of the next run of an iteration from the results of previous runs.

    ``inverse`` is identified from the first run. An existing run ``first`` becomes run 1. If ``first`` is None,
    run 1 follows the targets known before the test. Raises ConfigError if the scenario cannot be iterated.
    """

    def __init__(self, scenario: Scenario, settings: Settings, first: Run | None = None) -> None:
        self.base = replace(scenario, [(["substeps"], 1), (["soft_start"], None), (["semi_active"], None)])
        self.settings = settings
        override(self.base, self._changed(max(settings.changes, default=1)))  # refuse invalid changes now
        computed = self.base.structure is not None and (settings.mode == HISTORY or first is None)
        self._part = Substructure(self.base) if computed else None
        if settings.mode == HISTORY and self._part is None:
            raise ConfigError(
                "structure: missing; an iteration of whole histories requires a structure to compute the history"
            )
        self.relaxation = Relaxation(settings.relaxation, settings.omega, self._part) if self._part else None
        if first is not None:
            self._target = _played(first, self.base)
        else:
            self._target = self._part.predicted if self._part else _prescribed(self.base)
        self._command: Array | None = None
        self.spectra = Spectra(len(self._target), self.base.dt)
        self.inverse: learning.Inverse | None = None
        self.rows: list[Row] = []
        if first is not None:
            self.learn(1, first.outcome, "", "", first)

    def history(self, source: str, parents: Mapping[str, str]) -> History:
        axes = tuple(self.base.axes)
        command = np.zeros((0, len(axes))) if self._command is None else self._command
        return History(axes, self.base.servo_rate, source, self._target, command, parents)

    def planned(self, number: int, folder: Path, source: str, parents: Mapping[str, str]) -> Scenario:
        file = (folder / f"history_{number}.npz").absolute()
        self.history(source, parents).save(file)
        pairs: list[tuple[list[str], object]] = [([name], value) for name, value in PLAYED.items()]
        pairs += [(["name"], f"{self.base.name}.run_{number}")]
        pairs += [(["integrator"], {"type": "predefined", "history": str(file)})]
        if self._command is not None:
            pairs += [(["compensator"], {"type": "predefined", "history": str(file)})]
        return override(replace(self.base, pairs), self._changed(number))

    def _changed(self, number: int) -> list[str]:
        changes = self.settings.changes
        return [change for first in sorted(changes) if number >= first for change in changes[first]]

    def learn(self, number: int, outcome: str, reason: str, recording: str, run: Run) -> None:
        """Evaluate a run and add its row. Raises ConfigError if run 1 does not suffice to identify the rig."""
        row = Row(number, outcome, reason, recording=recording)
        if outcome != "finished":
            self.rows.append(row)
            return
        n = len(self._target)
        command, moved = run.command[:n], run.displacement[:n]
        self._ran, self._moved, self._force = command, moved, self._in_time(run.force[:n])
        if self.inverse is None:
            arguments = command, moved, self._target[:, 0]
            self.inverse = learning.fitted(self.spectra, *arguments, tuple(self.base.axes), self.settings.cutoff)
            self._first_command, self._cutoff = command, self.inverse.learned_to
            self.first = self._peaks(command, moved, run.force[:n])
            self._specimens = fitted(self.spectra, moved, self._force, self._cutoff)
        cutoff, spectra, size = self.inverse.learned_to, self.spectra, _rms(self._target[:, 0])
        missed = self._target[:, 0] - moved
        to_go, residual = spectra.low_passed(missed, cutoff), np.nan
        wanted: Array | None = self._target[:, 0]
        if self.settings.mode == HISTORY:
            assert self._part is not None
            computed, wanted = self._part.under(self._force), self._part.reference
            rest = spectra.motion(computed[:, 0] - moved, cutoff)
            specimens = fitted(spectra, moved, self._force, cutoff)
            self._step = Step(computed, rest, specimens)
            to_go = self._part.distance(rest, specimens)
            residual = _worst(_rms(rest[:, 0]) / size)
        noise = noise_rms(moved)
        band = np.sqrt(2.0 * min(cutoff * self.base.dt, 0.5))
        response = answer(spectra, self._specimens, moved, self._force, cutoff)
        peaks = self._peaks(command, moved, run.force[:n])
        self.rows.append(
            dataclasses.replace(
                row,
                error=_worst(_rms(to_go) / size),
                noise=_worst(noise * band / size),
                residual=residual,
                missed=rms(missed),
                true=np.nan if wanted is None else _worst(_rms(run.true_displacement[:n] - wanted) / _rms(wanted)),
                answer=dict(zip(self.base.axes, response.tolist(), strict=True)),
                command=of_first("command", peaks, self.first),
                velocity=of_first("velocity", peaks, self.first),
                force=of_first("force", peaks, self.first),
            )
        )

    def correct(self) -> None:
        before = self._target[:, 0]
        if self.settings.mode == HISTORY:
            assert self.relaxation is not None
            self._target = self.relaxation.next(self._step)
        assert self.inverse is not None
        last = (self._ran, before, self._moved)
        arguments = self.spectra, self.inverse, self._first_command, last
        self._command = learning.corrected(*arguments, self._target[:, 0])

    def rehearsed(self) -> Rehearsal:
        """Simulate the next run on the identified rig and specimens, up to ``inverse.known_to`` (Hz)."""
        assert self._command is not None
        assert self.inverse is not None
        spectra, response = self.spectra, self.inverse.response(self.spectra)
        passed = spectra.pass_to(self.inverse.known_to)[:, None]
        reached = np.divide(spectra.of(self._command), response, out=np.zeros_like(response), where=passed > 0.0)
        motion = spectra.motion(spectra.history(np.asarray(passed * reached, complex)), self.inverse.known_to)
        last = fitted(spectra, self._moved, self._force, self._cutoff)
        force, sent = force_of(last, motion), np.concatenate([self._first_command[:1], self._command])
        rest = _rms(spectra.low_passed(self._target[:, 0] - motion[:, 0], self._cutoff))
        missed = _worst(rest / _rms(self._target[:, 0]))
        return Rehearsal(self._peaks(sent, motion[:, 0], force), missed)

    def _peaks(self, command: Array, moved: Array, force: Array) -> Peaks:
        rates = np.abs(np.diff(command, axis=0)) / self.base.dt
        columns = [np.abs(history).max(axis=0).tolist() for history in (command, rates, moved, force)]
        rows = zip(*columns, strict=True)
        return {axis: dict(zip(PEAKS, row, strict=True)) for axis, row in zip(self.base.axes, rows, strict=True)}

    def _in_time(self, force: Array) -> Array:
        """Return ``force`` at the instants of the displacements: its delay ``force_lead`` is removed."""
        late = self.base.force_lead or 0.0
        times = self.base.dt * np.arange(len(force))
        return np.column_stack([np.interp(times + late, times, column) for column in force.T])


def _played(run: Run, base: Scenario) -> Array:
    n = base.samples + 1
    if len(run.target) < n or not np.isfinite(run.target[:n]).all():
        raise ConfigError(f"the first run has {len(run.target)} samples; {n} samples without gaps are required")
    target = run.target[:n]
    velocity = np.gradient(target, base.dt, axis=0)
    return np.stack([target, velocity, np.gradient(velocity, base.dt, axis=0)], axis=1)


def _prescribed(scenario: Scenario) -> Array:
    assembly = Assembly(scenario)
    if scenario.integrator.displacement is None:
        kind = type(scenario.integrator).type_name
        raise ConfigError(
            f"integrator.type = {kind!r}: the targets are not known before the test. Use a structure, or "
            "integrator.type = 'prescribed'"
        )
    solver: Any = assembly.integrator
    n, rows = assembly.observation.n_interface, []
    for x, v, a in solver.excitation:
        moved = assembly.setup.axes(Motion(np.full(n, x), np.full(n, v), np.full(n, a)))
        rows.append((moved.displacement.copy(), moved.velocity.copy(), moved.acceleration.copy()))
    return np.array(rows)


def _rms(values: Array) -> Array:
    return np.asarray(np.sqrt(np.square(values).mean(axis=0)))


def _worst(parts: Array) -> float:
    return PERCENT * float(np.max(parts))


class Step(NamedTuple):
    computed: Array
    residual: Array
    specimens: Array


class Relaxation:
    """Computes targets by the relaxation ``kind`` (see the module). ``part`` is the numerical substructure."""

    def __init__(self, kind: str, omega: float, part: Substructure) -> None:
        self._kind, self.omega, self._part = kind, omega, part
        self._steps: list[Step] = []

    def next(self, step: Step) -> Array:
        """Return the target of the next run, ``(samples, 3, n_axes)``."""
        before, self._steps = self._steps, [*self._steps, step]
        if self._kind == "model":
            return step.computed - self._part.pushed(step.residual, step.specimens)
        if self._kind == "quasi_newton" and before:
            return self._combined(step, before)
        if self._kind == "aitken" and before:
            last = before[-1].residual[:, 0]
            change = step.residual[:, 0] - last
            square = float(np.square(change).sum())
            omega = -self.omega * float((last * change).sum()) / square if square else self.omega
            self.omega = math.copysign(min(abs(omega), LARGEST), omega)
        return step.computed - (1.0 - self.omega) * step.residual

    def _combined(self, step: Step, before: Sequence[Step]) -> Array:
        columns = np.array([(earlier.residual - step.residual)[:, 0].ravel() for earlier in before]).T
        weights = np.linalg.lstsq(columns, -step.residual[:, 0].ravel(), rcond=WEAKEST)[0]
        target = step.computed.copy()
        for weight, earlier in zip(weights.tolist(), before, strict=True):
            target += weight * (earlier.computed - step.computed)
        return target
