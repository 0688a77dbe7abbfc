# SPDX-License-Identifier: Apache-2.0
"""Tests of help at the command line: commands, options, lists, parameters, completion."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_fixtures import RunCommand
from messages import mentions
from programs import RTHS, child_environment

from rths_nodes.app import cli
from rths_nodes.app.cli import COMMANDS, GROUPS, REPLACED, main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameter_docs import sections
from rths_nodes.loop.faults import KINDS
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

PAPER = "chen_ricles_2010"
FAMILIES = ("scenario", "rig_file", *registry.FAMILIES)


def test_misspelt_command_gets_suggestion(refusal: RunCommand) -> None:
    assert mentions(refusal("rnu", PAPER), "rths", "unknown", "rnu", "run")


@pytest.mark.parametrize(("old", "new"), REPLACED.items())
def test_removed_command_names_its_replacement(old: str, new: str, refusal: RunCommand) -> None:
    assert mentions(refusal(old, PAPER), old, *new.split())


@pytest.mark.parametrize("columns", [60, 100])
def test_help_lists_commands_by_group(
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


def visible_options(name: str) -> dict[str, argparse.Action]:
    """Return the visible options of a command by their names."""
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
"""Options with the same meaning in all commands, and their metavars."""


def test_options_have_the_same_metavar_in_all_commands() -> None:
    metavars: dict[str, set[object]] = {}
    for name in COMMANDS:
        for option, action in visible_options(name).items():
            metavars.setdefault(option, set()).add(action.metavar)
            assert len(action.option_strings) == 1 or option in ("-h", "--help"), (name, option)
    assert {option: metavars[option] for option in METAVARS} == METAVARS
    assert "--to" not in metavars


@pytest.mark.parametrize(
    ("arguments", "new"),
    [
        (["compare", PAPER, "--with", "duration=1"], "--set"),
        (["export", "runs/test", "--to", "folder"], "--out"),
        (["estimate", "runs/test", "--from", "1"], "--begin"),
        (["estimate", "runs/test", "--to=3"], "--end"),
        (["identify", PAPER, "--report", "page.svg"], "--figure"),
        (["watch", "bench_watched", "--record", "file"], "--out"),
    ],
)
def test_renamed_option_names_its_replacement(arguments: list[str], new: str, refusal: RunCommand) -> None:
    assert mentions(refusal(*arguments), arguments[2].partition("=")[0], new)


@pytest.mark.parametrize("family", FAMILIES)
def test_list_describes_members_of_family(output: RunCommand, family: str) -> None:
    shipped = {"scenario": files.SCENARIO, "rig_file": files.RIG}
    names = list(files.shipped(shipped[family])) if family in shipped else registry.names(family)
    rows = [line.split(maxsplit=1) for line in output("list", family).splitlines()]
    assert [name for name, _ in rows] == names
    assert all(len(description) > 15 for _, description in rows)


def test_list_prints_all_families(output: RunCommand) -> None:
    lines = output("list").splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(FAMILIES)
    assert re.search(r"^  cr +The explicit, unconditionally stable CR algorithm", "\n".join(lines), re.M)


def test_list_shows_error_of_unloadable_component(output: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(family: str, name: str) -> str:
        raise ConfigError(f"{family} {name!r}: gone")

    monkeypatch.setattr(registry, "description", broken)
    assert "(compensator 'none': gone)" in output("list", "compensator")


@pytest.mark.parametrize("path", ["scenario", *(path for path, _ in sections(Scenario))])
def test_params_describes_every_section(output: RunCommand, path: str) -> None:
    text = output("params", path.replace("NAME", "story_1"))
    assert text.startswith(f"{path}: ")
    assert "meaning" in text


@pytest.mark.parametrize(
    ("path", "parts"),
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
def test_params_describes_sections_and_keys(output: RunCommand, path: str, parts: tuple[str, ...]) -> None:
    assert mentions(output("params", path), *parts)


def test_params_refuses_unknown_section(refusal: RunCommand) -> None:
    error = refusal("params", "axes.story_1.limit")
    assert mentions(error, "unknown", "component", "section", "key", "axes.story_1.limit")
    assert mentions(refusal("params", "bridges"), "bridge")


@pytest.fixture
def complete(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the completions of a line as a shell receives them."""
    pytest.importorskip("argcomplete")

    def complete(line: str) -> list[str]:
        candidates = tmp_path / "candidates"
        variables = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><;|&(",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(candidates),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }
        subprocess.run(RTHS, env=child_environment(**variables), check=True, cwd=tmp_path)
        return [word.strip() for word in candidates.read_text().split("\n")]

    return complete


def test_completion_lists_candidates(complete: Callable[[str], list[str]]) -> None:
    scenario = files.load(PAPER)
    assert set(COMMANDS) <= set(complete("rths "))
    assert complete("rths run chen") == [PAPER]
    assert set(complete(f"rths run {PAPER} --case ")) == set(scenario.cases)
    assert set(complete(f"rths scoreboard {PAPER} --cases ")) == set(scenario.cases)
    assert set(complete(f"rths run {PAPER} --rig ")) >= set(files.shipped(files.RIG))
    assert set(complete(f"rths run {PAPER} --fault ")) == {f"{kind}@" for kind in KINDS}
    assert set(complete("rths list ")) >= set(FAMILIES)
    assert "axes.NAME.limits" in complete("rths params axes")
    assert complete("rths params servo_h") == ["servo_hydraulic", "servo_hydraulic_linear"]


def test_start_imports_no_optional_libraries() -> None:
    code = (
        "import sys, rths_nodes.app.cli as cli\n"
        "cli._parser()\n"
        "print([name for name in ('argcomplete', 'rich', 'matplotlib', 'jinja2', 'rclpy') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=child_environment()) == "[]\n"
