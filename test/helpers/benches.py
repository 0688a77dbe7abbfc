# SPDX-License-Identifier: Apache-2.0
"""Simulated benches for sequences of acts, and their tests: one axis, two coupled axes, a loaded column.

The ground moves by a file, and the compensator is a plug-in: both can be changed between any two acts.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import rig_walk

from rths_nodes.core import registry
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

_KEPT = tempfile.TemporaryDirectory()
FOLDER = Path(_KEPT.name)
PACKAGE = "sequences_laws"
MOTION, LAW = FOLDER / "motion.txt", FOLDER / PACKAGE / "law.py"
"""Files that may change during a test."""
SOURCE = '''
"""A compensator of another package."""

from rths_nodes.control.compensators.none import NoCompensation


class Mine(NoCompensation):
    """As none."""
'''
TIMES = np.arange(0.0, 1.0, 1.0 / 256.0)
SLOW_ERROR = 2.8e-3
"""Largest error of a slow motion of these rigs, m."""


@dataclass(frozen=True)
class Bench:
    """Scenario ``name`` with overrides on a ``rig``; its actuators settle in ``settles`` ticks."""

    name: str
    rig: str
    sets: tuple[str, ...]
    settles: int
    rungs: str = "cdeg"
    load: int | None = None
    newtons: float = 0.0

    def scenario(self, known: bool, *sets: str) -> Scenario:
        """Scenario of the bench, with stiffnesses that are ``known`` well enough, or not."""
        return _loaded(self, known, sets)


@cache
def _loaded(bench: Bench, known: bool, sets: tuple[str, ...]) -> Scenario:
    file = FOLDER / "bench.yaml"
    file.write_text(bench.rig if known else bench.rig.replace("    stiffness_known_to: 0.03\n", ""))
    restored()
    return files.load(bench.name, [*bench.sets, *sets], rig=str(file))


@cache
def _motion(scale: float) -> str:
    values = scale * 1.2 * np.sin(2.0 * np.pi * 2.0 * TIMES)
    return "\n".join(f"{time:.8f} {value:.8f}" for time, value in zip(TIMES, values, strict=True))


_written: dict[Path, str] = {}


def _write(file: Path, text: str) -> None:
    """Write what differs: sequences restore their files after each act."""
    if _written.get(file) != text:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        _written[file] = text


def restored() -> None:
    """Write the files as they were when the scenarios were read."""
    _write(MOTION, _motion(1.0))
    _write(LAW.parent / "__init__.py", "")
    _write(LAW, SOURCE)


CHANGES: dict[str, Callable[[], object]] = {
    "input file": lambda: _write(MOTION, _motion(3.0)),
    "plug-in": lambda: _write(LAW, SOURCE + "\n# edited\n"),
}
"""Changes of files during a test."""


def install(patch: Callable[[object, str, object], None]) -> Callable[[], None]:
    """Install the plug-in by ``patch`` (object, name, value); return the function that removes it."""
    restored()
    sys.path.insert(0, str(FOLDER))
    importlib.invalidate_caches()
    point = EntryPoint("mine", f"{PACKAGE}.law:Mine", "rths_nodes.compensator")
    kept = registry.load("compensator", "none").Params
    patch(registry, "_entry_points", lambda: EntryPoints([point]))
    _forget()

    def remove() -> None:
        sys.path.remove(str(FOLDER))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        _forget()
        _loaded.cache_clear()
        kept.type_name = "none"

    return remove


def _forget() -> None:
    registry._table.cache_clear()
    registry._load.cache_clear()


OURS = ("compensator.type=mine", f"ground_motion={{type: record, file: {MOTION}, unit: m/s^2}}")

ONE = Bench(
    "chen_ricles_2010",
    rig_walk.RIG.replace("velocity: 1.2", "velocity: 0.4")
    .replace("deceleration: 20.0", "deceleration: 2.0")
    .replace("velocity: 5.0e-3", "velocity: 50.0e-3")
    .replace("    elastic_limit", f"    slow_error: {SLOW_ERROR}\n    elastic_limit"),
    ("duration=0.6", "servo_rate=128", "substeps=2", "axes.story_1.actuator.alpha=7.0", *OURS),
    48,
)
"""A test of 77 samples, 30 mm and 0.16 m/s, without a trip; the bench is slower, and unloaded faster."""

AXIS = """
  {name}:
    serves: [{name}]
    displacement: {{unit: mm, range: 165.0}}
    force: {{unit: kN, range: 110.0}}
    command: {{unit: mm, range: 160.0}}
    limits: {{stroke: 0.15, velocity: 0.4, force: 100.0e3, deceleration: {deceleration}}}
    elastic_limit: 0.05
    stiffness: {stiffness}
    stiffness_known_to: 0.03
    slow_error: 4.0e-3
    small_move: {{displacement: 1.0e-3, velocity: 20.0e-3, force: 10.0e3}}
    unloading: {{travel: 0.08, velocity: 50.0e-3}}
"""
HEAD = """
version: 1
name: bench
port: {type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}
axes:
"""
PAIR = Bench(
    "two_actuator_coupler",
    HEAD
    + AXIS.format(name="north", deceleration=2.0, stiffness=0.6e6)
    + AXIS.format(name="south", deceleration=1.0, stiffness=0.15e6),
    ("duration=0.6", "servo_rate=128", "substeps=2", *OURS),
    192,
)
"""Two actuators with different decelerations on a floor that turns: 22 and 25 mm."""

COLUMN = Bench(
    "column_under_axial_load",
    HEAD
    + """
  drift:
    serves: [drift]
    displacement: {unit: mm, range: 110.0, noise_rms: 0.002}
    force: {unit: kN, range: 330.0, noise_rms: 0.02}
    command: {unit: mm, range: 110.0}
    limits: {stroke: 0.1, velocity: 0.5, force: 300.0e3, deceleration: 1.0}
    elastic_limit: 0.05
    slow_error: 4.0e-3
    small_move: {displacement: 1.0e-3, velocity: 20.0e-3, force: 30.0e3}
    unloading: {travel: 0.05, velocity: 50.0e-3}
  load:
    serves: [load]
    displacement: {unit: mm, range: 11.0, noise_rms: 0.001}
    force: {unit: kN, range: 770.0, noise_rms: 0.2}
    command: {unit: mm, range: 11.0}
    limits:
      {stroke: 0.01, velocity: 0.02, force: 700.0e3, force_rate: 2.0e6, force_error: 50.0e3, deceleration: 0.3}
    elastic_limit: 0.002
    slow_error: 0.5e-3
    small_move: {displacement: 50.0e-6, velocity: 0.5e-3, force: 100.0e3}
    unloading: {travel: 0.002, velocity: 2.0e-3}
    force_control:
      closed_by: nodes
      largest_correction: 10.0e-6
      law:
        type: feed_forward_pi
        stiffness: 1.0e9
        lead: 0.0147
        column: {column_length: 3.0, actuator_length: 2.0}
""",
    (
        "servo_rate=512",
        "duration=3.0",
        "ground_motion.delay=1.4",
        "axes.load.load.ramp_time=0.6",
        "axes.load.load.held_for=0.3",
    ),
    256,
    rungs="ceg",
    load=1,
    newtons=500e3,
)
"""A column that drifts by 20 mm under 500 kN; its test has no file and no plug-in."""
