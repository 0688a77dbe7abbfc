# SPDX-License-Identifier: Apache-2.0
"""`rths new`: what it writes works at once, in a folder with spaces; what would replace something is refused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from messages import mentions
from terminal import Terminal

from rths_nodes.app import cli
from rths_nodes.app.commands.new import TRIED, trial
from rths_nodes.core.parameters import evolved, type_of
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", TRIED)
def test_a_package_is_installed_passes_its_test_and_takes_part(kind: str, tmp_path: Path) -> None:
    folder, site = tmp_path / "a folder", tmp_path / "site"
    assert cli.main(["new", kind, "of_mine", str(folder)]) == 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT), *filter(None, sys.path)])}

    def done(*words: str) -> str:
        told = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=folder,
        )
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout

    done("pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site), ".")
    assert "2 passed" in done("pytest", "-q", "-p", "no:cacheprovider")
    assert "of_mine" in done("rths_nodes.app.cli", "list", kind)
    if kind == "compensator":
        short = ["chen_ricles_2010", "--set", "duration=1", "--set", "servo_rate=512", "--laws", "of_mine"]
        assert "of_mine" in done("rths_nodes.app.cli", "scoreboard", *short, "--out", "board", "--jobs", "1")


@pytest.mark.parametrize("kind", TRIED)
def test_a_package_has_what_it_needs(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", kind, "of_mine", str(tmp_path / "made")]) == 0
    told = capsys.readouterr().out
    scenario, (section, *_) = trial(kind, "of_mine")
    assert mentions(told, "rths", "run", scenario, shlex.quote(section))
    files = {path.relative_to(tmp_path / "made").as_posix() for path in (tmp_path / "made").rglob("*.*")}
    assert files == {
        "pyproject.toml",
        "README.md",
        "of_mine/__init__.py",
        "of_mine/component.py",
        "test/test_of_mine.py",
    }
    assert (
        f'[project.entry-points."rths_nodes.{kind}"]\nof_mine = "of_mine.component:OfMine"\n'
        in (tmp_path / "made" / "pyproject.toml").read_text()
    )
    project = (tmp_path / "made" / "pyproject.toml").read_text()
    assert tomllib.loads(project)["project"]["optional-dependencies"] == {"test": ["pytest"]}
    told = (tmp_path / "made" / "README.md").read_text()
    assert mentions(told, "pip", "install", ".[test]")
    assert (f"rths check {kind}.of_mine" in told) == (kind != "port")
    assert cli.main(["new", kind, "of_mine", str(tmp_path / "made")]) == 2
    assert mentions(capsys.readouterr().err, "made", "already")


def test_a_scenario_runs_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "scenario", "mine", str(tmp_path)]) == 0
    assert cli.main(["run", str(tmp_path / "mine.yaml"), "--host", "embedded"]) == 0
    assert mentions(capsys.readouterr().out, "mine", "10240")


@pytest.mark.parametrize(("kind", "source"), [("scenario", "marths_2023"), ("rig_file", "bench_udp")])
def test_a_file_starts_from_another(kind: str, source: str, tmp_path: Path) -> None:
    assert cli.main(["new", kind, "mine", str(tmp_path / "files"), "--from", source]) == 0
    text = (tmp_path / "files" / "mine.yaml").read_text()
    assert text.startswith(f"# yaml-language-server: $schema={kind}.schema.json\n")
    assert json.loads((tmp_path / "files" / f"{kind}.schema.json").read_text())["title"].startswith("rths_nodes")
    copied: Any
    if kind == "scenario":
        copied, before = files.load(tmp_path / "files" / "mine.yaml"), files.load(source)
    else:
        copied, before = files.load_rig(tmp_path / "files" / "mine.yaml"), files.load_rig(source)
    assert copied == evolved(before, name="mine")


def test_a_rig_file_is_made_of_answers_at_a_terminal(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "rths_nodes.app.cli", "new", "rig_file", "wall"]
    terminal = Terminal(command, tmp_path, environment)
    channels = [("range", "140"), ("scale", "14"), ("sign", "-1"), ("range", "300"), ("scale", "30"), ("sign", "")]
    limits = [("velocity", "0.5"), ("force", "250e3"), ("deceleration", "5"), ("tracking_error", "0.02")]
    head = [("description", "wall"), ("servo_rate", "1024"), ("port", ""), ("axes", "north, south")]
    too_long = [*channels, ("stroke", "0.2"), *limits]  # refused, and the axis is asked again
    try:
        again = [(key, "0.12" if key == "stroke" else "") for key, _ in too_long]  # Enter: as before
        alike = [(key, "") for key, _ in too_long]
        for key, answer in [*head, *too_long, *again, *alike]:
            terminal.wait_for(rf"{key}: [^\n]*: \Z")
            terminal.type(answer)
        assert terminal.end() == 0, terminal.shown
    finally:
        terminal.close()
    assert mentions(terminal.shown, "stroke", "0.2 m", "0.14 m")
    rig = files.load_rig(tmp_path / "wall.yaml")
    assert (rig.servo_rate, type_of(rig.port), rig.axes["north"].limits.stroke) == (1024.0, "udp", 0.12)
    assert (rig.axes["north"].displacement.sign, rig.axes["north"].force.scale) == (-1, 30.0)
    assert rig.axes["south"] == rig.axes["north"]


def test_a_rig_file_without_answers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "rig_file", "wall", str(tmp_path)]) == 2
    assert mentions(capsys.readouterr().err, "limits", "--from")
    assert cli.main(["new", "compensator", "of_mine", str(tmp_path / "made"), "--from", "inverse"]) == 2
    assert mentions(capsys.readouterr().err, "--from", "scenario", "rig_file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compensator", "inverse"], ("compensator", "name")),
        (["specimen", "My-Law"], ("lowercase", "digits")),
        (["specimen", "class"], ("keyword", "Python")),
        (["port", "signal"], ("name", "signal")),
        (["port", "test"], ("name", "test")),
    ],
)
def test_what_is_no_name_is_refused(
    words: list[str], told: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new", *words, str(tmp_path / "made")]) == 2
    assert mentions(capsys.readouterr().err, *told)
    assert not (tmp_path / "made").exists()
