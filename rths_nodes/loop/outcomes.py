# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a run and their exit codes, for nodes, launch, ``rths run`` and the Python API.

Launch prints "process has died" for every non-zero exit code. A process with nodes therefore exits with 0 if it
has written a final report, which contains the outcome (``ros/hosting/launch_actions.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.loop.supervision.states import ENDED, State

if TYPE_CHECKING:
    from rths_nodes.loop.timing import LateData


class ExitCode(IntEnum):
    """Exit codes of a run. ``ending`` states the outcome to the operator, and ``meaning`` explains the code."""

    ending: str
    meaning: str

    FINISHED = 0, "the test has finished", "the test ran to its end and is valid"
    FAILED = 1, "the test has failed", "a node died, a file could not be written, or an unexpected error occurred"
    REFUSED = 2, "the test was refused", "the input is not valid, or a node cannot take part; nothing has moved"
    TRIPPED = 3, "the test was tripped", "a limit, the monitor or a trip request brought the rig to rest"
    NOT_VALID = 4, "the test is not valid", "the test ran to its end, but too many samples were missed or bridged"
    HELD = (
        130,
        "the test was held",
        "the operator stopped the test with a signal, the stop service or a lifecycle transition, or a level "
        "held the test",
    )
    """Shells also use this exit code after SIGINT."""

    def __new__(cls, code: int, ending: str, meaning: str) -> ExitCode:
        row = int.__new__(cls, code)
        row._value_, row.ending, row.meaning = code, ending, meaning
        return row

    @property
    def outcome(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def recorded(self) -> str:
        """Outcome as stored in recordings, records and results: ``finished`` also for a test that is not valid."""
        return (ExitCode.FINISHED if self is ExitCode.NOT_VALID else self).outcome


IN_ORDER = (ExitCode.FINISHED, ExitCode.NOT_VALID, ExitCode.TRIPPED, ExitCode.HELD)
"""Exit codes of a node after which the other nodes exit by themselves, because they know the outcome."""

WORST_FIRST = (ExitCode.FAILED, ExitCode.TRIPPED, ExitCode.REFUSED, ExitCode.HELD, ExitCode.NOT_VALID)


def of_state(state: State) -> ExitCode:
    return ExitCode[state.name] if state in ENDED else ExitCode.FAILED


def valid(code: ExitCode, late: LateData, samples: float) -> ExitCode:
    return ExitCode.NOT_VALID if code is ExitCode.FINISHED and late.not_valid(samples) else code


def of_nodes(codes: Iterable[int], state: State, interrupted: bool = False) -> ExitCode:
    """Return the exit code of a test from the exit codes of its nodes and its last ``state``.

    The worst code is returned. A negative code (signal) counts as FAILED. If no node reports an error, the state
    determines the code. If this state is not final, the code is HELD after an interruption, otherwise FAILED.
    """
    exit_codes = {code if code in list(ExitCode) else ExitCode.FAILED for code in codes}
    for worst in WORST_FIRST:
        if worst in exit_codes:
            return worst
    return ExitCode.HELD if interrupted and state not in ENDED else of_state(state)


REPORT_FILE = "RTHS_LAST_WORDS"
"""Environment variable that contains the path of the final report of a process."""
DIED = "died"
"""File next to the reports, in which launch stores the name of a process that died without a report."""


@dataclass(frozen=True)
class LastWords:
    """Final report of a process. ``problem`` is empty if there was no problem.

    ``test`` is the exit code of the test, or None if unknown. ``ending`` describes this code. ``indices`` contains
    the monitor's indices by dotted name, in SI units. ``late`` describes missed and bridged periods.
    """

    exit_code: int
    problem: str = ""
    test: int | None = None
    ending: str = ""
    indices: Mapping[str, float] = field(default_factory=dict)
    late: str = ""


def report_to_launch(report: LastWords) -> bool:
    path = os.environ.get(REPORT_FILE)
    if not path:
        return False
    try:
        Path(path).write_text(json.dumps(asdict(report)), encoding="utf-8")
    except OSError:  # without a report, launch uses the exit code
        return False
    return True


def read_report(path: Path) -> LastWords | None:
    try:
        return LastWords(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def reported_death() -> str:
    path = os.environ.get(REPORT_FILE)
    try:
        return Path(path).with_name(DIED).read_text(encoding="utf-8") if path else ""
    except OSError:
        return ""
