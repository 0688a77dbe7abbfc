# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths cite``: publications named by components and used by a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from messages import mentions

from rths_nodes.app.commands import cite
from rths_nodes.core import registry

ALWAYS_CITED = ["mercan_2007", "mosqueda_2007", "guo_2014"]


def test_publications_equal_sources_of_components() -> None:
    sources = {
        source
        for family in registry.FAMILIES
        for name in registry.built_in(family)
        if "ros2_control" not in name  # needs ROS
        for source in getattr(registry.load(family, name), "SOURCES", ())
    }
    assert sources | {source for _, source in cite.EVALUATION} == set(cite.publications())


def test_publications_have_required_fields() -> None:
    for key, text in cite.publications().items():
        fields = dict(re.findall(r"^  (\w+) = \{(.+)\},$", text, re.M))
        assert {"author", "title", "year"} <= fields.keys(), key
        assert {"journal", "booktitle", "school", "institution"} & fields.keys(), key
        assert key.endswith(fields["year"]), key
        assert text.count("{") == text.count("}"), key


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rths_benchmark_2020"], ["silva_2020"]),
        (["chen_ricles_2010"], ["chen_ricles_2010", "wen_1980", "chen_ricles_2008"]),
        (["tadc_sine"], ["chen_ricles_2010", "wang_2019", "horiuchi_1996"]),
        (["phillips_spencer_2012", "--case", "d"], ["phillips_spencer_2012", "spencer_1997", "dyke_1996"]),
        (["marths_2023"], ["newmark_1959", "condori_uribe_2023"]),
    ],
)
def test_cite_prints_methods_of_scenario(
    arguments: list[str], expected: list[str], output: Callable[..., str]
) -> None:
    first, *keys = re.findall(r"^@\w+\{(\w+),$", output("cite", *arguments), re.M)
    assert first == "rths_nodes"
    assert sorted(keys) == sorted([*expected, *ALWAYS_CITED])


def test_component_may_contain_its_own_entry(
    output: Callable[..., str], refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["cite", "predefined_sine", "--set", "compensator={type: none}"]
    entry = "@misc{mine_2026,\n  title = {Mine},\n}"
    monkeypatch.setattr(registry.load("compensator", "none"), "SOURCES", (entry,), raising=False)
    assert f"% compensator.type = none\n{entry}\n" in output(*command)
    monkeypatch.setattr(registry.load("compensator", "none"), "SOURCES", ("silva_2021",))
    assert mentions(refusal(*command), "compensator.type", "unknown", "silva_2021", "silva_2020")
