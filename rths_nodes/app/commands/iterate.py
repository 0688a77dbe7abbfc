# SPDX-License-Identifier: Apache-2.0
"""``rths iterate``: repeat a test, with a correction after each run, until the series converges.

A series is stored in a folder. Run 1 is ``run_1`` or, in the folder of a test (``rths test``), the last run of
rung g. The corrected runs (``run_2`` and later) play the histories in ``history_2.npz`` and later files. The next
history depends only on the files in the folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from rths_nodes.analysis.iteration import corrections, learning
from rths_nodes.analysis.iteration.corrections import (
    HISTORY,
    TRACKING,
    Corrections,
    Rehearsal,
    Row,
    Settings,
)
from rths_nodes.analysis.units import MM, PERCENT, plain
from rths_nodes.app import hosts
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies.engine import Where
from rths_nodes.core import registry, text_files
from rths_nodes.core.errors import ConfigError, Problems, quoted
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.interrupts import orderly_stop, raised_at_once
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import FULL
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rehearsal import elastic_limits
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics import history
from rths_nodes.mechanics.history import History
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

SCENARIO = "scenario.yaml"
WITHIN = 1.1
"""Largest allowed ratio of a run's peaks to the peaks of run 1."""
SAME = 1e-6
FIGURE = ("figure", "style", "width")


@dataclass(frozen=True, eq=False)
class Series:
    """Series of runs of a scenario in ``folder``. ``predicted`` is true if run 1 played a predicted history."""

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
    rows: list[Row]
    reason: str
    number: int
    rehearsal: Rehearsal | None


def find(folder: Path) -> Series:
    if not folder.is_dir():
        raise ConfigError(f"--next {folder}: no such folder")
    predicted = (folder / SCENARIO).is_file()
    first = folder / "run_1" if predicted else _recording(folder)
    matches = [re.fullmatch(r"run_(\d+)", path.name) for path in folder.iterdir() if path.is_dir()]
    last = max([int(match[1]) for match in matches if match], default=1)
    places = [folder / f"run_{number}" for number in range(2, last + 1)]
    if missing := [run_folder for run_folder in (first, *places) if not run_folder.is_dir()]:
        raise ConfigError(*(f"{run_folder}: missing; a series must include all runs" for run_folder in missing))
    recordings = [first, *map(_recording, places)]
    scenario = files.load(folder / SCENARIO) if predicted else read_run(first).scenario
    return Series(folder, scenario, recordings, predicted)


def _recording(path: Path) -> Path:
    if not procedure.exists(path):
        return path
    rungs = [rung for rung in procedure.read(path).rungs if rung.name == FULL and rung.recording]
    if not rungs or rungs[-1].outcome != "finished" or (rungs[-1].not_valid and not rungs[-1].counts):
        ending = f"the last rung is {rungs[-1].ending}" if rungs else "none was recorded"
        raise ConfigError(f"{path}: has no finished and valid rung {FULL} ({ending})")
    return path / rungs[-1].recording


def write(series: Series, settings: Settings) -> NextRun:
    """Write the history and the scenario of the next run, unless the series has converged.

    The returned ``rehearsal`` is None if the series has converged. Raises ConfigError if a run is unsuitable, a
    specimen has softened, the error has risen repeatedly, or no further run is allowed. Also raises ConfigError if
    the peaks of the next run would exceed an elastic limit, or ``WITHIN`` times the peaks of run 1.
    """
    work = _replayed(series, settings)
    verdict, reason = settings.verdict(work.rows)
    number = len(work.rows) + 1
    if verdict == corrections.CONVERGED:
        return NextRun(work.rows, reason, number, None)
    if verdict:
        raise ConfigError(f"{series.folder}: a further run is not possible ({reason})")
    work.correct()
    rehearsal = work.rehearsed()
    _check_bounds(series.scenario, work, number, rehearsal, min(WITHIN, settings.within or WITHIN))
    title = f"rths iterate --next {series.folder.name} --mode {settings.mode}: run {number}"
    planned = work.planned(number, series.folder, title, _parents(series))
    text_files.write(series.scenario_of(number), dump(planned.data()).encode())
    return NextRun(work.rows, reason, number, rehearsal)


def _replayed(series: Series, settings: Settings) -> Corrections:
    scenario, recordings = series.scenario, series.recordings
    corrections.check(scenario)
    runs = [_finished(path) for path in recordings]
    if scenario.soft_start is not None and not series.predicted:
        raise ConfigError("soft_start: must be left out, because a series repeats the test from the start")
    work = Corrections(scenario, settings, None if series.predicted else runs[0])
    for number, (path, run) in enumerate(zip(recordings, runs, strict=True), 1):
        if number > 1:
            work.correct()
        if number > 1 or series.predicted:
            _check_played(series, number, work.history("", {}), run)
            work.learn(number, run.outcome, "", str(path), run)
        _check_specimen(work.rows[-1], path)
    return work


def _finished(path: Path) -> Run:
    run = read_run(path)
    if run.outcome != "finished" or run.not_valid:
        raise ConfigError(f"{path}: each run of a series must be finished and valid ({run.ending})")
    if run.incomplete:
        raise ConfigError(f"{path}: each run of a series must be complete ({run.incomplete})")
    return run


def _check_specimen(row: Row, path: Path) -> None:
    unknown = [
        f"axes.{axis}: run {row.number} does not reveal the stiffness of the specimen"
        for axis, part in row.answer.items()
        if not math.isfinite(part)
    ]
    if problems := unknown or corrections.softened(row.answer):
        raise ConfigError(*(f"{path}: {problem}" for problem in problems))


def _check_played(series: Series, number: int, computed: History, run: Run) -> None:
    file = series.history(number)
    stored = history.load(str(file))
    for name, digest in stored.parents.items():
        path = series.folder / name
        if not path.is_file() or _sum(path) != digest:
            raise ConfigError(f"{path}: has changed since {file.name} was written; its SHA-256 must be {digest}")
    pairs = (computed.target, stored.target), (computed.command, stored.command)
    if any(one.shape != other.shape or not _same(one, other) for one, other in pairs):
        raise ConfigError(
            f"{file}: differs from the history computed from the previous runs; give the same --mode, "
            "--relaxation, --omega and --cutoff as for this file"
        )
    n = len(stored.target)
    if len(run.target) < n or not _same(run.target[1:n], stored.target[1:, 0]):
        raise ConfigError(f"{series.recordings[number - 1]}: the targets differ from {file.name}")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    largest = float(np.abs(other).max(initial=0.0))
    return bool(np.abs(one - other).max(initial=0.0) <= SAME * largest)


def _check_bounds(scenario: Scenario, work: Corrections, number: int, rehearsal: Rehearsal, within: float) -> None:
    problems, elastic = Problems(), elastic_limits(scenario)
    if scenario.rig_file is not None:
        problems += [
            f"axes.{axis}: elastic_limit is missing in the rig file; runs of a series must stay below this limit"
            for axis in scenario.axes
            if axis not in elastic
        ]
    problems += corrections.beyond_elastic(1, work.first, elastic)
    problems += corrections.beyond_elastic(number, rehearsal.peaks, elastic)
    problems += corrections.above_first(number, rehearsal.peaks, work.first, within)
    problems.refuse()


def _parents(series: Series) -> dict[str, str]:
    paths = [path for recording in series.recordings for path in sorted(recording.glob("*.mcap"))]
    paths += [series.history(number) for number in range(1, len(series.recordings) + 1)]
    paths += [series.folder / SCENARIO]
    return {str(path.relative_to(series.folder)): _sum(path) for path in paths if path.is_file()}


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Iteration:
    rows: list[Row]
    verdict: str
    reason: str
    inverse: learning.Inverse | None
    last: Run
    exit_code: int


def iterate(
    scenario: Scenario,
    settings: Settings,
    folder: Path,
    record: bool = True,
    engine: Callable[[Scenario, float], str] = lambda scenario, samples: AUTO,
    progress: Callable[[float, float], None] = lambda done, total: None,
    tell: Callable[[Row], None] = lambda row: None,
) -> Iteration:
    """Repeat ``scenario`` until the criteria in ``settings`` end the series, and return the results.

    Histories and, with ``record``, recordings are written to ``folder``. ``engine(scenario, samples)`` returns the
    engine. ``tell(row)`` is called after each run. A stop request stops the run safely and ends the series.
    Raises KeyboardInterrupt if run 1 has not ended.
    """
    check(scenario)
    work, new = Corrections(scenario, settings), not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)  # removed again if the series is refused
    text_files.write(folder / SCENARIO, dump(scenario.data()).encode())
    runs, rows = settings.runs, work.rows
    preferred = engine(work.base, runs * work.base.samples)

    def share(before: int, sample: float, samples: float) -> None:
        progress(before * samples + sample, runs * samples)

    try:
        for number in range(1, runs + 1):
            title = f"rths iterate {work.base.name} --mode {settings.mode}: run {number}"
            planned = work.planned(number, folder, title, {})
            try:
                with orderly_stop() as interrupted:
                    result = hosts.run(
                        planned,
                        record=str(folder / f"run_{number}") if record else "",
                        preferred=preferred,
                        progress=partial(share, number - 1),
                        interrupted=interrupted,
                    )
            except ConfigError as error:  # raised if the history exceeds a limit
                if number == 1:
                    if new:
                        shutil.rmtree(folder)
                    raise
                verdict, reason = corrections.HELD, f"run {number}: {error}"
                break
            last = result.read()
            work.learn(number, result.outcome, result.reason, str(result.recording or ""), last)
            tell(rows[-1])
            verdict, reason = _verdict(work)
            if verdict:
                break
            if interrupted():
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not rows:
            raise
        verdict, reason = corrections.HELD, f"interrupted after run {len(rows)}"
    codes = {corrections.CONVERGED: ExitCode.FINISHED, corrections.HELD: ExitCode.HELD}
    code = result.exit_code if verdict == corrections.ENDED else codes.get(verdict, ExitCode.TRIPPED)
    return Iteration(rows, verdict, reason, work.inverse, last, code)


def _verdict(work: Corrections) -> tuple[str, str]:
    """Return the verdict on the series and its reason. If the series continues, compute the next history."""
    settings, rows = work.settings, work.rows
    verdict, reason = settings.verdict(rows)
    if verdict:
        return verdict, reason
    work.correct()
    if settings.within is not None:
        expected = work.rehearsed().peaks
        if above := corrections.above_first(len(rows) + 1, expected, work.first, settings.within):
            return corrections.HELD, "; ".join(above)
    return verdict, reason


def check(scenario: Scenario) -> None:
    if registry.class_of("port", scenario.port).external or not Assembly(scenario).port.simulated:
        raise ConfigError(
            f"port.type = {type(scenario.port).type_name!r}: must be the port of a simulated rig. "
            "For a series on a real rig, use rths test (rung g) and rths iterate --next FOLDER"
        )
    corrections.check(scenario)


RESULT = "iteration.json"


def iterate_arguments(add: arguments.Arguments) -> None:
    add.scenario(may_be_missing=True)
    text = (
        "write the history and the scenario of the next run of the series in FOLDER, without running the test; "
        "leave SCENARIO out. FOLDER was written by rths iterate, or by rths test (run 1 is rung g)"
    )
    add("--next FOLDER", text)
    text = (
        "correction: tracking (corrects commands for known targets) or history (also corrects the targets, using "
        "the response of the structure to the measured forces); default: history if the scenario has a structure"
    )
    add("--mode", text, choices=(TRACKING, HISTORY))
    add("--runs N", "maximum number of runs", Settings.runs)
    add("--tolerance PERCENT", "error at which the series ends, %% of the rms of the target", Settings.tolerance)
    add("--relaxation NAME", "relaxation with --mode history: constant, aitken, quasi_newton or model", "model")
    add("--omega FACTOR", "relaxation factor (for aitken and quasi_newton: initial factor)", 1.0)
    text = "highest frequency of the corrected errors, Hz; default: derived from the first run"
    add("--cutoff HZ", text, type=float)
    text = "hold before a run whose peaks would exceed this multiple of the peaks of the first run, e.g. 1.1"
    add("--within FACTOR", text, type=float)
    text = "change of the rig from run RUN on, e.g. 2:axes.a.specimen.stiffness=1e6"
    add.several("--change RUN:KEY=VALUE", text)
    where = add.exclusive()
    where("--record DIR", "folder for histories, recordings and the result; default: a new folder in runs/", "")
    where.flags(no_record="do not record")
    add.figure("the convergence")
    add("--report FILE", "write a report (HTML) of the last run")
    add.engine()
    add.json()


def iterate_command(options: arguments.Options) -> int:
    if options.next:
        _next(options)
        return ExitCode.FINISHED
    if not options.scenario:
        raise ConfigError("SCENARIO: missing; give a scenario, or a series with --next FOLDER")
    scenario, figure = arguments.scenario(options), arguments.figure(options)
    if options.report:
        terminal.check_writable(Path(options.report))
    settings = _settings(options, scenario)
    check(scenario)
    where = Where(engine=options.engine)
    with _folder(options, scenario) as folder, orderly_stop():
        with raised_at_once(), terminal.writing(folder), terminal.progress(scenario.name) as progress:
            iteration = iterate(
                scenario, settings, folder, not options.no_record, where.engine_of, progress, _tell
            )
        data = _data(scenario, settings, iteration)
        if not options.no_record:
            with terminal.writing(folder / RESULT):
                text_files.write(folder / RESULT, f"{json.dumps(terminal.finite(data), indent=2)}\n".encode())
        if options.json:
            terminal.print_json(data)
        else:
            _print(scenario, settings, iteration)
            if not options.no_record:
                print(f"recordings: {folder}")
        _draw(options, f"{scenario.name}, {settings.mode}: {iteration.verdict}", iteration, figure)
    return iteration.exit_code


def _settings(options: arguments.Options, scenario: Scenario) -> Settings:
    return Settings(
        options.mode or (TRACKING if scenario.structure is None else HISTORY),
        options.runs,
        options.tolerance,
        options.relaxation,
        options.omega,
        options.cutoff,
        options.within,
        _changes(options.change),
    )


def _next(options: arguments.Options) -> None:
    run_options = ("scenario", "set", "case", "rig", "change", "record", "no_record", *FIGURE, "report")
    text = "must be left out with --next, which reads recordings"
    arguments.refuse_idle(options, run_options, text, {"engine": AUTO})
    series = find(Path(options.next))
    following = write(series, _settings(options, series.scenario))
    file = series.scenario_of(following.number)
    if options.json:
        data = asdict(following)
        terminal.print_json({"next": data.pop("number"), **data})
        return
    for row in following.rows:
        _tell(row)
    if following.rehearsal is None:
        print(f"the series has converged ({following.reason}); no further run is required")
        return
    for axis, most in following.rehearsal.peaks.items():
        command, velocity = f"{MM * most['command']:.4g} mm", f"{MM * most['velocity']:.4g} mm/s"
        print(f"axes.{axis}: expected command {command}, {velocity}, force {most['force']:.6g} N")
    print(f"run {following.number}: expected error {following.rehearsal.missed:.3g} %; scenario {file}")
    folder, rig = file.with_suffix(""), series.scenario.rig_file
    command = f"rths run {quoted(file)}" if rig is None else f"rths test {quoted(file)} --rig RIG"
    print(f"next: {command} --record {quoted(folder)}")


def _draw(options: arguments.Options, title: str, iteration: Iteration, figure: Path | None) -> None:
    finished = [row for row in iteration.rows if row.answer]
    if figure and finished:
        from rths_nodes.analysis.figures.analyses import iteration as draw

        arguments.save_figure(options, figure, draw, finished, iteration.inverse, iteration.last, title)
    if options.report:
        with terminal.page_of_test(Path(options.report), "" if options.json else "report"):
            from rths_nodes.analysis.report import document

            document.write_report(iteration.last, Path(options.report))


def _changes(texts: list[str]) -> dict[int, list[str]]:
    changes: dict[int, list[str]] = {}
    for text in texts:
        number, sign, assignment = text.partition(":")
        if not sign or not number.strip().isdecimal() or int(number) < 2:
            raise ConfigError(f"--change {text}: must be RUN:section.key=value, with RUN >= 2")
        changes.setdefault(int(number), []).append(assignment)
    return changes


@contextmanager
def _folder(options: arguments.Options, scenario: Scenario) -> Iterator[Path]:
    if options.no_record:
        with tempfile.TemporaryDirectory(prefix="rths_") as passing:
            yield Path(passing)
        return
    folder = Path(options.record) if options.record else Path(terminal.RUNS) / scenario.run_id()
    if folder.exists():
        raise ConfigError(f"{folder}: exists; give a new folder for the series")
    terminal.check_makable(folder)
    yield folder


def _tell(row: Row) -> None:
    if row.answer:
        true = f", true error {row.true:.3g} %" if row.true == row.true else ""
        terminal.print_now(f"run {row.number}: error {row.error:.3g} % (noise {row.noise:.2g} %){true}")
    else:
        terminal.print_now(f"run {row.number}: {row.outcome}: {row.reason}")


def _data(scenario: Scenario, settings: Settings, iteration: Iteration) -> dict[str, object]:
    inverse = iteration.inverse
    return {
        "scenario": scenario.name,
        "mode": settings.mode,
        "relaxation": settings.relaxation if settings.mode == HISTORY else None,
        "verdict": iteration.verdict,
        "reason": iteration.reason,
        "rows": [asdict(row) for row in iteration.rows],
        "inverse": None
        if inverse is None
        else {
            "late_s": inverse.late.tolist(),
            "delay_s": inverse.delay.tolist(),
            "coefficients": inverse.coefficients.tolist(),
            "learned_to_hz": inverse.learned_to,
            "known_to_hz": inverse.known_to,
        },
    }


def _print(scenario: Scenario, settings: Settings, iteration: Iteration) -> None:
    how = f", relaxation {settings.relaxation}" if settings.mode == HISTORY else ""
    terminal.say(f"{scenario.name}: {settings.mode}{how}; errors in % of the rms of the target")
    if (inverse := iteration.inverse) is not None:
        late = ", ".join(f"{1e3 * value:.3g} ms" for value in inverse.late)
        terminal.say(
            f"rig: delay {late}; the inverse is learned up to {inverse.learned_to:.3g} Hz and known up to "
            f"{inverse.known_to:.3g} Hz"
        )
    axes = list(iteration.rows[0].answer)
    heads = ["error", "noise", *(["residual"] if settings.mode == HISTORY else []), "true", "missed (mm)"]
    drift = [f"specimen of {axis} (%)" for axis in axes]
    peaks = ["command", "velocity", "force"]
    rows = []
    for row in iteration.rows:
        cells = [plain(row.error), plain(row.noise)]
        cells += [plain(row.residual)] if settings.mode == HISTORY else []
        cells += [plain(row.true), plain(row.missed, MM)]
        cells += [plain(row.answer.get(axis), PERCENT) for axis in axes]
        cells += [plain(getattr(row, name)) for name in peaks]
        rows.append([str(row.number), row.outcome, *cells])
    terminal.table(rows, "run", "outcome", numbers=[*heads, *drift, *peaks])
    colour = "green" if iteration.exit_code == 0 else "red"
    console = terminal.console()
    console.print(f"[bold {colour}]{iteration.verdict}[/]: ", end="")
    console.print(iteration.reason, markup=False)
