# SPDX-License-Identifier: Apache-2.0
"""The table of doc/measured/stops.md: a few runs a cause of what depends on no clock, and planted wrong stops."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("embedded", *(["receiver"] if any(map(shutil.which, ("cc", "gcc", "clang"))) else []))


def stops(*words: str) -> str:
    """What `benchmarks/stops.py` prints of these hosts, in a process that may be copied."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, str(ROOT / "benchmarks" / "stops.py"), "--hosts", *HOSTS, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_stops_are_within_what_is_stated() -> None:
    rows = stops("--runs", "3", "--seconds", "2.5", "--markdown").splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")][2:]
    assert len(cells) == 2 * (5 + 6 * (len(HOSTS) - 1))
    assert {row[3] for row in cells} == {"3"}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_stops_of_each_cause_are_within_what_is_stated() -> None:
    stops("--runs", "1000", "--seed", "2")


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import stop_figures

    yield stop_figures
    sys.modules.pop("stop_figures")


AT, SPEED = 20, 0.5


def path_of(deceleration: float, dt: float, first: int = 1, together: bool = True) -> Array:
    """Two axes at 0.5 and 0.25 m/s whose stop begins ``first`` samples behind sample AT."""
    speeds = []
    for speed in (SPEED, 0.5 * SPEED):
        change = deceleration * dt * (speed / SPEED if together else 1.0)
        steps = [speed] * (AT + first - 1)
        while steps[-1] > 0.0:
            steps.append(max(steps[-1] - change, 0.0))
        speeds.append(np.pad(steps, (0, 300 - len(steps))))
    return np.cumsum(np.array(speeds).T, axis=0) * dt


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"first": 2}, [("2 samples", "stated 1")]),
        ({"deceleration": 12.0}, [("1.2 of", "deceleration", "stated 1")]),
        ({"deceleration": 4.0}, [("127 samples", "stated 103")]),
        ({"together": False}, [("line", "stated 0.01")]),
    ],
)
def test_a_stop_that_is_not_as_stated_is_found(
    figures: Any, changes: dict[str, Any], words: list[tuple[str, ...]]
) -> None:
    """Planted: one that comes late, brakes harder, is longer, or lets each axis stop by itself."""
    scenario = files.load("two_actuator_coupler")
    given = {"deceleration": 10.0, **changes}
    path = path_of(dt=scenario.dt, **given)
    run = figures.found(scenario, path, AT - 1, given.get("first", 1))
    told = run.beyond(figures.stated(scenario, 1))
    assert len(told) == len(words)
    assert all(mentions(told, *parts) for parts in words), told


def test_an_actuator_goes_on_by_what_it_was_behind_its_command(figures: Any) -> None:
    scenario = files.load("two_actuator_coupler")
    path = path_of(10.0, scenario.dt)
    behind = np.vstack([np.zeros((13, 2)), path])[:300]  # it follows 13 samples later
    run = figures.found(scenario, path, AT - 1, 1).with_actuators(path[AT - 1], behind[AT - 1 :])
    assert run.behind == pytest.approx((13 * SPEED * scenario.dt, 6.5 * SPEED * scenario.dt))
    assert run.moved == pytest.approx(np.add(run.way, run.behind))
    assert run.beyond(figures.stated(scenario, 1)) == []
    assert mentions(
        "".join(run.with_actuators(path[AT - 1], 3.0 * behind[AT - 1 :]).beyond(figures.stated(scenario, 1))),
        "actuator",
        "went",
    )
    assert math.isnan(figures.found(scenario, path, AT - 1, 1).behind[0])


def test_runs_of_several_calls_add_up(figures: Any, tmp_path: Path) -> None:
    """Runs of the same scenario with the same stated figures, on the same host; others are left alone."""
    import stop_journal

    scenario = files.load("chen_ricles_2010")

    def row(cause: str = "stop", first: int = 4) -> Any:
        return figures.Row("composed", cause, scenario, figures.stated(scenario, first))

    run, path = figures.found(scenario, np.zeros((50, 1)), 10, 2), tmp_path / "runs.jsonl"
    before = stop_journal.Journal(path)
    for one in (run, run, "sample 7: no stop"):
        before.keep(row(), one)
    found, read = row(), stop_journal.Journal(path).read
    assert (read(found), len(found.found), len(found.wrong)) == (3, 2, 1)
    assert found.largest("first") == 2
    assert math.isnan(found.largest("off_line"))
    assert [read(row("kill")), read(row(first=5))] == [0, 0]
