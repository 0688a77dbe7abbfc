# SPDX-License-Identifier: Apache-2.0
"""Table of the operator's acts, for session, terminal, answers file and socket."""

from __future__ import annotations

from dataclasses import dataclass

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State


class ActRefused(ConfigError):
    """An act that is not possible, with the reason for the operator; nothing has changed."""


@dataclass(frozen=True)
class Act:
    """An act: its description and the ``states`` in which it is possible; the session checks the rest.

    ``arguments`` are names; if ``needed``, all are required except the ``optional`` ones. ``moves``: the act moves
    the rig, or lets it move, so the rig must be fit. ``lasting``: it takes time, and the operator watches.
    ``at_once``: also possible during another act. ``anybody`` may request it, because it only brings the rig to
    rest.
    """

    words: str
    states: tuple[State, ...]
    arguments: tuple[str, ...] = ()
    needed: bool = False
    optional: tuple[str, ...] = ()
    moves: bool = False
    lasting: bool = False
    at_once: bool = False
    anybody: bool = False


CLEAR = "CLEAR"
"""Argument ``clear`` of an act, typed by a person who has read its motion."""
_AT_REST = (State.CONNECTED, State.REFERENCED, State.POSITIONED, State.HELD, State.TRIPPED)

ACTS = {
    "rehearse": Act(
        "run a rung on the simulator",
        tuple(State),
        ("rung",),
        lasting=True,
    ),
    "connect": Act("open the port; the controller's active command becomes ours", (State.IDLE,), lasting=True),
    "take_offsets": Act(
        "what the sensors show at rest, with its scatter", _AT_REST[:2], ("seconds",), needed=True, lasting=True
    ),
    "confirm_offsets": Act("the test counts from these offsets", _AT_REST[:2], ("hash", "unloaded"), needed=True),
    "checklist": Act(
        "answer one item of the rig file's checklist with y or n; each must be y before a motion",
        (State.IDLE, *_AT_REST),
        ("item", "answer"),
        needed=True,
    ),
    "check": Act(
        "a small guarded move of every axis: signs, scales, stiffness",
        (State.REFERENCED,),
        ("clear",),
        moves=True,
        lasting=True,
    ),
    "sign_for": Act(
        "answer for one thing that is not verified, by its whole name", (State.REFERENCED,), ("what",), needed=True
    ),
    "position": Act(
        "to the start of the test, by a bounded ramp",
        (State.REFERENCED, State.HELD),
        ("clear",),
        moves=True,
        lasting=True,
    ),
    "arm": Act(
        "arm a rung: its scenario and the offsets, by their hashes",
        (State.POSITIONED,),
        ("rung", "scenario_hash", "offsets_hash", "second"),
        needed=True,
        optional=("second",),
        moves=True,
    ),
    "run": Act("run the rung that is armed", (State.ARMED,), ("clear",), moves=True, lasting=True),
    "hold": Act(
        "bring the rig to rest; in slow time the test may be resumed",
        (State.RUNNING,),
        ("reason",),
        at_once=True,
        anybody=True,
    ),
    "resume": Act("continue the held rung", (State.HELD,), ("clear",), at_once=True),
    "freeze": Act(
        "model updating: copies of the specimen stay as they are, to the end of the rung",
        (State.RUNNING, State.RESUMING, State.HELD),
        at_once=True,
    ),
    "stop": Act("stop whatever moves", tuple(State), ("reason",), at_once=True, anybody=True),
    "acknowledge": Act("what has tripped the rig is understood", (State.TRIPPED,)),
    "unload": Act(
        "unload the specimen to zero force; to a place (m from the zero of the test), signed: by displacement",
        (State.HELD,),
        ("to", "signed", "clear"),
        moves=True,
        lasting=True,
    ),
    "note": Act("words for the report", tuple(State), ("text",), needed=True, at_once=True),
    "finish": Act("take the offsets again, close the port, end the test", _AT_REST, lasting=True),
}
"""Acts by name, which is also the session's method."""

MOTIONS = tuple(name for name, act in ACTS.items() if "clear" in act.arguments)
"""Acts that begin a motion and need the word CLEAR."""

MEANWHILE = tuple(name for name, act in ACTS.items() if act.at_once)
"""Acts that are possible during another one."""

UNCONDITIONAL = ("stop", "hold", "note")
"""Acts that are done even after a stop or a change of state: they move nothing."""

_WORDS = {
    State.IDLE: "the rig is not connected",
    State.CONNECTED: "the offsets are not confirmed",
    State.REFERENCED: "the rig has its offsets, and is not positioned",
    State.POSITIONED: "the rig is at the start, and not armed",
    State.ARMED: "the rig is armed",
    State.FINISHED: "the procedure is over",
    State.HELD: "the rig is held",
    State.TRIPPED: "the rig has tripped: acknowledge it first",
}


def situation(state: State) -> str:
    """Return the situation of the rig in ``state``, as a sentence."""
    return _WORDS.get(state, f"the rig is {state.name.lower()}")


def why_not(act: str, state: State) -> str:
    """Return why ``act`` is not possible in ``state``, or empty."""
    if state in ACTS[act].states:
        return ""
    needed = " or ".join(allowed.name.lower() for allowed in ACTS[act].states)
    return f"{situation(state)}; {act} needs: {needed}"
