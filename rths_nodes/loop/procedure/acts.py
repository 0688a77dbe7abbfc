"""Which act of an operator is possible in which state, and why another one is not."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State


class ActRefused(ConfigError):
    """An act that is not possible now, in the operator's words; nothing has changed."""


STATES: dict[str, tuple[State, ...]] = {
    "connect": (State.IDLE,),
    "take_offsets": (State.CONNECTED, State.REFERENCED),
    "confirm_offsets": (State.CONNECTED, State.REFERENCED),
    "check": (State.REFERENCED,),
    "sign_for": (State.REFERENCED,),
    "position": (State.REFERENCED, State.HELD),
    "arm": (State.POSITIONED,),
    "run": (State.ARMED,),
    "hold": (State.RUNNING,),
    "resume": (State.HELD,),
    "stop": (
        State.CHECKING,
        State.POSITIONING,
        State.RUNNING,
        State.RESUMING,
        State.UNLOADING,
        State.ARMED,
        State.HELD,
    ),
    "acknowledge": (State.TRIPPED,),
    "unload": (State.HELD,),
    "finish": (State.CONNECTED, State.REFERENCED, State.POSITIONED, State.HELD, State.TRIPPED),
    "note": tuple(State),
}
"""The states from which an act leads on; what else it needs the session says."""

MOVING = ("check", "position", "arm", "run", "unload")
"""Acts after which the rig moves, or may: it must be fit for that."""

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


def why_not(act: str, state: State) -> str:
    """Why ``act`` does not lead on from ``state``; empty where it does."""
    if state in STATES[act]:
        return ""
    return _WORDS.get(state, f"the rig is {state.name.lower()}")
