# SPDX-License-Identifier: Apache-2.0
"""Rungs on the rig: arming, the port of a run, operator requests during a run, and the end of a rung."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, PortError, Problems, show
from rths_nodes.core.inputs import named_files
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Command, Measurement, Motion, by_force, equal
from rths_nodes.laboratory.actuators.unloaded import SpecimenPath
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.commissioning import same_person
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.executive.running import ExecutiveLoop
from rths_nodes.loop.options import EXECUTIVE
from rths_nodes.loop.procedure_record import FULL, REDUCED, RUNGS, ProcedureRecord, RungRecord
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rehearsal import elastic_limits, simulated
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.supervision.handover import Handover, Tares
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.machine import SessionMachine


def program_of(scenario: Scenario) -> str:
    """Return the identity of the executive's program for a rung: source text, compiler, flags and binary.

    Return an empty string for other engines. Raises ConfigError if the scenario cannot run with the executive.
    """
    if scenario.engine != EXECUTIVE:
        return ""
    loop = ExecutiveLoop(checked_loop(simulated(scenario)), paced=False)
    loop.close()
    return loop.program


def armed_hash(scenario: Scenario) -> str:
    """Return the hash with which a rung of ``scenario`` is armed. It also covers the program of the engine."""
    return scenario.whole_hash(program_of(scenario))


def two_persons(rung: str, scenario: Scenario) -> bool:
    return rung == FULL and scenario.rig_file is not None and bool(scenario.rig_file.two_persons)


def check_second(operator: str, second: str) -> None:
    """Raise ConfigError unless ``second`` names a person other than ``operator``."""
    if not second.strip():
        raise ConfigError(
            f"second: must not be empty, because rung {FULL} needs the name of a second person (two_persons: true)"
        )
    if same_person(operator, second):
        raise ConfigError(
            f"second = {show(second)}: must be a person other than the operator {show(operator)} "
            "(two_persons: true)"
        )


def changed_hash(noun: str, act: str, sent: str, now: str) -> list[str]:
    text = f"the {noun} changed: the hash to be {act} is {sent or 'empty'}, but the current hash is {now}"
    return [text] if sent != now else []


def _of_rig(scenario: Scenario) -> dict[str, str]:
    data = scenario.data()
    values = {key: data[key] for key in ("port", "rig_file", "rig", "servo_rate", "engine")}
    for name, axis in data["axes"].items():
        values |= {f"axes.{name}.{key}": axis[key] for key in ("limits", "rig_axis", "sensors", "output")}
    values["axes"] = list(data["axes"])
    return {path: json.dumps(value, sort_keys=True) for path, value in values.items()}


def _reach(rung: str, scenario: Scenario) -> Array:
    limits = elastic_limits(scenario)
    if missing := [name for name in scenario.axes if name not in limits]:
        raise ConfigError(
            f"rung {rung}: axes.{missing[0]}: the rig file has no elastic_limit. Add this key, because it bounds "
            f"the rungs {', '.join(REDUCED)}"
        )
    return np.array([limits[name] for name in scenario.axes])


def start_of(scenario: Scenario, port: Port) -> Array:
    """Return the start positions of the axes, ``(n_axes,)`` m from the zero of the test."""
    if registry.class_of("integrator", scenario.integrator).external or scenario.soft_start is not None:
        return np.zeros(len(scenario.axes))
    assembly = Assembly(scenario, port)
    first = NumericalStage(assembly).first().displacement[: assembly.observation.n_interface]
    rest = np.zeros_like(first)
    return np.array(assembly.setup.axes(Motion(first, rest, rest)).displacement, float)


def file_hashes(scenario: Scenario) -> dict[str, str]:
    return {file.place: file.hash() for file in named_files(Scenario, scenario.data())}


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run (finished, held, tripped, failed, refused or interrupted), its reason, and its samples."""

    outcome: str
    reason: str = ""
    samples: int = 0


class RungRig(SessionMachine):
    """Rig on which a rung can be armed. ``code`` identifies the software at the start of the test."""

    drive: RigDrive
    scenario: Scenario
    record: ProcedureRecord
    code: Code
    offsets: Offsets | None = None
    rung: ArmedRung | None = None


class ArmedRung:
    """Rung ``name`` of ``scenario``, armed by ``persons`` on the rig of ``session``. Its port is lent to one run.

    Raises ConfigError if scenario or offsets differ from ``hashes``, if rig or code have changed, or if a model
    of the specimen is missing.
    """

    def __init__(
        self, session: RungRig, name: str, scenario: Scenario, hashes: tuple[str, str], persons: Sequence[str]
    ) -> None:
        drive, offsets, build = session.drive, session.offsets, session.drive.port.build
        assert offsets is not None
        if name not in (on_rig := [rung for rung, row in RUNGS.items() if row.on_rig]):
            raise ConfigError(f"rung {show(name)}: must be one of the rungs on the rig ({', '.join(on_rig)})")
        scenario_hash, offsets_hash = hashes
        problems = Problems()
        problems += changed_hash("scenario has", "armed", scenario_hash, armed_hash(scenario))
        problems += changed_hash("offsets have", "armed", offsets_hash, offsets.hash)
        before, after = _of_rig(session.scenario), _of_rig(scenario)
        if changed := [path for path in before | after if before.get(path) != after.get(path)]:
            problems.append(f"the rig has changed since it was connected: {', '.join(changed)}")
        problems += [
            f"since the test began, the software that computes the test has changed: {change}"
            for change in session.code.changed(build)
        ]
        problems.refuse()
        self.name, self.scenario = name, scenario
        self._session, self._resumed, self._code = session, session.under_way, Code.of(scenario, build)
        self.written = RungRecord(
            name,
            started="",
            time_ratio=scenario.time_ratio,
            scenario_hash=scenario_hash,
            offsets_hash=offsets_hash,
            inputs=file_hashes(scenario),
            code=self._code.hash,
            armed_by=list(persons),
        )
        self._following = Following(scenario, offsets, session.record.checks)
        tares = offsets.tares(_reach(name, scenario) if name in REDUCED else None)
        if name == "c":  # the rig is held
            self.port: RungPort = UnsentPort(drive, tares, Assembly(simulated(scenario)).port)
        else:
            self.port = RungPort(drive, tares, _forces_of(scenario) if name == "d" else None)
            self.port.handover.following = self._following.test
        handover, self.requests = self.port.handover, self.port.handover.requests
        handover.stopping, handover.at_rest, handover.under_way = session.brake, self._at_rest, self._under_way

    def changed(self) -> list[str]:
        changes = [
            f"the software that computes the test has changed: {change}"
            for change in self._code.changed(self._session.drive.port.build)
        ]
        if armed_hash(self.scenario) != self.written.scenario_hash:
            changes.append("a file that the scenario names, or the program of its engine, has changed")
        return [f"since rung {self.name} was armed, {change}" for change in changes]

    def hold(self, reason: str) -> None:
        """Pause the rung until :meth:`resume`. If the time ratio is 1, end the rung instead, and hold the rig."""
        if self.scenario.time_ratio == 1:
            self.requests.stop(reason)
            return
        self.requests.hold()
        self._session.to(State.STOPPING, reason)

    def resume(self) -> None:
        self._session.to(State.RESUMING)
        self._resumed = self._session.under_way
        self.requests.resume()

    def over(self, outcome: RunOutcome) -> None:
        """Complete the record ``written``, and enter the state that follows the run."""
        session, written, holds, broken = self._session, self.written, self._holds(), self._session.drive.broken
        written.outcome, written.reason = outcome.outcome, outcome.reason
        written.samples = outcome.samples or written.samples  # after an error, the runner has set this number
        written.remarks += holds + self._following.warnings
        session.record.deviations += [f"rung {self.name}: {hold}" for hold in holds]
        with session.lock:
            session.rung = None
            reason = outcome.reason or broken
            tripped = outcome.outcome in ("tripped", "failed") or bool(broken)
            if tripped or session.state is State.RESUMING:
                session.brake(reason)
            if tripped:
                session.to(State.TRIPPED, reason)
            elif session.state is State.HELD:  # the rung was stopped while it was held
                session.reason = reason or session.reason
            else:
                session.to(State.HELD, reason or "the rung has ended")

    def _holds(self) -> list[str]:
        remarks = []
        for hold in self.port.handover.holds:
            pairs = zip(self.scenario.axes, hold.before, hold.after, strict=True)
            changes = ", ".join(
                f"{name} from {1e-3 * before:.4g} kN to {1e-3 * after:.4g} kN" for name, before, after in pairs
            )
            seconds = f"{hold.until - hold.since:.1f} s"
            remarks.append(f"held after sample {hold.sample} for {seconds}, while the forces changed: {changes}")
        return remarks

    def _at_rest(self) -> None:
        with self._session.lock:
            if self.requests.held and self._session.state is State.STOPPING:
                self._session.to(State.HELD, self._session.reason)

    def _under_way(self) -> None:
        with self._session.lock:
            act = self._resumed
            if self._session.state is State.RESUMING and act is not None and not act.stopped:
                self._session.to(State.RUNNING, act=act)


Forces = Callable[[list[float]], list[float]]


def _forces_of(scenario: Scenario) -> Forces:
    """Return a function that maps the displacements (m) of successive samples to the forces (N) of all axes."""
    dt, before = scenario.dt, list[float]()
    if scenario.rig is None:
        models = [registry.build("specimen", scenario.model_of(name, "specimen")) for name in scenario.axes]
        paths = [SpecimenPath(specimen, dt) for specimen in models]

        def of_axes(now: list[float]) -> list[float]:
            moves = zip(paths, now, before or now, strict=True)
            before[:], forces = now, [path.move(x, (x - x_before) / dt) for path, x, x_before in moves]
            return forces

        return of_axes
    there = registry.class_of("rig", scenario.rig).at_commands(scenario.rig)
    if there is None:
        kind = type_of(scenario.rig)
        raise ConfigError(
            f"rung d: rig.type = {kind!r}: the specimen has no model that follows measured displacements"
        )
    rig, nothing = registry.build("rig", there, dt, len(scenario.axes)), np.zeros(0)

    def of_rig(now: list[float]) -> list[float]:
        if not before:  # the rig was at rest before the first sample
            rig.follow(now, nothing)
        before[:] = now
        forces: list[float] = rig.follow(now, nothing)[1]
        return forces

    return of_rig


class RungPort(PortBefore):
    """Armed port of ``drive`` for one run. ``given_back`` is true after the run. ``tares`` is the test's zero.

    The procedure holds the rig before Measurement 0 and after the last sample, so ``open`` and ``close`` move
    nothing. Measurements are untared, because limits apply to untared values. In rung d, ``forces`` computes the
    forces of the axes (N) from the measured displacements (m).
    """

    armed = True

    def __init__(self, drive: RigDrive, tares: Tares, forces: Forces | None = None) -> None:
        self.handover = Handover(tares, self._presented, lost=lambda: drive.loss.reason)
        self.paced = drive.realtime
        """True if ticks come from the clock or from the rig."""
        super().__init__(drive.port)
        self._drive, self._forces = drive, forces
        self._pacer: Callable[[], int] | None = None
        self._begun = self._ticked = self.given_back = False
        self._modes = b"", b""
        self._turn = threading.Lock()
        self._true: Measurement | None = None
        self._opened = self._lost = ""
        self.begins: Callable[[], None] = lambda: None
        """Function to call when the run begins to drive the rig."""

    @property
    def counter_at_start(self) -> int | None:
        return self._zero if self._begun else None

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._pacer = pacer

    def arm_watchdog(self) -> None:
        """Do nothing, because the procedure has already armed the watchdog."""

    def release(self) -> None:
        """Return the port to the procedure. Further calls do nothing. Thread-safe."""
        with self._turn:
            if self.given_back or not self._begun:
                self.given_back = True
                return
            with suppress(Exception):  # even if port or model have failed, the rig must be given back
                self._true = self.truth()
            self.given_back = True
            self._drive.take_back(*self._drive.held(self._before, self._last, self._modes))

    disarm_watchdog = safe = close = release

    @property
    def interlock(self) -> str:
        self._opened = self._opened or str(self._port.interlock)
        return self._opened

    def begin(self) -> None:
        """Let the run drive the rig. Measurement 0 of the run is the procedure's last Measurement."""
        if self.given_back:
            raise PortError("the port of a rung serves only one run, and this run has ended")
        drive = self._drive
        drive.hold_loop.borrow()  # the drive does not tick until ``take_back``
        if drive.broken:
            drive.hold_loop.give_back()
            raise PortError(drive.broken)
        self._begun = True
        drive.pace = self._pacer
        self._measured = drive.measured
        self._zero = drive.measured.sample
        self._before = self._last = self._tared = drive.command
        self.begins()

    def _mine(self) -> None:
        if self.given_back:
            raise PortError("the procedure has taken the rig back")

    def wait_tick(self) -> int:
        self._mine()
        return self._port.wait_tick() - self._zero

    def write(self, command: Command) -> None:
        self._mine()
        if (waiting := self._waiting()) is not None:
            self._send(replace(command, control_mode=b""), waiting, waiting)
            self._tared = waiting - self._zero_of(b"")
            return
        zero = self._zero_of(command.control_mode)
        self._send(command, command.target + zero, command.command + zero)
        self._tared = command.command.copy()

    def _zero_of(self, modes: bytes) -> Array:
        """Return the zero of commands in the control ``modes``, ``(n_axes,)`` m or N."""
        tares = self.handover.tares
        return np.asarray(np.where(by_force(modes), tares.force, tares.command)) if modes else tares.command

    def _waiting(self) -> Array | None:
        """Return the command to send if the rig was lost during this run, or None if it has always followed."""
        drive = self._drive
        if not (self._lost or drive.loss.reason):
            return None
        if not self._lost and self._modes[1]:  # force-controlled axes are held at their positions
            _, self._last = drive.held(self._before, self._last, self._modes)
        self._lost = self._lost or drive.loss.reason
        waiting = drive.loss.next(self._last, drive.shift)
        return self._last if waiting is None else waiting

    def _send(self, command: Command, target: Array, untared: Array) -> None:
        sent = replace(command, sample=command.sample + self._zero, target=target, command=untared)
        self._port.write(sent)
        self._ticked = True
        self._before, self._last = self._last, untared
        self._modes = self._modes[1], sent.control_mode

    def ready(self) -> bool:
        return not self._ticked or self._port.ready()

    def read(self) -> Measurement:
        if self._ticked:
            self._mine()
            self._measured = self._port.read()
            self._drive.receive(self._measured, self._last, self._modes[1])
        return replace(self._measured, sample=self._measured.sample - self._zero)

    def _presented(self, shown: Measurement) -> Measurement:
        presented = self._from_zero(shown)
        if self._ticked and equal(shown.command, self._last):
            presented.command = self._tared.copy()
        if self._forces is not None:
            presented.force = np.array(self._forces(presented.displacement.tolist()))
        return presented

    def _from_zero(self, measured: Measurement) -> Measurement:
        tares, forced = self.handover.tares, bool(self._modes[1])
        return replace(
            measured,
            displacement=measured.displacement - tares.displacement,
            force=measured.force - tares.force,
            command=measured.command - self._zero_of(measured.control_mode if forced else b""),
        )

    def truth(self) -> Measurement | None:
        if self.given_back:
            return self._true
        true = self._port.truth() if self._forces is None else None
        return None if true is None else self._from_zero(true)


class UnsentPort(RungPort):
    """Port of rung c: the run drives the simulator ``answers``, while the rig is held and monitored."""

    def __init__(self, drive: RigDrive, tares: Tares, answers: Port) -> None:
        super().__init__(drive, replace(Tares.none(len(tares.command)), command=tares.command))
        self._answers = answers

    def begin(self) -> None:
        super().begin()
        self._answers.open(None)
        self._answers.begin()

    def close(self) -> None:
        self.release()
        self._answers.close()

    def write(self, command: Command) -> None:
        self._mine()
        waiting = self._waiting()
        held = self._drive.command if waiting is None else waiting
        self._send(replace(command, control_mode=b""), held, held)
        self._answers.wait_tick()
        self._answers.write(command)

    def read(self) -> Measurement:
        """Return the simulator's Measurement with the rig's modes, hydraulics and interlock, and flags of both."""
        real = super().read()
        if self._ticked:
            reason, level, _ = self._drive.judgement(self._drive.command)
            self._opened = self._opened or reason or level
        measured = self._answers.read()
        same = self._answers.auxiliary_names == self._port.auxiliary_names
        return replace(
            measured,
            auxiliary=measured.auxiliary if same else real.auxiliary,
            flags=measured.flags | real.flags,
            control_mode=real.control_mode,
            hydraulics=real.hydraulics,
            interlock=real.interlock,
        )

    def _presented(self, shown: Measurement) -> Measurement:
        return shown

    def truth(self) -> Measurement | None:
        return self._answers.truth()
