# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a run, and their exit codes: nodes, launch, ``rths run`` and Python API."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from rths_nodes.loop.supervision.bridges import LateData
from rths_nodes.loop.supervision.states import ENDED, State


class ExitCode(IntEnum):
    """Exit code by outcome. ``ending`` is its text, ``meaning`` its condition."""

    ending: str
    meaning: str

    FINISHED = 0, "the test has finished", "the test ran to its end and is valid"
    FAILED = 1, "the test has failed", "a node died, a file could not be written, or something unforeseen happened"
    REFUSED = 2, "the test was refused", "the input is wrong, or a node cannot take part; nothing has moved"
    TRIPPED = 3, "the test was tripped", "a limit, the monitor or a trip request brought the rig to rest"
    NOT_VALID = 4, "the test is not valid", "the test ran to its end, but too much of it was missed or bridged"
    HELD = (
        130,
        "the test was held",
        "the operator stopped it: a signal, the stop service or a lifecycle transition; or a level that holds",
    )
    """The code of shells for SIGINT."""

    def __new__(cls, code: int, ending: str, meaning: str) -> ExitCode:
        row = int.__new__(cls, code)
        row._value_, row.ending, row.meaning = code, ending, meaning
        return row

    @property
    def outcome(self) -> str:
        """``finished``, ``failed``, ``refused``, ``tripped``, ``not valid`` or ``held``."""
        return self.name.lower().replace("_", " ")

    @property
    def recorded(self) -> str:
        """Outcome in recordings, records and results, where a test that is not valid has finished."""
        return (ExitCode.FINISHED if self is ExitCode.NOT_VALID else self).outcome


IN_ORDER = (ExitCode.FINISHED, ExitCode.NOT_VALID, ExitCode.TRIPPED, ExitCode.HELD)
"""Exit codes of a node after which the others leave by themselves, knowing the outcome."""

WORST_FIRST = (ExitCode.FAILED, ExitCode.TRIPPED, ExitCode.REFUSED, ExitCode.HELD, ExitCode.NOT_VALID)


def of_state(state: State) -> ExitCode:
    """Return the exit code of a test with the last ``state``: failed unless it has ended."""
    return ExitCode[state.name] if state in ENDED else ExitCode.FAILED


def valid(code: ExitCode, late: LateData, samples: float) -> ExitCode:
    return ExitCode.NOT_VALID if code is ExitCode.FINISHED and late.not_valid(samples) else code


def of_nodes(codes: Iterable[int], state: State, interrupted: bool = False) -> ExitCode:
    """Return the exit code of a test from its nodes' codes and its last ``state``.

    The worst node counts; a signal (a negative code) is a failure. Without a bad code the state decides. An
    interrupted test that never began was held: nothing has moved.
    """
    found = {code if code in list(ExitCode) else ExitCode.FAILED for code in codes}
    for worst in WORST_FIRST:
        if worst in found:
            return worst
    return ExitCode.HELD if interrupted and state not in ENDED else of_state(state)
