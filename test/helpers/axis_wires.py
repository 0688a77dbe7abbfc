# SPDX-License-Identifier: Apache-2.0
"""Links of a rig to the stages of its axes, in the same program."""

from __future__ import annotations

from collections import deque

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.laboratory.force_control import NODES, ForceLoops
from rths_nodes.laboratory.ports.per_axis import LoadedAxesPort, PerAxisPort, before_axes
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.axis import AxisStage


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
