# SPDX-License-Identifier: Apache-2.0
"""What helps at the command line: lists, parameters of sections, completion."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.app import cli
from rths_nodes.app.cli import COMMANDS, GROUPS, REPLACED, main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameter_table import sections
from rths_nodes.loop.faults.kinds import KINDS
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

PAPER = "chen_ricles_2010"
FAMILIES = ("scenario", "rig_file", *registry.FAMILIES)


# commands


def test_a_command_that_is_not_known_is_probably_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu", PAPER]) == 2
    assert mentions(capsys.readouterr().err, "rths", "unknown", "rnu", "run")


@pytest.mark.parametrize(("old", "new"), REPLACED.items())
def test_a_removed_command_names_its_replacement(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([old, PAPER]) == 2
    assert mentions(capsys.readouterr().err, old, *new.split())


@pytest.mark.parametrize("columns", [60, 100])
def test_every_command_stands_once_in_the_help_below_what_it_is_for(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    for title, group in GROUPS.items():
        below = lines[lines.index(f"{title}:") + 1 :]
        rows = below[: below.index("")] if "" in below else below
        assert [row.split()[0] for row in rows if not row.startswith("   ")] == list(group)
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    assert all(f"{name} {cli.purpose(name)}" in text for name in COMMANDS)


def options_of(name: str) -> dict[str, argparse.Action]:
    """Visible options of a command, by their names."""
    parser = cli._parser([name])
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    actions = [action for action in commands.choices[name]._actions if action.help != argparse.SUPPRESS]
    return {option: action for action in actions for option in action.option_strings}


METAVARS = {
    "--case": {"NAME"},
    "--cases": {"NAME,..."},
    "--figure": {"FILE"},
    "--from": {"FILE", "RECORDING"},
    "--namespace": {"NAME"},
    "--out": {"FILE", "DIR"},
    "--record": {"DIR"},
    "--report": {"FILE"},
    "--seed": {"N"},
    "--set": {"SECTION.KEY=VALUE"},
}
"""Options with the same meaning in all commands, and their values."""


def test_an_option_has_the_same_value_in_all_commands() -> None:
    found: dict[str, set[object]] = {}
    for name in COMMANDS:
        for option, action in options_of(name).items():
            found.setdefault(option, set()).add(action.metavar)
            assert len(action.option_strings) == 1 or option in ("-h", "--help"), (name, option)
    assert {option: found[option] for option in METAVARS} == METAVARS
    assert "--to" not in found


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["compare", PAPER, "--with", "duration=1"], "--set"),
        (["export", "runs/test", "--to", "folder"], "--out"),
        (["estimate", "runs/test", "--from", "1"], "--begin"),
        (["estimate", "runs/test", "--to=3"], "--end"),
        (["identify", PAPER, "--report", "page.svg"], "--figure"),
        (["watch", "bench_watched", "--record", "file"], "--out"),
    ],
)
def test_a_renamed_option_names_its_replacement(
    words: list[str], new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert mentions(capsys.readouterr().err, words[2].partition("=")[0], new)


# list


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_listed_with_a_line_about_each_member(output: Callable[..., str], family: str) -> None:
    shipped = {"scenario": files.SCENARIO, "rig_file": files.RIG}
    names = list(files.shipped(shipped[family])) if family in shipped else registry.names(family)
    rows = [line.split(maxsplit=1) for line in output("list", family).splitlines()]
    assert [name for name, _ in rows] == names
    assert all(len(words) > 15 for _, words in rows)


def test_everything_is_listed_family_by_family(output: Callable[..., str]) -> None:
    lines = output("list").splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(FAMILIES)
    assert re.search(r"^  cr +The explicit, unconditionally stable CR algorithm", "\n".join(lines), re.M)


def test_a_component_that_cannot_be_loaded_does_not_hide_the_others(
    output: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(family: str, name: str) -> str:
        raise ConfigError(f"{family} {name!r}: gone")

    monkeypatch.setattr(registry, "description", broken)
    assert "(compensator 'none': gone)" in output("list", "compensator")


# params


@pytest.mark.parametrize("path", ["scenario", *(path for path, _ in sections(Scenario))])
def test_a_section_has_parameters(output: Callable[..., str], path: str) -> None:
    text = output("params", path.replace("NAME", "story_1"))
    assert text.startswith(f"{path}: ")
    assert "meaning" in text


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("axes", ("axes.NAME.limits",)),
        ("limits", ("largest", "magnitude")),
        ("port", ("over UDP",)),
        ("monitor", ("energy_error_percent",)),
        ("bridge", ("rejoin_samples",)),
        ("compensator", ("adaptive_inverse",)),
        ("damping", ("rayleigh",)),
        ("duration", ("duration of", "test")),
        ("axes.damper.limits.force", ("largest", "magnitude")),
        ("structure.mass", ("structure.mass", "mass")),
        ("structure.damping", ("rayleigh",)),
        ("axes.story_1.actuator.alpha", ("delay", "constant", "alpha")),
    ],
)
def test_sections_and_keys_have_their_parameters_shown(
    output: Callable[..., str], path: str, shown: tuple[str, ...]
) -> None:
    assert mentions(output("params", path), *shown)


def test_an_unknown_section_is_refused_with_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", "axes.story_1.limit"]) == 2
    assert mentions(capsys.readouterr().err, "unknown", "component", "section", "key", "axes.story_1.limit")
    assert main(["params", "bridges"]) == 2
    assert mentions(capsys.readouterr().err, "bridge")


# completion


@pytest.fixture
def completed(tmp_path: Path) -> Callable[[str], list[str]]:
    """What a shell is told about a line: the words that may stand at its end."""
    pytest.importorskip("argcomplete")

    def completed(line: str) -> list[str]:
        told = tmp_path / "told"
        given = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><;|&(",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(told),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-m", "rths_nodes.app.cli"]
        subprocess.run(command, env=os.environ | given, check=True, cwd=tmp_path)
        return [word.strip() for word in told.read_text().split("\n")]

    return completed


def test_a_shell_is_told_what_may_stand_next(completed: Callable[[str], list[str]]) -> None:
    scenario = files.load(PAPER)
    assert set(COMMANDS) <= set(completed("rths "))
    assert completed("rths run chen") == [PAPER]
    assert set(completed(f"rths run {PAPER} --case ")) == set(scenario.cases)
    assert set(completed(f"rths scoreboard {PAPER} --cases ")) == set(scenario.cases)
    assert set(completed(f"rths run {PAPER} --rig ")) >= set(files.shipped(files.RIG))
    assert set(completed(f"rths run {PAPER} --fault ")) == {f"{kind}@" for kind in KINDS}
    assert set(completed("rths list ")) >= set(FAMILIES)
    assert "axes.NAME.limits" in completed("rths params axes")
    assert completed("rths params servo_h") == ["servo_hydraulic", "servo_hydraulic_linear"]


def test_completion_costs_no_start_nothing() -> None:
    """argcomplete and the libraries of figures and tables are loaded where they are used."""
    code = (
        "import sys, rths_nodes.app.cli as cli\n"
        "cli._parser()\n"
        "print([name for name in ('argcomplete', 'rich', 'matplotlib', 'jinja2', 'rclpy') if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"
