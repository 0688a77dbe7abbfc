# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths new``: packages, scenarios and rig files that work without changes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import RunCommand
from ends import largest_file
from messages import mentions
from terminal import Terminal

from rths_nodes.app import cli
from rths_nodes.app.commands.new import TRIED, trial
from rths_nodes.core.parameters import evolved, type_of
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), *filter(None, sys.path)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", TRIED)
def test_new_package_installs_and_passes_its_tests(kind: str, tmp_path: Path) -> None:
    folder, site = tmp_path / "a folder", tmp_path / "site"
    assert cli.main(["new", kind, "of_mine", str(folder)]) == 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), *PATHS])}

    def run_module(*arguments: str) -> str:
        command = [sys.executable, "-m", *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    run_module("pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site), ".")
    assert "2 passed" in run_module("pytest", "-q", "-p", "no:cacheprovider")
    assert "of_mine" in run_module("rths_nodes.app.cli", "list", kind)
    if kind == "compensator":
        short = ["chen_ricles_2010", "--set", "duration=1", "--set", "servo_rate=512", "--laws", "of_mine"]
        assert "of_mine" in run_module("rths_nodes.app.cli", "scoreboard", *short, "--out", "board", "--jobs", "1")


@pytest.mark.parametrize("kind", TRIED)
def test_new_package_has_required_files(
    kind: str, tmp_path: Path, output: RunCommand, refusal: RunCommand
) -> None:
    command = ["new", kind, "of_mine", str(folder := tmp_path / "made")]
    scenario, (section, *_) = trial(kind, "of_mine")
    assert mentions(output(*command), "rths", "run", scenario, shlex.quote(section))
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == {
        *("pyproject.toml", "README.md", "of_mine/__init__.py", "of_mine/component.py", "test/test_of_mine.py")
    }
    project = (folder / "pyproject.toml").read_text()
    assert f'[project.entry-points."rths_nodes.{kind}"]\nof_mine = "of_mine.component:OfMine"\n' in project
    assert tomllib.loads(project)["project"]["optional-dependencies"] == {"test": ["pytest"]}
    assert mentions(readme := (folder / "README.md").read_text(), "pip", "install", ".[test]")
    assert (f"rths check {kind}.of_mine" in readme) == (kind != "port")
    assert mentions(refusal(*command), "made", "already", "choose another")


def test_new_scenario_runs(tmp_path: Path, output: RunCommand) -> None:
    output("new", "scenario", "mine", str(tmp_path))
    assert mentions(output("run", str(tmp_path / "mine.yaml"), "--host", "embedded"), "mine", "10240")


@pytest.mark.parametrize(("kind", "source"), [("scenario", "marths_2023"), ("rig_file", "bench_udp")])
def test_new_file_copies_its_source(
    kind: str, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "files"
    path, command = folder / "mine.yaml", ["new", kind, "mine", str(folder), "--from", source]
    with largest_file(100):
        assert cli.main(command) == 1  # leaves no part of the file, which a second attempt would refuse
    assert capsys.readouterr().err.startswith(f"rths: {path}: ")
    assert cli.main(command) == 0
    assert path.read_text().startswith(f"# yaml-language-server: $schema={kind}.schema.json\n")
    assert json.loads((folder / f"{kind}.schema.json").read_text())["title"].startswith("rths_nodes")
    load: Callable[..., Any] = files.load if kind == "scenario" else files.load_rig
    assert load(path) == evolved(load(source), name="mine")


@pytest.mark.parametrize("kind", ["scenario", "rig_file"])
def test_source_that_is_not_text_is_refused(kind: str, tmp_path: Path, refusal: RunCommand) -> None:
    (tmp_path / "source.yaml").write_bytes(b"name: \xa8")
    message = refusal("new", kind, "mine", str(tmp_path), "--from", str(tmp_path / "source.yaml"))
    assert mentions(message, "source.yaml", "cannot be read", "utf-8")


def test_rig_file_is_built_from_answers_at_terminal(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
    command = [sys.executable, "-m", "rths_nodes.app.cli", "new", "rig_file", "wall"]
    channels = [("range", "140"), ("scale", "14"), ("sign", "-1"), ("range", "300"), ("scale", "30"), ("sign", "")]
    limits = [("velocity", "0.5"), ("force", "250e3"), ("deceleration", "5"), ("tracking_error", "0.02")]
    head = [("description", "wall"), ("servo_rate", "1024"), ("port", ""), ("axes", "north, south")]
    too_long = [*channels, ("stroke", "0.2"), *limits]  # refused: the questions are repeated
    corrected = [(key, "0.12" if key == "stroke" else "") for key, _ in too_long]  # Enter keeps the value
    second_axis = [(key, "") for key, _ in too_long]
    with closing(Terminal(command, tmp_path, environment)) as terminal:
        for key, answer in [*head, *too_long, *corrected, *second_axis]:
            terminal.answer(rf"{key}: [^\n]*: \Z", answer)
        assert terminal.end() == 0, terminal.shown
    assert mentions(terminal.shown, "stroke", "0.2 m", "0.14 m")
    rig = files.load_rig(tmp_path / "wall.yaml")
    assert (rig.servo_rate, type_of(rig.port), rig.axes["north"].limits.stroke) == (1024.0, "udp", 0.12)
    assert (rig.axes["north"].displacement.sign, rig.axes["north"].force.scale) == (-1, 30.0)
    assert rig.axes["south"] == rig.axes["north"]


def test_rig_file_without_terminal_is_refused(tmp_path: Path, refusal: RunCommand) -> None:
    assert mentions(refusal("new", "rig_file", "wall", str(tmp_path)), "limits", "--from")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["compensator", "inverse"], ("compensator", "name")),
        (["specimen", "My-Law"], ("lowercase", "digits")),
        (["specimen", "class"], ("keyword", "Python")),
        (["port", "signal"], ("name", "signal")),
        (["port", "test"], ("name", "test")),
        (["compensator", "numpy"], ("name", "numpy", "another")),
        (["compensator", "of_mine", "--from", "inverse"], ("--from", "scenario", "rig_file")),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], parts: tuple[str, ...], tmp_path: Path, refusal: RunCommand
) -> None:
    kind, name, *options = arguments
    assert mentions(refusal("new", kind, name, str(tmp_path / "made"), *options), *parts)
    assert not (tmp_path / "made").exists()
