# SPDX-License-Identifier: Apache-2.0
"""Tests of simulated days in the laboratory: every sample keeps the invariants of safety, no record is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from day_operator import HAPPENS
from laboratory_day import MISTAKES, TEST, Day

from rths_nodes.app.procedure import procedure_runner
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.supervision.handover import OperatorRequests
from rths_nodes.procedure.session import RigSession


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Day]:
    """Makes a day whose clock is used by sessions and records, and whose specimen counts as real."""

    def make(seed: int, levels: tuple[float, ...], hours: float, duration: float) -> Day:
        day = Day(seed, tmp_path, levels, hours, duration)
        monkeypatch.setattr(procedure_runner, "RigSession", partial(RigSession, clock=day.clock))
        monkeypatch.setattr(procedure_runner, "now", day.now)
        return day

    monkeypatch.setattr(ProcedureRecord, "simulation", "")
    # a held rung in lockstep waits for its operator, who runs in this thread
    monkeypatch.setattr(OperatorRequests, "wait", lambda self, seconds=0.0: None)
    return make


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_day_of_eight_hours(day: Callable[..., Day], seed: int) -> None:
    simulated = day(seed, (0.2, 0.4, 0.6, 0.8, 1.0), 8.0, 10.0)
    simulated.play()
    events, mistakes = (names & simulated.seen.keys() for names in ({*HAPPENS}, {*MISTAKES}))
    assert min(len(events), len(mistakes)) > 10, simulated.seen
    assert simulated.seen["trip"] > 5


def test_hour_of_one_test(day: Callable[..., Day]) -> None:
    """After the test the rig is held until the hour has elapsed."""
    simulated = day(8, (), 1.0, 1.0)
    simulated.tests_at("test_1", 0.8, TEST, simulated.end)
    assert simulated.clock.now >= simulated.end
    assert simulated.seen["trip"]
