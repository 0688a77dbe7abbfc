# SPDX-License-Identifier: Apache-2.0
"""Words for people about a scenario: the names of its axes, and whether a rig stands behind its port."""

from __future__ import annotations

from rths_nodes.loop.scenario.schema import Scenario

SIMULATED, EMULATED = "simulated", "emulated"


def axis_names(scenario: Scenario) -> dict[str, str]:
    """The axes by name, as people call them: ``north (story_1)`` where the rig file has another name for one."""
    called = {name: axis.rig_axis.name if axis.rig_axis else name for name, axis in scenario.axes.items()}
    return {name: name if own in ("", name) else f"{own} ({name})" for name, own in called.items()}


def simulation(scenario: Scenario) -> str:
    """``simulated``, or ``emulated`` where another program stands in for the rig; empty for a rig."""
    port = scenario.port
    if port.builds_axes:
        return SIMULATED
    return EMULATED if port.emulator or port.stand_in else ""
