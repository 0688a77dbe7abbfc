"""The states of a procedure and the arrows between them: from a cold rig over the rungs of a test to its end.

Only in a motion state may a command differ from the one before it. Each is entered by an act of the operator, but
for stopping, which any trip enters, too. No arrow leaves out a state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rths_nodes.loop.supervision.states import State

MOTION = frozenset(
    (State.CHECKING, State.POSITIONING, State.RUNNING, State.STOPPING, State.RESUMING, State.UNLOADING)
)
"""The states in which the rig may move."""

ARROWS: dict[State, tuple[State, ...]] = {
    State.IDLE: (State.CONNECTED,),
    State.CONNECTED: (State.REFERENCED, State.FINISHED),
    State.REFERENCED: (State.CHECKING, State.POSITIONING, State.FINISHED),
    State.CHECKING: (State.REFERENCED, State.STOPPING),
    State.POSITIONING: (State.POSITIONED, State.STOPPING),
    State.POSITIONED: (State.ARMED, State.FINISHED),
    # the operator, or the rig, takes back what was armed before anything has moved
    State.ARMED: (State.RUNNING, State.HELD, State.TRIPPED),
    State.RUNNING: (State.STOPPING, State.HELD),
    State.STOPPING: (State.HELD, State.TRIPPED),
    # to tripped where the rig itself ends a run that is only held
    State.HELD: (State.RESUMING, State.POSITIONING, State.UNLOADING, State.FINISHED, State.TRIPPED),
    State.RESUMING: (State.RUNNING, State.STOPPING),
    State.UNLOADING: (State.HELD, State.STOPPING),
    State.TRIPPED: (State.HELD, State.FINISHED),  # to held by the operator's acknowledge
    State.FINISHED: (),
}
"""Where each state leads. From referenced to positioning only a rig that was checked."""


class SessionMachine:
    """The state of a procedure and why it was entered; refuses an arrow that is not there.

    ``changed`` is told of each state with its reason. ``history`` are the states so far. Threads that look before
    they leap hold the ``lock``.
    """

    def __init__(self, changed: Callable[[State, str], None] | None = None) -> None:
        self.state = State.IDLE
        self.reason = ""
        self.history = [State.IDLE]
        self.lock = threading.RLock()
        self._changed = changed

    @property
    def moving(self) -> bool:
        """True in a motion state."""
        return self.state in MOTION

    def may(self, state: State) -> bool:
        """True where an arrow leads to ``state``."""
        return state in ARROWS[self.state]

    def to(self, state: State, reason: str = "") -> None:
        """Enter ``state``. Raises RuntimeError when there is no such arrow."""
        with self.lock:
            if not self.may(state):
                raise RuntimeError(f"state of the procedure {self.state.name} -> {state.name}: no such transition")
            self.state, self.reason = state, reason
            self.history.append(state)
            if self._changed is not None:
                self._changed(state, reason)

    def disarm(self, why: Callable[[], str]) -> None:
        """What is armed is so no more where ``why`` names a reason: the rig has tripped at rest.

        Called with each Measurement, also by a thread that must not wait: where the lock is taken it does nothing.
        """
        if self.state is not State.ARMED or not self.lock.acquire(blocking=False):
            return
        try:
            if self.state is State.ARMED and (reason := why()):
                self.to(State.TRIPPED, reason)
        finally:
            self.lock.release()

    def brake(self, reason: str) -> None:
        """What moves is stopped; nothing happens where nothing moves, or it is stopped already."""
        with self.lock:
            if self.moving and self.state is not State.STOPPING:
                self.to(State.STOPPING, reason)
