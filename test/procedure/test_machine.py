# SPDX-License-Identifier: Apache-2.0
"""Tests of the states of a procedure: their transitions, as in the documentation, and refused acts."""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire import constants
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import rungs
from rths_nodes.procedure.machine import ARROWS, MOTION, ActRefused, SessionMachine
from rths_nodes.procedure.session import ACTS

PAGE = Path(__file__).resolve().parents[2] / "doc" / "procedure.md"
BY_ACTS = MOTION - {State.STOPPING} | {State.ARMED}


@pytest.mark.parametrize(("first", "second"), itertools.product(State, State))
def test_only_listed_transitions_are_possible(first, second):
    machine = SessionMachine()
    machine.state = first
    if second in ARROWS[first]:
        with machine.act():
            machine.to(second, "why")
        assert (machine.state, machine.reason) == (second, "why")
    else:
        with machine.act(), pytest.raises(RuntimeError, match=naming(first.name, second.name, "transition")):
            machine.to(second)
        assert machine.state is first


def test_page_shows_all_transitions():
    shown = re.findall(r"^    (\w+) --> (\w+)", PAGE.read_text(), re.MULTILINE)
    assert {(State[a], State[b]) for a, b in shown} == {(a, b) for a, after in ARROWS.items() for b in after}


def test_rig_runs_only_from_armed_and_is_armed_only_at_start():
    before = {state: {first for first, after in ARROWS.items() if state in after} for state in State}
    assert (before[State.RUNNING], before[State.ARMED]) == ({State.ARMED, State.RESUMING}, {State.POSITIONED})
    assert (before[State.POSITIONED], before[State.UNLOADING]) == ({State.POSITIONING}, {State.HELD})


def test_every_motion_can_be_stopped():
    assert all(State.STOPPING in ARROWS[state] for state in MOTION - {State.STOPPING})
    assert ARROWS[State.STOPPING] == (State.HELD, State.TRIPPED)


def test_braking_stops_only_motion():
    machine = SessionMachine()
    machine.brake("why")
    assert machine.state is State.IDLE
    machine.state = State.POSITIONING
    machine.brake("why")
    machine.brake("another")
    assert (machine.state, machine.reason) == (State.STOPPING, "why")


def test_every_act_is_possible_in_a_state():
    assert all(act.states for act in ACTS.values())


def test_message_has_all_states():
    values = constants("TestState")
    assert {name: values.get(name) for name in State.__members__} == {state.name: int(state) for state in State}


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in State for b in ARROWS[a] if b in BY_ACTS])
def test_arming_and_motion_need_an_act_that_was_not_stopped(first, second):
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


# -- Refused acts

NO_UNLOADING = ("    unloading: {travel: 0.05, velocity: 5.0e-3}\n", "")
STATES = (
    *("IDLE", "CONNECTED", "CONNECTED with offsets taken", "REFERENCED", "REFERENCED and checked"),
    *("POSITIONED", "ARMED", "HELD", "TRIPPED", "FINISHED"),
)
ARGUMENTS = {
    "connect": (),
    "take_offsets": (0.001,),
    "confirm_offsets": ("another", True),
    "check": (),
    "sign_for": ("e",),
    "position": (),
    "run": (lambda scenario, port: pytest.fail("it runs"),),
    "hold": (),
    "resume": (),
    "acknowledge": (),
    "unload": (),
    "finish": (),
}
POSSIBLE = {
    ("IDLE", "connect"),
    ("TRIPPED", "acknowledge"),
    ("ARMED", "run"),
    *((state, "finish") for state in STATES if state not in ("IDLE", "ARMED", "FINISHED")),
}
"""Acts that are not refused, by state."""


def bring_to(w, state):
    name = state.split()[0]
    if name == "CONNECTED":
        w.session.connect()
    elif name in ("REFERENCED", "FINISHED"):
        w.refer()
    elif name != "IDLE":
        w.to_start()
    if state == "CONNECTED with offsets taken":
        w.session.take_offsets(0.05)
    if state == "REFERENCED and checked":
        w.session.check()
    if name in ("ARMED", "HELD", "TRIPPED"):
        w.arm("g")
    if name == "HELD":
        w.session.stop("another day")
    if name == "TRIPPED":
        w.session.drive.port.set_hydraulics("off")
        w.tick(1)
        w.session.drive.port.set_hydraulics("high")
    if name == "FINISHED":
        w.session.finish()
    assert w.session.state.name == name


def snapshot(w):
    """Return all that an act may change."""
    session = w.session
    values = {
        "state": (session.state, session.reason, len(w.states)),
        "offsets": session.offsets.hash if session.offsets else "",
        "clearance": (session.clearance.barred(), session.clearance.unsigned()),
        "record": asdict(w.record),
        "sent": len(w.sent),
    }
    if session.state is not State.IDLE:
        values |= {"command": session.drive.command.tobytes(), "possible": session.possible()}
    return values


@pytest.mark.parametrize("state", STATES)
def test_refused_act_changes_nothing(walk, monkeypatch, state):
    """Unloading without its section, and a check with too small a move, once tripped the rig."""
    w = walk(rig=NO_UNLOADING)
    bring_to(w, state)
    if w.session.offsets is not None:  # no small move is visible in such noise
        noise = np.full_like(w.session.offsets.displacement, 1.0)
        w.session.offsets = replace(w.session.offsets, displacement_scatter=noise)
    monkeypatch.setattr(rungs, "start_of", lambda scenario, port: np.array([0.3]))  # beyond the stroke
    before = snapshot(w)
    for act, arguments in (ARGUMENTS | {"arm": ("g", w.scenario, "another", "another")}).items():
        if (state, act) in POSSIBLE:
            continue
        with pytest.raises(ConfigError):
            getattr(w.session, act)(*arguments)
        assert snapshot(w) == before, act


def test_procedure_continues_after_refused_act(walk):
    w = walk(rig=NO_UNLOADING)
    bring_to(w, "HELD")
    with pytest.raises(ConfigError, match=naming("axes.bench.unloading", "file", "missing")):
        w.session.unload()
    w.session.position()
    assert w.climb("g").outcome == "finished"


@pytest.mark.parametrize("act", ["check", "unload"])
def test_act_after_refused_act_enters_only_its_own_state(walk, act):
    """The beginning of the refused act once stayed in the drive: the next act entered its state of motion."""
    no_small_move = ("    small_move: {displacement: 1.0e-3, velocity: 20.0e-3, force: 30.0e3}\n", "")
    w = walk(rig=no_small_move if act == "check" else NO_UNLOADING)
    bring_to(w, "REFERENCED" if act == "check" else "HELD")
    before = w.session.state
    with pytest.raises(ConfigError, match="missing"):
        getattr(w.session, act)()
    if act == "check":
        w.session.take_offsets(0.05)
    assert w.session.state is before
    w.session.finish()
    assert w.states[-2:] == [before, State.FINISHED]


def test_item_is_signed_only_by_its_full_name(walk):
    """``sign_for e`` once signed every item with an e in its text."""
    w = walk("axes.story_1.sensors.force_offset=20e3", rig=("    stiffness_known_to: 0.03\n", ""))
    w.refer(unloaded=False)
    w.session.check()
    names = ["scale of displacement of story_1", "scale of force of story_1", "force at rest of story_1"]
    assert w.session.clearance.unsigned() == names
    for name in ("e", "", "story_1", "scale of force", "SCALE OF FORCE OF STORY_1", "scale of force of story_11"):
        with pytest.raises(ConfigError, match=naming("scale", "story_1")):
            w.session.sign_for(name)
    w.session.sign_for(names[1], "A. Nyone")
    assert w.session.clearance.unsigned() == [names[0], names[2]]
    w.session.sign_for(w.session.clearance.wanting()[1].words)
    assert w.session.clearance.unsigned() == names[:1]
    w.session.sign_for(names[0])
    assert len(w.record.deviations) == 3
    w.session.position()
