# SPDX-License-Identifier: Apache-2.0
"""Links of a rig to the stages of its axes, in the same program, and a fourth axis in force control."""

from __future__ import annotations

from collections import deque

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.laboratory.force_control import NODES, ForceLoops
from rths_nodes.laboratory.ports.per_axis import LoadedAxesPort, PerAxisPort, before_axes
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import AxisStage


def connected(rig: Scenario, axis: str) -> AxisStage:
    stage = AxisStage(rig, axis)
    stage.connect()
    return stage


class Wires:
    """Links to stages in the same program. ``deaf`` contains the first unanswered sample of an axis."""

    def __init__(self, rig: Scenario) -> None:
        self.stages = {axis: connected(rig, axis) for axis in rig.axes}
        self.measured: dict[str, deque[Measurement | None]] = {axis: deque() for axis in rig.axes}
        self.true: dict[str, deque[tuple[Measurement, int]]] = {axis: deque() for axis in rig.axes}
        self.deaf: dict[str, int] = {}

    def send_command(self, axis: str, command: Command) -> None:
        if command.sample >= self.deaf.get(axis, 1 << 30):
            return
        stage = self.stages[axis]
        self.measured[axis].append(stage.follow(command))
        true = stage.port.truth()
        assert true is not None
        self.true[axis].append((true, command.sample))

    def measurement_of(self, axis: str) -> Measurement | None:
        return self.measured[axis].popleft() if self.measured[axis] else None

    def true_state_of(self, axis: str) -> tuple[Measurement, int] | None:
        return self.true[axis].popleft() if self.true[axis] else None

    def lost(self, axes: object, sample: int) -> str:
        return f"no Measurement {sample} of {', '.join(axes)}"  # type: ignore[call-overload]


class AtOnce(PerAxisPort):
    """Per-axis port that waits for the Measurement when it is read."""

    def read(self) -> Measurement:
        while not self.ready():
            pass
        return super().read()


def apart(rig: Scenario) -> tuple[AtOnce | LoadedAxesPort, Wires]:
    """Return a port with separate axes, for the loop without nodes, and the links to the axes."""
    wires = Wires(rig)
    port = AtOnce(tuple(rig.axes), rig.port.transport_samples, wires)
    return before_axes(port, ForceLoops(rig.axes, NODES, rig.dt)), wires  # type: ignore[return-value]


LAWS = {
    "nodes": "{type: feed_forward_pi, stiffness: 20.0e6, lead: 0.0137}",
    "controller": "{type: servo_valve, stiffness: 20.0e6}",
}


def weight(closed_by: str) -> str:
    """Return an override: 20 kN on a spring of 20 kN/mm, applied within 0.1 s, with noise."""
    return (
        "axes.weight={mode: force, "
        "actuator: {type: second_order, natural_frequency: 15.0, damping_ratio: 0.64}, "
        "specimen: {type: kelvin_voigt, stiffness: 20.0e6, damping: 0.0}, "
        "sensors: {displacement_noise_rms: 1.0e-6, force_noise_rms: 20.0}, "
        "load: {value: 20.0e3, ramp_time: 0.1, held_for: 0.05}, "
        f"force_control: {{closed_by: {closed_by}, largest_correction: 1.0e-3, law: {LAWS[closed_by]}}}, "
        "limits: {stroke: 0.01, velocity: 0.2, force: 60.0e3, force_rate: 800.0e3, force_error: 30.0e3}}"
    )
