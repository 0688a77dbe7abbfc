# SPDX-License-Identifier: Apache-2.0
"""One table from the end of a test to its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rths_nodes.loop.indices.late_periods import LateData
from rths_nodes.loop.outcomes import ExitCode, of_nodes, of_state, valid
from rths_nodes.loop.supervision.states import State


def test_the_codes_are_those_that_scripts_know() -> None:
    known = {"finished": 0, "failed": 1, "refused": 2, "tripped": 3, "held": 130}
    assert {code.outcome: int(code) for code in ExitCode if code is not ExitCode.NOT_VALID} == known
    assert (int(ExitCode.NOT_VALID), ExitCode.NOT_VALID.outcome) == (4, "not valid")
    recorded = {code.outcome: code.recorded for code in ExitCode}
    assert recorded == {name: name for name in known} | {"not valid": "finished"}


def test_the_page_of_commands_has_the_table() -> None:
    lines = (Path(__file__).resolve().parents[2] / "doc" / "commands.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| exit code | outcome | when |") + 2
    rows = [f"| {code:d} | `{code.outcome}` | {code.meaning} |" for code in ExitCode]
    assert [*lines[start : start + len(rows)], ""] == [*rows, lines[start + len(rows)]]


@pytest.mark.parametrize(
    ("late", "samples", "parts"),
    [
        (LateData(1705), 3080, ("55 % bridged", "2 %")),
        (LateData(62), 3080, ("2.0 % bridged", "2 %")),
        (LateData(60), 3000, ()),
        (LateData(30, 30), 2970, ()),
        (LateData(31, 31), 2970, ("2.1 % missed or bridged", "2 %")),
        (LateData(0, 3329), 3080, ("52 % missed", "2 %")),
        (LateData(), 3080, ()),
        (LateData(), 0, ()),
        (LateData(), -1, ()),
        (LateData(4), 3, ("100 % bridged", "2 %")),
        (LateData(0, 11, 0.0107, 0.010), 30000, ("10.7 ms", "bridge.max_bridge = 10 ms")),
        (LateData(0, 10, 0.010, 0.010), 30000, ()),
        (LateData(0, 900, 3.25, 0.010), 3080, ("23 % missed", "3250 ms", "bridge.max_bridge = 10 ms")),
    ],
)
def test_a_test_with_more_late_periods_or_a_longer_gap_than_the_bounds_is_not_valid(
    late: LateData, samples: int, parts: tuple[str, ...]
) -> None:
    words = late.not_valid(samples)
    assert words.startswith("not valid: ") is bool(parts)
    assert [part for part in parts if part not in words] == []
    assert late.ending("finished", samples) == (words or "finished")
    assert late.ending("tripped", samples) == "tripped"
    assert valid(ExitCode.FINISHED, late, samples) is (ExitCode.NOT_VALID if parts else ExitCode.FINISHED)
    assert valid(ExitCode.HELD, late, samples) is ExitCode.HELD


@pytest.mark.parametrize(
    ("bridged", "longest"), [([], 0), ([7], 1), ([1, 3, 5], 1), ([1, 2, 3, 9, 10], 3), ([1, 4, 5, 6, 7], 4)]
)
def test_the_longest_gap_of_bridged_samples_is_counted(bridged: list[int], longest: int) -> None:
    late = LateData.of_bridged(bridged, 0.001, 0.010)
    assert (late.bridged, late.missed, late.max_bridge) == (len(bridged), 0.0, 0.010)
    assert late.gap == pytest.approx(0.001 * longest)


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
        ((0, 4), State.FINISHED, False, ExitCode.NOT_VALID),
        ((4, 130), State.FINISHED, False, ExitCode.HELD),
        ((), State.RUNNING, False, ExitCode.FAILED),
    ],
)
def test_the_worst_of_the_nodes_counts(
    codes: Sequence[int], state: State, interrupted: bool, expected: ExitCode
) -> None:
    assert of_nodes(codes, state, interrupted) is expected
