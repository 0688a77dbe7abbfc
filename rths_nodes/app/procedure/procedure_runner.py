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
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.units import KN, plain
from rths_nodes.app import hosts
from rths_nodes.app.procedure.ladder import Ladder, Step, complete_aborted, update_specimen
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.protocols import Port
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import PAGE, RUNGS, TERMINAL, ChecklistAnswer, ProcedureRecord, RungRecord
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
from rths_nodes.recording.plain import now
from rths_nodes.recording.records import RecordingError

YES, NO = "y", "n"


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
        """Last armed rung."""
        self.peaks: dict[str, dict[str, float]] = {}
        """Expected peaks of the last armed rung, by axis; empty without a simulator."""
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
        """Armed rung or, if none is armed, next planned rung; an empty string after the last rung."""
        if self.armed is not None and self.state is State.ARMED:
            return self.armed.rung.name
        done = self.climbed
        return next((name for name in self.ladder.planned if name not in done), "")

    @property
    def unconfirmed(self) -> list[str]:
        answers = {row.item: row.answer for row in self.record.checklist}
        return [item for item in self._items if answers.get(item) != YES]

    @property
    def to_answer(self) -> list[str]:
        """Unconfirmed checklist items or, if there are none, items whose confirmation can still be withdrawn."""
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
        """Raises ActRefused also if a program would move or arm a real rig, or answer its checklist."""
        clear = str(arguments.pop("clear", ""))
        if not (ACTS[act].moves or act in (*MOTIONS, "checklist")):
            return ""
        port = self.session.drive.port
        if not port.simulated and way not in (TERMINAL, PAGE):
            raise ActRefused(
                f"{act}: refused, because the source of the request is {way or 'a program'}. On a real rig "
                f"({port.label}), a person performs this act at the {TERMINAL} or at the {PAGE}"
            )
        motion = self.motion(act, arguments)
        if motion and clear != CLEAR:
            raise ActRefused(f"{act}: clear = {show(clear)}: must be {CLEAR}. Nothing has moved")
        return motion

    def motion(self, act: str, arguments: Mapping[str, object] | None = None) -> str:
        """Return distance, speed and force of the motion of ``act`` as text; an empty string if nothing moves."""
        if act == "unload":
            return _unloading_text(self, str((arguments or {}).get("to", "")))
        texts = {"check": _check_text, "position": _position_text, "run": _run_text, "resume": _run_text}
        return texts[act](self) if act in texts else ""

    def write(self, quietly: bool = False, last: bool = False) -> None:
        """Write the record, ``last`` with the reserved disk space. Raises RecordingError unless ``quietly``."""
        try:
            self._file.write(self.record, last)
        except (ConfigError, RecordingError) as error:
            if isinstance(error, RecordingError):  # otherwise nothing was written before
                self.unwritten = self.unwritten or str(error)
            if not quietly:
                raise

    def outcome(self, refused: str = "", failed: str = "", stopped: str = "") -> tuple[ExitCode, str]:
        """Return the exit code of the test and its reason. The reason is empty if the test finished."""
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
        held = ended if doubt or last.outcome == "held" else ": ".join([before, *wrong(self.record)[:1]])
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
        self.record.checklist.append(ChecklistAnswer(now(), item, answer, by))
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
        assert step is not None  # the state implies an armed rung
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


def loads_at_rest(session: RigSession) -> list[str]:
    axes = {name: axis.rig_axis for name, axis in session.scenario.axes.items() if axis.rig_axis}
    return list(session.taken.forces_at_rest(axes).values()) if session.taken is not None else []


def _free(folder: Path, rung: str) -> Path:
    names = (f"rung_{rung}" + f"_{number}" * (number > 1) for number in count(1))
    return next(folder / name for name in names if not (folder / name).exists())


def _axes(runner: ProcedureRunner) -> list[tuple[str, str, Axis]]:
    """Return the name in the scenario, the display name and the parameters of each axis."""
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
    """Return the next act; empty at the end. ``unloads()`` decides whether to unload after the last rung."""
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
    if wrong(record):
        return "finish"  # no signature is possible: the rig must be repaired
    return "position" if session.why_not("sign_for") else "sign_for"


def wrong(record: ProcedureRecord) -> list[str]:
    """Return the findings of all checks. No signature can clear a finding."""
    return [finding for row in record.checks.values() for finding in row.findings]
