# SPDX-License-Identifier: Apache-2.0
"""Conducts a test: performs the operator's acts one after another, and records each act with its result.

Acts come from the terminal, an answers file, the page or the operator socket. An impossible act is refused and
changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.units import KN, plain
from rths_nodes.app import hosts
from rths_nodes.app.procedure.ladder import (
    Ladder,
    Step,
    comparison_remarks,
    complete_aborted,
    differences,
    differences_text,
    peaks_of,
    update_specimen,
)
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.protocols import Port
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import (
    PAGE,
    REHEARSAL,
    RUNGS,
    TERMINAL,
    ChecklistAnswer,
    ProcedureRecord,
    RungRecord,
)
from rths_nodes.loop.scenario.files import with_copied_files
from rths_nodes.loop.scenario.rehearsal import simulated
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused, Seen
from rths_nodes.procedure.motions import positioning_velocities
from rths_nodes.procedure.rungs import RunOutcome, start_of
from rths_nodes.procedure.session import ACTS, CLEAR, MOTIONS, RigSession, Test
from rths_nodes.procedure.unloading import places
from rths_nodes.recording import procedure as on_disk
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError
from rths_nodes.recording.run import Run

CHECKLIST = "checklist"
YES, NO = "y", "n"
BY_A_PERSON = (TERMINAL, PAGE)
"""Sources of requests that may move a real rig."""


class Clearing:
    """Describes the motion of each act of ``session``, and refuses an act whose motion is not cleared."""

    def __init__(self, ladder: Ladder, session: RigSession, record: ProcedureRecord) -> None:
        self._ladder, self._session, self._record = ladder, session, record
        self._axes = {record.called(name): axis for name, axis in ladder.scenario.axes.items()}
        self._armed: Step | None = None
        self._peaks: dict[str, dict[str, float]] = {}

    def arm(self, step: Step) -> None:
        self._armed, self._peaks = step, {}
        if step.rung.moves:
            with suppress(ConfigError):  # without models there is no prediction
                self._peaks = self._ladder.expected(step.rung.name)

    def check(self, act: str, way: str, arguments: dict[str, object]) -> str:
        """Return the motion of ``act`` as text, and remove ``clear`` from its ``arguments``.

        Return an empty string if nothing moves. Raises ActRefused if a program would move or arm a real rig, or
        answer its checklist. Raises ActRefused also for a motion if ``clear`` is not the word CLEAR.
        """
        clear = str(arguments.pop("clear", ""))
        if not (ACTS[act].moves or act in (*MOTIONS, CHECKLIST)):
            return ""
        port = self._session.drive.port
        if not port.simulated and way not in BY_A_PERSON:
            raise ActRefused(
                f"{act}: refused, because the source of the request is {way or 'a program'}. On a real rig "
                f"({port.label}), a person performs this act at the {TERMINAL} or at the {PAGE}"
            )
        motion = self.motion(act, arguments)
        if motion and clear != CLEAR:
            raise ActRefused(f"{act}: clear = {show(clear)}: must be {CLEAR}. Nothing has moved")
        return motion

    @property
    def _items(self) -> list[str]:
        head = self._ladder.scenario.rig_file
        return list(head.checklist) if head is not None else []

    @property
    def unconfirmed(self) -> list[str]:
        answers = {row.item: row.answer for row in self._record.checklist}
        return [item for item in self._items if answers.get(item) != YES]

    @property
    def to_answer(self) -> list[str]:
        """Unconfirmed checklist items or, if there are none, items whose confirmation can still be withdrawn."""
        return self.unconfirmed or (self._items if self._session.state is State.REFERENCED else [])

    def barred(self, act: str) -> str:
        items = self.unconfirmed
        if act == CHECKLIST:
            return "" if self.to_answer else "the checklist has no unconfirmed item"
        if act not in MOTIONS or not items:
            return ""
        return f"the checklist of the rig file has unconfirmed items: {'; '.join(items)}"

    def confirm(self, item: str, answer: str, by: str, time: str) -> None:
        if item not in (items := self._items):
            raise unknown("checklist.item", "item", item, items)
        if answer not in (YES, NO):
            raise ActRefused(f"checklist: answer = {show(answer)}: must be {YES} or {NO}")
        self._record.checklist.append(ChecklistAnswer(time, item, answer, by))

    def motion(self, act: str, arguments: Mapping[str, object] | None = None) -> str:
        """Return distance, speed and force of the motion of ``act`` as text; an empty string if nothing moves."""
        if act == "unload":
            return self._unload(str((arguments or {}).get("to", "")))
        stated = {"check": self._check, "position": self._position, "run": self._run, "resume": self._run}
        return stated[act]() if act in stated else ""

    def _check(self) -> str:
        return "the small move, one axis after another: " + "; ".join(map(_small, self._axes, self._axes.values()))

    @cached_property
    def _start(self) -> list[float]:
        return [float(start) for start in start_of(self._ladder.scenario, self._session.drive.port)]

    def _position(self) -> str:
        session = self._session
        offsets = session.offsets
        if offsets is None:
            return ""
        here = session.drive.command - offsets.held
        velocities = positioning_velocities(self._ladder.scenario)
        rows = zip(self._axes.items(), here.tolist(), self._start, velocities.tolist(), strict=True)
        return "to the start of the test: " + "; ".join(
            f"{name} by {_mm(there - at)}, to {_mm(there)}, at up to {_mm(velocity)}/s; {_trips(axis)}"
            for (name, axis), at, there, velocity in rows
        )

    def _run(self) -> str:
        step, peaks = self._armed, self._peaks
        if step is None or not step.rung.moves:
            return ""
        stops, rows = self._ladder.stops(step), []
        for name, limits in step.scenario.limits.items():
            expected = "no prediction"
            if name in peaks:
                far, fast = peaks[name]["displacement"], peaks[name]["velocity"]
                expected = f"expected up to {_mm(far)} at up to {_mm(fast)}/s"
            rows.append(
                f"{self._record.called(name)}: {expected}; trips at {_mm(stops[name]['displacement'])}, "
                f"{_mm(limits.velocity)}/s and {_kn(stops[name]['force'])}"
            )
        return f"rung {step.rung.name} ({step.rung.title}), from the zero of the test: " + "; ".join(rows)

    def _unload(self, to: str) -> str:
        goal = places(to, tuple(self._ladder.scenario.axes)) if to else {}
        rows = []
        for name, axis in self._ladder.scenario.axes.items():
            bounds = axis.rig_axis.unloading if axis.rig_axis is not None else None
            if bounds is None or (to and name not in goal):
                continue
            where = f"to {_mm(goal[name])} from the zero of the test" if to else "until its force is zero"
            rows.append(
                f"{self._record.called(name)} {where}, by at most {_mm(bounds.travel)}, at up to "
                f"{_mm(bounds.velocity)}/s; {_trips(axis)}"
            )
        return "unloading by " + ("displacement: " if to else "force: ") + "; ".join(rows)


def _small(name: str, axis: Axis) -> str:
    small = axis.rig_axis.small_move if axis.rig_axis is not None else None
    if small is None:
        return f"{name}: the rig file has no small_move"
    pressed = f", then a force of {_kn(small.press)}" if small.press is not None else ""
    return (
        f"{name} by {_mm(small.displacement)} and back, at up to {_mm(small.velocity)}/s{pressed}; ends if the "
        f"force changes by {_kn(small.force)}"
    )


def _trips(axis: Axis) -> str:
    return f"trips at {_kn(axis.limits.force)}"


def _mm(value: float) -> str:
    return "any distance" if math.isinf(value) else f"{1e3 * value:.4g} mm"


def _kn(value: float) -> str:
    return f"{1e-3 * value:.4g} kN"


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


class ProcedureRunner(Test):
    """Conducts one test on one rig, and writes the ``record`` to the ``folder`` of the test.

    Files named in the scenario are first copied into the folder, and only the copies are read. Raises ConfigError
    if a file cannot be copied or has changed since the ladder was built.
    """

    def __init__(self, ladder: Ladder, record: ProcedureRecord, folder: Path) -> None:
        self.ladder, self.record, self.folder = ladder.kept(folder), record, folder
        self.progress: Callable[[int, int], None] = lambda sample, samples: None
        self.starting: Callable[[str], None] = lambda text: None
        self.changed: Callable[[State, str], None] = lambda state, reason: None
        self.tripped = ""
        """Reason of a trip that no operator has acknowledged. The reason remains after the end of the test."""

        def changed(state: State, reason: str) -> None:
            if state is not State.FINISHED:
                self.tripped = reason if state is State.TRIPPED else ""
            if state in (State.HELD, State.TRIPPED):
                record.held.append(self.session.rest_of(state, reason))
            self.changed(state, reason)
            with suppress(RecordingError):  # write at once, because the trip may be the last event
                self.write() if state is State.TRIPPED else None

        self.session = RigSession(
            self.ladder.scenario,
            record,
            code=self.ladder.code,
            realtime=ladder.realtime,
            changed=changed,
            judged=cautions,
        )
        self.session.test = self
        self.clearing = Clearing(self.ladder, self.session, record)
        self.unwritten = ""
        """Reason why the record could not be written, or an empty string."""
        self._file = on_disk.RecordFile(folder)
        self._armed: Step | None = None
        self._under_way: Step | None = None
        self.acts = {
            "rehearse": self._rehearse,
            "checklist": self._checklist,
            "arm": self._arm,
            "run": self._run,
            "unload": self._unload,
        }
        self.ladder.abandoned = lambda: bool(self.session.stopped)

    @property
    def state(self) -> State:
        return self.session.state

    @property
    def can_resume(self) -> bool:
        return self._under_way is not None and self._under_way.ratio > 1

    @property
    def climbed(self) -> list[str]:
        finished = [rung for rung in self.record.rungs if rung.outcome == "finished"]
        return [rung.name for rung in finished if rung.counts or not rung.not_valid]

    @property
    def next_rung(self) -> str:
        """Armed rung or, if none is armed, next planned rung; an empty string after the last rung."""
        if self._armed is not None and self.state is State.ARMED:
            return self._armed.rung.name
        done = self.climbed
        return next((name for name in self.ladder.planned if name not in done), "")

    def do(self, act: str, by: str = "", way: str = "", seen: Seen | None = None, **arguments: object) -> str:
        return self.session.do(act, by, way, seen, **arguments)

    def barred(self, act: str) -> str:
        if act != "rehearse":
            return self.clearing.barred(act)
        if all(RUNGS[name].on_rig or name in self.climbed for name in self.ladder.planned):
            return "every planned rung on the simulator has been climbed"
        return "" if self.state is State.IDLE else "rehearsals are possible only before the rig is connected"

    def cleared(self, act: str, way: str, arguments: dict[str, object]) -> str:
        return self.clearing.check(act, way, arguments)

    def write(self, quietly: bool = False, last: bool = False) -> None:
        """Write the record. If ``last`` is true, use the reserved disk space.

        Raises RecordingError if the record cannot be written, unless ``quietly`` is true.
        """
        try:
            self._file.write(self.record, last)
        except (ConfigError, RecordingError) as error:
            if isinstance(error, RecordingError):  # otherwise nothing was written before
                self.unwritten = self.unwritten or str(error)
            if not quietly:
                raise

    def outcome(self, refused: str = "", failed: str = "", stopped: str = "") -> tuple[ExitCode, str]:
        """Return the exit code of the test and its reason. The reason is empty if the test finished."""
        record = self.record
        last = record.rungs[-1] if record.rungs else None
        doubt = last.ending if last is not None and last.not_valid and not last.counts else ""
        code, reason = ExitCode.FINISHED, ""
        failed = failed or self.unwritten
        if failed:
            code, reason = ExitCode.FAILED, failed
        elif last is not None and last.outcome in (ExitCode.TRIPPED.outcome, ExitCode.FAILED.outcome):
            code = ExitCode.TRIPPED if last.outcome == ExitCode.TRIPPED.outcome else ExitCode.FAILED
            reason = f"rung {last.name}: {last.reason}"
        elif self.tripped:
            code, reason = ExitCode.TRIPPED, self.tripped
        elif refused and not stopped:
            code, reason = ExitCode.REFUSED, refused
        elif last is not None and last.outcome not in ("finished", "held"):
            code, reason = ExitCode.FAILED, f"rung {last.name}: {last.reason}"
        elif stopped or self.next_rung:
            held = f"rung {last.name}: {last.reason}" if last is not None and last.outcome == "held" else ""
            held = f"rung {last.name}: {doubt}" if last is not None and doubt else held
            code = ExitCode.HELD
            ended = f"the operator ended the test before rung {self.next_rung}"
            reason = stopped or held or ": ".join([ended, *wrong(record)[:1]])
        if code is ExitCode.HELD and last is not None and doubt and last.name == record.planned[-1]:
            code = ExitCode.NOT_VALID
        return code, reason

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
            done = self._host(step, step.scenario, self._free(name))
        finally:
            self.session.rehearsing = False
        entry.outcome, entry.reason, entry.samples = done.outcome, done.reason, done.samples
        entry.wall_s = done.wall_s
        self.record.rungs.append(entry)
        return self._judged(entry, step, done)

    def _checklist(self, item: str, answer: str, by: str) -> str:
        self.clearing.confirm(item, answer, by, now())
        return f"{item}: {answer}"

    def _unload(self, to: str = "", signed: str = "") -> str:
        goal = places(to, tuple(self.ladder.scenario.axes)) if to else None
        done = self.session.unload(goal, signed)
        left = ", ".join(
            f"the force of {self.record.called(name)} changed from {plain(before, KN)} kN to "
            f"{plain(done.after[name], KN)} kN"
            for name, before in done.before.items()
        )
        ended = "the specimen is at the position" if done.to else "the specimen is unloaded"
        return f"{f'the unloading was given up ({done.given_up})' if done.given_up else ended}; {left}"

    def loads_at_rest(self) -> list[str]:
        axes = {name: axis.rig_axis for name, axis in self.ladder.scenario.axes.items() if axis.rig_axis}
        return list(self.session.taken.forces_at_rest(axes).values()) if self.session.taken is not None else []

    def _arm(
        self, rung: str = "", scenario_hash: str = "", offsets_hash: str = "", second: str = "", by: str = ""
    ) -> str:
        name = rung or self.next_rung
        if name not in self.ladder.planned:
            raise ActRefused(
                f"arm.rung = {name or 'none left'}: must be a planned rung ({', '.join(self.ladder.planned)})"
            )
        step = self.ladder.step(name)
        with_copied_files(step.scenario, self.folder)  # raises ConfigError if a copy has changed
        self.ladder.check_elastic(name)
        self.clearing.arm(step)
        persons = self.session.arm(name, step.scenario, scenario_hash, offsets_hash, by, second)
        self._armed = step
        hashes = f"scenario {scenario_hash}, offsets {offsets_hash}, code {self.session.code.hash}"
        hashes += f", engine {step.engine}" if step.program else ""
        return f"rung {name} is armed by {' and '.join(persons)}: {hashes}"

    def _run(self) -> str:
        step = self._armed
        if step is None:
            raise ActRefused("run: no rung is armed")
        kept: list[hosts.RunResult] = []

        def runner(scenario: Scenario, port: Port) -> RunOutcome:
            entry, folder = self.record.rungs[-1], self._free(step.rung.name)
            self._describe(entry, step)
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
            kept.append(done)
            return RunOutcome(done.outcome, done.reason, done.samples)

        started, self._under_way = time.monotonic(), step
        try:
            entry = self.session.run(runner)
        finally:
            self._under_way = None
            if self.session.state is not State.ARMED:  # after a refusal the rung is still armed
                self._armed = None
        entry.wall_s = time.monotonic() - started
        return self._judged(entry, step, kept[-1] if kept else None)

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
            progress=self.progress,
            starting=self.starting,
            host=step.host,
            pace=step.pace,
            record=folder,
            run_id=f"{self.record.test_id}_{folder.name}",
            **handed,
        )

    def _free(self, rung: str) -> Path:
        path, number = self.folder / f"rung_{rung}", 1
        while path.exists():
            number += 1
            path = self.folder / f"rung_{rung}_{number}"
        return path

    def _judged(self, entry: RungRecord, step: Step, done: hosts.RunResult | None) -> str:
        self._describe(entry, step)
        entry.remarks += step.remarks()
        run = self._recorded(entry, done)
        if run is not None:
            entry.take_late(run.late)
        message = f"rung {entry.name}: {entry.ending} after {entry.samples} samples"
        message += f": {entry.reason}" if entry.reason else ""
        if run is not None:
            entry.peaks = peaks_of(run)
            message += self._compare(entry, run) + self._against_rehearsal(entry, step, run)
        update_specimen(self.record, entry)
        return message

    def _describe(self, entry: RungRecord, step: Step) -> None:
        entry.host, entry.pace = step.host, step.pace
        entry.level, entry.time_ratio, entry.scenario_hash = step.level, step.ratio, step.hash
        entry.limits = self.ladder.stops(step)

    @staticmethod
    def _recorded(entry: RungRecord, done: hosts.RunResult | None) -> Run | None:
        if done is None or done.recording is None:
            entry.recording = ""
            return None
        entry.recording = done.recording.name
        try:
            return read_run(done.recording)
        except (ConfigError, RecordingError) as error:
            entry.outcome, entry.reason = "failed", f"the recording of the rung cannot be read: {error}"
            return None

    def _compare(self, entry: RungRecord, run: Run) -> str:
        earlier = [rung for rung in self.record.rungs if rung is not entry and rung.recording]
        before = next((rung for rung in reversed(earlier) if rung.outcome == "finished"), None)
        if before is None:
            return ""
        then = read_run(self.folder / before.recording)
        entry.compared_with = before.name
        entry.differences = differences(run, entry.level, then, before.level)
        entry.remarks += comparison_remarks(entry.level, entry.time_ratio, before.level, before.time_ratio)
        message = differences_text(entry.differences, self.record)
        return f"; differs from rung {before.name} (rms over rms): {message}"

    def _against_rehearsal(self, entry: RungRecord, step: Step, run: Run) -> str:
        if not (step.rung.moves and self.ladder.has_simulator and entry.outcome == "finished"):
            return ""
        try:
            rehearsed = self.ladder.rehearsed(entry.name, self.progress)
        except ConfigError as error:
            entry.remarks.append(f"the rung is not compared with its rehearsal: {error}")
            return ""
        result = differences(run, 1.0, rehearsed, 1.0)
        # not in place: a stop in another thread may be writing the record
        entry.differences = entry.differences | {f"{name}{REHEARSAL}": value for name, value in result.items()}
        return f"; differs from its rehearsal: {differences_text(result, self.record)}"


def next_act(runner: ProcedureRunner, unloads: Callable[[], bool]) -> str:
    """Return the next act in sequence, or an empty string at the end of the test.

    ``unloads()`` decides whether the specimen is unloaded after the last rung.
    """
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
        return "checklist" if runner.clearing.unconfirmed else "check"
    if wrong(record):
        return "finish"  # no signature is possible: the rig must be repaired
    return "position" if session.why_not("sign_for") else "sign_for"


def wrong(record: ProcedureRecord) -> list[str]:
    """Return the findings of all checks. No signature can clear a finding."""
    return [finding for row in record.checks.values() for finding in row.findings]
