# SPDX-License-Identifier: Apache-2.0
"""Labels of a scenario: names of its axes, and kind of rig."""

from __future__ import annotations

from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario

SIMULATED, EMULATED = "simulated", "emulated"
REAL_RIG = "REAL RIG"


def axis_names(scenario: Scenario) -> dict[str, str]:
    """Return the display names of the axes: ``north (story_1)`` if the rig file has another name."""
    called = {name: axis.rig_axis.name if axis.rig_axis else name for name, axis in scenario.axes.items()}
    return {name: name if title in ("", name) else f"{title} ({name})" for name, title in called.items()}


def simulation(scenario: Scenario | RigFile) -> str:
    """Return ``simulated``, ``emulated`` if a program replaces the rig, or an empty string for a real rig."""
    port = scenario.port
    if port.builds_axes:
        return SIMULATED
    return EMULATED if port.emulator or port.stand_in else ""


def rig_kind(scenario: Scenario | RigFile) -> str:
    return label(simulation(scenario))


def label(simulation: str) -> str:
    return simulation.upper() or REAL_RIG
