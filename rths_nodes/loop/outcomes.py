"""How a run may end, and the exit code of each end: of nodes, of launch and of ``rths run``."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from rths_nodes.loop.supervision.states import ENDED, State


class ExitCode(IntEnum):
    """Exit code by outcome."""

    FINISHED = 0
    FAILED = 1
    REFUSED = 2
    TRIPPED = 3
    HELD = 130
    """By the operator, as shells count an end by SIGINT."""

    @property
    def outcome(self) -> str:
        """``finished``, ``failed``, ``refused``, ``tripped`` or ``held``."""
        return self.name.lower()


def of_state(state: State) -> ExitCode:
    """The exit code of a test whose last state is ``state``: failed unless it has come to an end."""
    return ExitCode[state.name] if state in ENDED else ExitCode.FAILED


def of_nodes(codes: Iterable[int], state: State, interrupted: bool = False) -> ExitCode:
    """The exit code of a test from those of its nodes and its last ``state``.

    Nodes end with 0 also where the operator holds the test. One that ended by a signal (a negative code) has
    failed. An interrupted test that came to no end was held all the same: nothing has moved.
    """
    found = {code if code in list(ExitCode) else ExitCode.FAILED for code in codes}
    for worst in (ExitCode.FAILED, ExitCode.TRIPPED, ExitCode.REFUSED):
        if worst in found:
            return worst
    return ExitCode.HELD if interrupted and state not in ENDED else of_state(state)
