"""A session of a simulated bench beside its model: acts are done, things happen in them, all is judged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rig_walk
from hypothesis.stateful import RuleBasedStateMachine
from rig_model import MOVING, RigModel
from watched_port import WatchedPort

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.loop.procedure.records import ProcedureRecord
from rths_nodes.loop.procedure.session import RigSession, RunOutcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State

RIG = (
    rig_walk.RIG.replace("velocity: 1.2", "velocity: 0.4")
    .replace("deceleration: 20.0", "deceleration: 2.0")
    .replace("velocity: 5.0e-3", "velocity: 50.0e-3")
)
"""The bench, slower, and unloaded faster."""
LIVELY = (
    "duration=0.6",
    "servo_rate=256",
    "substeps=4",
    "compensator.type=none",
    "ground_motion={type: sine, amplitude: 1.2, frequency: 2.0}",
)
"""A test of 154 samples, 30 mm and 0.16 m/s, on this bench without a trip."""
SETTLES = 96
"""Ticks after which the actuator has come to where its command is."""
HELD_FOR = 12
"""Ticks for which a rung is held before it goes on, or is stopped."""
RUNAWAY = 20_000
"""No act takes so many ticks."""


@cache
def scenario(known: bool, *sets: str) -> Scenario:
    """The test on the bench, whose stiffness is known well enough, or not."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.yaml")
        file.write_text(RIG if known else RIG.replace("    stiffness_known_to: 0.03\n", ""))
        return files.load("chen_ricles_2010", [*LIVELY, *sets], rig=str(file))


class HostFails(Exception):
    """The host of a run is gone."""


Events = Sequence[tuple[int, str, str]]


class WatchedSession(RuleBasedStateMachine):
    """A session on the bench and its model: how an act is done, what may happen in it, and what must hold."""

    def _made(self, known: bool, wrong: str, start: float, pressure: str, closed: bool) -> None:
        sets = [f"axes.story_1.output.start={start}"] if start else []
        sets += [f"axes.story_1.sensors.{wrong}"] if wrong else []
        sets += [] if pressure == "high" else [f"port.hydraulics={pressure}"]
        sets += [] if closed else ["port.interlock=open"]
        self.scenario = scenario(known, *sets)
        self.model = RigModel(known, bool(wrong), closed=closed, pressure=pressure)
        self.record = ProcedureRecord("test", self.scenario.name, hash_of(self.scenario))
        self.session = RigSession(self.scenario, self.record, realtime=False, changed=self._changed)
        limits = self.scenario.limits["story_1"]
        moving = frozenset(State[name] for name in MOVING)
        self.port = WatchedPort(
            self.session.drive.port,
            lambda: self.session.state,
            moving,
            limits.velocity * self.scenario.dt,
            limits.stroke,
        )
        self.session.drive.port = self.port  # type: ignore[assignment]
        self.port.each_tick = self._tick
        self.port.lost = lambda: bool(self.session.drive.loss.reason)
        self.told: list[str] = []
        self.taken = ""
        self.first, self.start = (closed, pressure), start
        self.rest_until, self.then = 0, "resume"
        self.begun = self.entered = 0
        self.trouble: list[str] = []
        """What has happened in the last act."""

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.model.trouble.append("stop")
            self.session.close()
            self._judge()

    # -- the model looks on -------------------------------------------------------------------------------

    def _changed(self, state: State, reason: str) -> None:
        self.entered += 1
        self.model.changed(state.name)
        if state.name == "POSITIONED" and self.model.wrong:
            self.told.append("a rig with a wrong sensor was positioned")
        if state.name == "HELD" and self.model.act == "run":
            self.model.suspended = self.model.ratio > 1 and self.session.possible()["resume"] == ""
            self.rest_until = self.port.ticks + HELD_FOR
        if state.name in ("RESUMING", "STOPPING", "TRIPPED"):
            self.model.suspended = False

    def _tick(self) -> None:
        if self.port.ticks - self.begun > RUNAWAY:
            raise AssertionError("an act comes to no end")
        if self.model.suspended and self.port.ticks >= self.rest_until:
            if self.then == "resume":
                self.session.resume()
            else:
                self.model.trouble.append("stop")
                self.model.suspended = False
                self.session.stop("enough")

    def _judge(self) -> None:
        wrong = self.port.violations + self.model.surprises + self.told
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

    def _do(self, act: str, call: Callable[[], object], happens: Events = (), right: bool = True) -> bool:
        """Do ``act``, in which something ``happens``; whether it came to its end.

        ``right`` is false where what the operator names is wrong.
        """
        model, port, session = self.model, self.port, self.session
        expected = model.allows(act) if right else False
        before, since, ticks = self._bits(act), model.state, port.ticks
        model.begin(act)
        self.begun, self.entered = ticks, 0
        for later, phase, what in happens:
            port.after(later, phase, lambda what=what: self._happens(what))
        outcome: BaseException | None = None
        try:
            call()
        except (ConfigError, HostFails, KeyboardInterrupt, RuntimeError) as error:
            outcome = error
        port.pending.clear()
        self._judge()
        told = f"{act} in {since}: {outcome!r}, {model.trouble}"
        if expected is False:
            assert isinstance(outcome, ConfigError), told
            assert act == "take_offsets" or port.ticks == ticks, told
        elif expected and not model.trouble:
            assert outcome is None, told
        if outcome is not None and not self.entered:
            assert self._bits(act) == before, told
        if outcome is not None and not isinstance(outcome, ConfigError):
            raised = {HostFails: "host", KeyboardInterrupt: "interrupted"}.get(type(outcome), "cable")
            assert raised in model.trouble, told
        self.trouble = [each for each in model.trouble if each != "repair"]
        model.act = ""
        model.trouble = []
        self._idle()
        assert session.state.name == model.state
        return outcome is None

    def _idle(self) -> None:
        """The rig is kept, as its keeper does it."""
        model, drive = self.model, self.session.drive
        if model.state in ("IDLE", "FINISHED") or model.given_back or drive.broken:
            return
        model.trouble = ["standing"]
        try:
            for _ in range(SETTLES):
                drive.tick()
        except PortError as error:
            drive._fail(error)
        model.trouble = []
        self._judge()
        if model.closed and model.pressure == "high" and not model.dead:
            model.vague = False

    def _after(self, then: str, done: bool) -> None:
        """A motion may have ended here, after what has happened in it."""
        states = (then,) if done else ("HELD",) if set(self.trouble) <= {"stop"} else ("HELD", "TRIPPED")
        assert self.model.state in states, f"{self.model.state}, not {states}: {self.trouble}"

    def _happens(self, what: str) -> None:
        model, port = self.model, self.port
        if what == "act":
            self._disturbs()
            return
        moving = model.state in MOVING
        model.trouble.append(what)
        model.vague = model.vague or moving
        match what:
            case "stop":
                self.session.stop("the operator has had enough")
            case "hold":
                try:
                    self.session.hold("coffee")
                except ConfigError:
                    model.trouble.remove("hold")
            case "interlock":
                model.closed = False
                port.set_interlock(False)
            case "no_pressure" | "low_pressure":
                model.pressure = "off" if what == "no_pressure" else "low"
                port.set_hydraulics(model.pressure)
            case "silent":
                model.silent = port.silent = True
            case "overload":
                model.overload = True
                port.force_shift = 3e6
            case "dead":
                model.dead = port.dead = True
            case "shifted":
                model.shift = port.shift = 0.002
            case "force_shifted":
                model.force_shift = port.force_shift = 15e3
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

    def _repaired(self) -> None:
        model, port = self.model, self.port
        if not model.closed:
            port.set_interlock(True)
        if model.pressure != "high":
            port.set_hydraulics("high")
        model.closed, model.pressure = True, "high"
        model.silent = model.overload = model.dead = port.silent = port.dead = False
        model.shift = port.shift = model.force_shift = port.force_shift = 0.0

    def _disturbs(self) -> None:
        """While the rig moves, or is held in a rung, no other act is possible."""
        if self.model.state not in MOVING and not self.model.suspended:
            return
        session, here = self.session, self._bits("")
        others: list[Callable[[], object]] = [
            session.connect,
            lambda: session.take_offsets(0.05),
            lambda: session.confirm_offsets("", True),
            session.check,
            session.position,
            lambda: session.arm("g", self.scenario, hash_of(self.scenario), ""),
            lambda: session.run(lambda test, port: RunOutcome("finished")),
            session.acknowledge,
            session.unload,
            session.finish,
        ]
        for act in others:
            with pytest.raises(ConfigError):
                act()
        assert self._bits("") == here
