# SPDX-License-Identifier: Apache-2.0
"""Force loop of an axis: converts Commands in N to actuator positions.

The control mode in a Command determines whether an axis is held at a displacement or controlled by force. Changing
the mode does not move the axis. A force loop starts at the commanded position. When the loop ends, the axis stays
at its last position, and then follows only changes of the command.

The loop stops if a position would exceed the stroke or the velocity limit of the axis, or if the feedback
correction exceeds ``largest_correction``. The axis is then held, and the reason in ``breach`` trips the test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.control import ForceController
from rths_nodes.core.parameters import OfForceControllerParams, component, number, params, text
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD, Array, Command

CONTROLLER, NODES = CLOSED_BY = ("controller", "nodes")


@params
class ForceControl:
    closed_by: str = text(
        "component that closes the force loop: the controller of the rig, which receives commands in N, or the "
        "nodes, which send displacements",
        choices=CLOSED_BY,
    )
    law: OfForceControllerParams = component(
        "force_controller",
        "force controller that the nodes use, or with which a simulator replaces the controller of the rig",
    )
    largest_correction: float = number(
        "largest feedback correction; a larger correction indicates a drifting load cell, a specimen that "
        "has lost its stiffness, or another specimen",
        "m",
        more_than=0.0,
        at_most=1.0,
    )


def by_controller(axis: Any) -> bool:
    return axis.mode == "force" and axis.force_control is not None and axis.force_control.closed_by == CONTROLLER


class ForceAxis:
    """Controls the force of one axis. The axis is initially held at a displacement."""

    def __init__(self, name: str, axis: Any, dt: float) -> None:
        self._name, limits = name, axis.limits
        self._stroke, self._rate, self._step = limits.stroke, 1.0 / dt, limits.velocity * dt
        self._largest = axis.force_control.largest_correction
        self.law: ForceController = registry.build("force_controller", axis.force_control.law, dt)
        self.start(0.0)

    def start(self, position: float) -> None:
        self.law.reset()
        self.position = self._base = self._from = position
        self.controlled = False
        self.breach = ""

    @property
    def mode(self) -> int:
        """Control mode (MODE_...). After a breach, the axis accepts no command in N until it has been held."""
        if self.breach:
            return MODE_DISPLACEMENT
        return MODE_FORCE if self.controlled else MODE_HELD

    def hold(self, command: float) -> float:
        if self.controlled:
            self.controlled, self.breach = False, ""
            self._base, self._from = self.position, command
        self.position = command if self._base == self._from else self._base + (command - self._from)
        return self.position

    def control(self, target: float, measured: float, drift: float, drift_before: float) -> float:
        """Return the next position (m) for the forces ``target`` and ``measured`` (N); see ForceController."""
        if self.breach:
            return self.position
        if not self.controlled:
            self.controlled = True
            self.law.begin(self.position, target, drift, drift_before)
            return self.position
        wanted = self.law.step(target, measured, drift)
        self.breach = self._refusal(wanted)
        if not self.breach:
            self.position = wanted
        return self.position

    def _refusal(self, wanted: float) -> str:
        name, led = self._name, f"axes.{self._name}.force_control"
        if not math.isfinite(wanted):
            return f"{led}: command = {wanted}: must be finite, but the force or the drift is not finite"
        correction = self.law.correction
        if not abs(correction) <= self._largest:
            return (
                f"axes.{name}.force_control.largest_correction: {correction:.6g} m: must be within +- "
                f"{self._largest:g} m, but the force does not follow the displacement. Check the load cell, the "
                "stiffness of the specimen, and that the declared specimen is mounted"
            )
        if abs(wanted) > self._stroke:
            return f"{led}: command = {wanted:.6g} m: must be within +- {self._stroke:g} m (limits.stroke)"
        if abs(wanted - self.position) > self._step:
            velocity, bound = (wanted - self.position) * self._rate, self._step * self._rate
            return f"{led}: command = {velocity:.6g} m/s: must be within +- {bound:g} m/s (limits.velocity)"
        return ""


class ForceLoops:
    """Force loops closed by the component ``closed_by``. ``modes`` holds the control modes, one byte per axis."""

    def __init__(self, axes: Mapping[str, Any], closed_by: str, dt: float) -> None:
        self._axes = [
            (index, ForceAxis(name, axis, dt))
            for index, (name, axis) in enumerate(axes.items())
            if axis.force_control is not None
            and axis.mode == "force"
            and axis.force_control.closed_by == closed_by
        ]
        self._n = len(axes)
        self.places = frozenset(index for index, _ in self._axes)
        self.start(np.zeros(self._n))

    def __bool__(self) -> bool:
        return bool(self._axes)

    def start(self, places: Array) -> None:
        for index, axis in self._axes:
            axis.start(float(places[index]))
        self._targets: list[float] = places.tolist()
        self.modes = bytes(MODE_HELD if index in self.places else MODE_DISPLACEMENT for index in range(self._n))

    @property
    def breach(self) -> str:
        return next((axis.breach for _, axis in self._axes if axis.breach), "")

    def led(self, command: Command, force: Sequence[float]) -> Array:
        """Convert a Command to positions ``(n_axes,)`` m, given the last measured ``force`` (N)."""
        asked, modes, targets = command.command.copy(), command.control_mode, command.target.tolist()
        led_modes = bytearray(self.modes)
        for index, axis in self._axes:
            if modes and modes[index] == MODE_FORCE:
                coupled = axis.law.coupled_to
                drifts = (0.0, 0.0) if coupled is None else (targets[coupled], self._targets[coupled])
                asked[index] = axis.control(float(asked[index]), float(force[index]), *drifts)
            else:
                asked[index] = axis.hold(float(asked[index]))
            led_modes[index] = axis.mode
        self.modes = bytes(led_modes)
        self._targets = targets
        return asked
