"""The rig behind its port, with limits, the state of the test and the safe stop."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command, Measurement
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.fading import fading_of
from rths_nodes.loop.supervision.bridges import CommandBridge
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop
from rths_nodes.loop.supervision.states import ENDED, State, TestMachine


class RigStage:
    """The rig behind its port, with limits, the state of the test and the safe stop.

    ``bridged`` counts the samples that were driven without the Target or the Command that belongs to them,
    ``late_commands`` the Commands that came too late to be sent.
    """

    def __init__(self, scenario: Scenario, port: Any) -> None:
        self.port = port
        self.machine = TestMachine()
        self.samples = scenario.samples
        self._limits = scenario.limits
        self._dt = scenario.dt
        self._check = LimitCheck(
            scenario.limits, scenario.dt, self.port.auxiliary_inputs, self.port.auxiliary_names
        )
        self._fading = fading_of(scenario)
        self._max_bridge = scenario.bridge.max_bridge
        self._longest = scenario.bridge.longest(scenario.dt)
        self.bridged = self.late_commands = 0
        self._in_a_row = 0
        self._missing = ""
        self._stop: SafeStop | None = None
        self._end = State.TRIPPED
        self._trip_at: tuple[int, str] | None = None
        self._sent = self._sent_before = np.zeros(len(scenario.axes))
        self._passive = np.zeros(len(self.port.auxiliary_inputs))
        self.sample = 0

    @property
    def ended(self) -> bool:
        """True when the test is over, one way or another."""
        return self.machine.state in ENDED

    @property
    def stopping(self) -> bool:
        """True while the safe policy, not the compensator, drives the rig."""
        return self._stop is not None

    @property
    def trip_known(self) -> bool:
        """True when a trip has been asked for, now or at a later sample."""
        return self._trip_at is not None

    @property
    def hold_asked(self) -> bool:
        """True when the operator wants the test to end."""
        return self._end is State.HELD

    @property
    def trip_reason(self) -> str:
        """Why a trip has been asked for; empty when none has."""
        return self._trip_at[1] if self._trip_at else ""

    @property
    def trip_due(self) -> bool:
        """True when the next tick belongs to the safe policy."""
        return self._trip_at is not None and self.sample + 1 >= self._trip_at[0]

    def connect(self) -> None:
        """Open the port and walk a simulator, which stands at zero, up to its start position."""
        if not self.port.simulated:
            raise ConfigError(
                "port: is not a simulator: only an operator may arm it, which this version cannot do"
            )
        self.port.open()
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.machine.to(state)

    def first(self) -> Measurement:
        """Start the test: Measurement 0."""
        self.machine.to(State.RUNNING)
        measured: Measurement = self.port.read()
        self._sent = self._sent_before = measured.command
        self._bridge = CommandBridge(self._fading, self._dt, measured.command, self._passive)
        return measured

    def trip(self, reason: str, sample: int = 0) -> None:
        """Go to the safe policy, at ``sample`` or as soon as it is past; the first reason counts."""
        if self._trip_at is None:
            self._trip_at = (sample, reason)

    def hold(self, reason: str) -> None:
        """Stop at the operator's wish: the same safe stop, another end."""
        if self._trip_at is None and not self.ended:
            self._end = State.HELD
            self.trip(reason)

    def settle(self) -> None:
        """After all was judged: a trip that was asked for too late to stop for still makes a tripped test.

        So a limit of the monitor that was broken in the last samples is not passed over.
        """
        if self.machine.state is State.FINISHED and self._trip_at is not None:
            self.machine.to(State.TRIPPED, f"sample {self.sample}: {self._trip_at[1]}")

    def late_command(self, command: Command) -> None:
        """A Command whose sample is over: it is not sent, but counted, and the bridge goes on from it."""
        self.late_commands += 1
        self._bridge.heard(command)

    def tick(self, command: Command | None, late: bool = False) -> Measurement:
        """One sample: the command if it may be sent, otherwise the safe policy; then measure.

        Without a command the rig trips; unless it is only ``late``, which is bridged.
        """
        sample = self.port.wait_tick()
        command = self._driven(command, late, sample)
        if self._stop is None:
            reason = self._reason(command)
            if reason:
                self._begin_stop(reason, sample)
        if self._stop is not None or command is None:
            assert self._stop is not None
            applied, auxiliary = np.array(self._stop.step()), self._passive
        else:
            applied, auxiliary = command.command.copy(), command.auxiliary
        self.port.write(applied, auxiliary)
        self._sent_before, self._sent = self._sent, applied
        measured: Measurement = self.port.read()
        self.sample = sample
        if self._stop is None and command is not None:
            if command.flags & FLAG_BRIDGED:
                # what the rig did was not made of a Target: nothing is to be learnt from it
                measured.flags |= FLAG_BRIDGED
                self.bridged += 1
            reason = self.port.interlock or self._check.measurement(measured, command.target)
            if reason:
                self._begin_stop(reason, sample)
        if self._stop is not None:
            measured.flags |= FLAG_TRIPPED
            if self._stop.at_rest:
                self.machine.to(self._end)
        elif sample == self.samples:
            self.machine.to(State.FINISHED)
        return measured

    def _driven(self, command: Command | None, late: bool, sample: int) -> Command | None:
        """The Command that drives the rig: the one in time, or a straight line where it is late."""
        if self._stop is not None or (command is None and not late):
            return command
        if command is None:
            missing = "Command"
            command = self._bridge.command(sample)
        else:
            missing = "Target"
            self._bridge.heard(command)
            command = self._bridge.rejoin(command)
        if not command.flags & FLAG_BRIDGED:
            self._in_a_row = 0
            return command
        self._missing = self._missing if self._in_a_row else missing
        self._in_a_row += 1
        return command

    def _reason(self, command: Command | None) -> str:
        if self._trip_at and self.trip_due:
            return self._trip_at[1]
        if self._in_a_row > self._longest:
            late = self._in_a_row * self._dt
            bound = f"must be <= {1e3 * self._max_bridge:g} ms"
            return f"bridge.max_bridge: no {self._missing} for {1e3 * late:.3g} ms: {bound}"
        if command is None:
            return "no command came"
        return self._check.command(command, self._sent)

    def _begin_stop(self, reason: str, sample: int) -> None:
        self.machine.to(State.STOPPING, f"sample {sample}: {reason}")
        velocity = (self._sent - self._sent_before) / self._dt
        self._stop = SafeStop(self._limits, self._dt, self._sent, velocity)
