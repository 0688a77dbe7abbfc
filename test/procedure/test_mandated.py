# SPDX-License-Identifier: Apache-2.0
"""A session under a mandate: no rung h runs unless each condition holds, and whatever goes wrong ends it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hours import Hours
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from two_people import KEYS, NAMES, ROLES_OF_BENCH, consent_to

from rths_nodes.analysis.iteration.corrections import peaks
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.rehearsal import elastic_limits, hash_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ActRefused
from rths_nodes.procedure.mandate import FirstRun, Mandate, Planned, Terms, Told

pytestmark = pytest.mark.usefixtures("keys_hashed_once")
S = 10**9
AXIS = "story_1"


class Iterated:
    """A walk behind its rung g, and the acts that lead from run to run; what the runs tell is made up."""

    def __init__(self, w: Any) -> None:
        self.w, self.session, self.record = w, w.session, w.record
        w.to_start()
        if self.session.consents.roles is not None:
            self.both({"rung": "g", "scenario_hash": hash_of(w.scenario)})
        w.climb("g")
        self.record.rungs[-1].recording = "rung_g"
        self.record.rungs[-1].code = self.session.code.hash

    def both(self, what: dict[str, str]) -> None:
        for role in NAMES:
            consent_to(self.session, role, **what, offsets_hash=self.session.offsets.hash)

    def terms(self, **changed: Any) -> Terms:
        run, first, session = self.w.run, self.record.rungs[-1], self.session
        most = peaks((AXIS,), run.command, run.displacement, run.force, run.scenario.dt)
        told = FirstRun(first.scenario_hash, session.offsets.hash, first.code, "r", most, {AXIS: (0.0, 0.0)}, 0.5)
        found = Terms.of(told, "tracking", session.scenario.limits, elastic_limits(session.scenario))
        return replace(found, **changed)

    def arm(self, terms: Terms | None = None, error: float = 50.0, **named: str) -> str:
        terms = terms or self.terms()
        hashes = {"mandate_hash": terms.hash, "offsets_hash": self.session.offsets.hash} | named
        return str(self.session.mandate(terms, Told(1, "finished", error, 0.01, {AXIS: 1.0}), **hashes))

    @property
    def mandate(self) -> Mandate:
        assert self.session._mandate is not None
        return self.session._mandate

    def plan(self, scenario: Scenario | None = None) -> Scenario:
        scenario = scenario or self.w.scenario
        self.session.plan_run(Planned(self.mandate.next_number, hash_of(scenario), self.mandate.terms.first.peaks))
        return scenario

    def let_go(self, scenario: Scenario | None = None, error: float = 20.0, part: float = 1.0) -> Any:
        """Plan, position, arm, run, tell."""
        scenario = self.plan(scenario)
        self.session.position()
        rung = self.w.climb("h", scenario)
        self.session.tell_run(Told(rung.run, rung.outcome, error, 0.01, {AXIS: part}))
        return rung

    @property
    def runs(self) -> int:
        return sum(rung.name == "h" for rung in self.record.rungs)


@pytest.fixture
def iterated(walk: Callable[..., Any]) -> Callable[..., Iterated]:
    def make(*sets: str, **further: Any) -> Iterated:
        clock = Hours()
        w = walk("servo_rate=256", *sets, clock=clock, **further)
        w.clock = clock
        return Iterated(w)

    return make


def test_runs_under_a_mandate(iterated):
    it = iterated()
    it.arm()
    first, second = it.let_go(error=20.0), it.let_go(error=0.1)
    assert [rung.outcome for rung in (first, second)] == ["finished", "finished"]
    assert [(rung.run, rung.mandate) for rung in (first, second)] == [
        (2, it.mandate.terms.hash),
        (3, it.mandate.terms.hash),
    ]
    written = it.record.mandates[0]
    assert (written.converged, written.ended) == (True, "converged: error 0.1 %, within the tolerance")
    it.session.position()
    with pytest.raises(ActRefused, match="none is armed: the last one is over: converged"):
        it.w.arm("h")


def test_nothing_runs_without_a_mandate(iterated, walk):
    it = iterated()
    it.session.position()
    with pytest.raises(ActRefused, match=r"^rung h runs under a mandate alone, and none is armed$"):
        it.w.arm("h")
    assert it.session.state is State.POSITIONED


@pytest.mark.parametrize("rung", "cdefg")
def test_no_other_rung_runs_under_one(iterated, rung):
    it = iterated()
    it.arm()
    it.plan()
    it.session.position()
    with pytest.raises(ActRefused, match=f"rung {rung}: a mandate is armed, under which rung h runs alone"):
        it.w.arm(rung)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"mandate_hash": "old"}, "the terms have changed: the hash to be armed is old"),
        ({"offsets_hash": "old"}, "the offsets have changed: the hash to be armed is old"),
    ],
)
def test_what_is_armed_is_named_by_its_hashes(iterated, wrong, words):
    it = iterated()
    with pytest.raises(ConfigError, match=words):
        it.arm(**wrong)
    assert not it.record.mandates


@pytest.mark.parametrize("name", ["runs", "good_for", "key_within", "bounds"])
def test_wider_terms_are_not_those_of_this_rig(iterated, name):
    it = iterated()
    terms = it.terms()
    wider = {AXIS: replace(terms.bounds[AXIS], force=2.0 * terms.bounds[AXIS].force)}
    changed = replace(terms, **{name: wider if name == "bounds" else 2 * getattr(terms, name)})
    with pytest.raises(ConfigError, match="the terms are not those of this rig"):
        it.arm(changed)


@pytest.mark.parametrize("name", ["scenario_hash", "code", "offsets_hash"])
def test_terms_of_another_run_are_refused(iterated, name):
    it = iterated()
    terms = it.terms()
    with pytest.raises(ConfigError):
        it.arm(replace(terms, first=replace(terms.first, **{name: "another"})))


def test_a_rig_without_elastic_limit_has_no_mandate(iterated):
    it = iterated(rig=("    elastic_limit: 0.04\n", ""))
    with pytest.raises(ConfigError, match=r"axes\.story_1: the rig file has no elastic_limit"):
        it.terms()


@pytest.mark.parametrize("changed", ["outcome", "recording", "bridged"])
def test_the_first_run_must_have_gone_well(iterated, changed):
    it = iterated()
    terms, last = it.terms(), it.record.rungs[-1]
    setattr(last, changed, {"outcome": "held", "recording": "", "bridged": 400}[changed])
    with pytest.raises(ActRefused, match="no rung g has finished, valid and recorded"):
        it.arm(terms)


def test_a_second_mandate_wants_its_own_first_run(iterated):
    it = iterated()
    terms = it.terms()
    it.arm(terms)
    it.let_go()
    it.session.stop()
    with pytest.raises(ActRefused, match="since offsets and the last mandate"):
        it.arm(terms)


# -- each condition -------------------------------------------------------------------------------------------


def test_only_the_run_that_was_rehearsed(iterated):
    it = iterated()
    it.arm()
    it.plan()
    it.session.position()
    other = override(it.w.scenario, ["ground_motion.scale=0.4"])
    with pytest.raises(ActRefused, match="run 2 was rehearsed as"):
        it.w.arm("h", other)
    it.w.climb("h")


def test_a_run_is_rehearsed_before_the_rig_is_led_to_its_start(iterated):
    it = iterated()
    it.arm()
    with pytest.raises(ActRefused, match="position: run 2 of the mandate is not rehearsed"):
        it.session.position()


def test_a_run_whose_rehearsal_goes_too_far_ends_it(iterated):
    it = iterated()
    it.arm()
    far = {AXIS: replace(it.mandate.terms.first.peaks[AXIS], force=1e7)}
    with pytest.raises(ActRefused, match="run 2 would have a force of"):
        it.session.plan_run(Planned(2, "x", far))
    assert "would have a force of" in it.record.mandates[0].ended


@pytest.mark.parametrize(("seconds", "good"), [(60, True), (61, False)])
def test_a_key_comes_within_a_minute_or_the_rig_is_held(iterated, seconds, good):
    it = iterated()
    it.arm()
    it.plan()
    it.session.position()
    it.w.clock.now += seconds * S
    if good:
        it.w.climb("h")
        return
    with pytest.raises(ActRefused, match="arm: the rig is held"):
        it.w.arm("h")
    assert it.session.state is State.HELD
    assert it.session.reason == "nobody has given a key for run 2 within 60 s: the mandate is over"
    assert it.record.mandates[0].ended == "nobody has given a key for run 2 within 60 s"
    assert not it.runs


def test_what_is_armed_lapses_after_a_minute(iterated):
    it = iterated()
    it.arm()
    scenario = it.plan()
    it.session.position()
    it.w.arm("h", scenario)
    it.w.clock.now += 61 * S
    with pytest.raises(ActRefused, match="run: the rig is held"):
        it.session.run(it.w._embedded)
    assert it.session.mandate_armed is None
    assert it.record.mandates[0].ended == "the rig went from armed to held"


def _last_act(it: Iterated, when: str) -> None:
    if when == "armed":
        it.session.run(it.w._embedded)
    else:
        it.w.arm("h")


@pytest.mark.parametrize("when", ["held", "positioned", "armed"])
def test_nothing_begins_behind_the_hour(iterated, when):
    it = iterated()
    it.arm()
    it.plan()
    if when != "held":
        it.w.clock.now += 3590 * S
        it.session.position()
    if when == "armed":
        it.w.arm("h")
    it.w.clock.now += (3600 if when == "held" else 10) * S
    if when == "held":
        it.session.position()
    with pytest.raises(ActRefused):
        _last_act(it, when)
    assert it.record.mandates[0].ended == "no further run ends within 60 minutes"
    assert not it.runs


@pytest.mark.parametrize("when", ["held", "positioned", "armed"])
def test_a_stop_ends_it(iterated, when):
    it = iterated()
    it.arm()
    scenario = it.plan()
    if when != "held":
        it.session.position()
    if when == "armed":
        it.w.arm("h", scenario)
    it.session.stop("enough")
    assert it.session.mandate_armed is None
    assert it.record.mandates[0].ended == "stopped by the operator: enough"


def test_unloading_ends_it(iterated):
    it = iterated()
    it.arm()
    it.session.unload()
    assert it.session.mandate_armed is None
    assert it.record.mandates[0].ended == "the rig went from held to unloading"


def test_a_specimen_that_softens_is_noticed_before_run_3(iterated):
    it = iterated()
    it.arm()
    it.let_go(part=0.94)
    assert it.record.mandates[0].ended.startswith("the specimen has changed: story_1: 6 % less force")
    with pytest.raises(ActRefused, match="no mandate is armed"):
        it.plan()
    assert it.runs == 1


def test_an_error_that_rises_twice_ends_it(iterated):
    it = iterated()
    it.arm()
    it.let_go(error=51.0)
    it.let_go(error=52.0)
    assert it.record.mandates[0].ended == "the error has risen 2 times: 50, 51, 52 %"


def test_at_most_five(iterated):
    it = iterated()
    it.arm()
    for error in (40.0, 30.0, 20.0, 10.0, 5.0):
        it.let_go(error=error)
    assert it.record.mandates[0].ended == "error 5 % after 5 further runs"
    assert it.runs == 5


def test_a_run_that_nobody_has_told_bars_the_next(iterated):
    it = iterated()
    it.arm()
    scenario = it.plan()
    it.session.position()
    it.w.climb("h", scenario)
    with pytest.raises(ActRefused, match="a run is planned already"):
        it.plan()


# -- the limits of a run --------------------------------------------------------------------------------------


def test_a_force_beyond_the_first_run_trips(iterated):
    """Whatever was rehearsed: the rig itself is stopped 1.1 times beyond the first run."""
    it = iterated()
    it.arm()
    stronger = override(it.w.scenario, ["ground_motion.scale=0.8"])
    scenario = it.plan(stronger)
    it.session.position()
    rung = it.w.climb("h", scenario)
    assert rung.outcome == "tripped"
    assert ": axes.story_1.mandate.force: measured = " in rung.reason
    most = abs(it.w.run.force).max()
    assert most < 1.2 * it.mandate.terms.first.peaks[AXIS].force
    assert it.record.mandates[0].ended.startswith("run 2 tripped: sample ")
    assert it.session.state is State.TRIPPED


def test_a_displacement_beyond_the_elastic_limit_trips(iterated):
    most = iterated("servo_rate=1024").terms().first.peaks[AXIS]
    limit = 1.001 * max(most.command, most.displacement)
    it = iterated("servo_rate=1024", rig=("elastic_limit: 0.04", f"elastic_limit: {limit}"))
    it.arm()
    scenario = it.plan(override(it.w.scenario, ["ground_motion.scale=0.548"]))
    it.session.position()
    rung = it.w.climb("h", scenario)
    assert (rung.outcome, ".rig_axis.elastic_limit: measured" in rung.reason) == ("tripped", True), rung


@pytest.mark.parametrize(("velocity", "fits"), [(1.0, True), (1.2, True), (1.3, False)])
def test_a_run_may_have_a_narrower_limit_of_velocity(iterated, velocity, fits):
    it = iterated()
    it.arm()
    scenario = it.plan(override(it.w.scenario, [f"axes.{AXIS}.limits.velocity={velocity}"]))
    it.session.position()
    if fits:
        it.w.arm("h", scenario)
        return
    with pytest.raises(ConfigError, match=r"the rig has changed since it was connected: axes\.story_1\.limits"):
        it.w.arm("h", scenario)


# -- two people -----------------------------------------------------------------------------------------------


def test_both_arm_it_and_one_lets_each_run_go(iterated):
    it = iterated(roles=ROLES_OF_BENCH)
    terms = it.terms()
    hashes = {"rung": "h", "scenario_hash": terms.hash}
    with pytest.raises(ActRefused, match="the mandate needs the consent of the operator"):
        it.arm(terms)
    consent_to(it.session, "operator", **hashes, offsets_hash=it.session.offsets.hash)
    with pytest.raises(ActRefused, match=r"^the mandate needs the consent of the responsible \(roles.responsible"):
        it.arm(terms)
    it.both(hashes)
    assert it.arm(terms).startswith("A. Tester (operator) and R. Sponsible (responsible), both needed by roles")
    for role in ("responsible", "operator"):
        scenario = it.plan()
        it.session.position()
        with pytest.raises(
            ActRefused, match=r"rung h needs the consent of the operator(.|\n)*one of both is enough"
        ):
            it.w.arm("h")
        what = {"rung": "h", "scenario_hash": hash_of(scenario), "offsets_hash": it.session.offsets.hash}
        consent_to(it.session, role, **what)
        rung = it.w.climb("h", scenario)
        it.session.tell_run(Told(rung.run, rung.outcome, 20.0, 0.01, {AXIS: 1.0}))
        assert rung.remarks[0] == f"armed by {NAMES[role]} ({role}), one needed by roles in the rig file bench"
    assert not any(key in str(it.record) for key in KEYS.values())


def test_a_consent_to_the_mandate_lets_no_run_go(iterated):
    it = iterated(roles=ROLES_OF_BENCH)
    terms = it.terms()
    it.both({"rung": "h", "scenario_hash": terms.hash})
    it.arm(terms)
    it.plan()
    it.session.position()
    with pytest.raises(ActRefused, match="rung h needs the consent"):
        it.w.arm("h")


# -- any sequence ---------------------------------------------------------------------------------------------


def leads_on():
    """Strategy of steps on the way of a test: a new one each time, for one that comes again counts once."""
    return st.tuples(
        st.just("leads_on"),
        st.fixed_dictionaries(
            {
                "acts": st.integers(1, 7),
                "error": st.sampled_from((30.0, 51.0, 52.0)),
                "part": st.sampled_from((1.0, 1.0, 0.94)),
            }
        ),
    )


STEPS = st.one_of(
    *(leads_on() for _ in range(3)),
    st.tuples(st.just("arm_mandate"), st.fixed_dictionaries({})),
    st.tuples(
        st.just("plan"), st.fixed_dictionaries({"far": st.sampled_from((False, False, False, False, True))})
    ),
    st.tuples(st.just("position"), st.fixed_dictionaries({})),
    st.tuples(
        st.just("time"),
        st.fixed_dictionaries({"seconds": st.sampled_from((1, 20, 61, 3600)), "seldom": st.integers(0, 3)}),
    ),
    st.tuples(
        st.just("others"),
        st.fixed_dictionaries(
            {"what": st.sampled_from(("stop", "unload", "acknowledge", "withdraw")), "seldom": st.integers(0, 5)}
        ),
    ),
    st.tuples(
        st.just("run"),
        st.fixed_dictionaries(
            {
                "error": st.sampled_from((1.0, 30.0, 51.0, 52.0)),
                "part": st.sampled_from((1.0, 1.0, 0.94)),
                "other": st.sampled_from((False, False, False, True)),
                "wait": st.sampled_from((0, 0, 61)),
                "rung": st.sampled_from("hhhhg"),
            }
        ),
    ),
)
"""Steps by name; one rule draws them, so that each example has all of them."""


class AnyOrder(RuleBasedStateMachine):
    """Acts and mishaps in any order on a simulated rig; every run that was made is judged by an own account."""

    make: Callable[..., Iterated]
    seen: ClassVar[Counter[str]]

    @initialize(armed=st.sampled_from((True, True, True, False)))
    def begins(self, armed: bool) -> None:
        self.it = type(self).make()
        self.good, self.rehearsed, self.offered, self.armed_at = False, "", None, 0
        self.errors, self.parts, self.made = [50.0], [1.0], 0
        if armed:
            self.arm_mandate()

    @property
    def now(self) -> int:
        return int(self.it.w.clock.now)

    @property
    def state(self) -> State:
        return State(self.it.session.state)

    def _done(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except ConfigError:
            return False
        return True

    @rule(step=STEPS)
    def goes_on(self, step: tuple[str, dict[str, Any]]) -> None:
        name, given = step
        getattr(self, name)(**given)

    def leads_on(self, acts: int, error: float, part: float) -> None:
        """Do so many acts of the right way."""
        for _ in range(acts):
            if self.state is State.POSITIONED:
                self.run(error, part, False, 0, "h")
            elif self.rehearsed:
                self.position()
            else:
                self.plan(False)

    def arm_mandate(self) -> None:
        if self.made or self.it.record.rungs[-1].name != "g":
            return
        if self._done(self.it.arm):
            self.good, self.armed_at, self.rehearsed = True, self.now, ""
            self.errors, self.parts = [50.0], [1.0]

    def plan(self, far: bool) -> None:
        session, hashed = self.it.session, hash_of(self.it.w.scenario)
        if session._mandate is None:
            return
        mandate = self.it.mandate
        most = (
            {AXIS: replace(mandate.terms.first.peaks[AXIS], command=math.inf)}
            if far
            else mandate.terms.first.peaks
        )
        if self._done(lambda: session.plan_run(Planned(mandate.next_number, hashed, most))):
            assert not far
            self.rehearsed, self.offered = hashed, None

    def position(self) -> None:
        if self._done(self.it.session.position):
            self.offered = self.now if self.rehearsed else None

    def time(self, seconds: int, seldom: int) -> None:
        if seconds < 60 or not seldom:
            self.it.w.clock.now += seconds * S

    def others(self, what: str, seldom: int) -> None:
        if not seldom and self._done(getattr(self.it.session, what)) and what in ("stop", "unload"):
            self.good = False

    def run(self, error: float, part: float, other: bool, wait: int, rung: str) -> None:
        it = self.it
        scenario = override(it.w.scenario, ["seed=77"]) if other else it.w.scenario
        if not self._done(lambda: it.w.arm(rung, scenario)):
            self.seen[f"{rung} refused"] += 1
            return
        armed = self.now
        it.w.clock.now += wait * S
        if not self._done(lambda: it.session.run(it.w._embedded)):
            self.good = self.good and rung == "g"
            return
        done = it.record.rungs[-1]
        if rung == "g":
            assert it.session.mandate_armed is None
            done.recording, done.code, self.made, self.good = "rung_g", it.session.code.hash, 0, False
            return
        self.seen["runs"] += 1
        assert self.good
        assert self.rehearsed == done.scenario_hash
        assert self.offered is not None
        assert armed - self.offered <= 60 * S
        assert self.now - armed <= 60 * S
        assert self.now - self.armed_at <= 3600 * S
        assert min(self.parts) >= 0.95
        self.made += 1
        assert self.made <= 5
        assert not any(a < b < c for a, b, c in zip(self.errors, self.errors[1:], self.errors[2:], strict=False))
        self.rehearsed, self.offered = "", None
        it.session.tell_run(Told(done.run, done.outcome, error, 0.01, {AXIS: part}))
        self.errors.append(error)
        self.parts.append(part)


@pytest.mark.long
def test_no_run_outside_a_mandate_in_any_order(iterated):
    class Here(AnyOrder):
        make = staticmethod(lambda: iterated("duration=0.1"))
        seen: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert min(Here.seen["runs"], Here.seen["h refused"], Here.seen["g refused"]) > 3, Here.seen
