# SPDX-License-Identifier: Apache-2.0
"""Ladder of rungs (steps of a test), and the runner, which performs and records the acts of the operator.

Acts come from the terminal, an answers file, the page or the operator socket. An impossible act is refused and
changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.overlay import peaks_of, rung_differences
from rths_nodes.analysis.units import KN, plain
from rths_nodes.app import hosts
from rths_nodes.app.procedure.answers import NO, YES
from rths_nodes.core.errors import ConfigError, Problems, show, unknown
from rths_nodes.core.protocols import Port
from rths_nodes.loop import procedure_record as records
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import COMPOSED, EMBEDDED, EXECUTIVE, LOCKSTEP, REALTIME, STAGES
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import REDUCED, RUNGS, ProcedureRecord, Rung, RungRecord
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.files import with_copied_files
from rths_nodes.loop.scenario.rehearsal import simulated
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused, Seen
from rths_nodes.procedure.motions import positioning_velocities
from rths_nodes.procedure.rungs import RunOutcome, file_hashes, program_of, start_of
from rths_nodes.procedure.session import ACTS, CLEAR, MOTIONS, RigSession, Test
from rths_nodes.procedure.unloading import places
from rths_nodes.recording import procedure as on_disk
from rths_nodes.recording.plain import now
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError
from rths_nodes.recording.run import Run

SLOW, UNSENT = "e", "c"
"""``SLOW``: rung in slow time. ``UNSENT``: rung whose commands are not sent to the rig."""

MOST = 0.3
"""Largest proposed level."""
ROOM = 0.8
"""Largest ratio of the displacement expected at a proposed level to the elastic limit."""


@dataclass(frozen=True)
class Step:
    """Rung to run. ``level`` and time ``ratio`` are already applied to ``scenario``."""

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
    """The ``planned`` rungs of ``scenario``, with their rehearsals.

    ``level`` and the time ``ratio`` may be None until a rung needs them. ``code`` identifies the code of the test
    when the ladder was built. ``abandoned`` returns true once the operator cancels rehearsals. ``progress``
    receives the sample and the number of samples.
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
        """Copy the files to ``folder`` and return a ladder with them. Raises ConfigError if a file has changed."""
        scenario = with_copied_files(self.scenario, folder)
        now = file_hashes(scenario)
        if changed := [path for path, digest in self._files.items() if now[path] != digest]:
            raise ConfigError(*(f"{path}: the file has changed since it was read" for path in changed))
        ladder = replace(self, scenario=scenario)
        ladder.code = self.code
        return ladder

    @cached_property
    def simulated(self) -> Scenario:
        """Scenario of the test on a simulated rig. Raises ConfigError if a model is missing."""
        return rehearsal.simulated(self.scenario)

    def step(self, name: str) -> Step:
        """Return the rung ``name``. Raises ConfigError if its level or time ratio is missing or impossible."""
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
        """Return the rung's rehearsal, simulated on first use. Raises ConfigError if it does not finish."""
        scenario = rehearsal.simulated(self.step(name).scenario)
        key = scenario.whole_hash()
        if key not in self._rehearsed:
            done = hosts.run(scenario, progress=self.progress, interrupted=self.abandoned)
            if done.outcome != "finished":
                raise ConfigError(f"rung {name}: the outcome of the rehearsal is {done.outcome} ({done.reason})")
            self._rehearsed[key] = done.read()
        return self._rehearsed[key]

    def expected(self, name: str) -> dict[str, dict[str, float]]:
        """Return the rehearsed peaks by axis; empty without a simulator. Raises errors of :meth:`rehearsed`."""
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
            f"= {1e3 * limit:.3g} mm of the rig file. Lower the level from {self.level:g}"
            for axis, limit in self._elastic.items()
            if axis in expected and (far := expected[axis]["displacement"]) > limit
        ).refuse()

    def proposed_level(self) -> float | None:
        """Return a level at which a linear test remains elastic; None without peaks or elastic limits."""
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
        """Complete the ``entry`` of an ended rung from its ``recording``. Return the rung's outcome as text."""
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
        text = ""
        earlier = [rung for rung in record.rungs if rung is not entry and rung.recording]
        before = next((rung for rung in reversed(earlier) if rung.outcome == "finished"), None)
        if before is not None:
            then = read_run(folder / before.recording)
            entry.compared_with = before.name
            entry.differences = rung_differences(run, entry.level, then, before.level)
            entry.remarks += comparison_remarks(entry.level, entry.time_ratio, before.level, before.time_ratio)
            shares = differences_text(entry.differences, record)
            text = f"; differs from rung {before.name} (relative rms): {shares}"
        if not (RUNGS[entry.name].moves and self.has_simulator and entry.outcome == "finished"):
            return text
        try:
            result = rung_differences(run, 1.0, self.rehearsed(entry.name), 1.0)
        except ConfigError as error:
            entry.remarks.append(f"the rung is not compared with its rehearsal: {error}")
            return text
        # replaced, not changed: a stop in another thread may be writing the record
        entry.differences = entry.differences | {
            f"{name}{records.REHEARSAL}": value for name, value in result.items()
        }
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
    """Add or complete a rung's row in the specimen's history. Return true if the rung loads the specimen."""
    if record.simulation or not records.moves(entry.name):
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
    """Complete the record of an aborted rung, which has loaded the specimen, from its recording."""
    try:
        run = read_run(recording)
        entry.samples, entry.peaks = len(run.time) - 1, peaks_of(run)
        entry.remarks.append("the rung was aborted, so its peaks are from the recorded samples")
    except (ConfigError, RecordingError) as error:
        entry.remarks.append(f"the recording of the rung cannot be read: {error}")
        return
    update_specimen(record, entry)


class ProcedureRunner(Test):
    """Conducts one test on one rig, and writes the ``record`` to the ``folder`` of the test.

    Files named in the scenario are first copied into the folder, and only the copies are read. Raises ConfigError
    if a file cannot be copied or has changed since the ladder was built.
    """

    def __init__(self, ladder: Ladder, record: ProcedureRecord, folder: Path) -> None:
        self.ladder, self.record, self.folder = ladder.kept(folder), record, folder
        self.starting: Callable[[str], None] = lambda text: None
        self.changed: Callable[[State, str], None] = lambda state, reason: None
        self.tripped = ""
        """Reason of a trip that no operator has acknowledged. The reason remains after the end of the test."""
        scenario = self.ladder.scenario
        self.session = RigSession(
            scenario,
            record,
            code=self.ladder.code,
            realtime=ladder.realtime,
            changed=self._changed,
            judged=cautions,
        )
        self.session.test = self
        self.unwritten = ""
        """Reason why the record could not be written, or an empty string."""
        self._file = on_disk.RecordFile(folder)
        self._items = list(scenario.rig_file.checklist) if scenario.rig_file is not None else []
        self.armed: Step | None = None
        self.peaks: dict[str, dict[str, float]] = {}
        """Expected peaks of the last armed rung, by axis; empty if there is no simulator."""
        self.acts = {
            "rehearse": self._rehearse,
            "checklist": self._checklist,
            "arm": self._arm,
            "run": self._run,
            "unload": self._unload,
        }
        self.ladder.abandoned = lambda: bool(self.session.stopped)

    def _changed(self, state: State, reason: str) -> None:
        if state is not State.FINISHED:
            self.tripped = reason if state is State.TRIPPED else ""
        if state in (State.HELD, State.TRIPPED):
            self.record.held.append(self.session.rest_of(state, reason))
        self.changed(state, reason)
        with suppress(RecordingError):  # write at once, because the trip may be the last event
            self.write() if state is State.TRIPPED else None

    @property
    def state(self) -> State:
        return self.session.state

    @property
    def can_resume(self) -> bool:
        return self.session.rung is not None and self.armed is not None and self.armed.ratio > 1

    @property
    def climbed(self) -> list[str]:
        finished = [rung for rung in self.record.rungs if rung.outcome == "finished"]
        return [rung.name for rung in finished if rung.counts or not rung.not_valid]

    @property
    def next_rung(self) -> str:
        """Armed rung, or the next planned rung if no rung is armed. Empty after the last rung."""
        if self.armed is not None and self.state is State.ARMED:
            return self.armed.rung.name
        done = self.climbed
        return next((name for name in self.ladder.planned if name not in done), "")

    @property
    def findings(self) -> list[str]:
        """Findings of all checks. The operator cannot sign for a finding: its cause must be corrected."""
        return [finding for row in self.record.checks.values() for finding in row.findings]

    @property
    def loads_at_rest(self) -> list[str]:
        axes = {name: axis.rig_axis for name, axis in self.session.scenario.axes.items() if axis.rig_axis}
        return list(self.session.taken.forces_at_rest(axes).values()) if self.session.taken is not None else []

    @property
    def unconfirmed(self) -> list[str]:
        answers = {row.item: row.answer for row in self.record.checklist}
        return [item for item in self._items if answers.get(item) != YES]

    @property
    def to_answer(self) -> list[str]:
        """Unconfirmed checklist items or, if there are none, items whose confirmation can be withdrawn."""
        return self.unconfirmed or (self._items if self.state is State.REFERENCED else [])

    @cached_property
    def start(self) -> list[float]:
        """Position of each axis at the start of the test, m."""
        return [float(start) for start in start_of(self.ladder.scenario, self.session.drive.port)]

    def do(self, act: str, by: str = "", way: str = "", seen: Seen | None = None, **arguments: object) -> str:
        return self.session.do(act, by, way, seen, **arguments)

    def barred(self, act: str) -> str:
        if act == "checklist":
            return "" if self.to_answer else "the checklist has no unconfirmed item"
        if act in MOTIONS and self.unconfirmed:
            return f"the checklist of the rig file has unconfirmed items: {'; '.join(self.unconfirmed)}"
        if act != "rehearse":
            return ""
        if all(RUNGS[name].on_rig or name in self.climbed for name in self.ladder.planned):
            return "every planned rung on the simulator has been climbed"
        return "" if self.state is State.IDLE else "rehearsals are possible only before the rig is connected"

    def cleared(self, act: str, way: str, arguments: dict[str, object]) -> str:
        """Return the motion of ``act`` as text.

        Raises ActRefused if CLEAR is missing, or if a program requests motion, arming or checklist on a real rig.
        """
        clear = str(arguments.pop("clear", ""))
        if not (ACTS[act].moves or act in (*MOTIONS, "checklist")):
            return ""
        port = self.session.drive.port
        if not port.simulated and way not in (records.TERMINAL, records.PAGE):
            raise ActRefused(
                f"{act}: refused, because the source of the request is {way or 'a program'}. On a real rig "
                f"({port.label}), a person performs this act at the {records.TERMINAL} or at the {records.PAGE}"
            )
        motion = self.motion(act, arguments)
        if motion and clear != CLEAR:
            raise ActRefused(f"{act}: clear = {show(clear)}: must be {CLEAR}. Nothing has moved")
        return motion

    def motion(self, act: str, arguments: Mapping[str, object] | None = None) -> str:
        """Return distance, speed and force of the motion of ``act`` as text; empty if nothing moves."""
        if act == "unload":
            return _unloading_text(self, str((arguments or {}).get("to", "")))
        texts = {"check": _check_text, "position": _position_text, "run": _run_text, "resume": _run_text}
        return texts[act](self) if act in texts else ""

    def write(self, quietly: bool = False, last: bool = False) -> None:
        """Write the record. The ``last`` call uses the reserved disk space.

        Raises ConfigError or RecordingError unless ``quietly``.
        """
        try:
            self._file.write(self.record, last)
        except (ConfigError, RecordingError) as error:
            if isinstance(error, RecordingError):  # a ConfigError means that the first write failed
                self.unwritten = self.unwritten or str(error)
            if not quietly:
                raise

    def outcome(self, refused: str = "", failed: str = "", stopped: str = "") -> tuple[ExitCode, str]:
        """Return the exit code of the test and the reason for it. The reason is empty if the test finished."""
        last = self.record.rungs[-1] if self.record.rungs else RungRecord("", "", outcome="finished")
        doubt = last.ending if last.not_valid and not last.counts else ""
        ended = f"rung {last.name}: {doubt or last.reason}"
        if failed := failed or self.unwritten:
            return ExitCode.FAILED, failed
        if last.outcome in ("tripped", "failed"):
            return ExitCode[last.outcome.upper()], ended
        if self.tripped:
            return ExitCode.TRIPPED, self.tripped
        if refused and not stopped:
            return ExitCode.REFUSED, refused
        if last.outcome not in ("finished", "held"):
            return ExitCode.FAILED, ended
        if not (stopped or self.next_rung):
            return ExitCode.FINISHED, ""
        before = f"the operator ended the test before rung {self.next_rung}"
        held = ended if doubt or last.outcome == "held" else ": ".join([before, *self.findings[:1]])
        not_valid = doubt and last.name == self.record.planned[-1]
        return ExitCode.NOT_VALID if not_valid else ExitCode.HELD, stopped or held

    def conclude(self, refused: str, failed: str, stopped: str) -> ExitCode:
        record, last = self.record, self.record.rungs[-1] if self.record.rungs else None
        code, record.reason = self.outcome(refused, failed, stopped)
        record.outcome = code.recorded
        record.sample = last.samples if last is not None and RUNGS[last.name].on_rig else None
        record.ended = record.ended or now()
        try:
            self.write(last=True)
        except RecordingError as error:  # even the reserved space does not suffice
            code = ExitCode.FAILED
            record.outcome, record.reason = code.outcome, str(error)
        return code

    def _rehearse(self, rung: str = "") -> str:
        name = rung or self.next_rung
        if name not in RUNGS or RUNGS[name].on_rig or name not in self.ladder.planned:
            raise ActRefused(f"rehearse.rung = {name or 'none left'}: must be a planned rung on the simulator")
        step = self.ladder.step(name)
        entry = RungRecord(name, now(), inputs=step.files, code=self.session.code.hash)
        self.session.rehearsing = True
        try:
            done = self._host(step, step.scenario, _free(self.folder, name))
        finally:
            self.session.rehearsing = False
        entry.outcome, entry.reason, entry.samples = done.outcome, done.reason, done.samples
        entry.wall_s = done.wall_s
        self.record.rungs.append(entry)
        return self.ladder.judged(self.record, entry, step, done.recording)

    def _checklist(self, item: str, answer: str, by: str) -> str:
        if item not in self._items:
            raise unknown("checklist.item", "item", item, self._items)
        if answer not in (YES, NO):
            raise ActRefused(f"checklist: answer = {show(answer)}: must be {YES} or {NO}")
        self.record.checklist.append(records.ChecklistAnswer(now(), item, answer, by))
        return f"{item}: {answer}"

    def _unload(self, to: str = "", signed: str = "") -> str:
        goal = places(to, tuple(self.ladder.scenario.axes)) if to else None
        done = self.session.unload(goal, signed)
        left = ", ".join(
            f"the force of {self.record.called(name)} changed from {plain(before, KN)} kN to "
            f"{plain(done.after[name], KN)} kN"
            for name, before in done.before.items()
        )
        ended = "the specimen is at the requested position" if done.to else "the specimen is unloaded"
        return f"{f'the unloading was given up ({done.given_up})' if done.given_up else ended}; {left}"

    def _arm(
        self, rung: str = "", scenario_hash: str = "", offsets_hash: str = "", second: str = "", by: str = ""
    ) -> str:
        name = rung or self.next_rung
        if name not in self.ladder.planned:
            raise ActRefused(
                f"arm.rung = {name or 'none left'}: must be a planned rung ({', '.join(self.ladder.planned)})"
            )
        self.armed = step = self.ladder.step(name)
        self.peaks = {}
        with_copied_files(step.scenario, self.folder)  # raises ConfigError if a copy has changed
        self.ladder.check_elastic(name)
        if step.rung.moves:
            with suppress(ConfigError):  # without models there is no prediction
                self.peaks = self.ladder.expected(name)
        persons = self.session.arm(name, step.scenario, scenario_hash, offsets_hash, by, second)
        hashes = f"scenario {scenario_hash}, offsets {offsets_hash}, code {self.session.code.hash}"
        hashes += f", engine {step.engine}" if step.program else ""
        return f"rung {name} is armed by {' and '.join(persons)}: {hashes}"

    def _run(self) -> str:
        step = self.armed
        assert step is not None  # a rung is armed in this state
        results: list[hosts.RunResult] = []

        def runner(scenario: Scenario, port: Port) -> RunOutcome:
            entry, folder = self.record.rungs[-1], _free(self.folder, step.rung.name)
            self.ladder.describe(entry, step)
            entry.recording = folder.name
            update_specimen(self.record, entry)
            self.write()
            try:
                done = self._host(step, scenario, folder, port)
            except ConfigError:  # the rung has not begun
                raise
            except BaseException:
                complete_aborted(self.record, entry, folder)
                raise
            results.append(done)
            return RunOutcome(done.outcome, done.reason, done.samples)

        started = time.monotonic()
        entry = self.session.run(runner)
        entry.wall_s = time.monotonic() - started
        return self.ladder.judged(self.record, entry, step, results[0].recording)

    def _host(self, step: Step, scenario: Scenario, folder: Path, port: Port | None = None) -> hosts.RunResult:
        # the port of the rig handles stops
        handed: dict[str, Any] = {"interrupted": lambda: False, "port": port}
        if step.program and (rung := self.session.rung) is not None:  # in rung c the session holds the rig
            drive, requests, scenario = self.session.drive, rung.port.handover.requests, simulated(scenario)
            handed = {"interrupted": lambda: bool(requests.stop_reason or drive.alarm or drive.loss.reason)}
        elif port is None:
            with self.session.act() as act:
                handed = {"interrupted": lambda: bool(act.stopped)}
        return hosts.run(
            scenario,
            keep=False,
            progress=self.ladder.progress,
            starting=self.starting,
            host=step.host,
            pace=step.pace,
            record=folder,
            run_id=f"{self.record.test_id}_{folder.name}",
            **handed,
        )


def _free(folder: Path, rung: str) -> Path:
    names = (f"rung_{rung}" + f"_{number}" * (number > 1) for number in count(1))
    return next(folder / name for name in names if not (folder / name).exists())


def _axes(runner: ProcedureRunner) -> list[tuple[str, str, Axis]]:
    """Return the scenario name, the display name and the parameters of each axis."""
    return [(name, runner.record.called(name), axis) for name, axis in runner.ladder.scenario.axes.items()]


def _check_text(runner: ProcedureRunner) -> str:
    rows = []
    for _, called, axis in _axes(runner):
        small = axis.rig_axis.small_move if axis.rig_axis is not None else None
        if small is None:
            rows.append(f"{called}: the rig file has no small_move")
            continue
        pressed = f", then a force of {_kn(small.press)}" if small.press is not None else ""
        rows.append(
            f"{called} by {_mm(small.displacement)} and back, at up to {_mm(small.velocity)}/s{pressed}; ends if "
            f"the force changes by {_kn(small.force)}"
        )
    return "the small move, one axis after another: " + "; ".join(rows)


def _position_text(runner: ProcedureRunner) -> str:
    session = runner.session
    if (offsets := session.offsets) is None:
        return ""
    here = (session.drive.command - offsets.held).tolist()
    velocities = positioning_velocities(runner.ladder.scenario).tolist()
    return "to the start of the test: " + "; ".join(
        f"{called} by {_mm(there - at)}, to {_mm(there)}, at up to {_mm(velocity)}/s; {_trips(axis)}"
        for (_, called, axis), at, there, velocity in zip(
            _axes(runner), here, runner.start, velocities, strict=True
        )
    )


def _run_text(runner: ProcedureRunner) -> str:
    step = runner.armed
    if step is None or not step.rung.moves:
        return ""
    stops, rows = runner.ladder.stops(step), []
    for name, called, _ in _axes(runner):
        expected = "no prediction"
        if peak := runner.peaks.get(name):
            expected = f"expected up to {_mm(peak['displacement'])} at up to {_mm(peak['velocity'])}/s"
        rows.append(
            f"{called}: {expected}; trips at {_mm(stops[name]['displacement'])}, "
            f"{_mm(step.scenario.limits[name].velocity)}/s and {_kn(stops[name]['force'])}"
        )
    return f"rung {step.rung.name} ({step.rung.title}), from the zero of the test: " + "; ".join(rows)


def _unloading_text(runner: ProcedureRunner, to: str) -> str:
    goal = places(to, tuple(runner.ladder.scenario.axes)) if to else {}
    rows = []
    for name, called, axis in _axes(runner):
        bounds = axis.rig_axis.unloading if axis.rig_axis is not None else None
        if bounds is None or (to and name not in goal):
            continue
        where = f"to {_mm(goal[name])} from the zero of the test" if to else "until its force is zero"
        rows.append(
            f"{called} {where}, by at most {_mm(bounds.travel)}, at up to {_mm(bounds.velocity)}/s; {_trips(axis)}"
        )
    return "unloading by " + ("displacement: " if to else "force: ") + "; ".join(rows)


def _trips(axis: Axis) -> str:
    return f"trips at {_kn(axis.limits.force)}"


def _mm(value: float) -> str:
    return "any distance" if math.isinf(value) else f"{1e3 * value:.4g} mm"


def _kn(value: float) -> str:
    return f"{1e-3 * value:.4g} kN"


def next_act(runner: ProcedureRunner, unloads: Callable[[], bool]) -> str:
    """Return the next act, or ``""`` at the end. ``unloads()`` decides whether to unload after the last rung."""
    session, record, state, rung = runner.session, runner.record, runner.state, runner.next_rung
    if state is State.FINISHED or (state is State.IDLE and not rung):
        return ""
    if state is State.IDLE:
        return "connect" if RUNGS[rung].on_rig else "rehearse"
    if rung and state is State.TRIPPED:
        return "finish" if session.why_not("acknowledge") else "acknowledge"
    if not rung or not RUNGS[rung].on_rig:  # the rig is connected: rehearsals are no longer possible
        return "unload" if state is State.HELD and not record.unloading and unloads() else "finish"
    if session.offsets is None:
        return "take_offsets" if session.taken is None else "confirm_offsets"
    if state in (State.ARMED, State.POSITIONED):
        return "run" if state is State.ARMED else "arm"
    if not record.checks:
        return "checklist" if runner.unconfirmed else "check"
    if runner.findings:
        return "finish"  # findings cannot be signed for: the rig must be repaired
    return "position" if session.why_not("sign_for") else "sign_for"
