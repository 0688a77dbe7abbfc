# SPDX-License-Identifier: Apache-2.0
"""Ladder of a test: scenario and host of each rung, the expected motion of the rig, and comparison of rungs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rths_nodes.analysis.overlay import peaks_of, rung_differences
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import COMPOSED, EMBEDDED, EXECUTIVE, LOCKSTEP, REALTIME, STAGES
from rths_nodes.loop.procedure_record import REDUCED, REHEARSAL, RUNGS, ProcedureRecord, Rung, RungRecord, moves
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
"""Largest level that is proposed."""
ROOM = 0.8
"""Largest displacement at a proposed level, as a fraction of the elastic limit."""


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
        return self.scenario.whole_hash(self.program)

    @property
    def engine(self) -> str:
        return f"{EXECUTIVE}, program {self.program}" if self.program else STAGES

    @cached_property
    def files(self) -> dict[str, str]:
        return file_hashes(self.scenario)

    def remarks(self) -> list[str]:
        slow = rehearsal.rate_remarks(self.scenario, self.ratio) if self.rung.name == SLOW else []
        return [*([f"engine {self.engine}"] if self.program else []), *slow]


@dataclass(eq=False)
class Ladder:
    """Provides the ``planned`` rungs of ``scenario``, with their rehearsals.

    ``level`` and the time ``ratio`` may be None until a rung needs them. ``code`` is the code that computes the
    test, as it was when the ladder was built. ``abandoned`` returns True once the operator cancels rehearsals.
    ``progress`` receives the sample and the number of samples.
    """

    scenario: Scenario
    planned: Sequence[str]
    level: float | None
    ratio: int | None
    realtime: bool
    abandoned: Callable[[], bool] = lambda: False
    progress: Callable[[int, int], None] = lambda sample, samples: None

    def __post_init__(self) -> None:
        self._rehearsed: dict[str, Run] = {}
        self._files, self.code = file_hashes(self.scenario), Code.of(self.scenario)

    def kept(self, folder: Path) -> Ladder:
        """Copy the files to ``folder``, for the returned ladder. Raises ConfigError if a file has changed."""
        scenario = with_copied_files(self.scenario, folder)
        now = file_hashes(scenario)
        if changed := [path for path, digest in self._files.items() if now[path] != digest]:
            raise ConfigError(*(f"{path}: the file has changed since it was read" for path in changed))
        ladder = replace(self, scenario=scenario)
        ladder.code = self.code
        return ladder

    @cached_property
    def simulated(self) -> Scenario:
        """Scenario of the test with all parts on a simulator. Raises ConfigError if a model is missing."""
        return rehearsal.simulated(self.scenario)

    def step(self, name: str) -> Step:
        """Return the rung ``name``. Raises ConfigError for a missing or impossible level or time ratio."""
        rung = RUNGS[name]
        if not self._is_set(name):
            key = "level" if self.level is None and name in REDUCED else "time_ratio"
            raise ConfigError(f"{key}: must be set for rung {name}")
        level = self.level if self.level is not None and name in REDUCED else 1.0
        ratio = self.ratio if self.ratio is not None and name == SLOW else 1
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

    def _is_set(self, name: str) -> bool:
        return (self.level is not None or name not in REDUCED) and (self.ratio is not None or name != SLOW)

    def check(self) -> None:
        if {"a", "b", UNSENT} & set(self.planned):
            checked_loop(self.simulated)
        for name in filter(self._is_set, self.planned):
            self.step(name)

    def rehearsed(self, name: str) -> Run:
        """Return the only simulation of the rung. Raises ConfigError if it is impossible or does not finish."""
        scenario = rehearsal.simulated(self.step(name).scenario)
        key = scenario.whole_hash()
        if key not in self._rehearsed:
            done = hosts.run(scenario, progress=self.progress, interrupted=self.abandoned)
            if done.outcome != "finished":
                raise ConfigError(f"rung {name}: the outcome of the rehearsal is {done.outcome} ({done.reason})")
            self._rehearsed[key] = done.read()
        return self._rehearsed[key]

    def expected(self, name: str) -> dict[str, dict[str, float]]:
        """Return peaks of the rehearsal by axis; empty without a simulator. Raises errors of :meth:`rehearsed`."""
        return peaks_of(self.rehearsed(name)) if self.has_simulator else {}

    @cached_property
    def has_simulator(self) -> bool:
        try:
            return bool(self.simulated)
        except ConfigError:
            return False

    @cached_property
    def _elastic(self) -> dict[str, float]:
        return rehearsal.elastic_limits(self.scenario)

    def stops(self, step: Step) -> dict[str, dict[str, float]]:
        """Return, by axis, the ``displacement`` (m) and ``force`` (N) at which the rung is stopped."""
        elastic = self._elastic if step.rung.name in REDUCED else {}
        return {
            axis: {"displacement": min(limit.stroke, elastic.get(axis, math.inf)), "force": limit.force}
            for axis, limit in step.scenario.limits.items()
        }

    def unknown(self, name: str) -> list[str]:
        message = "the test has no simulator, so the motion of the axes cannot be predicted"
        limited = ". The rung is stopped at the elastic limit" if name in REDUCED and self._elastic else ""
        return [] if self.has_simulator else [message + limited]

    def check_elastic(self, name: str) -> None:
        """Raise ConfigError if a rung that must stay below the elastic limit is expected to exceed it."""
        if name not in REDUCED or not self._elastic:
            return
        expected = self.expected(name)
        Problems(
            f"rung {name}: axes.{axis} is expected to move by {1e3 * far:.3g} mm, which exceeds elastic_limit "
            f"= {1e3 * limit:.3g} mm of the rig file. Lower the level, now {self.level:g}"
            for axis, limit in self._elastic.items()
            if axis in expected and (far := expected[axis]["displacement"]) > limit
        ).refuse()

    def proposed_level(self) -> float | None:
        """Return a level at which a linear test stays below the elastic limits; None if a value is missing."""
        expected = self.expected("g") if self._elastic else {}
        peaks = {axis: peak["displacement"] for axis, peak in expected.items() if peak["displacement"] > 0.0}
        levels = [ROOM * limit / peaks[axis] for axis, limit in self._elastic.items() if axis in peaks]
        if not levels:
            return None
        unit = 10.0 ** math.floor(math.log10(min(levels)))
        return min(MOST, round(math.floor(min(levels) / unit) * unit, 12))

    def describe(self, entry: RungRecord, step: Step) -> None:
        entry.host, entry.pace, entry.limits = step.host, step.pace, self.stops(step)
        entry.level, entry.time_ratio, entry.scenario_hash = step.level, step.ratio, step.hash

    def judged(self, record: ProcedureRecord, entry: RungRecord, step: Step, recording: Path | None) -> str:
        """Complete the ``entry`` of an ended rung from its ``recording``, and return its outcome as text."""
        self.describe(entry, step)
        entry.remarks += step.remarks()
        entry.recording, compared = "", ""
        if recording is not None:
            entry.recording = recording.name
            try:
                run = read_run(recording)
            except (ConfigError, RecordingError) as error:
                entry.outcome, entry.reason = "failed", f"the recording of the rung cannot be read: {error}"
            else:
                entry.take_late(run.late)
                entry.peaks = peaks_of(run)
                compared = self._compared(record, entry, run, recording.parent)
        update_specimen(record, entry)
        reason = f": {entry.reason}" if entry.reason else ""
        return f"rung {entry.name}: {entry.ending} after {entry.samples} samples{reason}{compared}"

    def _compared(self, record: ProcedureRecord, entry: RungRecord, run: Run, folder: Path) -> str:
        """Compare the rung with the last finished rung and with its rehearsal; return the differences as text."""
        text = ""
        earlier = [rung for rung in record.rungs if rung is not entry and rung.recording]
        before = next((rung for rung in reversed(earlier) if rung.outcome == "finished"), None)
        if before is not None:
            then = read_run(folder / before.recording)
            entry.compared_with = before.name
            entry.differences = rung_differences(run, entry.level, then, before.level)
            entry.remarks += comparison_remarks(entry.level, entry.time_ratio, before.level, before.time_ratio)
            shares = differences_text(entry.differences, record)
            text = f"; differs from rung {before.name} (rms over rms): {shares}"
        if not (RUNGS[entry.name].moves and self.has_simulator and entry.outcome == "finished"):
            return text
        try:
            result = rung_differences(run, 1.0, self.rehearsed(entry.name), 1.0)
        except ConfigError as error:
            entry.remarks.append(f"the rung is not compared with its rehearsal: {error}")
            return text
        # not in place: a stop in another thread may be writing the record
        entry.differences = entry.differences | {f"{name}{REHEARSAL}": value for name, value in result.items()}
        return f"{text}; differs from its rehearsal: {differences_text(result, record)}"


def comparison_remarks(level: float, ratio: float, level_before: float, ratio_before: float) -> list[str]:
    levels = (
        f"the previous rung has level {level_before:g}. Displacement and force are divided by the level, so "
        "results of nonlinear specimens differ"
    )
    ratios = f"the previous rung has time ratio {ratio_before:g}, so results of rate-dependent parts differ"
    return [levels] * (level != level_before) + [ratios] * (ratio != ratio_before)


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
    if begun := [row for row in rows if named.items() <= row.items()]:
        begun[-1] |= values
    else:
        rows.append(values)
    return True


def complete_aborted(record: ProcedureRecord, entry: RungRecord, recording: Path) -> None:
    """Complete the record of an aborted rung from its recording, because the rung has loaded the specimen."""
    try:
        run = read_run(recording)
        entry.samples, entry.peaks = len(run.time) - 1, peaks_of(run)
        entry.remarks.append("the rung was aborted, so its peaks are from the recorded samples")
    except (ConfigError, RecordingError) as error:
        entry.remarks.append(f"the recording of the rung cannot be read: {error}")
        return
    update_specimen(record, entry)
