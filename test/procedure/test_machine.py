# SPDX-License-Identifier: Apache-2.0
"""The states of a procedure: exactly the arrows that the page about it shows, and none that leaves out a state."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from messages import naming

from rths_nodes.core.wire.layout import constants
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ARROWS, BY_ACTS, MOTION, ActRefused, SessionMachine
from rths_nodes.procedure.session import ACTS

PAGE = Path(__file__).resolve().parents[2] / "doc" / "procedure.md"


@pytest.mark.parametrize(("first", "second"), itertools.product(State, State))
def test_only_the_arrows_lead_on(first, second):
    machine = SessionMachine()
    machine.state = first
    if second in ARROWS[first]:
        with machine.act():
            machine.to(second, "why")
        assert (machine.state, machine.reason) == (second, "why")
    else:
        with (
            machine.act(),
            pytest.raises(RuntimeError, match=naming(first.name, second.name, "transition")),
        ):
            machine.to(second)
        assert machine.state is first


def test_the_page_shows_the_arrows():
    shown = re.findall(r"^    (\w+) --> (\w+)", PAGE.read_text(), re.MULTILINE)
    assert {(State[a], State[b]) for a, b in shown} == {(a, b) for a, after in ARROWS.items() for b in after}


def test_a_rig_runs_only_from_armed_and_is_armed_only_at_the_start():
    entered = {state: {before for before, after in ARROWS.items() if state in after} for state in State}
    assert entered[State.RUNNING] == {State.ARMED, State.RESUMING}
    assert entered[State.ARMED] == {State.POSITIONED}
    assert entered[State.POSITIONED] == {State.POSITIONING}
    assert entered[State.UNLOADING] == {State.HELD}


def test_a_trip_ends_in_tripped_and_every_motion_can_be_stopped():
    assert all(State.STOPPING in ARROWS[state] for state in MOTION - {State.STOPPING})
    assert ARROWS[State.STOPPING] == (State.HELD, State.TRIPPED)


def test_braking_stops_what_moves_and_nothing_else():
    machine = SessionMachine()
    machine.brake("why")
    assert machine.state is State.IDLE
    machine.state = State.POSITIONING
    machine.brake("why")
    machine.brake("another")
    assert (machine.state, machine.reason) == (State.STOPPING, "why")


def test_every_act_is_possible_somewhere():
    assert all(act.states for act in ACTS.values())


def test_the_message_has_the_states():
    assert {name: value for name, value in constants("TestState").items() if name in State.__members__} == {
        state.name: int(state) for state in State
    }


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in State for b in ARROWS[a] if b in BY_ACTS])
def test_no_motion_state_and_not_the_armed_one_is_entered_by_no_act_or_by_one_that_was_stopped(first, second):
    machine = SessionMachine()
    machine.state = first
    with pytest.raises(RuntimeError, match=naming(first.name, second.name, "act")):
        machine.to(second)
    with machine.act() as outer:
        machine.count_stop("enough")
        with machine.act(), pytest.raises(ActRefused, match=naming("stopped", "operator")):
            machine.to(second)
        assert (machine.state, outer.stopped, machine.busy) == (first, "enough", True)
    assert not machine.busy
    with machine.act():  # one that begins later
        machine.to(second)
    assert machine.state is second
