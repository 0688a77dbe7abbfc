# SPDX-License-Identifier: Apache-2.0
"""Tests of several recordings on one page."""

from __future__ import annotations

import dataclasses
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from messages import each_mentions, mentions

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned, check, differences, names, on_times
from rths_nodes.analysis.report import overlay
from rths_nodes.analysis.report.overlay import Compared
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.run import Run


@cache
def recorded(name: str = "predefined_sine", *overrides: str) -> Run:
    return rths_nodes.run(name, ["duration=3", *overrides])


def aligned(name: str, run: Run) -> Aligned:
    return Aligned(name, Evaluation(run))


def test_difference_of_scaled_copy_is_its_scale() -> None:
    run = recorded()
    larger = dataclasses.replace(run, displacement=1.1 * run.displacement)
    first = aligned("A", run)
    assert all(difference.largest == 0.0 for difference in differences(first, aligned("B", run)).values())
    difference = differences(first, aligned("B", larger))["displacement of axis_1"]
    assert difference.rms_share == pytest.approx(0.1)
    assert difference.largest_share == pytest.approx(0.1)
    moved = run.displacement[first.rows, 0]
    assert difference.rms == pytest.approx(0.1 * math.sqrt(np.mean(moved**2)))
    assert difference.at == first.time[np.argmax(np.abs(moved))]


def test_other_times_are_interpolated_without_extrapolation() -> None:
    time, source = np.linspace(0.0, 2.0, 9), np.linspace(0.0, 1.0, 11)
    values = on_times(time, source, 3.0 * source)
    np.testing.assert_allclose(values[:5], 3.0 * time[:5])
    assert np.isnan(values[5:]).all()
    np.testing.assert_array_equal(on_times(source, source[:4], source[:4])[:4], source[:4])


def test_slow_test_is_aligned_with_real_time_test() -> None:
    """The target of a predefined sine does not depend on the rate."""
    fast, slow = aligned("A", recorded()), aligned("B", recorded("predefined_sine", "time_ratio=4"))
    assert slow.time[-1] == pytest.approx(fast.time[-1])
    error = on_times(fast.time, slow.time, slow.target[:, 0]) - fast.target[:, 0]
    assert np.nanmax(np.abs(error)) < 0.01 * np.abs(fast.target).max()


def test_incompatible_tests_are_refused_by_name() -> None:
    longer, other = recorded("predefined_sine", "duration=4"), recorded("chen_ricles_2010")
    with pytest.raises(ConfigError) as error:
        check({"A": recorded(), "B": longer, "C": other})
    assert each_mentions(error.value.problems, ("B", "duration", "4 s", "3 s"), ("C", "axes", "story_1", "axis_1"))


def test_names_are_shortest_distinct_endings() -> None:
    assert names([("x", "A"), ("x", "B")]) == ["A", "B"]
    assert names([("x", "T1", "rung_g"), ("x", "T2", "rung_g")]) == ["T1/rung_g", "T2/rung_g"]
    assert names([("x", "A"), ("x", "A")]) == ["A (1)", "A (2)"]


def test_page_lists_unfinished_tests_first(tmp_path: Path) -> None:
    stopped = recorded("chen_ricles_2010", "axes.story_1.limits.force=2.0e5")
    overlay.write([Compared("A", recorded("chen_ricles_2010")), Compared("B<i>", stopped)], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = re.search(r'<header>\s*<p class="first">(.*?)</p>', page)
    assert first
    assert mentions(first[1], "B", "tripped")
    assert "A:" not in first[1]
    assert "1 of 2 finished" in page
    assert "axes.story_1.limits.force" in page.replace("<wbr>", "")
    assert "<i>" not in page
    assert page.count("<svg") == 8  # too short for the delay over time
    for title in ("Displacement", "Difference to A", "Control error", "Force", "Response", "Energy"):
        assert re.search(rf"</span>{title}</h3>", page)


def test_single_test_shares_panel_and_several_have_one_per_axis() -> None:
    run = recorded("three_independent_axes")
    tests = [aligned("A", run), aligned("B", run)]
    alone, both = (
        next(sheet for sheet in figures.sheets(view) if sheet.name == "control_error")
        for view in (View.one(Evaluation(run)), View(tests))
    )
    ((_, table),), ((_, several),) = alone.tables, both.tables
    assert [*table] == [f"control error {axis} (mm)" for axis in run.axes]
    assert len(alone.figure.axes) == 1
    assert [panel.get_ylabel() for panel in both.figure.axes] == [*table]
    for axis in run.axes:
        for name in "BA":
            values = several[f"{name}: control error {axis} (mm)"]
            np.testing.assert_array_equal(values, table[f"control error {axis} (mm)"])


def test_report_command_compares_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, changes in (("A", []), ("B", ["--set", "compensator.type=none"])):
        arguments = ["run", "predefined_sine", "--set", "duration=2", *changes, "--record", str(tmp_path / name)]
        assert main(arguments) == 0
    capsys.readouterr()
    page = tmp_path / "both.html"
    assert main(["report", str(tmp_path / "A"), str(tmp_path / "B"), "--out", str(page), "--csv"]) == 0
    assert capsys.readouterr().out == f"{page}\ncurves: {tmp_path / 'both_curves'}\n"
    head = (tmp_path / "both_curves" / "displacement.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head == "time (s),A: target (mm),B: displacement (mm),A: displacement (mm)"
    assert main(["report", str(tmp_path / "A"), str(tmp_path / "B"), "--reference"]) == 2
