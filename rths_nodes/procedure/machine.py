# SPDX-License-Identifier: Apache-2.0
"""States of a procedure and their transitions, from the idle rig through the rungs of a test to its end.

Commands change only in a motion state, or if the rig does not follow (``following.py``). Only operator acts enter
motion states, except that a trip also enters STOPPING. An act that began before a stop can no longer enter a
motion state or the armed state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State

MOTION = {State.CHECKING, State.POSITIONING, State.RUNNING, State.STOPPING, State.RESUMING, State.UNLOADING}
"""States in which the rig may move."""

AT_REST = (State.CONNECTED, State.REFERENCED, State.POSITIONED, State.ARMED, State.HELD)
"""States in which the rig is held. A loss of the rig, or a timeout, can end these states without an act."""

ARROWS: dict[State, tuple[State, ...]] = {
    State.IDLE: (State.CONNECTED,),
    # from every state at rest, loss of the rig leads to TRIPPED
    State.CONNECTED: (State.REFERENCED, State.FINISHED, State.TRIPPED),
    State.REFERENCED: (State.CHECKING, State.POSITIONING, State.FINISHED, State.TRIPPED),
    State.CHECKING: (State.REFERENCED, State.STOPPING),
    State.POSITIONING: (State.POSITIONED, State.STOPPING),
    # HELD if the rig has temporarily not followed, because its position may differ
    State.POSITIONED: (State.ARMED, State.HELD, State.FINISHED, State.TRIPPED),
    # HELD if the operator or the rig disarms before any motion
    State.ARMED: (State.RUNNING, State.HELD, State.TRIPPED),
    State.RUNNING: (State.STOPPING, State.HELD),
    State.STOPPING: (State.HELD, State.TRIPPED),
    # TRIPPED if the rig itself ends a held run
    State.HELD: (State.RESUMING, State.POSITIONING, State.UNLOADING, State.FINISHED, State.TRIPPED),
    State.RESUMING: (State.RUNNING, State.STOPPING),
    State.UNLOADING: (State.HELD, State.STOPPING),
    State.TRIPPED: (State.HELD, State.FINISHED),  # HELD after the act ``acknowledge``
    State.FINISHED: (),
}
"""Successors of each state. Only a checked rig may change from REFERENCED to POSITIONING."""


_STATES = {
    State.IDLE: "the rig is not connected",
    State.CONNECTED: "the offsets are not confirmed",
    State.REFERENCED: "the offsets are confirmed, but the rig is not positioned",
    State.POSITIONED: "the rig is at the start, but not armed",
    State.ARMED: "the rig is armed",
    State.FINISHED: "the procedure has ended",
    State.HELD: "the rig is held",
    State.TRIPPED: "the rig has tripped: acknowledge it first",
}


def situation(state: State) -> str:
    return _STATES.get(state, f"the rig is {state.name.lower()}")


UNCONDITIONAL = ("stop", "hold", "note")
"""Acts that are performed even after a stop or a change of state, because they move nothing."""


class ActRefused(ConfigError):
    """Raised if an act is not possible. The act has changed nothing. The message gives the reason."""


@dataclass(frozen=True)
class Seen:
    """Stop count and state of a procedure, as last received by the sender of an act."""

    stops: int
    state: int

    def __str__(self) -> str:
        names = {int(state): state.name for state in State}
        return f"state {names.get(self.state, 'unknown')}, stop count {self.stops}"


@dataclass(eq=False)  # compared by identity
class ActUnderWay:
    machine: SessionMachine
    stopped: str = ""
    """Reason of the first stop since the act began, or an empty string."""


def stopped_by_operator(reason: str) -> str:
    return f"stopped by the operator: {reason}"


_UNDER_WAY: ContextVar[ActUnderWay | None] = ContextVar("the act under way", default=None)


class SessionMachine:
    """Stores the state of a procedure and its reason, and refuses invalid transitions.

    ``changed`` receives each new state and its reason. ``stops`` is the number of stops. Hold ``lock`` while
    checking the state and acting on the result.
    """

    def __init__(self, changed: Callable[[State, str], None] | None = None) -> None:
        self.state = State.IDLE
        self.reason = ""
        self.stops = 0
        self.lock = threading.RLock()
        self._changed = changed
        self._acts: list[ActUnderWay] = []

    @property
    def moving(self) -> bool:
        return self.state in MOTION

    @property
    def busy(self) -> bool:
        return bool(self._acts)

    @property
    def under_way(self) -> ActUnderWay | None:
        act = _UNDER_WAY.get()
        return act if act is not None and act.machine is self else None

    @property
    def stopped(self) -> str:
        act = self.under_way
        return act.stopped if act is not None else ""

    @property
    def seen(self) -> Seen:
        with self.lock:
            return Seen(self.stops, int(self.state))

    def go_on(self, act: ActUnderWay | None = None) -> None:
        """Raise ActRefused if ``act``, which defaults to the act of the calling thread, was stopped."""
        if reason := self.stopped if act is None else act.stopped:
            raise ActRefused(stopped_by_operator(reason))

    @contextmanager
    def act(self, name: str = "", seen: Seen | None = None) -> Iterator[ActUnderWay]:
        """Context manager of an act. A nested act is part of the outer act, so that one stop ends both.

        Raises ActRefused if the stop count or the state differs from ``seen``. The comparison and the start of the
        act are atomic, so that no stop can occur in between.
        """
        if (outer := self.under_way) is not None:
            yield outer
            return
        with self.lock:
            if seen is not None and name not in UNCONDITIONAL and seen != (now := self.seen):
                raise ActRefused(
                    f"{name}: refused, because its sender saw {seen}, but the procedure now has {now}. "
                    "Look at the procedure again"
                )
            act = ActUnderWay(self)
            self._acts.append(act)
        token = _UNDER_WAY.set(act)
        try:
            yield act
        finally:
            _UNDER_WAY.reset(token)
            with self.lock:
                self._acts.remove(act)

    def count_stop(self, reason: str) -> None:
        with self.lock:
            self.stops += 1
            for act in self._acts:
                act.stopped = act.stopped or reason

    def to(self, state: State, reason: str = "", act: ActUnderWay | None = None) -> None:
        """Enter ``state`` as part of ``act``, which defaults to the act of the calling thread.

        Raises RuntimeError for an invalid transition, and ActRefused if the act was stopped.
        """
        with self.lock:
            arrow = f"state of the procedure {self.state.name} -> {state.name}"
            if state not in ARROWS[self.state]:
                raise RuntimeError(f"{arrow}: this transition does not exist")
            if state in MOTION - {State.STOPPING} | {State.ARMED}:  # only an act can enter these states
                act = act or self.under_way
                if act is None:
                    raise RuntimeError(f"{arrow}: only an act can enter this state")
                self.go_on(act)
            self.state, self.reason = state, reason
            if self._changed is not None:
                self._changed(state, reason)

    def brake(self, reason: str) -> None:
        with self.lock:
            if self.moving and self.state is not State.STOPPING:
                self.to(State.STOPPING, reason)
