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
from rths_nodes.app.commands.new import TRIED

ROOT = Path(__file__).resolve().parents[2]
NAME = "of_mine"
PAPER = "chen_ricles_2010"
RIG = [f"axes.{axis}.{part}=null" for axis in ("north", "south") for part in ("actuator", "specimen")]

RAMP = '''
"""Lines between targets, with a share of their slope as an acceleration."""
from rths_nodes.control.ramps import OfKernel, RampKernel, duration
from rths_nodes.core import params


def start(k, x, v, a):
    return x, x


def follow(k, s, x, v, a):
    _, last = s
    return last, x


def on(k, s, substep):
    step, substeps = k
    before, last = s
    share = substep / substeps
    slope = (last - before) / step
    return before + share * (last - before), slope, 0.01 * slope


class OfMine(OfKernel):
    @params
    class Params:
        pass

    KERNEL = RampKernel(duration, start, follow, on, on)
'''
SETUP = '''
"""Axes that move twice as far."""
from rths_nodes.core import number, params
from rths_nodes.core.control import SetupKernel, SetupOfKernel


def axes(k, x, v, a):
    (ratio,) = k
    return [ratio * each for each in x], [ratio * each for each in v], [ratio * each for each in a]


def forces(k, axis_forces, displacement):
    (ratio,) = k
    return [ratio * each for each in axis_forces]


class OfMine(SetupOfKernel):
    @params
    class Params:
        ratio: float = number("of axis to degree of freedom", "1", 1.01, more_than=0.0)

    KERNEL = SetupKernel(lambda params, n_dof, n_axes: (params.ratio,), axes, forces)

    def degrees_of_freedom(self, displacement):
        return displacement / self._constants[0]
'''
RESTORING = '''
"""A spring that softens."""
from rths_nodes.core import Kernel, no_state, number, params
from rths_nodes.numerical.structures.laws import OfComponent, elastic_stiffness


def force(k, s, x):
    stiffness, reach = k
    return s, stiffness * x * (1.0 - (x / reach) * (x / reach))


class OfMine(OfComponent):
    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        reach: float = number("where no force is left", "m", 1.0, more_than=0.0)

    NAME, yields = "of_mine", False
    KERNEL = Kernel(lambda params: (params.stiffness, params.reach), no_state, force)
'''
INTEGRATOR = '''
"""Chen & Ricles with a velocity that is a little smaller."""
from rths_nodes.core.parameters import params
from rths_nodes.numerical.integrators.cr import ChenRicles


class OfMine(ChenRicles):
    @params
    class Params(ChenRicles.Params):
        pass

    @staticmethod
    def advancing(vectors, law):
        product = vectors.product

        def advance(k, s, exact, before, measured, external, index):
            alpha, dt = k
            x, v, _, _, _, _, _, own, _ = s
            v = 0.999 * (v + dt * product(alpha, exact))
            return own, x + dt * v, v, exact

        return advance
'''
CONTROL = '''
"""A voltage that grows with the ground acceleration."""
from rths_nodes.core import Kernel, no_state, number, params
from rths_nodes.core.control import SemiActiveOfKernel


def step(k, s, auxiliary, ground_acceleration, chance):
    (slope,) = k
    return s, (min(3.0, slope * abs(ground_acceleration)),)


class OfMine(SemiActiveOfKernel):
    @params
    class Params:
        slope: float = number("voltage for an acceleration", "V s^2/m", 1.0, at_least=0.0)

    KERNEL = Kernel(lambda params, *others: (params.slope,), no_state, step)
'''
TEXTS = {
    "ramp": (RAMP, PAPER, ["ramp={type: of_mine}"]),
    "setup": (SETUP, PAPER, ["setup={type: of_mine}"]),
    "restoring_force": (RESTORING, PAPER, ["structure.restoring_force={type: of_mine}"]),
    "integrator": (INTEGRATOR, PAPER, ["integrator.type=of_mine"]),
    "semi_active": (CONTROL, "phillips_spencer_2012", ["semi_active={type: of_mine}"]),
}
MADE = {
    "compensator": (PAPER, ["compensator={type: of_mine}"]),
    "specimen": (PAPER, ["axes.story_1.specimen={type: of_mine}"]),
    "actuator": (PAPER, ["axes.story_1.actuator={type: of_mine}"]),
    "rig": ("two_actuator_coupler", ["rig={type: of_mine}", *RIG]),
}
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


def test_every_kind_of_new_is_run_here() -> None:
    assert {*MADE, "port"} == {*TRIED}, "a port leads to a rig, and is never compiled"


@pytest.mark.parametrize("family", MADE)
def test_what_new_writes_runs_compiled(family: str, tmp_path: Path, rths: Rths, different: Any) -> None:
    scenario, sets = MADE[family]
    assert main(["new", family, NAME, str(tmp_path / "site")]) == 0
    entry(tmp_path / "site", family)
    both(rths, scenario, sets, tmp_path, different)


@pytest.mark.parametrize("family", TEXTS)
def test_a_kernel_of_every_family_runs_compiled(family: str, tmp_path: Path, rths: Rths, different: Any) -> None:
    text, scenario, sets = TEXTS[family]
    written(tmp_path / "site", family, text)
    both(rths, scenario, sets, tmp_path, different)


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
    "compare": [PAPER, *SHORT, "--set", f"compensator={{type: {NAME}}}", "--with", "seed=2", "--with", "seed=3"],
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
