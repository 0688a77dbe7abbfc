# SPDX-License-Identifier: Apache-2.0
"""A frame with an absorber under test, whose law it has itself with other numbers, and copies that learn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load, replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Collector, Run

AXIS = "story_1"
SPECIMEN = {"type": "elastoplastic_absorber", "stiffness": 10e6, "yield_force": 80e3, "post_yield_ratio": 0.1}
TRUE = {"stiffness": 10e6, "yield_displacement": 0.008, "post_yield_ratio": 0.1}
OFF = {"stiffness": 13e6, "yield_displacement": 0.0056, "post_yield_ratio": 0.1}
NOISE = 4e3
OPEN = ("stiffness", "yield_displacement")
RECORDS = ("elcentro_1940_ns", "benchmark_kobe_1995", "benchmark_morgan_hill_1984")
PEAK = 1.8
"""m/s^2 to which these seconds of each are scaled."""
SECONDS = ("duration=12", "compensator.alpha_es=29.0", "axes.story_1.limits.velocity=1.5")


def section(**changes: Any) -> dict[str, Any]:
    """The section ``updating``, with ``changes``."""
    parameters = {name: {"bounds": [0.4 * OFF[name], 2.5 * OFF[name]]} for name in OPEN}
    return {"of": ["x"], "axis": AXIS, "noise": NOISE, "parameters": parameters} | changes


def learning(**changes: Any) -> list[str]:
    """Overrides of the shipped scenario of the frame that make it this one; ``changes`` of the section."""
    return [
        f"axes.{AXIS}.specimen={json.dumps(SPECIMEN)}",
        f"structure.restoring_force={json.dumps({'type': 'bouc_wen'} | OFF)}",
        f"updating={json.dumps(section(**changes))}",
    ]


def frame(
    *overrides: str, updating: dict[str, Any] | None = None, specimen: dict[str, Any] = SPECIMEN
) -> Scenario:
    """The frame with the absorber, and what it shall update; None for nothing."""
    loaded = load("chen_ricles_2010", [f"axes.{AXIS}.sensors.force_noise_rms={0.5 * NOISE:g}", *overrides])
    parts: list[tuple[list[str], Any]] = [
        (["axes", AXIS, "specimen"], specimen),
        (["structure", "restoring_force"], {"type": "bouc_wen"} | OFF),
    ]
    if updating is not None:
        parts.append((["updating"], updating))
    return replace(loaded, parts)


def run(scenario: Scenario, faults: Sequence[str] = ()) -> Run:
    """The Run stage by stage, with ``faults``, to its end; nobody asks whether it is stable first."""
    loop = FaultyLoop(Assembly(scenario), [parse(each) for each in faults])
    collector = Collector(scenario, loop.assembly.names)
    outcome = loop.run([collector])
    assert outcome.state.name == "FINISHED", outcome.reason
    return collector.run(integrator=outcome.integrator)


@cache
def peak(record: str) -> float:
    """Largest acceleration (m/s^2) of these seconds."""
    scenario = frame(*SECONDS, f"ground_motion={{type: record, record: {record}}}")
    return float(np.abs(Assembly(scenario).ground_acceleration).max())


def scaled(record: str) -> dict[str, Any]:
    """The ground motion ``record``, scaled to ``PEAK``."""
    return {"type": "record", "record": record, "scale": PEAK / peak(record), "accept_any_peak": True}
