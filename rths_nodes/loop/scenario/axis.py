# SPDX-License-Identifier: Apache-2.0
"""Axis of a scenario: simulated parts, channels, limits and mode."""

from __future__ import annotations

from rths_nodes.core.declarations import OfParams
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import component, params, section, text
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.laboratory.force_control import ForceControl
from rths_nodes.laboratory.sensors import Output, Sensors
from rths_nodes.loop.scenario.force_axes import AXIS_MODES, check_mode
from rths_nodes.loop.scenario.loads import Load


@params
class Axis:
    """One actuator axis of the rig."""

    actuator: OfParams | None = component(
        "actuator",
        "simulated actuator, for the port simulator and for rths stability; left out if rig has all actuators",
        None,
    )
    specimen: OfParams | None = component(
        "specimen",
        "simulated specimen of this axis, for the port simulator and for rths stability; left out if rig has "
        "a common specimen",
        None,
    )
    sensors: Sensors = section(Sensors, "noise, resolution, range and delay of the measurement")
    output: Output = section(Output, "resolution and range of the command")
    limits: Limits = section(Limits, "limits of this axis; a rig file (--rig) replaces them")
    mode: str = text(
        "quantity that the axis follows: the displacement of the interface, or its own force (load)",
        "displacement",
        AXIS_MODES,
    )
    load: Load | None = section(Load, "force target of an axis whose mode is force", None)
    force_control: ForceControl | None = section(
        ForceControl, "controller of the force; a rig file (--rig) replaces it", None
    )
    rig_axis: RigAxis | None = section(RigAxis, "the same axis in the rig file", None)

    @property
    def own_load(self) -> Load | None:
        if self.load is None or self.rig_axis is None:
            return self.load
        return self.load.over(self.rig_axis.similitude.force)

    def validate(self, path: str) -> None:
        if self.rig_axis is not None:
            self.rig_axis.check_limits(self.limits, path, "rig_axis")
        check_mode(self, path)
