# SPDX-License-Identifier: Apache-2.0
"""The table of run options: where each is offered, what is refused, and that every place is made from it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from messages import mentions

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands import run
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop import options
from rths_nodes.loop.options import COMMAND, LAUNCH, NODE, PYTHON, RunOptions, run_options

PLACES = (COMMAND, LAUNCH, NODE, PYTHON)
NAME = "chen_ricles_2010"


@pytest.mark.parametrize("place", PLACES)
def test_every_option_of_a_place_has_a_meaning_and_is_a_field(place: str) -> None:
    found = run_options({"scenario": NAME}, place)
    for name, option in options.options(place).items():
        assert option.name == name
        assert option.doc
        assert option.field == "scenario" or getattr(found, option.field) in (option.default, ())


def test_a_name_means_the_same_wherever_it_is_offered_but_for_record_in_launch() -> None:
    meanings: dict[str, set[str]] = {}
    for place in PLACES:
        for name, option in options.options(place).items():
            meanings.setdefault(name, set()).add(option.field)
    several = {name: fields for name, fields in meanings.items() if len(fields) > 1}
    assert several == {"record": {"record", "recorder"}}


def test_the_command_line_has_the_words_of_the_table() -> None:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    words = {word for action in parser._actions for word in action.option_strings or [action.dest]}
    own = {"-h", "--help", "--no-record", "--report", "--page", "--page-port", "--reference", "--json"}
    assert words - own == set(options.options(COMMAND))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hots": "composed"}, ("unknown", "hots", "host", "actuator_nodes", "case")),
        ({"apart": ["recorder"]}, ("unknown", "option", "apart")),
        ({"host": "two"}, ("host", "two", "embedded", "composed", "processes")),
        ({"pace": "realtime"}, ("embedded", "clock")),
        ({"actuator_nodes": "per_axis"}, ("host", "embedded", "nodes")),
        ({"reliability": "best_effort"}, ("host", "embedded", "nodes")),
        ({"transport": "topics"}, ("host", "embedded", "nodes")),
        ({"transport": "pipes"}, ("transport", "pipes", "sockets", "topics")),
        ({"separate": ["recorder"], "record": "a"}, ("needs", "composed", "embedded")),
        ({"separate": ["recorder"], "host": "composed"}, ("not", "recorded")),
        ({"namespace": "two words"}, ("namespace", "two words")),
        ({"namespace": "a" * 300}, ("300", "<= 100")),
        ({"faults": "drop@2:command"}, ("faults", "drop@2:command")),
        ({"peer_timeout": -1.0}, ("peer_timeout", "-1 s", "> 0")),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(given: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        run_options({"scenario": NAME} | given)
    assert mentions(str(error.value), *words)


def test_a_path_counts_as_text_and_none_as_the_default() -> None:
    found = run_options({"scenario": Path("a.yaml"), "record": None, "overrides": ["duration=1"]})
    assert (found.scenario, found.record, found.overrides) == ("a.yaml", "", ("duration=1",))
    assert found.changed(record="run").recorded
    assert not found.changed(record="run", recorder="rosbag2").recorded


def test_a_place_may_have_defaults_of_its_own() -> None:
    assert run_options({}, LAUNCH).scenario == NAME
    assert run_options({"scenario": NAME}, NODE).host == "processes"
    assert RunOptions(scenario=NAME).host == "embedded"


def test_python_runs_a_case_and_loads_it() -> None:
    found = rths_nodes.run(NAME, ["duration=0.2"], case="alpha_29_k_p_0")
    assert found.scenario.data() == rths_nodes.load(NAME, ["duration=0.2"], "alpha_29_k_p_0").data()
    again = rths_nodes.run(rths_nodes.load(NAME, case="alpha_29_k_p_0"), ["duration=0.2"])
    assert (again.displacement == found.displacement).all()


def test_the_command_line_refuses_what_python_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, "--pace", "realtime"]) == 2
    assert mentions(capsys.readouterr().err, "embedded", "clock")
