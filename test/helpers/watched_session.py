# SPDX-License-Identifier: Apache-2.0
"""A session of a simulated bench and its model: does acts with events in them and checks both."""

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
from rths_nodes.loop.scenario.rehearsal import simulated, slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.rungs import RunOutcome
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording.run import Collector

HELD_FOR = 12
"""Ticks for which a rung is held before it is resumed or stopped."""
FARTHER = 0.03
"""Largest relative excess of a test over its simulation."""
FEWEST = 4
"""Smallest number of ticks at rest after an act."""
RUNAWAY = 20_000
"""Limit of the ticks of an act."""


@cache
def farthest(bench: benches.Bench, ratio: int, sets: tuple[str, ...] = ()) -> float:
    """Largest distance (m) of the test of a bench from its zero on a sound rig, ``ratio`` times slower."""
    test = simulated(slower(bench.scenario(True, *sets), ratio))
    loop = Loop(Assembly(test))
    collector = Collector(test, loop.assembly.names)
    loop.run([collector])
    moved = [index for index, axis in enumerate(test.limits.values()) if not axis.of_force]
    return float(np.abs(collector.run().command[:, moved]).max()) * (1.0 + FARTHER)


class HostFails(Exception):
    """The host of a run has failed."""


TRANSITION, LINE = "transition", "line"
"""Other phases of events: at a transition, and, of stops only, at a line of an act."""
AT_TRANSITIONS = sorted({"stop", "interlock", "no_pressure", "pressure_back", "interlock_back", *VAGUE})
"""Events at transitions."""
Events = Sequence[tuple[int, str, str]]


class WatchedSession(RuleBasedStateMachine):
    """A session on a ``bench`` and its model: acts, events in them, and checks."""

    bench = benches.ONE
    sets: tuple[str, ...] = ()
    """Overrides of the bench's scenario."""

    def _made(self, known: bool, wrong: str, start: float, pressure: str, closed: bool) -> None:
        benches.restored()
        first = next(iter(self.bench.scenario(known).axes))
        sets = [f"axes.{first}.output.start={start}"] if start else []
        sets += [f"axes.{first}.sensors.{wrong}"] if wrong else []
        sets += [] if pressure == "high" else [f"port.hydraulics={pressure}"]
        sets += [] if closed else ["port.interlock=open"]
        self.scenario = self.bench.scenario(known, *sets, *self.sets)
        self.model = RigModel(known, bool(wrong), closed=closed, pressure=pressure)
        self.hashes = {test.time_ratio: test.whole_hash() for test in (self.scenario, slower(self.scenario, 2))}
        """Hashes that the operator has seen, by time ratio."""
        self.record = ProcedureRecord("test", self.scenario.name, self.hashes[1])
        self.session = RigSession(self.scenario, self.record, realtime=False, changed=self._changed)
        limits = self.scenario.limits.values()
        rig_axes = [axis.rig_axis for axis in self.scenario.axes.values()]
        bounds = Bounds(
            np.array([limit.deceleration for limit in limits]),
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
            np.array([limit.velocity for limit in limits]) * self.scenario.dt,
            np.array([limit.stroke for limit in limits]),
            self.watch,
        )
        self.session.drive.port = self.port  # type: ignore[assignment]
        self.at_transition: list[tuple[int, str]] = []
        self.missed: Any = None
        self.rung = ""
        self.port.each_tick = self._tick
        self.port.lost = lambda: bool(self.session.drive.loss.reason)
        self.violations: list[str] = []
        self.taken = ""
        self.first, self.start = (closed, pressure), start
        self.rest_until, self.then = 0, "resume"
        self.begun = self.entered = 0
        self.seen, self.by_socket = self.session.seen, False
        """Situation that a socket client has seen last, and whether the act comes from it."""
        self.trouble: list[str] = []
        """Events in the last act."""

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.model.trouble.append("stop")
            self.session.close()
            self._judge()
            benches.restored()

    # -- checks -------------------------------------------------------------------------------------------

    def _changed(self, state: State, reason: str) -> None:
        self.entered += 1
        self.model.changed(state.name, reason)
        begins = state.name in {"ARMED", *MOVING} - {"STOPPING"}
        if self.by_socket and begins and self.seen.stops != self.session.seen.stops:
            self.violations.append(
                f"{state.name} was entered after a stop that the sender of the act had not seen"
            )
        if state.name == "POSITIONED" and self.model.wrong:
            self.violations.append("a rig with a wrong sensor was positioned")
        if state.name == "HELD" and self.model.act == "run":
            self.model.suspended = self.model.ratio > 1 and self.session.possible()["resume"] == ""
            self.rest_until = self.port.ticks + HELD_FOR
        if state.name in ("RESUMING", "STOPPING", "TRIPPED"):
            self.model.suspended = False
        if state.name == "TRIPPED" or (state.name == "STOPPING" and "hold" not in self.model.trouble[-1:]):
            self.watch.stopped(f"{state.name}: {reason}")
        for event in [event for number, event in self.at_transition if number == self.entered]:
            self._happens(event, from_outside=False)

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
        wrong = self.port.violations + self.watch.violations + self.model.surprises + self.violations
        assert not wrong, "\n".join(wrong[:4])
        assert self.session.state.name == self.model.state

    def _bits(self, act: str) -> dict[str, Any]:
        """Values that a refused ``act`` must not change."""
        session, drive = self.session, self.session.drive
        values = {
            "state": (session.state, session.reason),
            "offsets": session.offsets.hash if session.offsets else "",
            "barred": session.clearance.barred(),
            "record": {key: value for key, value in asdict(self.record).items() if key != "notes"},
        }
        if act in ("connect", "take_offsets") or session.state is State.IDLE:  # these acts read the rig
            return values
        return values | {"possible": session.possible(), "command": drive.command.tobytes()}

    # -- acts and events ----------------------------------------------------------------------------------

    def _do(
        self, act: str, call: Callable[[], object], happens: Events = (), right: bool = True, still: bool = False
    ) -> bool:
        """Do ``act`` with the events ``happens``; return whether it was completed.

        ``right`` is false if the operator's arguments are wrong, ``still`` is true if nothing may move.
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
        situation = f"{act} in {since}: {outcome!r}, {model.trouble}"
        if expected is False:
            assert isinstance(outcome, ConfigError), situation
            assert (act == "take_offsets" and not stale) or port.ticks == ticks, situation
        elif expected and not model.trouble:
            assert outcome is None, situation
        if outcome is not None and not self.entered:
            assert self._bits(act) == before, situation
        if outcome is not None and not isinstance(outcome, ConfigError):
            raised = {HostFails: "host", KeyboardInterrupt: "interrupted"}.get(type(outcome), "cable")
            assert raised in model.trouble, situation
        self.trouble = [event for event in model.trouble if event not in BENIGN]
        model.act = ""
        model.trouble = []
        self._idle()
        assert session.state.name == model.state
        return outcome is None

    def _idle(self, ticks: int | None = None) -> None:
        """Hold the rig for ``ticks``, as its hold loop does; by default until it has settled."""
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
        """Check the state after a motion, by the events in it."""
        states = (then,) if done else ("HELD",) if set(self.trouble) <= {"stop"} else ("HELD", "TRIPPED")
        if done and self.trouble:  # an event in its last tick, or after it
            states = (then, "HELD", "TRIPPED")
        assert self.model.state in states, f"{self.model.state}, not {states}: {self.trouble}"

    def _happens(self, event: str, from_outside: bool = True) -> None:
        model, port = self.model, self.port
        if event == "act":
            self._disturbs()
            return
        moving = model.state in MOVING
        model.trouble.append(event)
        model.vague = model.vague or (moving and event not in BENIGN)
        match event:
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
                model.pressure = {"no_pressure": "off", "low_pressure": "low"}.get(event, "high")
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
                benches.CHANGES[event]()
        if event in LYING | LYING_FORCE:
            port.sensor(event)
            model.lying = model.lying or event in LYING
            model.lying_force = model.lying_force or event in LYING_FORCE
            self.watch.lies = self.watch.lies or event in LYING
            self.watch.force_lies = self.watch.force_lies or event in LYING_FORCE

    def _stops(self, from_outside: bool = True) -> None:
        """Stop the rig, possibly from another client, and wait for the answer."""
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
        """Check that every act of another client is refused while the rig moves or is held in a rung."""
        if self.model.state not in MOVING and not self.model.suspended:
            return
        session, here = self.session, self._bits("")
        acts: list[Callable[[], object]] = [
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
        for act in acts:
            raised = elsewhere(act)
            assert isinstance(raised, ConfigError), raised
        assert self._bits("") == here
