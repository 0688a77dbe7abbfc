# SPDX-License-Identifier: Apache-2.0
"""Installed packages with a component, through the command line: compiled with the bits of plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import mentions

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands.new import TRIED, trial
from rths_nodes.core import registry

ROOT = Path(__file__).resolve().parents[2]
NAME = "of_mine"
PAPER = "chen_ricles_2010"

COMPILED = [kind for kind in TRIED if kind not in ("port", "reduction", "force_controller", "quantity")]
"""Families whose tests have a loop over kernels."""
PLAIN = '''
"""A compensator without a kernel."""
from rths_nodes.core import number, params


class OfMine:
    @params
    class Params:
        delay: float = number("delay", "s", 0.027, at_least=0.0)

    state_names = ()

    def __init__(self, params, dt, n_axes):
        self.delay = params.delay

    def step(self, target, measured):
        return target.displacement + self.delay * target.velocity

    def state(self):
        return ()

    def reset(self):
        pass
'''

Rths = Callable[..., "subprocess.CompletedProcess[str]"]


def entry(site: Path, family: str) -> None:
    """What an installer writes."""
    facts = site / f"{NAME}-0.1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0.1.0\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(
        f"[rths_nodes.{family}]\n{NAME} = {NAME}.component:OfMine\n", encoding="utf-8"
    )


def written(site: Path, family: str, text: str) -> None:
    (site / NAME).mkdir(parents=True)
    (site / NAME / "__init__.py").touch()
    (site / NAME / "component.py").write_text(text, encoding="utf-8")
    entry(site, family)


@pytest.fixture
def rths(tmp_path: Path) -> Rths:
    """Runs ``rths`` in a process that finds the package in ``tmp_path / "site"``."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def rths(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rths_nodes.app.cli", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return rths


def both(rths: Rths, scenario: str, sets: list[str], folder: Path, different: Any) -> None:
    """Run on both engines, and compare the recordings bit by bit."""
    overrides = [word for each in ("duration=2", *sets) for word in ("--set", each)]
    runs = []
    for engine in ("python", "compiled"):
        done = rths("run", scenario, *overrides, "--engine", engine, "--record", engine, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["engine"], told["outcome"], told["notes"]) == (engine, "finished", [])
        runs.append(rths_nodes.read(folder / engine))
    assert different(*runs) == []


def test_every_family_has_a_template() -> None:
    assert {*TRIED} == {*registry.FAMILIES}


@pytest.mark.parametrize("family", COMPILED)
def test_what_new_writes_runs_compiled(family: str, tmp_path: Path, rths: Rths, different: Any) -> None:
    scenario, sets = trial(family, NAME)
    assert main(["new", family, NAME, str(tmp_path / "site")]) == 0
    entry(tmp_path / "site", family)
    both(rths, scenario, sets, tmp_path, different)


@pytest.mark.parametrize("family", sorted({*TRIED} - {*COMPILED, "port"}))
def test_what_new_writes_for_other_families_runs(family: str, tmp_path: Path, rths: Rths) -> None:
    scenario, sets = trial(family, NAME)
    assert main(["new", family, NAME, str(tmp_path / "site")]) == 0
    entry(tmp_path / "site", family)
    done = rths("run", scenario, *(word for each in ("duration=2", *sets) for word in ("--set", each)))
    assert done.returncode == 0, done.stderr


STUDY = f"""
version: 1
name: short
scenario: {PAPER}
set: {{duration: 0.5, servo_rate: 512.0}}
factors:
  law: {{settings: {{none: {{compensator: {{type: none}}}}, mine: {{compensator: {{type: {NAME}}}}}}}}}
"""
SHORT = ["--set", "duration=0.5", "--set", "servo_rate=512"]
MANY: dict[str, list[str]] = {
    "study": ["study.yaml", "--out", "out"],
    "tune": [PAPER, *SHORT, "--set", f"compensator={{type: {NAME}}}", "--parameter", "compensator.delay"],
    "compare": [PAPER, *SHORT, "--variant", f"compensator={{type: {NAME}}} seed=2", "--set", "seed=3"],
    "scoreboard": [PAPER, *SHORT, "--laws", f"none,{NAME}", "--out", "out"],
}


@pytest.mark.parametrize("command", MANY)
def test_many_runs_say_once_why_a_component_is_not_compiled(command: str, tmp_path: Path, rths: Rths) -> None:
    written(tmp_path / "site", "compensator", PLAIN)
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    jobs = [] if command == "compare" else ["--jobs", "1"]
    done = rths(command, *MANY[command], *jobs, "--engine", "compiled")
    assert done.returncode in (0, 3), done.stderr
    reasons = [line for line in done.stderr.splitlines() if "engine python" in line]
    assert len(reasons) == 1, done.stderr
    assert mentions(reasons[0], "compensator.type", f"'{NAME}'", "kernel")
