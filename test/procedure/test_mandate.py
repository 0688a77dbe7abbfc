# SPDX-License-Identifier: Apache-2.0
"""Terms of a mandate and what ends it: no run is let go outside of them, whatever comes in whatever order."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ActRefused
from rths_nodes.procedure.mandate import (
    KEY_WITHIN_S,
    RUNG,
    RUNS,
    UNITS,
    WITHIN,
    FirstRun,
    Mandate,
    Peaks,
    Planned,
    Terms,
    Told,
)

LIMITS = {"story": from_data(Limits, {"stroke": 0.1, "velocity": 1.0, "force": 2e4})}
ELASTIC = {"story": 0.04}
FIRST = FirstRun(
    "g" * 16, "o" * 16, "c" * 16, "r" * 16, {"story": Peaks(0.02, 0.3, 0.021, 1e4)}, {"story": (0.0, 0.0)}, 20.0
)
TERMS = Terms.of(FIRST, "history", LIMITS, ELASTIC)
WAY = [State.HELD, State.POSITIONING, State.POSITIONED, State.ARMED, State.RUNNING]
TOLD = Told(1, "finished", 40.0, 0.01, {"story": 1.0})
S = 10**9


class Procedure:
    """A mandate with the clock, the states and the stops around it."""

    def __init__(self, terms: Terms = TERMS, told: Told = TOLD) -> None:
        self.now, self.history, self.stops = 5 * S, [State.RUNNING, State.HELD], ["an earlier one"]
        self.mandate = Mandate(terms, told, self.now, self.history, len(self.stops))

    def look(self) -> str:
        return self.mandate.look(self.now, self.history, self.stops)

    def plan(self, scenario_hash: str = "two", **peaks: float) -> None:
        rehearsed = replace(TERMS.first.peaks["story"], **peaks)
        self.mandate.plan(Planned(self.mandate.next_number, scenario_hash, {"story": rehearsed}))

    def go(self, *states: State) -> str:
        self.history += states
        return self.look()

    def to_start(self) -> None:
        self.go(State.POSITIONING, State.POSITIONED)
        self.mandate.offer(self.now)

    def let_go(self, scenario_hash: str = "two") -> int:
        """As a session does it: look, arm, look, run."""
        if self.look():
            raise ActRefused(self.mandate.ended)
        self.mandate.check(RUNG, scenario_hash)
        self.go(State.ARMED)
        if self.look():
            raise ActRefused(self.mandate.ended)
        number = self.mandate.begin(scenario_hash)
        self.go(State.RUNNING)
        return number

    def made(self, error: float = 1.0, part: float = 1.0, outcome: str = "finished", seconds: int = 20) -> str:
        self.now += seconds * S
        self.go(State.HELD)
        told = Told(self.mandate.next_number, outcome, error, 0.01, {"story": part})
        self.mandate.tell(told)
        return self.look()


def whole(procedure: Procedure, error: float = 1.0, part: float = 1.0) -> str:
    procedure.plan()
    procedure.to_start()
    procedure.let_go()
    return procedure.made(error, part)


# -- the terms ------------------------------------------------------------------------------------------------


def test_the_terms_are_the_narrower_of_the_rig_and_the_first_run():
    found = TERMS.bounds["story"]
    assert found == Peaks(WITHIN * 0.02, WITHIN * 0.3, 0.04, WITHIN * 1e4)
    far = replace(FIRST, peaks={"story": Peaks(0.039, 0.95, 0.039, 1.9e4)}, zero={"story": (-0.07, 500.0)})
    assert Terms.of(far, "history", LIMITS, ELASTIC).bounds["story"] == Peaks(0.03, 1.0, 0.03, 1.95e4)


@pytest.mark.parametrize(
    "far", [Peaks(0.04, 0.3, 0.02, 1e4), Peaks(0.02, 0.3, 0.04, 1e4), Peaks(math.nan, 0.3, 0.04, 1e4)]
)
def test_a_first_run_beyond_the_elastic_limit_gives_no_mandate(far):
    words = r"axes.story: went (40|nan) mm in the first run, must be < elastic_limit = 40 mm of the rig file"
    with pytest.raises(ConfigError, match=words):
        Terms.of(replace(FIRST, peaks={"story": far}), "history", LIMITS, ELASTIC)


def test_without_an_elastic_limit_there_is_no_mandate():
    with pytest.raises(ConfigError, match=r"axes\.story: the rig file has no elastic_limit, below which runs"):
        Terms.of(FIRST, "history", LIMITS, {})


@pytest.mark.parametrize(
    "changed",
    [
        {"mode": "tracking"},
        {"runs": 6},
        {"good_for": 3601.0},
        {"key_within": 61.0},
        {"bounds": {"story": replace(TERMS.bounds["story"], force=1.2e4)}},
        *(
            {"first": replace(FIRST, **{name: "x"})}
            for name in ("scenario_hash", "offsets_hash", "code", "recording")
        ),
    ],
)
def test_other_terms_have_another_hash(changed):
    assert replace(TERMS, **changed).hash != TERMS.hash


# -- one run after the other ----------------------------------------------------------------------------------


def test_runs_go_on_until_they_agree():
    procedure = Procedure()
    assert [whole(procedure, error) for error in (20.0, 4.0)] == ["", ""]
    assert whole(procedure, 0.4) == "converged: error 0.4 %, within the tolerance"
    assert procedure.mandate.converged


def test_five_further_runs_are_all():
    procedure = Procedure()
    for error in (30.0, 20.0, 10.0, 5.0):
        assert not whole(procedure, error)
    assert whole(procedure, 3.0) == "error 3 % after 5 further runs"
    with pytest.raises(ActRefused):
        procedure.plan()


@pytest.mark.parametrize("part", [0.9, 0.949])
def test_a_specimen_that_softens_is_noticed_before_run_3(part):
    procedure = Procedure()
    words = whole(procedure, 10.0, part)
    assert words.startswith("the specimen has changed: story: ")
    with pytest.raises(ActRefused, match="the specimen has changed"):
        procedure.plan("three")
    assert len(procedure.mandate.told) == 2


def test_an_error_that_rises_twice_ends_it():
    procedure = Procedure()
    assert not whole(procedure, 41.0)
    assert whole(procedure, 42.0) == "the error has risen 2 times: 40, 41, 42 %"


def test_an_error_that_rises_once_and_falls_does_not():
    procedure = Procedure()
    assert [whole(procedure, error) for error in (41.0, 20.0, 21.0)] == ["", "", ""]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"outcome": "tripped"}, "run 2 tripped"),
        ({"outcome": "held"}, "run 2 held"),
        ({"error": math.nan}, "run 2 does not tell its error"),
        ({"part": math.nan}, "run 2 does not tell how stiff the specimen is"),
    ],
)
def test_a_run_that_tells_nothing_good_ends_it(told, words):
    procedure = Procedure()
    procedure.plan()
    procedure.to_start()
    procedure.let_go()
    assert procedure.made(**told) == words


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("value", [1.0001, math.nan, math.inf])
def test_a_run_beyond_the_terms_is_not_planned(name, value):
    procedure, most = Procedure(), getattr(TERMS.bounds["story"], name)
    with pytest.raises(ActRefused, match=f"axes.story: run 2 would have a {name} of"):
        procedure.plan(**{name: value * most})
    assert f"must be within {most:.6g} {UNITS[name]}; run 1 had" in procedure.look()
    procedure = Procedure()
    procedure.plan(**{name: 0.9999 * most})
    assert not procedure.look()


def test_at_the_elastic_limit_is_beyond_it():
    with pytest.raises(ActRefused, match=r"a displacement of 0\.04 m"):
        Procedure().plan(displacement=0.04)


@pytest.mark.parametrize(("seconds", "late"), [(KEY_WITHIN_S, False), (KEY_WITHIN_S + 1, True)])
def test_without_a_key_within_a_minute_it_is_over(seconds, late):
    procedure = Procedure()
    procedure.plan()
    procedure.to_start()
    procedure.now += int(seconds) * S
    assert procedure.look() == late * "nobody has given a key for run 2 within 60 s"


@pytest.mark.parametrize(("seconds", "late"), [(3580, False), (3581, True)])
def test_no_run_goes_on_behind_the_hour(seconds, late):
    procedure = Procedure()
    procedure.now += seconds * S
    assert procedure.look() == late * "no further run ends within 60 minutes"


@pytest.mark.parametrize(
    "states",
    [
        (State.UNLOADING,),
        (State.FINISHED,),
        (State.TRIPPED,),
        (State.POSITIONING, State.STOPPING, State.HELD),
        (State.POSITIONING, State.POSITIONED, State.HELD),
        (State.POSITIONING, State.POSITIONED, State.ARMED, State.HELD),
        (State.POSITIONING, State.POSITIONED, State.ARMED, State.TRIPPED),
        (*WAY[1:], State.STOPPING, State.TRIPPED, State.HELD),
        (*WAY[1:], State.STOPPING, State.HELD, State.RESUMING),
    ],
)
def test_whatever_leaves_the_way_ends_it(states):
    procedure = Procedure()
    assert procedure.go(*states).startswith("the rig went from ")
    with pytest.raises(ActRefused):
        procedure.plan()


def test_any_stop_ends_it():
    procedure = Procedure()
    procedure.stops.append("somebody")
    assert procedure.look() == "stopped by the operator: somebody"


# -- each condition by itself ---------------------------------------------------------------------------------


LACKS = {
    "no run is planned": lambda p: p.to_start(),
    "the rig is not at the start": lambda p: p.plan(),
    "another scenario": lambda p: (p.plan("another"), p.to_start()),
    "a minute is over": lambda p: (p.plan(), p.to_start(), setattr(p, "now", p.now + 61 * S)),
    "an hour is over": lambda p: (p.plan(), setattr(p, "now", p.now + 3600 * S), p.to_start()),
    "it was stopped": lambda p: (p.plan(), p.to_start(), p.stops.append("stop")),
    "the rig has tripped": lambda p: (p.plan(), p.to_start(), p.go(State.HELD, State.TRIPPED)),
    "it is over": lambda p: (p.plan(), p.to_start(), p.mandate.end("over")),
    "the run before is not told": lambda p: (p.plan(), p.to_start(), p.let_go(), p.go(State.HELD), p.to_start()),
}


@pytest.mark.parametrize("lack", LACKS)
def test_no_run_without_each_of_the_conditions(lack):
    procedure = Procedure()
    LACKS[lack](procedure)
    with pytest.raises(ActRefused):
        procedure.let_go()


def test_another_rung_is_refused_while_it_is_good():
    procedure = Procedure()
    procedure.plan()
    procedure.to_start()
    with pytest.raises(
        ActRefused, match="rung g: a mandate is armed, under which rung h runs alone; stop ends it"
    ):
        procedure.mandate.check("g", "two")


def test_run_2_needs_its_own_plan():
    procedure = Procedure()
    assert not whole(procedure)
    procedure.to_start()
    with pytest.raises(ActRefused, match="run 3 is not rehearsed"):
        procedure.let_go()


# -- any sequence ---------------------------------------------------------------------------------------------

factors = st.sampled_from((*[0.9] * 6, 1.0, 1.05, 1.2, math.nan))


def leads_on():
    """Strategy of steps on the way of a test: a new one each time, for one that comes again counts once."""
    return st.tuples(
        st.just("leads_on"),
        st.fixed_dictionaries(
            {
                "acts": st.integers(1, 7),
                "error": st.sampled_from((5.0, 30.0, 41.0, 42.0)),
                "part": st.sampled_from((1.0, 1.0, 0.94)),
            }
        ),
    )


STEPS = st.one_of(
    *(leads_on() for _ in range(3)),
    st.tuples(st.just("time"), st.fixed_dictionaries({"seconds": st.sampled_from((1, 10, 30, 61, 600, 3600))})),
    st.tuples(
        st.just("plan"),
        st.fixed_dictionaries(
            {"factor": factors, "name": st.sampled_from(sorted(UNITS)), "key": st.sampled_from("ab")}
        ),
    ),
    st.tuples(st.just("position"), st.fixed_dictionaries({"right": st.sampled_from((True, True, True, False))})),
    st.tuples(
        st.just("the_world"),
        st.fixed_dictionaries({"what": st.sampled_from((State.TRIPPED, State.HELD, State.UNLOADING))}),
    ),
    st.tuples(st.just("stop"), st.fixed_dictionaries({"seldom": st.integers(0, 9)})),
    st.tuples(
        st.just("run"),
        st.fixed_dictionaries(
            {
                "key": st.sampled_from("ab"),
                "error": st.sampled_from((1.0, 2.0, 30.0, 41.0, 42.0, 43.0)),
                "part": st.sampled_from((1.0, 1.0, 1.0, 0.96, 0.94)),
                "outcome": st.sampled_from((*["finished"] * 6, "tripped")),
                "wait": st.sampled_from((0, 5, 61)),
            }
        ),
    ),
)
"""Steps by name; one rule draws them, so that each example has all of them."""


class AnyOrder(RuleBasedStateMachine):
    """Anything in any order; an account of its own says which run was allowed."""

    seen: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.p = Procedure()
        self.begun = self.p.now
        self.rehearsed: dict[str, bool] = {}
        self.offered: int | None = None
        self.errors, self.parts, self.bad, self.runs = [40.0], [1.0], "", 0

    def _wrong(self, words: Any) -> None:
        self.bad = self.bad or str(words)

    def leads_on(self, acts: int, error: float, part: float) -> None:
        """Do so many acts of the right way."""
        for _ in range(acts):
            if self.p.history[-1] is State.POSITIONED:
                self.run("a", error, part, "finished", 0)
            elif self.p.mandate.planned is None:
                self.plan(0.9, "command", "a")
            else:
                self.position(True)

    def time(self, seconds: int) -> None:
        self.p.now += seconds * S
        self.p.look()

    def plan(self, factor: float, name: str, key: str) -> None:
        first = getattr(TERMS.first.peaks["story"], name)
        before = self.p.mandate.planned
        try:
            self.p.plan(key, **{name: factor * first})
        except ActRefused:
            assert self.p.mandate.planned is before or self.p.mandate.planned is None
            return
        assert factor <= WITHIN or name == "displacement"  # the elastic limit is further away
        self.rehearsed, self.offered = {key: True}, None

    def position(self, right: bool) -> None:
        if self.p.history[-1] is not State.HELD:
            return
        if right:
            self.p.to_start()
            self.offered = self.p.now if self.rehearsed else None
        else:
            self.p.go(State.POSITIONING, State.STOPPING, State.HELD)
            self._wrong("position")

    def the_world(self, what: State) -> None:
        if self.p.history[-1] in (State.POSITIONED, State.ARMED):
            self.p.go(what, State.HELD)
            self._wrong(what)

    def stop(self, seldom: int) -> None:
        if not seldom:
            self.p.stops.append("stop")
            self._wrong("stop")

    def run(self, key: str, error: float, part: float, outcome: str, wait: int) -> None:
        p = self.p
        if p.history[-1] is not State.POSITIONED:
            return
        p.now += wait * S
        before = len(p.history)
        try:
            p.let_go(key)
        except ActRefused:
            if len(p.history) > before:  # it was armed, and ends so
                p.history.append(State.HELD)
                self._wrong("armed")
            return
        assert not self.bad, self.bad
        assert self.rehearsed.get(key)
        assert self.offered is not None
        assert p.now - self.offered <= 60 * S
        assert p.now - self.begun <= 3580 * S
        assert self.runs < RUNS
        assert min(self.parts) >= 0.95
        assert not any(a < b < c for a, b, c in zip(self.errors, self.errors[1:], self.errors[2:], strict=False))
        self.runs += 1
        self.seen[self.runs] += 1
        self.rehearsed, self.offered = {}, None
        p.made(error, part, outcome)
        self.errors.append(error)
        self.parts.append(part)
        if outcome != "finished":
            self._wrong(outcome)

    @rule(step=STEPS)
    def goes_on(self, step: tuple[str, dict[str, Any]]) -> None:
        name, given = step
        getattr(self, name)(**given)

    @invariant()
    def what_is_over_stays_so(self) -> None:
        if self.p.mandate.ended:
            assert self.p.look() == self.p.mandate.ended
            assert self.p.mandate.planned is None


def test_no_run_outside_the_terms_in_any_order():
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert AnyOrder.seen[1] > 20
    assert AnyOrder.seen[2] > 2
