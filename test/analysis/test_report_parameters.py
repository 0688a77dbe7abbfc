# SPDX-License-Identifier: Apache-2.0
"""The report as it is filed: all parameters with units, the name of the run on every sheet, no empty tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from messages import mentions

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.report import document
from rths_nodes.analysis.report.document import css_text, render
from rths_nodes.analysis.units import exact
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time."""
    monkeypatch.setattr(figures, "FIGURES", ())


def short(name: str, *overrides: str) -> Run:
    run: Run = rths_nodes.run(name, ["duration=0.1", *overrides])
    return run


def printed(html: str) -> str:
    """The page without what is folded, and what the print style leaves out."""
    return re.sub(r"<details>.*?</details>|<wbr>| data-of=\"[^\"]*\"", "", html, flags=re.DOTALL)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and shown values of plain data; the type of a section stands at its own name below the top."""
    for key, value in data.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            if "type" in value and path:
                yield name, str(value["type"])
            yield from leaves({k: v for k, v in value.items() if k != "type" or not path}, name)
        else:
            yield name, exact(value)


@pytest.mark.parametrize("name", files.shipped())
def test_every_value_of_a_scenario_stands_in_a_table(name: str) -> None:
    scenario: Scenario = files.load(name)
    data = scenario.data()
    sections = document.sections(scenario)
    shown = {(row.title, value) for each in sections for row in each.table.rows for value in row.values}
    shown |= {("type", each.type) for each in sections}
    axes = data.pop("axes")
    for key in document.LEFT_OUT:
        data.pop(key)
    wanted = {(path.partition(".")[2] or path, value) for path, value in leaves(data)}
    wanted |= {entry for axis in axes.values() for entry in leaves({"axis": axis}, "") if entry[0] != "axis"}
    wanted = {(title.removeprefix("axis."), value) for title, value in wanted}
    unset = {entry for entry in wanted if entry[1] == exact(None)}  # a section that is not there has no table
    assert wanted - shown <= unset


def test_compensator_structure_and_axes_are_printed_with_units_and_meaning() -> None:
    page = printed(render(short("chen_ricles_2010")))
    for title in ("Compensator", "Structure", "Axis story_1"):
        assert f'<tr class="head"><th>{title}</th>' in page
    for name, value, unit, meaning in (
        ("alpha_es", "15", "samples", "estimated delay constant"),
        ("mass", "503400", "kg", "mass m of the numerical part, without the specimen"),
        (
            "limits.velocity",
            "0.76",
            "m/s",
            "largest permitted change of the command per servo period, as a velocity",
        ),
    ):
        row = re.search(rf"<tr><th>{re.escape(name)}</th>(.*?)</tr>", page)
        assert row, name
        assert re.findall(r"<td[^>]*>(.*?)</td>", row[1]) == [value, unit, meaning]


def test_axes_stand_side_by_side() -> None:
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
def test_a_parameter_is_shown_to_its_last_digit(value: Any, shown: str) -> None:
    assert exact(value) == shown


def test_the_name_of_the_run_and_its_date_stand_on_every_sheet() -> None:
    information = {"run_id": 'r"1', "started": "2030-01-02T03:04:05+00:00"}
    information["outcome"] = "finished"
    run = dataclasses.replace(short("chen_ricles_2010"), information=information)
    page = render(run)
    style = page[page.index("<style>") : page.index("</style>")]
    assert '@top-left{content:"SIMULATED: chen_ricles_2010: finished"}' in style
    assert '@top-right{content:"2030-01-02 03:04:05 UTC"}' in style
    assert '@bottom-left{content:"r\\22 1"}' in style
    assert "counter(page)" in style
    assert "<title>chen_ricles_2010: finished, 2030-01-02 03:04:05 UTC</title>" in page


def test_no_name_leaves_its_string_in_the_style_sheet() -> None:
    assert css_text('"}</style><script>\\') == '"\\22 \\7d \\3c \\2f style\\3e \\3c script\\3e \\5c "'
    assert re.fullmatch(r'"[^"<>{}]*"', css_text("".join(map(chr, range(400)))))


@pytest.mark.parametrize("samples", [0, 1])
def test_a_test_that_never_began_has_no_table_of_dashes(samples: int) -> None:
    run = short("chen_ricles_2010")
    nothing = {name: values[:samples] for name, values in run.arrays().items()}
    information = {"outcome": "failed", "reason": "no peers"}
    never = dataclasses.replace(run, **nothing, metrics={}, information=information)
    page = render(never)
    assert mentions(page, "indices", "sample")
    assert '<table class="indices">' not in page
    assert "no peers" in page
    assert '<table class="indices">' in render(run)
