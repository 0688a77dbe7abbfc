# SPDX-License-Identifier: Apache-2.0
"""Tests of the table of run options, of which the command line, launch, nodes and Python offer parts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands import arguments, run
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop import options
from rths_nodes.loop.options import COMMAND, LAUNCH, NODE, PYTHON, RunOptions, run_options

INTERFACES = (COMMAND, LAUNCH, NODE, PYTHON)
NAME = "chen_ricles_2010"


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_option_has_text_and_field(interface: str) -> None:
    result = run_options({"scenario": NAME}, interface)
    for name, option in options.options(interface).items():
        assert option.name == name
        assert option.doc
        assert option.field == "scenario" or getattr(result, option.field) in (option.default, ())


def test_option_names_have_one_meaning_except_record_in_launch() -> None:
    meanings: dict[str, set[str]] = {}
    for interface in INTERFACES:
        for name, option in options.options(interface).items():
            meanings.setdefault(name, set()).add(option.field)
    several = {name: fields for name, fields in meanings.items() if len(fields) > 1}
    assert several == {"record": {"record", "recorder"}}


def test_command_line_has_options_of_table() -> None:
    parser = argparse.ArgumentParser()
    run.run_arguments(arguments.Arguments(parser))
    names = {name for action in parser._actions for name in action.option_strings or [action.dest]}
    extra = {"-h", "--help", "--no-record", "--report", "--page", "--page-port", "--reference", "--json"}
    assert names - extra == set(options.options(COMMAND))


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
        ({"separate": ["recorder"], "record": "a"}, ("requires", "composed", "embedded")),
        ({"separate": ["recorder"], "host": "composed"}, ("not", "recorded")),
        ({"namespace": "two words"}, ("namespace", "two words")),
        ({"namespace": "a" * 300}, ("300", "<= 100")),
        ({"faults": "drop@2:command"}, ("faults", "drop@2:command")),
        ({"peer_timeout": -1.0}, ("peer_timeout", "-1 s", "> 0")),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        run_options({"scenario": NAME} | given)


def test_path_is_text_and_none_is_default() -> None:
    result = run_options({"scenario": Path("a.yaml"), "record": None, "overrides": ["duration=1"]})
    assert (result.scenario, result.record, result.overrides) == ("a.yaml", "", ("duration=1",))
    assert result.changed(record="run").recorded
    assert not result.changed(record="run", recorder="rosbag2").recorded


def test_interfaces_have_different_defaults() -> None:
    assert run_options({}, LAUNCH).scenario == NAME
    assert run_options({"scenario": NAME}, NODE).host == "processes"
    assert RunOptions(scenario=NAME).host == "embedded"


def test_python_runs_case() -> None:
    by_name = rths_nodes.run(NAME, ["duration=0.2"], case="alpha_29_k_p_0")
    assert by_name.scenario.data() == rths_nodes.load(NAME, ["duration=0.2"], "alpha_29_k_p_0").data()
    loaded = rths_nodes.run(rths_nodes.load(NAME, case="alpha_29_k_p_0"), ["duration=0.2"])
    assert (loaded.displacement == by_name.displacement).all()


def test_command_line_refuses_invalid_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, "--pace", "realtime"]) == 2
    assert mentions(capsys.readouterr().err, "embedded", "clock")
