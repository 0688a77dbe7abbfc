# SPDX-License-Identifier: Apache-2.0
"""One table from the end of a test to its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rths_nodes.loop.outcomes import ExitCode, ending, not_valid, of_nodes, of_state
from rths_nodes.loop.supervision.states import State


def test_the_codes_are_those_that_scripts_know() -> None:
    known = {"finished": 0, "failed": 1, "refused": 2, "tripped": 3, "held": 130}
    assert {code.outcome: int(code) for code in ExitCode} == known


def test_the_readme_has_the_table() -> None:
    lines = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| exit code | outcome | when |") + 2
    rows = [f"| {code:d} | `{code.outcome}` | {code.meaning} |" for code in ExitCode]
    assert [*lines[start : start + len(rows)], ""] == [*rows, lines[start + len(rows)]]


@pytest.mark.parametrize(
    ("bridged", "samples", "words"),
    [
        (1705, 3080, "not valid: 55 % bridged"),
        (32, 3080, "not valid: 1.0 % bridged"),
        (30, 3000, ""),
        (0, 3080, ""),
        (0, 0, ""),
        (4, 3, "not valid: 100 % bridged"),
    ],
)
def test_a_test_of_which_more_than_a_hundredth_was_bridged_is_not_valid(
    bridged: int, samples: int, words: str
) -> None:
    assert not_valid(bridged, samples) == words
    assert ending("finished", bridged, samples) == (f"finished, {words}" if words else "finished")
    assert ending("tripped", bridged, samples) == "tripped"


def test_a_test_that_came_to_no_end_has_failed() -> None:
    ended = {State.FINISHED: 0, State.HELD: 130, State.TRIPPED: 3}
    assert {state: int(of_state(state)) for state in State} == {state: ended.get(state, 1) for state in State}


@pytest.mark.parametrize(
    ("codes", "state", "interrupted", "expected"),
    [
        ((0, 0), State.FINISHED, False, ExitCode.FINISHED),
        ((0, 0), State.FINISHED, True, ExitCode.FINISHED),
        ((0, 0), State.HELD, False, ExitCode.HELD),
        ((0, 0), State.IDLE, True, ExitCode.HELD),
        ((0, 0), State.IDLE, False, ExitCode.FAILED),
        ((0, 3), State.TRIPPED, False, ExitCode.TRIPPED),
        ((0, 2), State.IDLE, False, ExitCode.REFUSED),
        ((3, 2), State.TRIPPED, False, ExitCode.TRIPPED),
        ((3, 1), State.TRIPPED, False, ExitCode.FAILED),
        ((0, -9), State.TRIPPED, False, ExitCode.FAILED),
        ((0, 130), State.FINISHED, False, ExitCode.HELD),
        ((130, 2), State.HELD, False, ExitCode.REFUSED),
        ((), State.RUNNING, False, ExitCode.FAILED),
    ],
)
def test_the_worst_of_the_nodes_counts(
    codes: Sequence[int], state: State, interrupted: bool, expected: ExitCode
) -> None:
    assert of_nodes(codes, state, interrupted) is expected
