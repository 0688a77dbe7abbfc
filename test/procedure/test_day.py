# SPDX-License-Identifier: Apache-2.0
"""Days in the laboratory, in fast time: nothing is lost, and no invariant of safety is broken at any sample."""

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

LEVELS = (0.2, 0.4, 0.6, 0.8, 1.0)


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Day]:
    """Makes a day whose clock is that of sessions and records, with a specimen that counts as one of steel."""

    def make(seed: int, levels: tuple[float, ...], hours: float, duration: float) -> Day:
        made = Day(seed, tmp_path, levels, hours, duration)
        monkeypatch.setattr(procedure_runner, "RigSession", partial(RigSession, clock=made.clock))
        monkeypatch.setattr(procedure_runner, "now", made.now)
        return made

    monkeypatch.setattr(ProcedureRecord, "simulation", "")
    # in lockstep a held rung waits for its operator, who is in this thread
    monkeypatch.setattr(OperatorRequests, "wait", lambda self, seconds=0.0: None)
    return make


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_day_of_eight_hours(day: Callable[..., Day], seed: int) -> None:
    played = day(seed, LEVELS, 8.0, 10.0)
    played.play()
    happened, erred = ({*each} & played.seen.keys() for each in (HAPPENS, MISTAKES))
    assert min(len(happened), len(erred)) > 10, played.seen
    assert played.seen["trip"] > 5


def test_an_hour(day: Callable[..., Day]) -> None:
    """One test, and the rig is held until the hour is over."""
    played = day(8, (), 1.0, 1.0)
    played.tests_at("test_1", 0.8, TEST, played.end)
    assert played.clock.now >= played.end
    assert played.seen["trip"]
