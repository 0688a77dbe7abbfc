# SPDX-License-Identifier: Apache-2.0
"""One axis of a rig with a node per axis: its own port, limits and safe stop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import evolved
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import EMPTY, FLAG_TRIPPED, Command, Measurement, by_force
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis_layout import alone
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import open_port
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop, held_places


class AxisStage:
    """One axis of the rig behind its own ``port``, with its limits and a safe stop of its own. Arrays ``(1,)``.

    The state of the test belongs to the rig: this stage follows its Commands, and stops by itself if it must.
    Coupled axes then stop only with the rig, a sample or more later. ``trip`` is why it no longer follows, or
    empty.

    Commands count all ticks of the rig, including pauses. An axis whose controller closes a force loop gets some
    of them in N. A force axis that stops by itself holds its position; the rig decides whether it keeps its force
    until rest.
    """

    def __init__(self, port: Port, limits: dict[str, Limits], dt: float) -> None:
        self.port = port
        self.trip = ""
        self.out_of_sequence = False
        """True if a Command is missing: the rig counts on, and cannot lead this axis any more."""
        self._loaded = any(each.of_force for each in limits.values())
        """True for a force axis, which has no velocity to lose."""
        self._check = LimitCheck(limits, dt)
        self._stop = SafeStop(limits, dt)
        self._next = 0
        at_zero = np.zeros(1)
        self._sent = self._sent_before = at_zero.tolist()
        self._mode = self._mode_before = b""
        """Control modes of the sent commands."""
        self._measured = Measurement(0, at_zero, at_zero, at_zero)

    @classmethod
    def of(cls, scenario: Scenario, axis: str, wrap: Callable[[Port], Port] = lambda port: port) -> AxisStage:
        """Return the stage of an axis, with its port in ``wrap``. Raises ConfigError if axes cannot have nodes."""
        mine = alone(scenario, axis)
        limits = mine.limits
        if mine.hops.depth:  # errors refer to past samples, which only the rig knows
            limits = {axis: evolved(limits[axis], tracking_error=None)}
        return cls(wrap(Assembly(mine).port), limits, mine.dt)

    @property
    def sample(self) -> int:
        return self._next - 1

    @property
    def at_rest(self) -> bool:
        """True if the axis holds, or its last Command, in m, did not move it."""
        if self.trip:
            return self._stop.at_rest
        forced, before = by_force(self._mode).any(), by_force(self._mode_before).any()
        return not forced and bool(before or self._sent == self._sent_before)

    def connect(self) -> None:
        open_port(self.port)

    def stop(self, reason: str) -> None:
        """Stop following Commands: the safe stop takes over."""
        if not self.trip:
            self.trip = reason
            sent, modes = (np.array(self._sent_before), np.array(self._sent)), (self._mode_before, self._mode)
            before, last = held_places(sent, modes, 0, self._measured)
            self._stop.begin(last if self._loaded else before, last)

    def follow(self, command: Command) -> Measurement | None:
        """Return Measurement k for Command k, or None for a repeated one; Command 0 moves nothing.

        After a missing number the axis stops by itself, and its Measurements keep their own numbers.
        """
        if command.sample < self._next:
            return None
        if command.sample > self._next:
            self.out_of_sequence = True
            self.stop(f"Command {command.sample} came where {self._next} was expected")
            return self.stop_alone()
        if command.sample == 0:
            self._next = 1
            self.port.begin()
            first = self._measured = self.port.read()
            self._sent = self._sent_before = first.command.tolist()
            return first
        if not self.trip and (reason := self._check.command(command, self._sent, self._mode)):
            self.stop(reason)
        if self.trip:
            return self.stop_alone()
        measured = self._tick(command)
        stopping = command.flags & FLAG_TRIPPED  # the rig stops all axes together: no measurement ends that
        reason = self._check.measurement(measured, command.target.tolist(), command.control_mode)
        if not stopping and (reason := reason or self.port.partial_stop):
            self.stop(reason)
            measured.flags |= FLAG_TRIPPED
        return measured

    def stop_alone(self) -> Measurement:
        """Make one sample of the axis' own safe stop, after :meth:`stop`."""
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
