# SPDX-License-Identifier: Apache-2.0
"""Tests of the layout of the report, its tables of parameters and its number formats."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from messages import mentions

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.figures import histories
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report import tables
from rths_nodes.analysis.report.document import css_text, render
from rths_nodes.analysis.report.procedure import grid
from rths_nodes.analysis.report.tables import Row, Table
from rths_nodes.analysis.units import DASH, MM, early_or_late, exact, interval, rounded, uncertain
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run

SECTIONS = ["Figures", "Indices", "Error and floor of the sensor", "Limits", "Timing", "Test", "Set-up"]


@pytest.fixture(autouse=True)
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing figures takes most of the time."""
    monkeypatch.setattr(figures, "FIGURES", (histories.delay,))


@cache
def run_of(name: str, *overrides: str) -> Run:
    return rths_nodes.run(name, list(overrides))


@cache
def windowed() -> Run:
    """Long enough for windows of different delays, as the compensator learns."""
    return run_of("chen_ricles_2010", "duration=15")


@cache
def page(name: str, *overrides: str) -> str:
    return render(run_of(name, *overrides))


def text_of(page: str) -> str:
    """The text of a page."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


def tables_of(page: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Heads and rows of each table with columns, except the parameters, where a dash means unset."""
    for classes, table in re.findall(r'<table class="([^"]*)">(.*?)</table>', page, re.DOTALL):
        if "parameters" not in classes and "sign" not in classes:
            rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
            cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
            yield cells[0], [row for row in cells[1:] if len(row) == len(cells[0])]


def test_first_figure_precedes_tables() -> None:
    content = render(windowed())
    assert re.findall(r"<section[^>]*><h2>(.*?)</h2>", content)[:7] == SECTIONS
    assert content.index("<svg") < content.index("<table")
    assert '<dl class="facts brief">' in content[: content.index("<svg")]
    assert "Servo rate" not in content[: content.index("<svg")]


def test_delay_in_head_states_range_over_windows() -> None:
    run = windowed()
    windows, delay = Evaluation(run).windowed, run.metrics["axes"]["story_1"]["delay_s"]
    assert windows is not None
    low, high = (early_or_late(float(pick(windows.delay))) for pick in (np.nanmin, np.nanmax))
    assert low.endswith("early")
    assert high.endswith("late")
    content = render(run)
    assert mentions(content, early_or_late(delay), f"{windows.length:.2g}", low, high)
    assert mentions(content, "Delay", low, high)
    assert "on average" not in content


def test_delay_index_is_weighted_by_squared_velocity() -> None:
    """The peak of the correlation is the least-squares fit of the error to the velocity of the target."""
    run = windowed()
    counted = Evaluation(run).counted
    target, measured = run.target[counted, 0], run.displacement[counted, 0]
    velocity = np.gradient(target, run.scenario.dt)
    least_squares = float(velocity @ (target - measured)) / float(velocity @ velocity)
    assert run.metrics["axes"]["story_1"]["delay_s"] == pytest.approx(least_squares, abs=2e-5)


def test_short_test_reports_only_overall_delay() -> None:
    content = text_of(page("chen_ricles_2010", "duration=2"))
    assert mentions(content, "fastest", "motion")
    assert not mentions(content, "In windows of")


@pytest.mark.parametrize("name", ["chen_ricles_2010", "two_actuator_coupler", "marths_2023"])
def test_no_column_has_only_dashes(name: str) -> None:
    checked = 0
    for heads, rows in tables_of(page(name, "duration=2")):
        for column, head in enumerate(heads):
            assert any(row[column] != "–" for row in rows), head
            checked += 1
    assert checked > 20


def test_sensor_without_floor_has_sentence_instead_of_table() -> None:
    content = text_of(page("chen_ricles_2010", "duration=2"))
    assert mentions(content, "resolution", "stated")
    assert mentions(content, "range", "resolution")
    with_noise = text_of(page("marths_2023", "duration=2"))
    assert mentions(with_noise, "rms", "floor")
    assert not mentions(with_noise, "floor", "known")


def test_columns_of_dashes_are_removed() -> None:
    table = grid(("Axis", "a", "b", "c"), [["x", "–", "1", "–"], ["y", "–", "–", "–"]])
    rows = [["x", "1"], ["y", "–"]]
    assert table == {"heads": ["Axis", "b"], "rows": rows, "numeric": [False, True]}
    assert grid(("Axis", "a"), [["x", "–"]]) is None
    indices = Table("Of", ["a", "b"], [Row("x", ["–", "1"], "mm"), Row("y", ["–", "–"], "mm")]).without_gaps()
    assert (indices.heads, [row.values for row in indices.rows]) == (["b"], [["1"], ["–"]])


def test_axis_names_have_no_line_breaks() -> None:
    content = page("three_independent_axes", "duration=2")
    tables = content[content.index("<h2>Figures") : content.index("<h2>Parameters")]
    assert "<wbr>" not in tables
    assert "<th>story_1: stroke</th>" in tables


@pytest.mark.parametrize("name", ["chen_ricles_2010", "two_actuator_coupler"])
def test_cells_name_their_column_on_narrow_screens(name: str) -> None:
    content = page(name, "duration=2")
    for classes, table in re.findall(r'<table class="([^"]*)">(.*?)</table>', content, re.DOTALL):
        heads = re.findall(r"<th[^>]*>(.*?)</th>", table.split("</thead>")[0])
        if "grid" in classes or "timing" in classes:
            for row in re.findall(r"<tr>(.*?)</tr>", table.split("</thead>")[1], re.DOTALL):
                assert re.findall(r'data-of="(.*?)"', row) == heads[1:]
    style = content[: content.index("</style>")]
    assert "min-width:34rem" not in style
    assert "content:attr(data-of)" in style


def test_matrix_spans_table_of_parameters() -> None:
    content = page("marths_2023", "duration=2")
    spanning = re.findall(r'<tr class="whole"><td colspan="4">(.*?)</td></tr>', content, re.DOTALL)
    assert max(value.count(",") for value in spanning) > 800  # 29 by 29
    table = content[content.index("<h2>Parameters") :]
    assert max(len(cell) for cell in re.findall(r'<td class="n">(.*?)</td>', table)) <= 60


def test_tall_figure_has_separate_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", (histories.compensator, histories.control_error))
    content = render(run_of("marths_2023", "duration=2"))
    assert re.findall(r"<figure[^>]*>", content)[:2] == ['<figure class="tall">', "<figure>"]


def test_tripped_test_shows_verdict_once_before_figures() -> None:
    run = windowed()
    information = run.information | {"outcome": "tripped", "reason": "a limit", "pace": "lockstep"}
    content = render(dataclasses.replace(run, information=information))
    assert content.index("TRIPPED") < content.index("<svg") < content.index("<table")
    assert content.count("<dt>Started</dt>") == 1


def short(name: str, *overrides: str) -> Run:
    run: Run = rths_nodes.run(name, ["duration=0.1", *overrides])
    return run


def printed(html: str) -> str:
    """The page without folded and unprinted parts."""
    return re.sub(r"<details>.*?</details>|<wbr>| data-of=\"[^\"]*\"", "", html, flags=re.DOTALL)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and shown values of plain data; the type of a section is listed under the section's name."""
    for key, value in data.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            if "type" in value and path:
                yield name, str(value["type"])
            yield from leaves({k: v for k, v in value.items() if k != "type" or not path}, name)
        else:
            yield name, exact(value)


@pytest.mark.parametrize("name", files.shipped())
def test_every_scenario_value_is_in_a_table(name: str) -> None:
    scenario: Scenario = files.load(name)
    data = scenario.data()
    sections = tables.parameters(scenario)
    shown = {(row.title, value) for section in sections for row in section.table.rows for value in row.values}
    shown |= {("type", section.type) for section in sections}
    axes = data.pop("axes")
    for key in tables.LEFT_OUT:
        data.pop(key)
    expected = {(path.partition(".")[2] or path, value) for path, value in leaves(data)}
    expected |= {entry for axis in axes.values() for entry in leaves({"axis": axis}, "") if entry[0] != "axis"}
    expected = {(title.removeprefix("axis."), value) for title, value in expected}
    unset = {entry for entry in expected if entry[1] == exact(None)}  # a missing section has no table
    assert expected - shown <= unset


LARGEST_CHANGE = "largest permitted change of the command per servo period, as a velocity"


def test_parameters_have_value_unit_and_meaning() -> None:
    page = printed(render(short("chen_ricles_2010")))
    for title in ("Compensator", "Structure", "Axis story_1"):
        assert f'<tr class="head"><th>{title}</th>' in page
    for name, value, unit, meaning in (
        ("alpha_es", "15", "samples", "estimated delay constant alpha"),
        ("mass", "503400", "kg", "mass m of the numerical part, without the specimen"),
        ("limits.velocity", "0.76", "m/s", LARGEST_CHANGE),
    ):
        row = re.search(rf"<tr><th>{re.escape(name)}</th>(.*?)</tr>", page)
        assert row, name
        assert re.findall(r"<td[^>]*>(.*?)</td>", row[1]) == [value, unit, meaning]


def test_axes_are_columns_of_one_table() -> None:
    page = printed(render(short("three_independent_axes")))
    heads = re.search(r'<table class="parameters several"><thead>(.*?)</thead>', page, re.DOTALL)
    assert heads
    assert re.findall(r'<th class="n">(.*?)</th>', heads[1]) == ["story_1", "story_2", "story_3"]
    row = re.search(r"<tr><th>actuator.natural_frequency<div.*?</th>(.*?)</tr>", page)
    assert row
    axes = files.load("three_independent_axes").axes.values()
    shown = re.findall(r'<td class="n">(.*?)</td>', row[1])
    assert shown == [exact(axis.actuator.natural_frequency) for axis in axes]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1 + 0.2, "0.30000000000000004"),
        (-1.5e-7, "−1.5e−7"),
        (1024.0, "1024"),
        (2.5e10, "2.5e10"),
        ("", "–"),
        (None, "–"),
        ([], "–"),
        (True, "true"),
        ([1.0, 2.5], "1, 2.5"),
        ([[1.0, 0.0], [0.0, 1.0]], "1, 0\n0, 1"),
        ("a-b", "a-b"),
    ],
)
def test_parameters_are_shown_exactly(value: Any, shown: str) -> None:
    assert exact(value) == shown


def test_every_sheet_has_name_and_date_of_run() -> None:
    information = {"run_id": 'r"1', "started": "2030-01-02T03:04:05+00:00"}
    information["outcome"] = "finished"
    page = render(dataclasses.replace(short("chen_ricles_2010"), information=information))
    style = page[page.index("<style>") : page.index("</style>")]
    assert '@top-left{content:"SIMULATED: chen_ricles_2010: finished"}' in style
    assert '@top-right{content:"started 2030-01-02 03:04:05 UTC"}' in style
    assert '@bottom-left{content:"r\\22 1"}' in style
    assert "counter(page)" in style
    assert "<title>chen_ricles_2010: finished, started 2030-01-02 03:04:05 UTC</title>" in page


def test_css_strings_are_escaped() -> None:
    assert css_text('"}</style><script>\\') == '"\\22 \\7d \\3c \\2f style\\3e \\3c script\\3e \\5c "'
    assert re.fullmatch(r'"[^"<>{}]*"', css_text("".join(map(chr, range(400)))))


@pytest.mark.parametrize("samples", [0, 1])
def test_without_samples_has_no_table_of_indices(samples: int) -> None:
    run = short("chen_ricles_2010")
    samples_of = {name: values[:samples] for name, values in run.arrays().items()}
    information = {"outcome": "failed", "reason": "no peers"}
    page = render(dataclasses.replace(run, **samples_of, metrics={}, information=information))
    assert mentions(page, "indices", "sample")
    assert '<table class="indices">' not in page
    assert "no peers" in page
    assert '<table class="indices">' in render(run)


@pytest.mark.parametrize(
    ("value", "deviation", "text"),
    [
        (1.0234, 0.0051, "1.023 +- 0.005"),
        (-2.5e-6, 3e-8, "-2.50e-06 +- 3e-08"),
        (12.3, 2.0, "12 +- 2"),
        (0.004, 0.02, "0.004 +- 0.02"),
        (1.5, 0.0, "1.5"),
    ],
)
def test_uncertain_value_is_rounded_to_deviation(value: float, deviation: float, text: str) -> None:
    assert uncertain(value, deviation) == text


def test_value_too_large_for_its_unit_has_dash() -> None:
    assert [rounded(value, MM) for value in (1e307, -1e308, 0.0)] == [DASH, DASH, "0"]


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (11.923, 12.0412, "11.92 to 12.04"),
        (3.0, 51.2, "3 to 51"),
        (0.0, 1e-7, "0.000 to 0.000"),
        (2.0, 2.0, "2.000 to 2.000"),
    ],
)
def test_interval_has_two_digits_of_its_width(least: float, most: float, text: str) -> None:
    assert interval(least, most) == text
