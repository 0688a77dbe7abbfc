# SPDX-License-Identifier: Apache-2.0
"""The proposed act is possible, and a procedure that ended early is not shown as finished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from messages import mentions
from served_test import runner_of

from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, next_act
from rths_nodes.loop.outcomes import ExitCode


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    runner = runner_of(tmp_path, 0, planned="ag")
    try:
        yield runner
    finally:
        runner.session.close()


def test_no_rehearsal_is_proposed_once_the_rig_is_connected(runner: ProcedureRunner) -> None:
    assert next_act(runner, lambda: False) == "rehearse"
    runner.do("connect")
    assert runner.next_rung == "a"
    assert runner.session.possible()["rehearse"]
    assert next_act(runner, lambda: False) == "finish"
    assert not runner.session.possible()["finish"]


def test_connecting_shows_where_the_rig_is_and_whether_it_follows(runner: ProcedureRunner) -> None:
    assert mentions(runner.do("connect"), "story_1", "mm", "kN", "hydraulics", "interlock")


def test_a_test_that_ended_before_its_first_rung_was_held(runner: ProcedureRunner) -> None:
    runner.do("connect")
    runner.do("finish")
    code, reason = runner.outcome()
    assert code is ExitCode.HELD
    assert mentions(reason, "operator", "rung a")
