"""One axis of a rig whose axes have a node each: its own port, limits and safe stop."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Array, Command, Measurement
from rths_nodes.laboratory.ports.per_axis import Links, PerAxisPort
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis_layout import alone, check_layout
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop


class AxisStage:
    """One axis of the rig behind its own port, with its limits and a safe stop of its own. Arrays ``(1,)``.

    ``trip`` is why it does not follow its Commands any more; empty while it does.
    """

    def __init__(self, scenario: Scenario, axis: str) -> None:
        mine = alone(scenario, axis)
        self.port = Assembly(mine).port
        if not self.port.simulated:
            raise ConfigError(
                "port: is not a simulator: only an operator may arm it, which this version cannot do"
            )
        self._limits, self._dt = mine.limits, mine.dt
        self._check = LimitCheck(self._limits, self._dt)
        self._stop: SafeStop | None = None
        self._next = 0
        self.trip = ""
        self.astray = False
        """True when a Command is missing: the rig, which goes by numbers, cannot lead this axis any more."""
        self.port.open()
        self._sent = self._sent_before = self.port.read().command

    @property
    def sample(self) -> int:
        """The last sample measured; -1 before Measurement 0."""
        return self._next - 1

    @property
    def at_rest(self) -> bool:
        """True when the axis holds, or was not moved by its last Command."""
        return self._stop.at_rest if self._stop is not None else bool((self._sent == self._sent_before).all())

    def stop(self, reason: str) -> None:
        """Follow no Command any more: the safe stop begins with the velocity of the last two."""
        if self._stop is None:
            self.trip = reason
            velocity = (self._sent - self._sent_before) / self._dt
            self._stop = SafeStop(self._limits, self._dt, self._sent, velocity)

    def follow(self, command: Command) -> Measurement | None:
        """Measurement k for Command k; Command 0 moves nothing. One that came twice has none.

        Where a number is left out the axis stops by itself, and its Measurements keep their own numbers.
        """
        if command.sample < self._next:
            return None
        if command.sample > self._next:
            self.astray = True
            self.stop(f"Command {command.sample} came where {self._next} was expected")
            return self.coast()
        if command.sample == 0:
            self._next = 1
            return self._measured()
        if self._stop is None and (reason := self._check.command(command, self._sent)):
            self.stop(reason)
        if self._stop is not None:
            return self.coast()
        measured = self._tick(command.command.copy())
        stopping = command.flags & FLAG_TRIPPED  # the rig stops all axes together: no measurement ends that
        if not stopping and (reason := self._check.measurement(measured, command.target)):
            self.stop(reason)
            measured.flags |= FLAG_TRIPPED
        return measured

    def coast(self) -> Measurement:
        """One sample of the axis' own safe stop."""
        assert self._stop is not None
        measured = self._tick(np.array(self._stop.step()))
        measured.flags |= FLAG_TRIPPED
        return measured

    def _tick(self, applied: Array) -> Measurement:
        self._next = self.port.wait_tick() + 1
        self.port.write(applied)
        self._sent_before, self._sent = self._sent, applied
        return self._measured()

    def _measured(self) -> Measurement:
        measured: Measurement = self.port.read()
        return measured


class GatheringStage(RigStage):
    """The stage of such a rig: what the port finds out about its axes counts as a breach."""

    port: PerAxisPort

    def __init__(self, scenario: Scenario, links: Links) -> None:
        check_layout(scenario)
        super().__init__(scenario, PerAxisPort(tuple(scenario.axes), scenario.port.transport_samples, links))
        self._check = _Check(scenario, self.port)

    def first(self) -> Measurement:
        """Start the test: Measurement 0, for which the axes are asked."""
        self.port.begin()
        return super().first()

    def _driven(self, command: Command | None, late: bool, sample: int) -> Command | None:
        driving = super()._driven(command, late, sample)
        if driving is not None:
            self.port.target, self.port.command_flags = driving.target, driving.flags
        return driving

    def _begin_stop(self, reason: str, sample: int) -> None:
        self.port.stopping = True
        # an axis is lost because something has happened: who asked for a trip knows what
        told = self._trip_at[1] if self._trip_at is not None and self.port.unheard else reason
        super()._begin_stop(told, sample)


class _Check(LimitCheck):
    """The limits of all axes, and what the port has found out."""

    def __init__(self, scenario: Scenario, port: PerAxisPort) -> None:
        super().__init__(scenario.limits, scenario.dt)
        self._port = port

    def measurement(self, measured: Measurement, target: Array) -> str:
        """The limits come first, in the words of a rig with one node; a lost axis has no measurement."""
        if self._port.unheard:
            return self._port.problem
        return super().measurement(measured, target) or self._port.problem
