# SPDX-License-Identifier: Apache-2.0
"""Rigs with one node per axis: their conditions, and the stage of a single axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameters import evolved
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import EMPTY, FLAG_TRIPPED, Command, Measurement, by_force
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.force_axes import DISPLACEMENT, FORCE
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import check_first, open_port
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop, held_places


def check_layout(scenario: Scenario) -> None:
    for path, reason in _coupled(scenario):
        raise ConfigError(f"{path}: needs a rig with one actuator node (actuator_nodes = one), because {reason}")
    for name in scenario.axes:
        if not name.isidentifier() or not name.isascii() or "__" in name:
            raise ConfigError(
                f"axes.{name}: must consist of ASCII letters, digits and single _, and must not begin with a "
                "digit, because the namespace of the axis node has this name"
            )


def _coupled(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the path of each part that a node per axis cannot serve, and the reason."""
    port = scenario.port
    if scenario.rig is not None:
        yield "rig", "the rig couples its axes"
    if port.one_node:
        yield f"port.type = {type(port).type_name!r}", "each datagram contains all axes"
    if port.watchdog is not None:
        yield f"port.watchdog = {port.watchdog:g} s", "a node per axis stops its axis by itself"
    for name, axis in scenario.axes.items():
        control = axis.force_control
        if control is not None and by_controller(axis) and control.law.column is not None:
            yield (
                f"axes.{name}.force_control.law.column",
                "the simulated controller of a single axis does not know the drift of another axis",
            )
        for noun in ("sensors", "output"):
            if (other := getattr(axis, noun).cabled_to) not in (None, name):
                path = f"axes.{name}.{noun}.cabled_to = {show(other)}"
                yield path, "a node per axis reaches only its own axis"
        if axis.sensors.second is not None:
            yield f"axes.{name}.sensors.second", "a node per axis has no auxiliary channels"


def alone(scenario: Scenario, axis: str) -> Scenario:
    check_layout(scenario)
    if axis not in scenario.axes:
        raise unknown("namespace", "axis", axis, scenario.axes)
    mine = scenario.axes[axis]
    if mine.mode == FORCE and not by_controller(mine):  # the actuator node closes the force loop of this axis
        mine = evolved(mine, mode=DISPLACEMENT, load=None, force_control=None)
    return evolved(scenario, axes={axis: mine})


def takes_force(scenario: Scenario, axis: str) -> bool:
    return axis in scenario.axes and by_controller(scenario.axes[axis])


class AxisStage:
    """Drives one ``axis`` of a rig with its own port, limits and safe stop.

    ``wrap`` changes the port. Arrays have the shape ``(1,)``. The state of the test belongs to the rig. This stage
    follows the Commands of the rig, and stops by itself if necessary. Coupled axes then stop only with the rig,
    one or more samples later. ``trip`` is empty, or the reason why the axis no longer follows Commands.

    Command numbers include the ticks of a pause. Commands can be in N if the controller of the axis closes a force
    loop. A force axis that stops by itself holds its position.
    """

    def __init__(self, scenario: Scenario, axis: str, wrap: Callable[[Port], Port] = lambda port: port) -> None:
        mine = alone(scenario, axis)
        limits, dt = mine.limits, mine.dt
        if mine.hops.depth:  # with hops, errors refer to past samples, which only the rig knows
            limits = {axis: evolved(limits[axis], tracking_error=None)}
        self.port = wrap(Assembly(mine).port)
        self.trip = ""
        self.out_of_sequence = False
        """True if a Command was missing. The rig has then continued without this axis and cannot control it."""
        self._loaded = any(limit.of_force for limit in limits.values())
        self._check = LimitCheck(limits, dt)
        self._stop = SafeStop(limits, dt)
        self._next = 0
        at_zero = np.zeros(1)
        self._sent = self._sent_before = at_zero.tolist()
        self._mode = self._mode_before = b""
        self._measured = Measurement(0, at_zero, at_zero, at_zero)

    @property
    def sample(self) -> int:
        return self._next - 1

    @property
    def at_rest(self) -> bool:
        """True if the axis holds its position, or if its last Command is in m and did not move it."""
        if self.trip:
            return self._stop.at_rest
        forced, before = by_force(self._mode).any(), by_force(self._mode_before).any()
        return not forced and bool(before or self._sent == self._sent_before)

    def connect(self) -> None:
        open_port(self.port)

    def stop(self, reason: str) -> None:
        if not self.trip:
            self.trip = reason
            sent, modes = (np.array(self._sent_before), np.array(self._sent)), (self._mode_before, self._mode)
            before, last = held_places(sent, modes, 0, self._measured)
            self._stop.begin(last if self._loaded else before, last)

    def follow(self, command: Command) -> Measurement | None:
        """Return Measurement k for Command k, or None if the Command is repeated. Command 0 causes no motion.

        If a Command is missing, the axis stops by itself. Its Measurements are then numbered by its own ticks.
        """
        if command.sample < self._next:
            return None
        if command.sample > self._next:
            self.out_of_sequence = True
            self.stop(f"received Command {command.sample}, expected Command {self._next}")
            return self.stop_alone()
        if command.sample == 0:
            self.port.begin()
            first = self._measured = self.port.read()
            check_first(first, self.port.interlock)
            self._next = 1
            self._sent = self._sent_before = first.command.tolist()
            return first
        if not self.trip and (reason := self._check.command(command, self._sent, self._mode)):
            self.stop(reason)
        if self.trip:
            return self.stop_alone()
        measured = self._tick(command)
        # the rig stops all axes together, so that no measurement ends this stop
        stopping = command.flags & FLAG_TRIPPED
        reason = self._check.measurement(measured, command.target.tolist(), command.control_mode)
        if not stopping and (reason := reason or self.port.partial_stop):
            self.stop(reason)
            measured.flags |= FLAG_TRIPPED
        return measured

    def stop_alone(self) -> Measurement:
        position = self._stop.step()
        measured = self._tick(Command(self._next, position, position, EMPTY, FLAG_TRIPPED))
        measured.flags |= FLAG_TRIPPED
        return measured

    def _tick(self, command: Command) -> Measurement:
        self._next = self.port.wait_tick() + 1
        self.port.write(command)
        self._sent_before, self._sent = self._sent, command.command.tolist()
        self._mode_before, self._mode = self._mode, command.control_mode
        measured = self._measured = self.port.read()
        return measured
