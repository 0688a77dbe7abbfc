# SPDX-License-Identifier: Apache-2.0
"""Ladder of a test: scenario and host of each rung, the expected motion of the rig, and comparison of rungs.

Rungs are compared at the integration steps, which do not depend on the time ratio. A replayed history has a step
in each sample, so rungs of equal ratio are compared at the longer of their steps. Histories are divided by the
level, because the response of a linear test is proportional to the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import COMPOSED, EMBEDDED, EXECUTIVE, LOCKSTEP, REALTIME, STAGES
from rths_nodes.loop.procedure_record import REDUCED, RUNGS, ProcedureRecord, Rung, RungRecord, moves
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.files import with_copied_files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.rungs import file_hashes, program_of
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError
from rths_nodes.recording.run import Run

SLOW, UNSENT = "e", "c"
"""Rung in slow time, and rung whose commands are not sent to the rig."""
MOST = 0.3
"""Largest reduced level that is proposed."""
ROOM = 0.8
"""Largest displacement at a proposed level, as a fraction of the elastic limit."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Step:
    """Rung to run. Its ``level`` and time ``ratio`` are already applied to ``scenario``."""

    rung: Rung
    scenario: Scenario
    level: float
    ratio: float
    host: str
    pace: str

    @cached_property
    def program(self) -> str:
        return program_of(self.scenario)

    @cached_property
    def hash(self) -> str:
        return rehearsal.hash_of(self.scenario, self.program)

    @property
    def engine(self) -> str:
        return f"{EXECUTIVE}, program {self.program}" if self.program else STAGES

    @cached_property
    def files(self) -> dict[str, str]:
        return file_hashes(self.scenario)

    def remarks(self) -> list[str]:
        slow = rehearsal.rate_remarks(self.scenario, self.ratio) if self.rung.name == SLOW else []
        return [*([f"engine {self.engine}"] if self.program else []), *slow]


class Ladder:
    """Provides the ``planned`` rungs of ``scenario``, with their rehearsals.

    ``level`` and the time ``ratio`` may be None until a rung needs them.
    """

    def __init__(
        self,
        scenario: Scenario,
        planned: Sequence[str],
        level: float | None,
        ratio: int | None,
        realtime: bool,
    ) -> None:
        self.scenario, self.planned, self.realtime = scenario, tuple(planned), realtime
        self.level, self.ratio = level, ratio
        self.abandoned: Callable[[], bool] = lambda: False
        """Function that returns True once the operator cancels rehearsals."""
        self._rehearsed: dict[str, Run] = {}
        self._files = file_hashes(scenario)
        self.code = Code.of(scenario)
        """Code that computes the test, as it was when the ladder was built."""

    def kept(self, folder: Path) -> Ladder:
        """Copy the scenario's files to ``folder``, and return a ladder that reads the copies.

        Raises ConfigError if a file has changed.
        """
        scenario = with_copied_files(self.scenario, folder)
        now = file_hashes(scenario)
        if changed := [path for path, digest in self._files.items() if now[path] != digest]:
            raise ConfigError(*(f"{path}: the file has changed since it was read" for path in changed))
        ladder = Ladder(scenario, self.planned, self.level, self.ratio, self.realtime)
        ladder.code = self.code
        return ladder

    @cached_property
    def simulated(self) -> Scenario:
        """Scenario of the test with all parts on a simulator. Raises ConfigError if a model is missing."""
        return rehearsal.simulated(self.scenario)

    def step(self, name: str) -> Step:
        """Return the rung ``name``. Raises ConfigError for a missing or impossible level or time ratio."""
        rung = RUNGS[name]
        level = self._required("level", self.level, name) if name in REDUCED else 1.0
        ratio = int(self._required("time_ratio", self.ratio, name)) if name == SLOW else 1
        base = self.scenario if rung.on_rig else self.simulated
        scenario = rehearsal.slower(rehearsal.at_level(base, level), ratio)
        fast = self.realtime and rung.on_rig
        native = scenario.engine == EXECUTIVE
        if native and rung.on_rig and name != UNSENT:
            raise ConfigError(
                f"engine = {EXECUTIVE!r}: rung {name} is not possible, because the procedure holds the session of "
                f"the rig, which the executive needs. Plan the rungs a, b and {UNSENT}, or use engine: auto"
            )
        host = COMPOSED if name == "b" or (fast and not native) else EMBEDDED
        return Step(rung, scenario, level, scenario.time_ratio, host, REALTIME if fast else LOCKSTEP)

    @staticmethod
    def _required(key: str, value: float | None, rung: str) -> float:
        if value is None:
            raise ConfigError(f"{key}: must be set for rung {rung}")
        return value

    def check(self) -> None:
        if {"a", "b", UNSENT} & set(self.planned):
            checked_loop(self.simulated)
        for name in self.planned:
            is_set = (self.level is not None or name not in REDUCED) and (self.ratio is not None or name != SLOW)
            if is_set:
                self.step(name)

    def rehearsed(self, name: str, progress: Progress | None = None) -> Run:
        """Return the run of the rung on a simulator. Each rung is simulated once.

        Raises ConfigError if the rung cannot be simulated or the run does not finish.
        """
        scenario = rehearsal.simulated(self.step(name).scenario)
        key = rehearsal.hash_of(scenario)
        if key not in self._rehearsed:
            done = hosts.run(scenario, progress=progress, interrupted=self.abandoned)
            if done.outcome != "finished":
                raise ConfigError(f"rung {name}: the outcome of the rehearsal is {done.outcome} ({done.reason})")
            self._rehearsed[key] = done.read()
        return self._rehearsed[key]

    def expected(self, name: str, progress: Progress | None = None) -> dict[str, dict[str, float]]:
        """Return the peaks of the rehearsal by axis; empty without a simulator.

        Raises the errors of :meth:`rehearsed`.
        """
        return peaks_of(self.rehearsed(name, progress)) if self.has_simulator else {}

    @cached_property
    def has_simulator(self) -> bool:
        try:
            return bool(self.simulated)
        except ConfigError:
            return False

    def stops(self, step: Step) -> dict[str, dict[str, float]]:
        """Return, by axis, the ``displacement`` (m) and ``force`` (N) at which the rung is stopped."""
        elastic = rehearsal.elastic_limits(self.scenario) if step.rung.name in REDUCED else {}
        return {
            axis: {"displacement": min(limit.stroke, elastic.get(axis, math.inf)), "force": limit.force}
            for axis, limit in step.scenario.limits.items()
        }

    def unknown(self, name: str) -> list[str]:
        if self.has_simulator:
            return []
        message = "the test has no simulator, so the motion of the axes cannot be predicted"
        limited = name in REDUCED and bool(rehearsal.elastic_limits(self.scenario))
        return [message + ". The rung is stopped at the elastic limit" * limited]

    def check_elastic(self, name: str) -> None:
        """Raise ConfigError if a rung that must stay below the elastic limit is expected to exceed it."""
        limits = rehearsal.elastic_limits(self.scenario)
        if name not in REDUCED or not limits:
            return
        expected = self.expected(name)
        beyond = [
            f"rung {name}: axes.{axis} is expected to move by {1e3 * far:.3g} mm, which exceeds elastic_limit "
            f"= {1e3 * limit:.3g} mm of the rig file. Lower the level, now {self.level:g}"
            for axis, limit in limits.items()
            if axis in expected and (far := expected[axis]["displacement"]) > limit
        ]
        if beyond:
            raise ConfigError(*beyond)

    def proposed_level(self) -> float | None:
        """Return a level, at most ``MOST``, at which a linear test stays below every elastic limit.

        Return None if no elastic limit is set or the test has no simulator.
        """
        limits = rehearsal.elastic_limits(self.scenario)
        expected = self.expected("g") if limits else {}
        if not expected:
            return None
        shares = [
            ROOM * limit / far for axis, limit in limits.items() if (far := expected[axis]["displacement"]) > 0
        ]
        return min(MOST, _rounded_down(min(shares, default=MOST)))


def _rounded_down(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return round(math.floor(value / unit) * unit, 12)


def at_steps(run: Run, samples_per_step: int | None = None) -> tuple[Array, Array]:
    """Return displacement (m) and force (N) after the soft start, one row per step, ``(n, n_axes)``."""
    scenario = run.scenario
    samples_per_step = samples_per_step or scenario.samples_per_step
    first = scenario.soft_start_steps * samples_per_step
    return run.displacement[first::samples_per_step], run.force[first::samples_per_step]


def differences(run: Run, level: float, before: Run, level_before: float) -> dict[str, float]:
    """Return the relative differences between two runs.

    The keys are ``displacement of AXIS`` and ``force of AXIS``. A difference is NaN if the axis moved only in
    ``run``.
    """
    result: dict[str, float] = {}
    same = run.scenario.time_ratio == before.scenario.time_ratio
    samples_per_step = max(run.scenario.samples_per_step, before.scenario.samples_per_step) if same else None
    histories = at_steps(run, samples_per_step), at_steps(before, samples_per_step)
    for name, now, then in zip(("displacement", "force"), *histories, strict=True):
        n = min(len(now), len(then))
        for column, axis in enumerate(run.axes):
            result[f"{name} of {axis}"] = difference(now[:n, column] / level, then[:n, column] / level_before)
    return result


def difference(now: Array, then: Array) -> float:
    """Return the rms of ``now`` - ``then`` divided by the rms of ``then``.

    Return 0 if both are zero. Return NaN if only ``then`` is zero, or if no value is finite in both.
    """
    both = np.isfinite(now) & np.isfinite(then)
    if not both.any():
        return math.nan
    size, off = np.sqrt(np.mean(then[both] ** 2)), np.sqrt(np.mean((now[both] - then[both]) ** 2))
    if size > 0.0:
        return float(off / size)
    return math.nan if off > 0.0 else 0.0


def peaks_of(run: Run) -> dict[str, dict[str, float]]:
    """Return the largest displacement (m), force (N) and velocity (m/s) of each axis, as magnitudes."""
    rate = run.rates(run.displacement)
    rows = {"displacement": run.displacement, "force": run.force, "velocity": rate}
    return {
        axis: {name: _largest(values[:, column]) for name, values in rows.items()}
        for column, axis in enumerate(run.axes)
    }


def _largest(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).max()) if len(finite) else 0.0


def comparison_remarks(level: float, ratio: float, level_before: float, ratio_before: float) -> list[str]:
    result = []
    if level != level_before:
        result.append(
            f"the previous rung has level {level_before:g}. Displacement and force are divided by the level, so "
            "results of nonlinear specimens differ"
        )
    if ratio != ratio_before:
        result.append(
            f"the previous rung has time ratio {ratio_before:g}, so results of rate-dependent parts differ"
        )
    return result


def differences_text(differences_by_name: dict[str, float], record: ProcedureRecord) -> str:
    return ", ".join(
        f"{record.named(name)} by {'an unknown amount' if math.isnan(value) else f'{value:.3g}'}"
        for name, value in differences_by_name.items()
    )


def update_specimen(record: ProcedureRecord, entry: RungRecord) -> bool:
    """Begin or complete a rung's row in the specimen's history; return true if the rung loads the specimen."""
    if record.simulation or not moves(entry.name):
        return False
    largest = {
        name: {axis: values[name] for axis, values in entry.peaks.items()} for name in ("displacement", "force")
    }
    named = {"date": entry.started, "test": record.test_id, "rung": entry.name}
    rows, values = record.specimen.history, named | {"level": entry.level} | largest
    begun = [row for row in rows if all(row.get(key) == value for key, value in named.items())]
    if begun:
        begun[-1] |= values
    else:
        rows.append(values)
    return True


def complete_aborted(record: ProcedureRecord, entry: RungRecord, recording: Path) -> None:
    """Complete the record of an aborted rung from its recording, because the rung has loaded the specimen."""
    try:
        run = read_run(recording)
    except (ConfigError, RecordingError) as error:
        entry.remarks.append(f"the recording of the rung cannot be read: {error}")
        return
    entry.samples, entry.peaks = len(run.time) - 1, peaks_of(run)
    entry.remarks.append("the rung was aborted, so its peaks are from the recorded samples")
    update_specimen(record, entry)
