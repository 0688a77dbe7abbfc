# SPDX-License-Identifier: Apache-2.0
"""States of a test and the transitions between them. A procedure has its own transitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

LOCKSTEP_WINDOW = 512
"""Largest number of samples by which the rig may be ahead of monitor and recorder in lockstep. A trip that the
monitor requests at sample k takes effect at k + LOCKSTEP_WINDOW."""


class State(IntEnum):
    """States of a test and of the procedure that contains it (TestState.msg)."""

    IDLE = 0
    CONNECTED = 1
    REFERENCED = 2
    POSITIONED = 3
    ARMED = 4
    RUNNING = 5
    STOPPING = 6
    FINISHED = 7
    HELD = 8
    TRIPPED = 9
    # for procedures only (``procedure/machine.py``)
    CHECKING = 10
    POSITIONING = 11
    RESUMING = 12
    UNLOADING = 13


ENDED = (State.FINISHED, State.HELD, State.TRIPPED)
_SUCCESSORS = {
    State.IDLE: (State.CONNECTED,),
    State.CONNECTED: (State.REFERENCED, State.IDLE),
    State.REFERENCED: (State.POSITIONED, State.IDLE),
    State.POSITIONED: (State.ARMED, State.IDLE, State.HELD, State.TRIPPED),
    State.ARMED: (State.RUNNING, State.HELD, State.TRIPPED),
    State.RUNNING: (State.STOPPING, State.FINISHED),
    State.STOPPING: (State.HELD, State.TRIPPED),
    State.FINISHED: (State.IDLE, State.TRIPPED),
    State.HELD: (State.IDLE,),
    State.TRIPPED: (State.IDLE,),
}


class TestMachine:
    """Stores the state of a test and its reason, and refuses invalid transitions."""

    __test__ = False  # not a test case of pytest

    def __init__(self) -> None:
        self.state = State.IDLE
        self.reason = ""

    def to(self, state: State, reason: str = "") -> None:
        """Enter ``state``. Raises RuntimeError if the transition is invalid."""
        if state not in _SUCCESSORS[self.state]:
            raise RuntimeError(f"test state {self.state.name} -> {state.name}: no such transition")
        self.state = state
        self.reason = reason or self.reason


@dataclass(frozen=True)
class StopRequest:
    """Request for a safe stop. ``reason`` states source and cause. ``end`` is the final state, HELD or TRIPPED.

    The stop begins at ``sample``, or at the next sample if ``sample`` has passed.
    """

    reason: str
    sample: int = 0
    end: State = State.TRIPPED

    def due(self, sample: int) -> bool:
        return sample >= self.sample
