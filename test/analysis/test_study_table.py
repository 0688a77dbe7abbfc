# SPDX-License-Identifier: Apache-2.0
"""Tests of the table of a study, and of the pages of studies and scoreboards."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from messages import each_mentions, mentions

from rths_nodes.analysis.figures import studies
from rths_nodes.analysis.figures.drawing import STYLE, Drawing, on_page
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.report import document as pages
from rths_nodes.analysis.study_table import StudyTable, index_title, percentile
from rths_nodes.app.studies import scoreboard
from rths_nodes.app.studies.competition import write_board
from rths_nodes.app.studies.runs import known_indices
from rths_nodes.app.studies.scoreboard import Candidate, Scoreboard
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.schema import Case


def table(**columns: Any) -> StudyTable:
    defaults: dict[str, Any] = {
        "name": ["a", "b", "c", "d<script>"],
        "outcome": ["finished", "finished", "finished", "tripped"],
        "reason": ["", "", "", "limits.force"],
        "gain": [0.1, 0.1, 0.2, 0.2],
        "law": ["x", "y", "x", "y"],
        "drawn": [1.0, 2.0, 3.0, 4.0],
        "J1": [-3.0, 1.0, 2.0, 99.0],
    }
    return StudyTable("mine", "what it is", "scenario", defaults | columns, ("gain", "law"), ("J1",), ("drawn",))


def test_groups_are_formed_by_named_levels() -> None:
    assert {group: rows.tolist() for group, rows in table().groups.items()} == {"x": [0, 2], "y": [1, 3]}
    assert list(table(gain=["low", "low", "high", "high"]).groups) == ["low, x", "low, y", "high, x", "high, y"]
    assert list(table(law=[1.0, 2.0, 1.0, 2.0]).groups) == [""]


def test_unfinished_run_counts_as_worst() -> None:
    """With seven trips in fifty runs the median is finite, and the 95th percentile is a trip."""
    values = [float(value) for value in range(1, 51)]
    outcomes = ["tripped"] * 7 + ["finished"] * 43
    columns = {"name": [*map(str, values)], "outcome": outcomes, "reason": [""] * 50, "J2": values}
    (spread,) = StudyTable("mine", "", "scenario", columns, (), ("J2",)).spreads("J2")
    assert (spread.runs, spread.failed, spread.finished) == (50, 7, "43 of 50")
    assert spread.median == 32.5  # 29 without the trips
    assert spread.low == 10.0
    assert spread.high == spread.worst == math.inf


def test_finished_run_without_index_counts_as_worst() -> None:
    """The delay of run 0 exceeds the longest one; no run of the second law has an index ``alpha_range``."""
    x, *_ = table(J1=[math.nan, 1.0, 2.0, 99.0]).spreads("J1")
    assert (x.runs, x.failed, x.low, x.worst) == (2, 0, 2.0, math.inf)
    assert table(J1=[2.0, 1.0, math.nan, 99.0]).worst("J1", 1, "x") == [2]
    none = table(outcome=["finished"] * 4, alpha_range=[1.0, math.nan, 2.0, math.nan]).spreads("alpha_range")[1]
    assert math.isnan(none.worst)


def test_run_without_test_is_excluded_from_percentiles() -> None:
    x, y = table(outcome=["finished", "refused", "finished", "lost"]).spreads("J1")
    assert (x.runs, x.failed, x.median, x.worst) == (2, 0, 2.5, 3.0)
    assert (y.runs, y.failed) == (0, 0)
    assert math.isnan(y.median)


def test_levels_are_evaluated_within_groups() -> None:
    first, second = table(law=["x"] * 4).spreads("J1", "gain")
    assert (first.group, first.level, first.rows.tolist()) == ("x", "0.1", [0, 1])
    assert (second.group, second.level, second.rows.tolist()) == ("x", "0.2", [2, 3])
    assert (first.runs, first.median, first.worst) == (2, 2.0, 3.0)
    assert (second.runs, second.failed, second.median) == (2, 1, math.inf)


def test_percentiles_are_values_of_runs() -> None:
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
def test_index_title_has_unit(index: str, title: str) -> None:
    assert index_title(index) == title


@pytest.mark.parametrize("name", ["chen_ricles_2010", "rths_benchmark_2020", "three_independent_axes"])
def test_every_index_has_definition(name: str) -> None:
    indices = known_indices(checked_loop(load(name)).assembly)
    assert [index for index in indices if not definition(index).meaning] == []
    assert definition("tracking_rms_percent_true").title.split(", ")[1:] == ["rms", "true displacement"]
    assert magnitude_title("J1_story_1") == "magnitude of delay (J1), story 1 (ms)"
    assert magnitude_title("fei_amplitude").endswith("(FEI) minus 1")


def test_worst_runs_start_with_unfinished() -> None:
    assert table().worst("J1", 3) == [3, 0, 2]
    assert table().worst("J1", 3, "x") == [0, 2]
    ratios = table(fei_amplitude=[1.05, 0.5, 1.0, 1.0])
    assert ratios.worst("fei_amplitude", 3) == [3, 1, 0]
    assert ratios.magnitudes("fei_amplitude").tolist() == pytest.approx([0.05, 0.5, 0.0, math.inf])


def test_list_factors_are_not_shown() -> None:
    assert table().shown_factors == ("gain", "drawn")
    assert table(drawn=["[1, 2]"] * 4).shown_factors == ("gain",)


@pytest.mark.filterwarnings("error")
def test_study_page_has_factors_worst_runs_and_reasons(tmp_path: Path) -> None:
    pages.write_study(table(), tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    titles = ("Delay (J1) by group", "Delay (J1): effect of each factor")
    for text in ("mine", "3 of 4 finished", "what it is", "limits.force", *titles, "gain", "∞"):
        assert text in page
    assert "<script" not in page
    assert page.count("<svg") == 3


@pytest.mark.filterwarnings("error")
def test_study_page_without_finished_run_is_written(tmp_path: Path) -> None:
    pages.write_study(table(outcome=["tripped"] * 4), tmp_path / "study.html")
    assert mentions((tmp_path / "study.html").read_text(), "run", "finished")


def test_dots_of_many_runs_are_an_image() -> None:
    n = 5000
    many = {"name": [str(run) for run in range(n)], "outcome": ["finished"] * n, "reason": [""] * n}
    many |= {"gain": [0.1] * n, "law": ["x", "y"] * (n // 2), "drawn": [1.0] * n, "J1": [*map(float, range(n))]}
    drawn = on_page(studies.drawings(table(**many)))
    assert max(len(figure.svg) for figure in drawn) < 100_000
    assert "data:image/png;base64," in drawn[0].svg


def test_figures_mark_failed_runs_and_separate_groups() -> None:
    study = table(law=["x", "y", "x", "y"])
    drawings = {figure.title: figure for figure in studies.drawings(study)}
    panel: Any = drawings["Delay (J1) by group"].axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["x", "y"]
    assert panel.get_xlabel() == "magnitude of delay (J1) (ms)"
    assert [text.get_text() for text in panel.texts] == ["1 of 2 without value"]
    gain: Any = drawings["Delay (J1): effect of each factor"].axes[0]
    assert gain.get_ylabel().replace("\n", " ") == "magnitude of delay (J1) (ms)"
    crosses = [x for line in gain.lines if line.get_marker() == "x" for x in line.get_xdata()]
    assert len(crosses) == 1
    assert crosses[0] == pytest.approx(1.0 + 0.7 / 4)
    (cross,) = (line for line in gain.lines if line.get_marker() == "x")
    assert 3.0 < cross.get_ydata()[0] < gain.get_ylim()[1]
    legend = drawings["Delay (J1): effect of each factor"].legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["x", "y"]
    curves: Any = drawings["Distribution of the indices"].axes[0].lines
    assert [max(line.get_ydata()) for line in curves] == [1.0, 0.5]


LAWS = ["best", "good", "bad", "silent"]


def board_table(**columns: Any) -> StudyTable:
    defaults: dict[str, Any] = {
        "name": list("abcdefgh"),
        "outcome": ["finished"] * 4 + ["tripped"] * 2 + ["finished"] * 2,
        "reason": [""] * 4 + ["axes.x.limits.stroke: command = 0.02 m"] * 2 + [""] * 2,
        "law": [law for law in LAWS for _ in range(2)],
        "J1": [0.0, 0.0, 0.4, 0.9, math.nan, math.nan, math.nan, math.nan],
        "J2": [0.1, 0.2, 0.3, 0.4, 1.0, 1.0, 0.5, 0.6],
    }
    return StudyTable("board", "words", "scenario", defaults | columns, ("law",), ("J2", "J1"))


def panel(study: StudyTable, index: str) -> Any:
    sizes = {law: study.magnitudes(index)[rows] for law, rows in study.groups.items()}
    with matplotlib.rc_context(STYLE):
        panel = Drawing().panels(1)[0, 0]
        studies.by_label(panel, sizes, index)
    return panel


def dots(panel: Any, row: int) -> list[float]:
    points = [point for line in panel.lines if line.get_marker() == "o" for point in line.get_xydata()]
    return [float(x) for x, y in points if y == row]


def test_zero_has_leftmost_dot_and_tick() -> None:
    drawn = panel(board_table(), "J1")
    drawn.figure.canvas.draw()
    zero, positive = dots(drawn, 0), dots(drawn, 1)
    low, high = drawn.get_xlim()
    assert len(zero) == 2
    assert low < zero[0] == zero[1] < min(positive) <= max(positive) < high
    shown = dict(zip(drawn.get_xticks(), [label.get_text() for label in drawn.get_xticklabels()], strict=True))
    assert shown[zero[0]] == "0"


def test_caption_explains_zeros_and_missing_dots() -> None:
    captions = {
        figure.title: (figure.caption, figure.svg)
        for figure in on_page(studies.scoreboard_drawings(board_table(), LAWS, "J2", "J2"))
    }
    caption, drawing = captions["Delay (J1) by compensator"]
    assert "without dots" not in caption
    assert mentions(caption, "zero", "left end")
    assert html.unescape(drawing).count(studies.NONE_FINISHED) == 1  # bad
    assert drawing.count(studies.NO_VALUE) == 1  # silent
    caption, drawing = captions["Error norm (J2) by compensator"]
    assert caption.endswith("Logarithmic axis.")
    assert studies.NO_VALUE not in drawing


def test_only_zeros_or_only_nan_are_drawn() -> None:
    zeros = panel(board_table(J1=[0.0] * 8), "J1")
    assert dots(zeros, 0)[0] == dots(zeros, 3)[0]
    empty = panel(board_table(J1=[math.nan] * 8), "J1")
    assert dots(empty, 0) == []
    assert np.all(np.isfinite(empty.get_xlim()))
    empty.figure.canvas.draw()


@pytest.mark.parametrize(
    ("least", "most"),
    [(2.56, 16.1), (0.1, 0.9), (5.0, 5.5), (1e-6, 1e3), (0.145, 16.0), (1.3, 2.9), (100.0, 101.0)],
)
def test_axis_has_at_least_three_ticks(least: float, most: float) -> None:
    ticks = studies.ticks(least, most)
    assert 3 <= len(ticks) <= 12
    assert all(least / 1.06 <= value <= most * 1.06 for value in ticks)


def scoreboard_page(tmp_path: Path) -> str:
    study = board_table()
    chosen = [*(Candidate(law, {}) for law in LAWS), Candidate("late", {}, "needs gains")]
    rows = scoreboard.scores(study, chosen, "J2")
    cases = {"pi": Case(note="as published", published={"J1": 4.6})}
    board = Scoreboard(study, rows, cases, ("J2", "J1"), "", None, {}, {"Scenario": "scenario"})
    write_board(board, {}, tmp_path / "page.html")
    return (tmp_path / "page.html").read_text()


def test_ranking_column_comes_first(tmp_path: Path) -> None:
    content = scoreboard_page(tmp_path)
    scores = content[content.index("<h2>Scores") :]
    heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", scores[: scores.index("</thead>")])
    assert heads == ["Compensator", "Place", "J2 (%)", "J1 (ms)", "Outcome"]
    assert mentions(content, "share", "J2")
    row = re.search(r'<tr><th>best</th><td data-of="Place">1</td>(.*?)</tr>', content, re.DOTALL)
    assert row
    assert re.findall(r"<td.*?>(.*?)</td>", row[1]) == ['0.200<div class="why">0.150</div>', "0", "stable"]


def test_long_reasons_span_table_without_empty_columns(tmp_path: Path) -> None:
    content = scoreboard_page(tmp_path)
    across = re.findall(r'<tr class="whole"><td colspan="5">(.*?)</td></tr>', content)
    assert each_mentions(
        across[:2], ("bad", "2", "tripped", "axes.x.limits.stroke", "command", "0.02 m"), ("late", "gains")
    )
    published = content[content.index("<h2>Published") :]
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", published[: published.index("</thead>")]) == [
        "Case",
        "J1 (ms)",
    ]


def test_legend_of_last_figure_has_every_law() -> None:
    names = [f"law_{number}" for number in range(30)]
    rows = {"law": names, "name": names, "outcome": ["finished"] * 30, "reason": [""] * 30}
    many = StudyTable("b", "", "s", rows | {"J1": list(range(1, 31)), "J2": list(range(1, 31))}, ("law",), ("J1",))
    with matplotlib.rc_context(STYLE):
        *_, figure = studies.scoreboard_drawings(many, names, "J1", "J2")
        figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.y0 <= legend.y0
    assert legend.y1 <= figure.bbox.y1
