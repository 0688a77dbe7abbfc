# SPDX-License-Identifier: Apache-2.0
"""Frame on one axis; a test adds actuator and specimen, or a rig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.app import hosts
from rths_nodes.loop.scenario import files

STIFFNESS = 1.0e6
"""Stiffness of the specimen, N/m."""

SCENARIO = """
version: 1
name: rehearsal
servo_rate: 1024.0
substeps: 8
duration: {duration}
ground_motion: {{type: record, record: elcentro_1940_ns, scale: 1.0}}
structure: {{type: sdof, mass: 40000.0, frequency: 1.2}}
integrator: {{type: cr}}
compensator: {{type: none}}
axes:
  story_1:
    limits: {{stroke: 0.5, velocity: 5.0, force: 1.0e7}}
"""
OWN = "    actuator: {actuator}\n    specimen: {specimen}\n"
"""Actuator and specimen, appended to SCENARIO as part of the axis."""


def scenario(folder: Path, text: str, *overrides: str, duration: float = 2.0) -> Any:
    """Load SCENARIO with ``text`` appended."""
    return files.load(files.from_text(SCENARIO.format(duration=duration) + text, "it.yaml", folder), overrides)


def reference(folder: Path, specimen: str, actuator: str = "{type: pure_delay}") -> Any:
    """Run the scenario with a specimen of this package."""
    return hosts.run(scenario(folder, OWN.format(actuator=actuator, specimen=specimen))).read()


def apart(values: Any, expected: Any) -> float:
    """Largest difference over the largest expected value."""
    return float(np.abs(values - expected).max() / np.abs(expected).max())
