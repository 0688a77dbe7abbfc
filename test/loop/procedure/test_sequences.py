"""Random sequences of operator acts, faults and pressure states, beside a model of the procedure.

Whatever happens: outside of the motion states the command stays the same to the bit, no step is beyond the
velocity limit, a refused act changes nothing, and no state is entered but by what leads there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from rig_model import FAULTS, FROM, MOVING, VAGUE, RigModel
from watched_port import PHASES, WatchedPort

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.procedure.records import ProcedureRecord
from rths_nodes.loop.procedure.session import RigSession, RunOutcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.rehearsal import hash_of, slower
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.handover import OperatorRequests
from rths_nodes.loop.supervision.states import State

RIG = """
version: 1
name: bench
port: {type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}
axes:
  bench:
    serves: [story_1]
    displacement: {unit: mm, range: 275.0}
    force: {unit: kN, range: 2000.0}
    command: {unit: mm, range: 260.0}
    limits: {stroke: 0.25, velocity: 0.4, force: 1.8e6, deceleration: 2.0}
    elastic_limit: 0.04
    stiffness: 7.6e6
    KNOWN
    small_move: {displacement: 1.0e-3, velocity: 20.0e-3, force: 30.0e3}
    unloading: {travel: 0.05, velocity: 50.0e-3}
"""
LIVELY = (
    "duration=0.6",
    "servo_rate=256",
    "substeps=4",
    "compensator.type=none",
    "ground_motion={type: sine, amplitude: 1.2, frequency: 2.0}",
)
"""A test of 154 samples, 30 mm and 0.16 m/s, on this bench without a trip."""
WRONG = ("force_scale=-1", "displacement_scale=-1", "displacement_dead=0.0")
"""What the small move must find."""
CHANGES = ("another", "rig", "scenario", "offsets", "simulated", "unknown")
"""What the operator names wrong when he arms a rung."""
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
        file.write_text(RIG.replace("KNOWN", "stiffness_known_to: 0.03" if known else ""))
        return files.load("chen_ricles_2010", [*LIVELY, *sets], rig=str(file))


class HostFails(Exception):
    """The host of a run is gone."""


events = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 8), st.integers(0, 150), st.integers(0, 1500)),
        st.sampled_from(PHASES),
        st.sampled_from(sorted({*FAULTS, *VAGUE, "stop", "hold", "repair", "act"})),
    ),
    max_size=3,
)
"""What happens in an act: how many ticks after its begin, where in the tick, and what."""
quiet = st.one_of(st.just([]), events)
RARELY = st.sampled_from((*[False] * 7, True))
Events = Sequence[tuple[int, str, str]]


class Sequences(RuleBasedStateMachine):
    """A session on the bench and its model."""

    @initialize(
        known=st.booleans(),
        wrong=st.sampled_from((*[""] * 12, *WRONG)),
        start=st.sampled_from((0.0, 0.0, 0.004, -0.004)),
        pressure=st.sampled_from((*["high"] * 6, "low", "off")),
        closed=st.sampled_from((True, True, True, True, False)),
        way=st.integers(0, 9),
    )
    def begins(self, known: bool, wrong: str, start: float, pressure: str, closed: bool, way: int) -> None:
        """The rig, and a part of the way without anything that happens."""
        self._made(known, wrong, start, pressure, closed)
        for _ in range(way):
            self.leads_on((), "resume", "g")

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
        self.told: list[str] = []
        self.taken = ""
        self.first = closed, pressure
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

    # -- acts ---------------------------------------------------------------------------------------------

    @rule(happens=quiet)
    def connect(self, happens: Events) -> None:
        if self.model.state == "IDLE":  # a simulator begins anew
            self.model.closed, self.model.pressure = self.first
        self._do("connect", self.session.connect, happens)

    @rule(happens=quiet, seconds=st.sampled_from((0.05, 0.05, 0.05, 0.001)))
    def take_offsets(self, happens: Events, seconds: float) -> None:
        def take() -> None:
            self.taken = self.session.take_offsets(seconds).hash

        if self._do("take_offsets", take, happens, seconds == 0.05):
            self.model.taken = True

    @rule(right=st.sampled_from((True, True, False)), unloaded=st.booleans())
    def confirm_offsets(self, right: bool, unloaded: bool) -> None:
        model = self.model
        named = self.taken if right else "another"
        if self._do("confirm_offsets", lambda: self.session.confirm_offsets(named, unloaded), (), right):
            model.taken, model.confirmed, model.cleared, model.signed = False, True, False, False
            model.unsigned = None if model.standing else False

    @rule(happens=quiet)
    def check(self, happens: Events) -> None:
        model = self.model
        may, standing = model.allows("check"), model.standing
        done = self._do("check", self.session.check, happens)
        if not self.entered:
            return
        assert may is not False
        self._after("REFERENCED", done)
        if not done or model.wrong:
            model.cleared, model.unsigned = False, None
        elif standing or self.trouble:
            model.cleared = model.unsigned = None
        else:
            good = model.known or model.signed
            model.cleared, model.unsigned = good, not good

    @rule(right=st.sampled_from((True, True, False)))
    def sign_for(self, right: bool) -> None:
        model = self.model
        if self._do("sign_for", lambda: self.session.sign_for("story_1" if right else "lunch"), (), right):
            sure, model.signed = model.unsigned and not model.wrong, True
            model.unsigned, model.cleared = (False, True) if sure else (None, False if model.wrong else None)

    @rule(happens=quiet)
    def position(self, happens: Events) -> None:
        done = self._do("position", self.session.position, happens)
        if self.entered:
            self._after("POSITIONED", done)

    @rule(rung=st.sampled_from("cdeg"), what=st.sampled_from((*["right"] * 8, *CHANGES)))
    def arm(self, rung: str, what: str) -> None:
        session, model = self.session, self.model
        meant = {"another": override(self.scenario, ["ground_motion.amplitude=1.1"]), "rig": self._other_rig()}
        wanted = slower(self.scenario, 2) if rung == "e" else self.scenario
        named = "old" if what == "scenario" else hash_of(wanted if what == "another" else meant.get(what, wanted))
        offsets = session.offsets.hash if session.offsets and what != "offsets" else "old"
        rung = {"simulated": "b", "unknown": "z"}.get(what, rung)
        armed = meant.get(what, wanted)
        if self._do("arm", lambda: session.arm(rung, armed, named, offsets), (), what == "right"):
            assert model.state == "ARMED"
            model.ratio = armed.time_ratio

    def _other_rig(self) -> Scenario:
        return override(self.scenario, ["axes.story_1.limits.force=1.7e6"])

    @rule(happens=quiet, then=st.sampled_from(("resume", "stop")), refuses=st.sampled_from((False,) * 9 + (True,)))
    def run(self, happens: Events, then: str, refuses: bool) -> None:
        model, self.then = self.model, then

        def runner(test: Scenario, port: Any) -> RunOutcome:
            if refuses:
                raise ConfigError("the host wants no test today")
            outcome = Loop(Assembly(test, port)).run()
            return RunOutcome(outcome.state.name.lower(), outcome.reason, outcome.samples)

        done = self._do("run", lambda: self.session.run(runner), happens)
        if not self.entered:
            return
        assert model.state in ("HELD", "TRIPPED")
        if not self.trouble:
            assert model.state == "HELD"
            assert done != refuses
            assert done == (self.record.rungs[-1].outcome == "finished"), self.record.rungs[-1]

    @rule()
    def acknowledge(self) -> None:
        self._do("acknowledge", self.session.acknowledge)

    @rule(happens=quiet)
    def unload(self, happens: Events) -> None:
        done = self._do("unload", self.session.unload, happens)
        if self.entered:
            self._after("HELD", done)

    @rule(act=st.sampled_from(("hold", "resume")))
    def nothing_runs(self, act: str) -> None:
        self._do(act, getattr(self.session, act))

    @rule()
    def stop(self) -> None:
        self.model.begin("stop")
        self.model.trouble.append("stop")
        armed = self.model.state == "ARMED"
        self.session.stop("the operator has had enough")
        assert not armed or self.model.state == "HELD"
        self._idle()

    @rule(happens=quiet, meant=RARELY)
    def finish(self, happens: Events, meant: bool) -> None:
        if (meant or self.model.state not in FROM["finish"]) and self._do("finish", self.session.finish, happens):
            assert self.model.state == "FINISHED"

    # -- the world ----------------------------------------------------------------------------------------

    @rule(what=st.sampled_from(sorted({*FAULTS, *VAGUE} - {"cable", "interrupted", "host"})))
    def goes_wrong(self, what: str) -> None:
        self.model.act = ""
        self._happens(what)
        self._idle()

    @rule()
    def is_mended(self) -> None:
        self._repaired()
        self._idle()

    @rule(meant=RARELY)
    def is_closed(self, meant: bool) -> None:
        if not meant:
            return
        self.model.begin("stop")
        self.model.trouble.append("stop")
        self.session.close()
        self.model.given_back = self.model.state != "IDLE"
        self._judge()

    @rule(happens=quiet, then=st.sampled_from(("resume", "stop")), rung=st.sampled_from("cdeg"))
    def leads_on(self, happens: Events, then: str, rung: str) -> None:
        """The act that the test needs next."""
        if self.model.state != "IDLE":
            self.is_mended()
        state, model = self.model.state, self.model
        if state == "IDLE":
            self.connect(happens)
        elif state in ("CONNECTED", "REFERENCED") and not model.confirmed:
            self.confirm_offsets(True, True) if model.taken else self.take_offsets((), 0.05)
        elif state == "REFERENCED" and not model.cleared:
            self.sign_for(True) if model.unsigned else self.check(happens)
        elif state in ("REFERENCED", "HELD"):
            self.position(happens)
        elif state == "POSITIONED":
            self.arm(rung, "right")
        elif state == "ARMED":
            self.run(happens, then, False)
        elif state == "TRIPPED":
            self.acknowledge()

    leads_on_2 = leads_on_3 = leads_on_4 = leads_on


def many(examples: int) -> None:
    """So many sequences."""
    run_state_machine_as_test(
        Sequences,
        settings=settings(
            phases=[Phase.generate],
            max_examples=examples,
            stateful_step_count=20,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In lockstep a held rung waits for its operator, who is in this thread."""
    monkeypatch.setattr(OperatorRequests, "wait", lambda self, seconds=0.0: None)


def test_sequences_of_acts_and_faults() -> None:
    many(20)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_sequences_of_acts_and_faults() -> None:
    many(200)
