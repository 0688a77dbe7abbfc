# SPDX-License-Identifier: Apache-2.0
"""The page of a scoreboard: zeros and runs without a value in its figures, numbers on its axes, its columns."""

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

from rths_nodes.analysis.figures import studies as figures
from rths_nodes.analysis.figures.style import STYLE
from rths_nodes.analysis.report import studies as page
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.app.studies import scoreboard
from rths_nodes.app.studies.candidates import Candidate

LAWS = ["best", "good", "bad", "silent"]


def table(**columns: Any) -> StudyTable:
    given: dict[str, Any] = {
        "name": list("abcdefgh"),
        "outcome": ["finished"] * 4 + ["tripped"] * 2 + ["finished"] * 2,
        "reason": [""] * 4 + ["axes.x.limits.stroke: command = 0.02 m"] * 2 + [""] * 2,
        "law": [law for law in LAWS for _ in range(2)],
        "J1": [0.0, 0.0, 0.4, 0.9, math.nan, math.nan, math.nan, math.nan],
        "J2": [0.1, 0.2, 0.3, 0.4, 1.0, 1.0, 0.5, 0.6],
    }
    return StudyTable("board", "words", "scenario", given | columns, ("law",), ("J2", "J1"))


def panel(of: StudyTable, index: str) -> Any:
    sizes = {law: figures._magnitudes(of, law, index) for law in LAWS}
    axis = figures.Magnitudes(size[np.isfinite(size)] for size in sizes.values())
    with matplotlib.rc_context(STYLE):
        return figures.by_label(sizes, index, axis).axes[0]


def dots(of: Any, row: int) -> list[float]:
    points = [point for patch in of.patches for point in patch.get_path().vertices[::2]]
    return [float(x) for x, y in points if y == row]


def test_a_zero_has_a_dot_left_of_all_others_and_its_number() -> None:
    drawn = panel(table(), "J1")
    drawn.figure.canvas.draw()
    zero, positive = dots(drawn, 0), dots(drawn, 1)
    low, high = drawn.get_xlim()
    assert len(zero) == 2
    assert low < zero[0] == zero[1] < min(positive) <= max(positive) < high
    shown = dict(zip(drawn.get_xticks(), [label.get_text() for label in drawn.get_xticklabels()], strict=True))
    assert shown[zero[0]] == "0"


def test_the_caption_says_of_no_law_that_it_finished_no_run() -> None:
    found = {
        title: (words, drawing)
        for title, words, drawing in figures.drawn(figures.scoreboard_drawings(table(), LAWS, "J2", "J2"))
    }
    words, drawing = found["Delay (J1) by compensator"]
    assert "without dots" not in words
    assert mentions(words, "zero", "left end")
    assert html.unescape(drawing).count(figures.NONE_FINISHED) == 1  # bad
    assert drawing.count(figures.NO_VALUE) == 1  # silent
    words, drawing = found["Error norm (J2) by compensator"]
    assert words.endswith("Logarithmic axis.")
    assert figures.NO_VALUE not in drawing


def test_nothing_but_zeros_and_nothing_but_nan_are_drawn() -> None:
    zeros = panel(table(J1=[0.0] * 8), "J1")
    assert dots(zeros, 0)[0] == dots(zeros, 3)[0]
    nothing = panel(table(J1=[math.nan] * 8), "J1")
    assert dots(nothing, 0) == []
    assert np.all(np.isfinite(nothing.get_xlim()))
    nothing.figure.canvas.draw()


@pytest.mark.parametrize(
    ("least", "most"),
    [(2.56, 16.1), (0.1, 0.9), (5.0, 5.5), (1e-6, 1e3), (0.145, 16.0), (1.3, 2.9), (100.0, 101.0)],
)
def test_an_axis_has_numbers_at_three_places(least: float, most: float) -> None:
    found = figures._ticks(least, most)
    assert 3 <= len(found) <= 12
    assert all(least / 1.06 <= value <= most * 1.06 for value in found)


def written(tmp_path: Path) -> str:
    of = table()
    chosen = [*(Candidate(law, {}) for law in LAWS), Candidate("late", {}, "needs gains")]
    rows = scoreboard.scores(of, chosen, "J2")
    board = page.Scoreboard(of, rows, [page.Published("pi", "as published", {"J1": 4.6})], ("J2", "J1"))
    page.write(tmp_path / "page.html", board, {}, {"Scenario": "scenario"})
    return (tmp_path / "page.html").read_text()


def test_the_column_by_which_they_rank_stands_first(tmp_path: Path) -> None:
    found = written(tmp_path)
    table_of = found[found.index("<h2>Scores") :]
    heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", table_of[: table_of.index("</thead>")])
    assert heads == ["Compensator", "Place", "J2 (%)", "J1 (ms)", "Outcome"]
    assert mentions(found, "share", "J2")
    row = re.search(r'<tr><th>best</th><td data-of="Place">1</td>(.*?)</tr>', found, re.DOTALL)
    assert row
    assert re.findall(r"<td.*?>(.*?)</td>", row[1]) == ['0.200<div class="why">0.150</div>', "0", "stable"]


def test_long_reasons_stand_across_and_no_column_has_nothing_but_dashes(tmp_path: Path) -> None:
    found = written(tmp_path)
    across = re.findall(r'<tr class="whole"><td colspan="5">(.*?)</td></tr>', found)
    assert each_mentions(
        across[:2], ("bad", "2", "tripped", "axes.x.limits.stroke", "command", "0.02 m"), ("late", "gains")
    )
    published = found[found.index("<h2>Published") :]
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", published[: published.index("</thead>")]) == [
        "Case",
        "J1 (ms)",
    ]


def test_every_law_stands_in_the_legend_of_the_last_figure() -> None:
    names = [f"law_{number}" for number in range(30)]
    rows = {"law": names, "name": names, "outcome": ["finished"] * 30, "reason": [""] * 30}
    many = StudyTable("b", "", "s", rows | {"J1": list(range(1, 31)), "J2": list(range(1, 31))}, ("law",), ("J1",))
    with matplotlib.rc_context(STYLE):
        figure = figures._tracking(many, names, "J1", "J2")
        figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.y0 <= legend.y0
    assert legend.y1 <= figure.bbox.y1
