# SPDX-License-Identifier: Apache-2.0
"""The layout of the report: curves first, no column without a number, names in one piece, nothing cut."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from messages import mentions

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.figures import histories
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.report.procedure import grid
from rths_nodes.analysis.report.tables import Row, Table
from rths_nodes.analysis.units import early_or_late
from rths_nodes.recording.run import Run

SECTIONS = ["Figures", "Indices", "Error and floor of the sensor", "Limits", "Timing", "Test", "Set-up"]


@pytest.fixture(autouse=True)
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time."""
    monkeypatch.setattr(figures, "FIGURES", (histories.delay,))


@cache
def run_of(name: str, *overrides: str) -> Run:
    return rths_nodes.run(name, list(overrides))


@cache
def windowed() -> Run:
    """Long enough for windows: the compensator learns, so that they differ."""
    return run_of("chen_ricles_2010", "duration=15")


@cache
def page(name: str, *overrides: str) -> str:
    return render(run_of(name, *overrides))


def words(of: str) -> str:
    """What is read, thin spaces and all."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", of)))


def tables_of(of: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Heads and rows of each table with columns; not that of the parameters, where a dash is "not given"."""
    for classes, table in re.findall(r'<table class="([^"]*)">(.*?)</table>', of, re.DOTALL):
        if "parameters" not in classes and "sign" not in classes:
            rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
            cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
            yield cells[0], [row for row in cells[1:] if len(row) == len(cells[0])]


def test_the_first_figure_stands_before_every_table() -> None:
    found = render(windowed())
    assert re.findall(r"<section[^>]*><h2>(.*?)</h2>", found)[:7] == SECTIONS
    assert found.index("<svg") < found.index("<table")
    assert '<dl class="facts brief">' in found[: found.index("<svg")]
    assert "Servo rate" not in found[: found.index("<svg")]


def test_the_delay_in_the_head_says_which_part_of_the_motion_it_is_about() -> None:
    run = windowed()
    found, delay = Evaluation(run).windowed, run.metrics["axes"]["story_1"]["delay_s"]
    assert found is not None
    low, high = (early_or_late(float(pick(found.delay))) for pick in (np.nanmin, np.nanmax))
    assert low.endswith("early")
    assert high.endswith("late")
    said = render(run)
    assert mentions(said, early_or_late(delay), f"{found.length:.2g}", low, high)
    assert mentions(said, "Delay", low, high)
    assert "on average" not in said


def test_the_delay_of_the_whole_test_counts_by_the_square_of_the_velocity() -> None:
    """Its peak of the correlation is the least squares of the error over the velocity of the target."""
    run = windowed()
    counted = Evaluation(run).counted
    target, measured = run.target[counted, 0], run.displacement[counted, 0]
    velocity = np.gradient(target, run.scenario.dt)
    least_squares = float(velocity @ (target - measured)) / float(velocity @ velocity)
    assert run.metrics["axes"]["story_1"]["delay_s"] == pytest.approx(least_squares, abs=2e-5)


def test_a_test_too_short_for_windows_tells_the_delay_of_the_whole_alone() -> None:
    said = words(page("chen_ricles_2010", "duration=2"))
    assert mentions(said, "fastest", "motion")
    assert not mentions(said, "In windows of")


@pytest.mark.parametrize("name", ["chen_ricles_2010", "two_actuator_coupler", "marths_2023"])
def test_no_column_has_nothing_but_dashes(name: str) -> None:
    checked = 0
    for heads, rows in tables_of(page(name, "duration=2")):
        for place, head in enumerate(heads):
            assert any(row[place] != "–" for row in rows), head
            checked += 1
    assert checked > 20


def test_a_sensor_without_a_floor_has_a_sentence_in_place_of_a_table() -> None:
    said = words(page("chen_ricles_2010", "duration=2"))
    assert mentions(said, "resolution", "stated")
    assert mentions(said, "range", "resolution")
    with_noise = words(page("marths_2023", "duration=2"))
    assert mentions(with_noise, "rms", "floor")
    assert not mentions(with_noise, "floor", "known")


def test_columns_of_dashes_are_left_out_of_grids_and_tables() -> None:
    found = grid(("Axis", "a", "b", "c"), [["x", "–", "1", "–"], ["y", "–", "–", "–"]])
    assert found is not None
    assert (found.heads, found.rows, found.numeric) == (["Axis", "b"], [["x", "1"], ["y", "–"]], [False, True])
    assert grid(("Axis", "a"), [["x", "–"]]) is None
    told = Table("Of", ["a", "b"], [Row("x", ["–", "1"], "mm"), Row("y", ["–", "–"], "mm")]).without_gaps()
    assert (told.heads, [row.values for row in told.rows]) == (["b"], [["1"], ["–"]])


def test_names_of_axes_are_in_one_piece() -> None:
    found = page("three_independent_axes", "duration=2")
    tables = found[found.index("<h2>Figures") : found.index("<h2>Parameters")]
    assert "<wbr>" not in tables
    assert "<th>story_1: stroke</th>" in tables


@pytest.mark.parametrize("name", ["chen_ricles_2010", "two_actuator_coupler"])
def test_each_cell_names_its_column_where_the_screen_is_narrow(name: str) -> None:
    found = page(name, "duration=2")
    for classes, table in re.findall(r'<table class="([^"]*)">(.*?)</table>', found, re.DOTALL):
        heads = re.findall(r"<th[^>]*>(.*?)</th>", table.split("</thead>")[0])
        if "grid" in classes or "timing" in classes:
            for row in re.findall(r"<tr>(.*?)</tr>", table.split("</thead>")[1], re.DOTALL):
                assert re.findall(r'data-of="(.*?)"', row) == heads[1:]
    style = found[: found.index("</style>")]
    assert "min-width:34rem" not in style
    assert "content:attr(data-of)" in style


def test_a_matrix_stands_across_the_table_of_parameters() -> None:
    found = page("marths_2023", "duration=2")
    long = re.findall(r'<tr class="whole"><td colspan="4">(.*?)</td></tr>', found, re.DOTALL)
    assert max(value.count(",") for value in long) > 800  # 29 by 29
    table = found[found.index("<h2>Parameters") :]
    assert max(len(cell) for cell in re.findall(r'<td class="n">(.*?)</td>', table)) <= 60


def test_a_tall_figure_has_a_sheet_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", (histories.compensator, histories.control_error))
    found = render(run_of("marths_2023", "duration=2"))
    assert re.findall(r"<figure[^>]*>", found)[:2] == ['<figure class="tall">', "<figure>"]


def test_a_test_that_tripped_tells_its_verdict_before_the_curves_once() -> None:
    run = windowed()
    information = run.information | {"outcome": "tripped", "reason": "a limit", "pace": "lockstep"}
    found = render(dataclasses.replace(run, information=information))
    assert found.index("TRIPPED") < found.index("<svg") < found.index("<table")
    assert found.count("<dt>Started</dt>") == 1
