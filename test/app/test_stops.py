# SPDX-License-Identifier: Apache-2.0
"""Stops stay within the figures of doc/measured/stops.md; planted violations are detected."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import c_compiler
import numpy as np
import pytest
from messages import mentions
from programs import child_environment

from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("embedded", *(["receiver"] if c_compiler.AVAILABLE else []))
"""Hosts whose stops do not depend on a clock."""


def stops(*arguments: str) -> str:
    """Return the output of `benchmarks/stops.py`, which forks and therefore has its own process."""
    command = [sys.executable, str(ROOT / "benchmarks" / "stops.py"), "--hosts", *HOSTS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_stops_are_within_stated_figures() -> None:
    rows = stops("--runs", "3", "--seconds", "2.5", "--markdown").splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")][2:]
    assert len(cells) == 2 * (5 + 6 * (len(HOSTS) - 1))
    assert {row[3] for row in cells} == {"3"}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousand_stops_of_each_cause_are_within_stated_figures() -> None:
    stops("--runs", "1000", "--seed", "2")


@pytest.fixture
def figures(load_benchmark: Callable[[str], Any]) -> Any:
    return load_benchmark("stop_figures")


AT, SPEED = 20, 0.5


def stopping_path(deceleration: float, dt: float, first: int = 1, together: bool = True) -> Array:
    """Return the path of two axes at 0.5 and 0.25 m/s whose stop begins ``first`` samples after sample AT."""
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
def test_violation_of_stated_figures_is_detected(
    figures: Any, changes: dict[str, Any], words: list[tuple[str, ...]]
) -> None:
    """Stops that begin late, brake harder, last longer, or leave the line between the axes."""
    scenario = files.load("two_actuator_coupler")
    options = {"deceleration": 10.0, **changes}
    run = figures.figures_of(scenario, stopping_path(dt=scenario.dt, **options), AT - 1, options.get("first", 1))
    violations = run.beyond(figures.stated(scenario, 1))
    assert len(violations) == len(words)
    assert all(mentions(violations, *parts) for parts in words), violations


def test_actuator_moves_further_by_its_lag(figures: Any) -> None:
    scenario = files.load("two_actuator_coupler")
    path, stated = stopping_path(10.0, scenario.dt), figures.stated(scenario, 1)
    lagging = np.vstack([np.zeros((13, 2)), path])[:300]  # by 13 samples
    commanded = figures.figures_of(scenario, path, AT - 1, 1)
    assert math.isnan(commanded.behind[0])
    run = commanded.with_actuators(path[AT - 1], lagging[AT - 1 :])
    assert run.behind == pytest.approx((13 * SPEED * scenario.dt, 6.5 * SPEED * scenario.dt))
    assert run.moved == pytest.approx(np.add(run.way, run.behind))
    assert run.beyond(stated) == []
    violations = run.with_actuators(path[AT - 1], 3.0 * lagging[AT - 1 :]).beyond(stated)
    assert mentions("".join(violations), "actuator", "went")


def test_journal_adds_runs_of_equal_scenario_figures_and_host(figures: Any, tmp_path: Path) -> None:
    import stop_journal

    scenario = files.load("chen_ricles_2010")

    def row(cause: str = "stop", first: int = 4) -> Any:
        return figures.Row("composed", cause, scenario, figures.stated(scenario, first))

    run, path = figures.figures_of(scenario, np.zeros((50, 1)), 10, 2), tmp_path / "runs.jsonl"
    journal = stop_journal.Journal(path)
    for result in (run, run, "sample 7: no stop"):
        journal.keep(row(), result)
    total, read = row(), stop_journal.Journal(path).read
    assert (read(total), len(total.runs), len(total.wrong)) == (3, 2, 1)
    assert total.largest("first") == 2
    assert math.isnan(total.largest("off_line"))
    assert [read(row("kill")), read(row(first=5))] == [0, 0]
