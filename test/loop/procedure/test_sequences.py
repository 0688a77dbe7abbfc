"""Random sequences of operator acts, faults and pressure states, beside a model of the procedure.

Whatever happens: outside of the motion states the command stays the same to the bit, no step is beyond the limit
of velocity, a refused act changes nothing, and no state is entered but by what leads there.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from rig_model import FAULTS, FROM, VAGUE
from watched_port import PHASES
from watched_session import Events, WatchedSession

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.procedure.session import RunOutcome
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.rehearsal import hash_of, slower
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.handover import OperatorRequests

WRONG = ("force_scale=-1", "displacement_scale=-1", "displacement_dead=0.0")
"""What the small move must find."""
CHANGES = ("another", "rig", "scenario", "offsets", "simulated", "unknown")
"""What the operator names wrong when he arms a rung."""
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
MOST_ACTS = 10
"""So many lead from anywhere to a rung that is armed, where nothing is in the way."""
RARELY = st.sampled_from((*[False] * 7, True))


class Sequences(WatchedSession):
    """The acts of the operator, and what the world does, in any order."""

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
            self.model.taken_off = self.model.standing

    @rule(right=st.sampled_from((True, True, False)), unloaded=st.booleans())
    def confirm_offsets(self, right: bool, unloaded: bool) -> None:
        model = self.model
        named = self.taken if right else "another"
        if self._do("confirm_offsets", lambda: self.session.confirm_offsets(named, unloaded), (), right):
            model.taken, model.confirmed, model.cleared = False, True, False
            model.loaded = not unloaded and bool(self.start)
            model.unsigned = None if model.standing else model.loaded

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
        elif standing or self.trouble or model.taken_off:
            model.cleared = model.unsigned = None
        else:
            good = model.known and not model.loaded
            model.cleared, model.unsigned = good, not good

    @rule(right=st.sampled_from((True, True, False)))
    def sign_for(self, right: bool) -> None:
        model = self.model
        names = self.session.clearance.unsigned()
        what = names[0] if names and right else "story_1"  # an axis is none of the things that are signed for
        if self._do("sign_for", lambda: self.session.sign_for(what), (), right):
            if self.session.clearance.unsigned():  # one thing each
                return
            sure, checked = model.unsigned and not model.wrong and not model.taken_off, bool(self.record.checks)
            model.unsigned = False if sure else None
            model.cleared = checked and (True if sure else False if model.wrong else None)

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
                model.trouble.append("refused")
                raise ConfigError("the host wants no test today")
            outcome = Loop(Assembly(test, port)).run()
            return RunOutcome(outcome.state.name.lower(), outcome.reason, outcome.samples)

        done = self._do("run", lambda: self.session.run(runner), happens)
        if not self.entered:
            return
        assert model.state in ("HELD", "TRIPPED")
        if not self.trouble:
            assert model.state == "HELD"
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

    @rule(sample=st.integers(0, 400), happens=quiet, then=st.sampled_from(("resume", "resume", "stop")))
    def holds(self, sample: int, happens: Events, then: str) -> None:
        """On to a rung in slow time, which is held on its way."""
        for _ in range(MOST_ACTS):
            if self.model.state == "ARMED":
                break
            self.leads_on((), "resume", "e")
        if self.model.state == "ARMED" and self.model.ratio > 1:
            self.run([(sample, "read", "hold"), *happens], then, False)


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
