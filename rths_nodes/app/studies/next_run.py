# SPDX-License-Identifier: Apache-2.0
"""Next run of a series: read every run, check that it played its history, write the history of the next one.

A series is a folder. Run 1 is the last rung g of the test in it (``rths test``), or ``run_1`` of ``rths iterate``.
``run_2``, ``run_3``, ... are recordings, or folders of tests, of the corrected runs. ``run_2`` played
``history_2.npz``, and so on. The whole series is computed again: the next history depends on its files alone.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rths_nodes.analysis.iteration import bounds, corrections
from rths_nodes.analysis.iteration.convergence import CONVERGED, Row, softened
from rths_nodes.analysis.iteration.corrections import Corrections, Rehearsal, Settings
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rehearsal import elastic_limits
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics import history
from rths_nodes.mechanics.history import History
from rths_nodes.procedure.arming import FULL
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

SCENARIO = "scenario.yaml"
"""Scenario of ``rths iterate`` in its folder, before any run."""
WITHIN = 1.1
"""Largest peak of a run relative to run 1."""
SAME = 1e-6
"""Relative tolerance for equal histories."""


@dataclass(frozen=True, eq=False)
class Series:
    """Runs of a ``folder``: recordings in their order, and the ``scenario`` that they iterate.

    ``predicted``: run 1 played a prediction (``rths iterate``); else it is a test of its own.
    """

    folder: Path
    scenario: Scenario
    recordings: list[Path]
    predicted: bool

    def history(self, number: int) -> Path:
        return self.folder / f"history_{number}.npz"

    def scenario_of(self, number: int) -> Path:
        return self.folder / f"run_{number}.yaml"


@dataclass(frozen=True, eq=False)
class NextRun:
    """Rows of the runs, verdict with reason, next number and ``rehearsal``, None once converged."""

    rows: list[Row]
    reason: str
    number: int
    rehearsal: Rehearsal | None


def find(folder: Path) -> Series:
    """Return the series in ``folder``. Raises ConfigError without one, and for a missing run."""
    if not folder.is_dir():
        raise ConfigError(f"--next {folder}: no such folder")
    predicted = (folder / SCENARIO).is_file()
    first = folder / "run_1" if predicted else _recording(folder)
    matches = [re.fullmatch(r"run_(\d+)", path.name) for path in folder.iterdir() if path.is_dir()]
    last = max([int(match[1]) for match in matches if match], default=1)
    places = [folder / f"run_{number}" for number in range(2, last + 1)]
    if missing := [place for place in (first, *places) if not place.is_dir()]:
        raise ConfigError(*(f"{place}: missing: a series has all its runs" for place in missing))
    recordings = [first, *map(_recording, places)]
    scenario = files.load(folder / SCENARIO) if predicted else read_run(first).scenario
    return Series(folder, scenario, recordings, predicted)


def _recording(place: Path) -> Path:
    if not procedure.exists(place):
        return place
    rungs = [rung for rung in procedure.read(place).rungs if rung.name == FULL and rung.recording]
    if not rungs or rungs[-1].outcome != "finished" or (rungs[-1].not_valid and not rungs[-1].counts):
        ending = f"the last one: {rungs[-1].ending}" if rungs else "none was recorded"
        raise ConfigError(f"{place}: no finished and valid rung {FULL} ({ending})")
    return place / rungs[-1].recording


def write(series: Series, settings: Settings) -> NextRun:
    """Write history and scenario of the next run, unless the series has converged.

    Raises ConfigError, and writes nothing, if a run has not finished or is not of this series, if the specimen has
    lost force, if the error does not fall, and for a next run beyond ``WITHIN`` or an elastic limit.
    """
    work = _replayed(series, settings)
    verdict, reason = settings.rule.verdict(work.rows)
    number = len(work.rows) + 1
    if verdict == CONVERGED:
        return NextRun(work.rows, reason, number, None)
    if verdict:
        raise ConfigError(f"{series.folder}: no further run: {reason}")
    work.correct()
    rehearsal = work.rehearsed()
    _check_bounds(series.scenario, work, number, rehearsal, min(WITHIN, settings.within or WITHIN))
    words = f"rths iterate --next {series.folder.name} --mode {settings.mode}: run {number}"
    planned = work.planned(number, series.folder, words, _parents(series))
    series.scenario_of(number).write_text(dump(planned.data()), encoding="utf-8")
    return NextRun(work.rows, reason, number, rehearsal)


def _replayed(series: Series, settings: Settings) -> Corrections:
    scenario, recordings = series.scenario, series.recordings
    corrections.check(scenario)
    runs = [_finished(path) for path in recordings]
    if series.predicted:
        work = Corrections(scenario, settings)
        _check_played(series, 1, work.history(""), runs[0])
        work.learn(1, runs[0].outcome, "", str(recordings[0]), runs[0])
    elif scenario.soft_start is not None:
        raise ConfigError("soft_start: must be left out: what repeats begins with the test")
    else:
        work = Corrections(scenario, settings, runs[0])
    _check_specimen(work.rows[-1], recordings[0])
    for number, (path, run) in enumerate(zip(recordings[1:], runs[1:], strict=True), 2):
        work.correct()
        _check_played(series, number, work.history(""), run)
        work.learn(number, run.outcome, "", str(path), run)
        _check_specimen(work.rows[-1], path)
    return work


def _finished(path: Path) -> Run:
    run = read_run(path)
    if run.outcome != "finished" or run.not_valid:
        raise ConfigError(f"{path}: {run.ending}: each run of a series must have finished, and be valid")
    return run


def _check_specimen(row: Row, path: Path) -> None:
    """Raise ConfigError if a specimen has lost force since run 1, or a run does not show its stiffness."""
    unknown = [
        f"axes.{axis}: run {row.number} does not show the stiffness of its specimen"
        for axis, part in row.answer.items()
        if not math.isfinite(part)
    ]
    if problems := unknown or softened(row.answer):
        raise ConfigError(*(f"{path}: {problem}" for problem in problems))


def _check_played(series: Series, number: int, computed: History, run: Run) -> None:
    """Raise ConfigError unless run ``number`` played its stored history, equal to the ``computed`` one."""
    file = series.history(number)
    stored = history.load(str(file))
    for name, known in stored.parents.items():
        path = series.folder / name
        if not path.is_file() or _sum(path) != known:
            raise ConfigError(f"{path}: has changed since {file.name} was written: SHA-256 must be {known}")
    pairs = (computed.target, stored.target), (computed.command, stored.command)
    if any(one.shape != other.shape or not _same(one, other) for one, other in pairs):
        raise ConfigError(
            f"{file}: differs from the history computed from the runs before it: use the --mode, --relaxation, "
            "--omega and --cutoff of that history"
        )
    n = len(stored.target)
    if len(run.target) < n or not _same(run.target[1:n], stored.target[1:, 0]):
        raise ConfigError(f"{series.recordings[number - 1]}: its targets are not those of {file.name}")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    largest = float(np.abs(other).max(initial=0.0))
    return bool(np.abs(one - other).max(initial=0.0) <= SAME * largest)


def _check_bounds(scenario: Scenario, work: Corrections, number: int, rehearsal: Rehearsal, within: float) -> None:
    """Raise ConfigError for a next run above ``within`` times run 1, or beyond an elastic limit."""
    problems, elastic = Problems(), elastic_limits(scenario)
    if scenario.rig_file is not None:
        problems += [
            f"axes.{axis}: the rig file has no elastic_limit, below which the runs of a series stay"
            for axis in scenario.axes
            if axis not in elastic
        ]
    problems += bounds.beyond_elastic(1, work.first, elastic)
    problems += bounds.beyond_elastic(number, rehearsal.peaks, elastic)
    problems += bounds.above_first(number, rehearsal.peaks, work.first, within)
    problems.refuse()


def _parents(series: Series) -> dict[str, str]:
    """Return SHA-256 of the files from which the next history follows, by their path in the folder."""
    paths = [path for recording in series.recordings for path in sorted(recording.glob("*.mcap"))]
    paths += [series.history(number) for number in range(1, len(series.recordings) + 1)]
    paths += [series.folder / SCENARIO]
    return {str(path.relative_to(series.folder)): _sum(path) for path in paths if path.is_file()}


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
