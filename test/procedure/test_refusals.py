# SPDX-License-Identifier: Apache-2.0
"""A refused act changes nothing: every act in every state, each refused for a reason of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import session as sessions

NO_WAY = ("    unloading: {travel: 0.05, velocity: 5.0e-3}\n", "")
"""A rig file that bounds no way to zero force."""


def connected(w: Any) -> None:
    w.session.connect()


def taken(w: Any) -> None:
    w.session.connect()
    w.session.take_offsets(0.05)


def checked(w: Any) -> None:
    w.refer()
    w.session.check()


def armed(w: Any) -> None:
    w.to_start()
    w.arm("g")


def held(w: Any) -> None:
    armed(w)
    w.session.stop("another day")


def tripped(w: Any) -> None:
    armed(w)
    w.session.drive.port.set_hydraulics("off")
    w.session.drive.tick()
    w.session.drive.port.set_hydraulics("high")


def finished(w: Any) -> None:
    w.refer()
    w.session.finish()


STATES: dict[str, Callable[[Any], None]] = {
    "IDLE": lambda w: None,
    "CONNECTED": connected,
    "CONNECTED with offsets taken": taken,
    "REFERENCED": lambda w: w.refer(),
    "REFERENCED and checked": checked,
    "POSITIONED": lambda w: w.to_start(),
    "ARMED": armed,
    "HELD": held,
    "TRIPPED": tripped,
    "FINISHED": finished,
}

ACTS: dict[str, Callable[[Any], object]] = {
    "connect": lambda session: session.connect(),
    "take_offsets": lambda session: session.take_offsets(0.001),
    "confirm_offsets": lambda session: session.confirm_offsets("another", True),
    "check": lambda session: session.check(),
    "sign_for": lambda session: session.sign_for("e"),
    "position": lambda session: session.position(),
    "arm": lambda session: session.arm("g", session.scenario, "another", "another"),
    "run": lambda session: session.run(lambda scenario, port: pytest.fail("it runs")),
    "hold": lambda session: session.hold(),
    "resume": lambda session: session.resume(),
    "acknowledge": lambda session: session.acknowledge(),
    "unload": lambda session: session.unload(),
    "finish": lambda session: session.finish(),
}
DONE = {
    ("IDLE", "connect"),
    ("TRIPPED", "acknowledge"),
    ("ARMED", "run"),
    *((state, "finish") for state in STATES if state not in ("IDLE", "ARMED", "FINISHED")),
}
"""What cannot be refused there."""


def everything(w: Any) -> dict[str, Any]:
    """All that an act may change."""
    session = w.session
    found = {
        "state": (session.state, session.reason, len(w.states)),
        "offsets": session.offsets.hash if session.offsets else "",
        "clearance": (session.clearance.barred(), session.clearance.unsigned()),
        "record": asdict(w.record),
        "sent": len(w.sent),
    }
    if session.state is not State.IDLE:
        found |= {"command": session.drive.command.tobytes(), "possible": session.possible()}
    return found


@pytest.mark.parametrize("state", STATES)
def test_a_refused_act_changes_nothing(walk, monkeypatch, state):
    """Unload without its section and a check with too small a move were refused, and the rig had tripped."""
    w = walk(rig=NO_WAY)
    STATES[state](w)
    assert w.session.state.name == state.split()[0]
    if w.session.offsets is not None:  # no small move is seen beside such a scatter
        loud = np.full_like(w.session.offsets.displacement, 1.0)
        w.session.offsets = replace(w.session.offsets, displacement_scatter=loud)
    monkeypatch.setattr(sessions, "start_of", lambda scenario, port: np.array([0.3]))  # beyond the stroke
    before = everything(w)
    for name, act in ACTS.items():
        if (state, name) in DONE:
            continue
        with pytest.raises(ConfigError):
            act(w.session)
        assert everything(w) == before, name


def test_what_was_refused_can_be_done_right_afterwards(walk):
    w = walk(rig=NO_WAY)
    held(w)
    with pytest.raises(ConfigError, match=naming("axes.bench.unloading", "file", "missing")):
        w.session.unload()
    w.session.position()
    assert w.climb("g").outcome == "finished"


def test_one_thing_is_signed_for_by_its_whole_name(walk):
    """``sign_for e`` signed for everything that has an e in its words."""
    w = walk("axes.story_1.sensors.force_offset=20e3", rig=("    stiffness_known_to: 0.03\n", ""))
    w.refer(unloaded=False)
    w.session.check()
    names = ["scale of displacement of story_1", "scale of force of story_1", "force at rest of story_1"]
    assert w.session.clearance.unsigned() == names
    for wrong in ("e", "", "story_1", "scale of force", "SCALE OF FORCE OF STORY_1", "scale of force of story_11"):
        with pytest.raises(ConfigError, match=naming("scale", "story_1")):
            w.session.sign_for(wrong)
    w.session.sign_for(names[1], "A. Nyone")
    assert w.session.clearance.unsigned() == [names[0], names[2]]
    w.session.sign_for(w.session.clearance.wanting()[1].words)
    assert w.session.clearance.unsigned() == names[:1]
    w.session.sign_for(names[0])
    assert len(w.record.deviations) == 3
    w.session.position()


@pytest.mark.parametrize("act", ["check", "unload"])
def test_behind_an_act_that_was_refused_before_its_motion_the_next_one_is_only_itself(
    walk: Callable[..., Any], act: str
) -> None:
    """The begin of the refused one was left with the drive: offsets, or finish, entered its state of motion."""
    missing = ("    small_move: {displacement: 1.0e-3, velocity: 20.0e-3, force: 30.0e3}\n", "")
    w = walk(rig=missing if act == "check" else NO_WAY)
    if act == "check":
        w.refer()
    else:
        held(w)
    before = w.session.state
    with pytest.raises(ConfigError, match="missing"):
        getattr(w.session, act)()
    if act == "check":
        w.session.take_offsets(0.05)
    assert w.session.state is before
    w.session.finish()
    assert w.states[-2:] == [before, State.FINISHED]
