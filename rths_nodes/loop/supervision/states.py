# SPDX-License-Identifier: Apache-2.0
"""The states of a test and the transitions between them; those of a procedure are apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

LOCKSTEP_WINDOW = 512
"""In lockstep the rig runs at most this many samples ahead of the monitor and the recorder, and a trip found by
the monitor at sample k takes effect at k + LOCKSTEP_WINDOW: the same sample, however fast anybody is."""


class State(IntEnum):
    """States of a test, and of the procedure around it (TestState.msg)."""

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
    # of a procedure only (``procedure/machine.py``)
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
    """The state of a test and why it was entered; refuses a transition that is not in the diagram."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    def __init__(self) -> None:
        self.state = State.IDLE
        self.reason = ""

    def to(self, state: State, reason: str = "") -> None:
        """Enter ``state``. Raises RuntimeError when the diagram has no such arrow."""
        if state not in _SUCCESSORS[self.state]:
            raise RuntimeError(f"test state {self.state.name} -> {state.name}: no such transition")
        self.state = state
        self.reason = reason or self.reason


@dataclass(frozen=True)
class StopRequest:
    """``reason`` says who asks for the stop and why; the test ends as ``end``, HELD or TRIPPED.

    The stop begins at ``sample``, or with the next sample where that is past.
    """

    reason: str
    sample: int = 0
    end: State = State.TRIPPED

    def due(self, sample: int) -> bool:
        """True when ``sample`` belongs to the stop."""
        return sample >= self.sample
