# SPDX-License-Identifier: Apache-2.0
"""`rths cite`: every source that a component names is there and used, and what a scenario uses is printed once."""

from __future__ import annotations

import re

import pytest
from messages import mentions

from rths_nodes.app import cli
from rths_nodes.app.commands import cite
from rths_nodes.core import registry

EVERY_TEST = ["mercan_2007", "mosqueda_2007", "guo_2014"]


def entries(text: str) -> list[str]:
    return re.findall(r"^@\w+\{(\w+),$", text, re.M)


def test_every_source_is_known_and_every_publication_is_a_source() -> None:
    named = {
        source
        for family in registry.FAMILIES
        for name in registry.built_in(family)
        if "ros2_control" not in name  # needs ROS
        for source in getattr(registry.load(family, name), "SOURCES", ())
    }
    evaluation = {source for _, source in cite.EVALUATION}
    assert named | evaluation == set(cite.publications())


def test_every_publication_has_what_a_list_of_references_needs() -> None:
    for key, text in cite.publications().items():
        fields = dict(re.findall(r"^  (\w+) = \{(.+)\},$", text, re.M))
        assert {"author", "title", "year"} <= fields.keys(), key
        assert {"journal", "booktitle", "school", "institution"} & fields.keys(), key
        assert key.endswith(fields["year"]), key
        assert text.count("{") == text.count("}"), key


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rths_benchmark_2020"], ["silva_2020"]),
        (["chen_ricles_2010"], ["chen_ricles_2010", "wen_1980", "chen_ricles_2008"]),
        (["tadc_sine"], ["chen_ricles_2010", "wang_2019", "horiuchi_1996"]),
        (["phillips_spencer_2012", "--case", "d"], ["phillips_spencer_2012", "spencer_1997", "dyke_1996"]),
        (["marths_2023"], ["newmark_1959", "condori_uribe_2023"]),
    ],
)
def test_the_methods_of_a_scenario(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cite", *words]) == 0
    found = entries(capsys.readouterr().out)
    assert found[0] == "rths_nodes"
    assert sorted(found[1:]) == sorted([*expected, *EVERY_TEST])


def test_a_component_may_bring_an_entry_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["cite", "predefined_sine", "--set", "compensator={type: none}"]
    own = "@misc{mine_2026,\n  title = {Mine},\n}"
    monkeypatch.setattr(registry.load("compensator", "none"), "SOURCES", (own,), raising=False)
    assert cli.main(words) == 0
    assert f"% compensator.type = none\n{own}\n" in capsys.readouterr().out
    monkeypatch.setattr(registry.load("compensator", "none"), "SOURCES", ("silva_2021",))
    assert cli.main(words) == 2
    assert mentions(capsys.readouterr().err, "compensator.type", "unknown", "silva_2021", "silva_2020")
