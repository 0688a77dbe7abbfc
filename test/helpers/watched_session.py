# SPDX-License-Identifier: Apache-2.0
"""A session of a simulated bench beside its model: acts are done, things happen in them, all is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from typing import Any

import benches
import numpy as np
from hypothesis.stateful import RuleBasedStateMachine
from motion_watch import SEEN_S, Bounds, MotionWatch
from rig_model import BENIGN, LYING, LYING_FORCE, MOVING, VAGUE, RigModel
from stop_at import AtLine, elsewhere
from watched_port import PHASES, WatchedPort

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rehearsal import hash_of, simulated, slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.rungs import RunOutcome
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording.run import Collector

HELD_FOR = 12
"""Ticks for which a rung is held before it goes on, or is stopped."""
FARTHER = 0.03
"""Share by which a test may go further than in its simulation."""
FEWEST = 4
"""Ticks at rest after an act, at least."""
RUNAWAY = 20_000
"""No act takes so many ticks."""


@cache
def farthest(bench: benches.Bench, ratio: int, sets: tuple[str, ...] = ()) -> float:
    """How far its test goes from its zero, m, so many times slower, on a rig that is as it should be."""
    test = simulated(slower(bench.scenario(True, *sets), ratio))
    loop = Loop(Assembly(test))
    collector = Collector(test, loop.assembly.names)
    loop.run([collector])
    moved = [index for index, axis in enumerate(test.limits.values()) if not axis.of_force]
    return float(np.abs(collector.run({}, {}, {}).command[:, moved]).max()) * (1.0 + FARTHER)


class HostFails(Exception):
    """The host of a run is gone."""


TRANSITION, LINE = "transition", "line"
"""Where else something happens: when a state is entered, and, of stops, at a line of an act."""
AT_TRANSITIONS = sorted({"stop", "interlock", "no_pressure", "pressure_back", "interlock_back", *VAGUE})
"""What may happen there."""
Events = Sequence[tuple[int, str, str]]


class WatchedSession(RuleBasedStateMachine):
    """A session on a ``bench`` and its model: how an act is done, what may happen in it, and what must hold."""

    bench = benches.ONE
    sets: tuple[str, ...] = ()
    """What differs from the scenario of the bench."""

    def _made(self, known: bool, wrong: str, start: float, pressure: str, closed: bool) -> None:
        benches.restored()
        first = next(iter(self.bench.scenario(known).axes))
        sets = [f"axes.{first}.output.start={start}"] if start else []
        sets += [f"axes.{first}.sensors.{wrong}"] if wrong else []
        sets += [] if pressure == "high" else [f"port.hydraulics={pressure}"]
        sets += [] if closed else ["port.interlock=open"]
        self.scenario = self.bench.scenario(known, *sets, *self.sets)
        self.model = RigModel(known, bool(wrong), closed=closed, pressure=pressure)
        self.hashes = {test.time_ratio: hash_of(test) for test in (self.scenario, slower(self.scenario, 2))}
        """Of what the operator has seen, by its ratio of time."""
        self.record = ProcedureRecord("test", self.scenario.name, self.hashes[1])
        self.session = RigSession(self.scenario, self.record, realtime=False, changed=self._changed)
        limits = self.scenario.limits.values()
        rig_axes = [axis.rig_axis for axis in self.scenario.axes.values()]
        bounds = Bounds(
            np.array([each.deceleration for each in limits]),
            np.array([axis.slow_error for axis in rig_axes if axis is not None]),
            self.scenario.dt,
            self.bench is benches.PAIR,
            self.bench.load,
            self.bench.newtons,
        )
        self.watch = MotionWatch(bounds)
        self.port = WatchedPort(
            self.session.drive.port,
            lambda: self.session.state,
            frozenset(State[name] for name in MOVING),
            np.array([each.velocity for each in limits]) * self.scenario.dt,
            np.array([each.stroke for each in limits]),
            self.watch,
        )
        self.session.drive.port = self.port  # type: ignore[assignment]
        self.at_transition: list[tuple[int, str]] = []
        self.missed: Any = None
        self.rung = ""
        self.port.each_tick = self._tick
        self.port.lost = lambda: bool(self.session.drive.loss.reason)
        self.told: list[str] = []
        self.taken = ""
        self.first, self.start = (closed, pressure), start
        self.rest_until, self.then = 0, "resume"
        self.begun = self.entered = 0
        self.seen, self.by_socket = self.session.seen, False
        """What a program at the socket has seen last, and whether the act comes from it."""
        self.trouble: list[str] = []
        """What has happened in the last act."""

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.model.trouble.append("stop")
            self.session.close()
            self._judge()
            benches.restored()

    # -- the model looks on -------------------------------------------------------------------------------

    def _changed(self, state: State, reason: str) -> None:
        self.entered += 1
        self.model.changed(state.name, reason)
        begins = state.name in {"ARMED", *MOVING} - {"STOPPING"}
        if self.by_socket and begins and self.seen.stops != self.session.seen.stops:
            self.told.append(f"{state.name} was entered after a stop that the sender of the act had not seen")
        if state.name == "POSITIONED" and self.model.wrong:
            self.told.append("a rig with a wrong sensor was positioned")
        if state.name == "HELD" and self.model.act == "run":
            self.model.suspended = self.model.ratio > 1 and self.session.possible()["resume"] == ""
            self.rest_until = self.port.ticks + HELD_FOR
        if state.name in ("RESUMING", "STOPPING", "TRIPPED"):
            self.model.suspended = False
        if state.name == "TRIPPED" or (state.name == "STOPPING" and "hold" not in self.model.trouble[-1:]):
            self.watch.stopped(f"{state.name}: {reason}")
        for _, what in [each for each in self.at_transition if each[0] == self.entered]:
            self._happens(what, from_outside=False)

    def _tick(self) -> None:
        if self.port.ticks - self.begun > RUNAWAY:
            raise AssertionError("an act comes to no end")
        if self.bench.load is not None and self.model.lying and self.model.state in MOVING:
            self.model.misled = True
        if self.model.suspended and self.port.ticks >= self.rest_until:
            if self.then == "resume":
                assert elsewhere(self.session.resume) is None
            else:
                self.model.trouble.append("stop")
                self.model.suspended = False
                self._stops()

    def _judge(self) -> None:
        wrong = self.port.violations + self.watch.violations + self.model.surprises + self.told
        assert not wrong, "\n".join(wrong[:4])
        assert self.session.state.name == self.model.state

    def _bits(self, act: str) -> dict[str, Any]:
        """All that ``act`` must leave as it was where it is refused."""
        session, drive = self.session, self.session.drive
        found = {
            "state": (session.state, session.reason),
            "offsets": session.offsets.hash if session.offsets else "",
            "barred": session.clearance.barred(),
            "record": {key: value for key, value in asdict(self.record).items() if key != "notes"},
        }
        if act in ("connect", "take_offsets") or session.state is State.IDLE:  # these look at the rig
            return found
        return found | {"possible": session.possible(), "command": drive.command.tobytes()}

    # -- how an act goes ----------------------------------------------------------------------------------

    def _do(
        self, act: str, call: Callable[[], object], happens: Events = (), right: bool = True, still: bool = False
    ) -> bool:
        """Do ``act``, in which something ``happens``; whether it came to its end.

        ``right`` is false where what the operator names is wrong, ``still`` true where nothing may move.
        """
        model, port, session = self.model, self.port, self.session
        stale = self.by_socket and self.seen != session.seen
        expected = model.allows(act) if right and not stale else False
        before, since, ticks = self._bits(act), model.state, port.ticks
        model.begin(act)
        self.begun, self.entered = ticks, 0
        self.watch.begin(act)
        self.watch.keeps_still = still
        self.watch.force_lies = model.lying_force or bool(model.force_shift)
        self.at_transition = [(1 + later % 4, what) for later, phase, what in happens if phase == TRANSITION]
        outcome: BaseException | None = None
        try:
            with ExitStack() as lines:
                for later, phase, what in happens:
                    if phase in PHASES:
                        port.after(later, phase, lambda what=what: self._happens(what))
                    if phase == LINE:
                        lines.enter_context(AtLine(session, 1 + later, self._stops))
                if self.by_socket:
                    lines.enter_context(session.act(act, self.seen))
                call()
        except (ConfigError, HostFails, KeyboardInterrupt, RuntimeError) as error:
            outcome = error
        port.pending.clear()
        self.at_transition = []
        self.watch.end()
        if "stop" in model.trouble:
            assert model.state not in {"ARMED", *MOVING}, f"{act} has gone on after a stop: {model.state}"
        self._judge()
        told = f"{act} in {since}: {outcome!r}, {model.trouble}"
        if expected is False:
            assert isinstance(outcome, ConfigError), told
            assert (act == "take_offsets" and not stale) or port.ticks == ticks, told
        elif expected and not model.trouble:
            assert outcome is None, told
        if outcome is not None and not self.entered:
            assert self._bits(act) == before, told
        if outcome is not None and not isinstance(outcome, ConfigError):
            raised = {HostFails: "host", KeyboardInterrupt: "interrupted"}.get(type(outcome), "cable")
            assert raised in model.trouble, told
        self.trouble = [each for each in model.trouble if each not in BENIGN]
        model.act = ""
        model.trouble = []
        self._idle()
        assert session.state.name == model.state
        return outcome is None

    def _idle(self, ticks: int | None = None) -> None:
        """Keep the rig, as its hold loop does, for ``ticks``; by default until it has settled."""
        model, drive = self.model, self.session.drive
        if model.state in ("IDLE", "FINISHED") or model.given_back or drive.broken:
            return
        model.trouble = ["standing"]
        try:
            for count in range(self.bench.settles if ticks is None else ticks):
                drive.tick()
                rests = self.watch.unmoved * self.scenario.dt > SEEN_S and not drive.loss.reason
                if ticks is None and rests and count > FEWEST:
                    break
        except PortError as error:
            drive._fail(error)
        model.trouble = []
        self._judge()
        if ticks is None and model.closed and model.pressure == "high" and not (model.lying or model.shift):
            model.vague = self.watch.lies = False

    def _after(self, then: str, done: bool) -> None:
        """A motion may have ended here, after what has happened in it."""
        states = (then,) if done else ("HELD",) if set(self.trouble) <= {"stop"} else ("HELD", "TRIPPED")
        if done and self.trouble:  # in its last moment, or behind it
            states = (then, "HELD", "TRIPPED")
        assert self.model.state in states, f"{self.model.state}, not {states}: {self.trouble}"

    def _happens(self, what: str, from_outside: bool = True) -> None:
        model, port = self.model, self.port
        if what == "act":
            self._disturbs()
            return
        moving = model.state in MOVING
        model.trouble.append(what)
        model.vague = model.vague or (moving and what not in BENIGN)
        match what:
            case "stop":
                model.trouble.pop()
                self._stops(from_outside)
            case "hold":
                if elsewhere(lambda: self.session.hold("coffee")) is not None:
                    model.trouble.remove("hold")
            case "interlock":
                model.closed = False
                port.set_interlock(False)
            case "interlock_back":
                model.closed = True
                port.set_interlock(True)
            case "no_pressure" | "low_pressure" | "pressure_back":
                model.pressure = {"no_pressure": "off", "low_pressure": "low"}.get(what, "high")
                port.set_hydraulics(model.pressure)
            case "silent":
                model.silent = port.silent = True
            case "overload":
                model.overload = True
                port.force_shift = 3e6
            case "shifted":
                model.shift = port.shift = 0.002
                self.watch.lies = True
            case "force_shifted":
                model.force_shift = port.force_shift = 15e3
                self.watch.force_lies = True
            case "cable":
                model.broken = port.failing = True
            case "interrupted":
                raise KeyboardInterrupt
            case "host":
                if model.act == "run":
                    raise HostFails("the host is gone")
                model.trouble.remove("host")
            case "repair":
                self._repaired()
            case "input file" | "plug-in":
                model.edited = True
                benches.CHANGES[what]()
        if what in LYING | LYING_FORCE:
            port.sensor(what)
            model.lying = model.lying or what in LYING
            model.lying_force = model.lying_force or what in LYING_FORCE
            self.watch.lies = self.watch.lies or what in LYING
            self.watch.force_lies = self.watch.force_lies or what in LYING_FORCE

    def _stops(self, from_outside: bool = True) -> None:
        """An operator, who may be another one, stops the rig, and has his answer before anything goes on."""
        model, port = self.model, self.port
        model.trouble.append("stop")
        model.vague = model.vague or model.state in MOVING
        raised = elsewhere(lambda: self.session.stop("enough")) if from_outside else None
        if not from_outside:
            self.session.stop("enough")
        assert raised is None, raised
        self.watch.stopped(f"a stop at tick {port.ticks}")

    def _repaired(self) -> None:
        model, port = self.model, self.port
        if not model.closed:
            port.set_interlock(True)
        if model.pressure != "high":
            port.set_hydraulics("high")
        model.closed, model.pressure = True, "high"
        model.silent = model.overload = model.lying = model.lying_force = model.edited = False
        model.shift = model.force_shift = 0.0
        port.repaired()
        benches.restored()

    def _disturbs(self) -> None:
        """While the rig moves, or is held in a rung, no other act is possible, whoever asks."""
        if self.model.state not in MOVING and not self.model.suspended:
            return
        session, here = self.session, self._bits("")
        others: list[Callable[[], object]] = [
            session.connect,
            lambda: session.take_offsets(0.05),
            lambda: session.confirm_offsets("", True),
            session.check,
            session.position,
            lambda: session.arm("g", self.scenario, self.record.scenario_hash, ""),
            lambda: session.run(lambda test, port: RunOutcome("finished")),
            session.acknowledge,
            session.unload,
            session.finish,
        ]
        for act in others:
            raised = elsewhere(act)
            assert isinstance(raised, ConfigError), raised
        assert self._bits("") == here
