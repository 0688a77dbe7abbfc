# SPDX-License-Identifier: Apache-2.0
"""The table of a study: groups, levels, the worst runs; a run that did not finish counts as the worst."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.analysis.figures import studies
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.report import studies as pages
from rths_nodes.analysis.study_table import StudyTable, index_title, percentile
from rths_nodes.app.studies.runs import known_indices
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario.files import load


def table(**columns: Any) -> StudyTable:
    given: dict[str, Any] = {
        "name": ["a", "b", "c", "d<script>"],
        "outcome": ["finished", "finished", "finished", "tripped"],
        "reason": ["", "", "", "limits.force"],
        "gain": [0.1, 0.1, 0.2, 0.2],
        "law": ["x", "y", "x", "y"],
        "drawn": [1.0, 2.0, 3.0, 4.0],
        "J1": [-3.0, 1.0, 2.0, 99.0],
    }
    return StudyTable("mine", "what it is", "scenario", given | columns, ("gain", "law"), ("J1",), ("drawn",))


def test_groups_are_formed_by_named_levels_and_not_pooled() -> None:
    assert {group: rows.tolist() for group, rows in table().groups.items()} == {"x": [0, 2], "y": [1, 3]}
    both = table(gain=["low", "low", "high", "high"])
    assert list(both.groups) == ["low, x", "low, y", "high, x", "high, y"]
    assert list(table(law=[1.0, 2.0, 1.0, 2.0]).groups) == [""]


def test_a_run_that_did_not_finish_counts_as_the_worst() -> None:
    """Of seven trips in fifty runs the median stays, and the 95th percentile is one of them."""
    values = [float(value) for value in range(1, 51)]
    of = StudyTable(
        "mine",
        "",
        "scenario",
        {
            "name": [str(value) for value in values],
            "outcome": ["tripped"] * 7 + ["finished"] * 43,
            "reason": [""] * 50,
            "J2": values,
        },
        (),
        ("J2",),
    )
    (found,) = of.spreads("J2", of.cells())
    assert (found.runs, found.failed, found.finished) == (50, 7, "43 of 50")
    assert found.median == 32.5  # of 8 to 50 alone 29
    assert found.low == 10.0
    assert found.high == found.worst == math.inf


def test_a_run_without_a_test_is_in_no_percentile() -> None:
    of = table(outcome=["finished", "refused", "finished", "lost"])
    x, y = of.spreads("J1", of.cells())
    assert (x.runs, x.failed, x.median, x.worst) == (2, 0, 2.5, 3.0)
    assert (y.runs, y.failed) == (0, 0)
    assert math.isnan(y.median)


def test_a_level_is_judged_within_its_group() -> None:
    of = table(law=["x"] * 4)
    cells = of.cells("gain")
    assert [(cell.group, cell.level, cell.rows.tolist()) for cell in cells] == [
        ("x", "0.1", [0, 1]),
        ("x", "0.2", [2, 3]),
    ]
    first, second = of.spreads("J1", cells)
    assert (first.runs, first.median, first.worst) == (2, 2.0, 3.0)
    assert (second.runs, second.failed, second.median) == (2, 1, math.inf)


def test_percentiles_are_values_of_runs_and_the_median_is_the_usual_one() -> None:
    size = np.array([4.0, 1.0, math.nan, 2.0, 3.0])
    assert [percentile(size, percent) for percent in (5.0, 50.0, 95.0, 100.0)] == [1.0, 2.5, 4.0, 4.0]
    assert percentile(np.array([1.0, 2.0, math.inf]), 50.0) == 2.0
    assert percentile(np.array([1.0, math.inf]), 50.0) == math.inf
    assert math.isnan(percentile(np.array([math.nan]), 50.0))


@pytest.mark.parametrize(
    ("index", "title"),
    [
        ("J1", "J1 (ms)"),
        ("J2_floor_1", "J2 floor 1 (%)"),
        ("J3", "J3 (%)"),
        ("max_error_mm", "max error (mm)"),
        ("fei_delay_ms_story_1", "fei delay story 1 (ms)"),
        ("fei_amplitude", "fei amplitude"),
        ("tracking_rms_percent_true", "tracking rms true (%)"),
        ("response_x_3", "response x 3 (%)"),
        ("alpha_range", "alpha range"),
    ],
)
def test_an_index_has_its_unit(index: str, title: str) -> None:
    assert index_title(index) == title


@pytest.mark.parametrize("name", ["chen_ricles_2010", "rths_benchmark_2020", "three_independent_axes"])
def test_every_index_has_a_definition(name: str) -> None:
    indices = known_indices(checked_loop(load(name)).assembly)
    assert [index for index in indices if not definition(index).meaning] == []
    assert definition("tracking_rms_percent_true").title.split(", ")[1:] == ["rms", "true displacement"]
    assert magnitude_title("J1_story_1") == "magnitude of delay (J1), story 1 (ms)"


def test_the_worst_runs_begin_with_those_that_did_not_finish() -> None:
    assert table().worst("J1", 3) == [3, 0, 2]
    assert table().worst("J1", 3, "x") == [0, 2]


def test_what_is_drawn_is_continuous_and_a_list_of_numbers_is_not_shown() -> None:
    assert table().shown_factors == ("gain", "drawn")
    assert table(drawn=["[1, 2]"] * 4).shown_factors == ("gain",)


@pytest.mark.filterwarnings("error")
def test_the_page_names_factors_worst_runs_and_reasons(tmp_path: Path) -> None:
    pages.write_study(table(), tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    for words in (
        "mine",
        "3 of 4 finished",
        "what it is",
        "limits.force",
        "Delay (J1) by group",
        "Delay (J1): effect of each factor",
        "gain",
        "∞",
    ):
        assert words in page
    assert "<script" not in page
    assert page.count("<svg") == 3


@pytest.mark.filterwarnings("error")
def test_a_page_without_a_finished_run_is_written(tmp_path: Path) -> None:
    pages.write_study(table(outcome=["tripped"] * 4), tmp_path / "study.html")
    assert mentions((tmp_path / "study.html").read_text(), "run", "finished")


def test_processes_draw_the_same_figures() -> None:
    of = table(law=["x", "y", "x", "y"])
    assert studies.drawn(studies.drawings(of), 2) == studies.drawn(studies.drawings(of))


def test_runs_are_drawn_as_dots_of_one_path() -> None:
    (_, _, drawing), *_ = studies.drawn(studies.drawings(table(law=["x"] * 4)))
    *_, dots = re.findall(r' d="(M[^"]*)" [^>]*stroke-linecap: round', drawing)
    places = re.findall(r"M (\S+ \S+) L (\S+ \S+)", dots)
    assert len(places) == 3
    assert all(begin == end for begin, end in places)


def test_figures_mark_failed_runs_and_separate_groups() -> None:
    of = table(law=["x", "y", "x", "y"])
    drawings = {title: (draw(), words) for title, words, draw in studies._figures(of)}
    panel = drawings["Delay (J1) by group"][0].axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["x", "y"]
    assert panel.get_xlabel() == "magnitude of delay (J1) (ms)"
    assert [text.get_text() for text in panel.texts] == ["1 of 2 unfinished"]
    gain, _ = drawings["Delay (J1): effect of each factor"][0].axes
    assert gain.get_ylabel() == "magnitude of delay (J1) (ms)"
    crosses = [x for line in gain.lines if line.get_marker() == "x" for x in line.get_xdata()]
    assert len(crosses) == 1
    assert crosses[0] == pytest.approx(1.0 + 0.7 / 4)
    (cross,) = (line for line in gain.lines if line.get_marker() == "x")
    assert 3.0 < cross.get_ydata()[0] < gain.get_ylim()[1]
    legend = drawings["Delay (J1): effect of each factor"][0].legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["x", "y"]
    curves = drawings["Distribution of the indices"][0].axes[0].lines
    assert [max(line.get_ydata()) for line in curves] == [1.0, 0.5]
