# SPDX-License-Identifier: Apache-2.0
"""The rig: its port, its limits, the state of the test and the safe stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.declarations import why_failed, why_opened
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.limits import HOLD, INTERLOCK
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    INTERLOCK_OPEN,
    Array,
    Command,
    Measurement,
)
from rths_nodes.laboratory.ports.common import set_trigger
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import BridgeCount, CommandBridge, Pause, fading_of
from rths_nodes.loop.supervision.handover import Handover, OperatorRequests
from rths_nodes.loop.supervision.hops import UnderWay
from rths_nodes.loop.supervision.levels import Breach, LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import LoadStop, SafeStop, held_places
from rths_nodes.loop.supervision.states import ENDED, State, StopRequest, TestMachine


class RigStage:
    """Drives the rig at its ``port`` by Commands within the limits, and otherwise by the safe stop.

    ``bridged`` counts the samples without Target or Command, ``slowed`` the samples in which the rig leaves a
    ``pause``. ``ticks`` includes the ticks of pauses. ``stopping`` is true from the first sample
    of the safe stop on. ``refused`` is true if the last Command exceeded a limit.

    The ``handover`` of a procedure defines the zero of the test. Limits apply to untared values; other parts
    receive tared values. Raises ConfigError if a real rig is not armed, or if a number in the scenario is
    impossible.
    """

    ahead = 0
    """Samples by which a rig with its own loop may be ahead of the nodes in lockstep."""

    def __init__(self, scenario: Scenario, port: Port) -> None:
        check_armed(port)
        judgement.refuse(scenario, port.simulated)
        limits, bridge, dt, groups = scenario.limits, scenario.bridge, scenario.dt, scenario.stop_groups
        levels = scenario.levels
        if levels.quantities:
            scenario.check_fit("levels")
        acting = levels.in_effect(port.simulated, scenario.servo_rate)
        self.port, self.under_way = port, UnderWay(scenario.hops.depth)
        self._handover: Handover | None = port.handover
        tares = None if self._handover is None else self._handover.tares
        self.machine = TestMachine()
        self.sample = 0
        self._open = False
        self.ticks = self.slowed = self.bridged = self.late_commands = 0
        self.stopping = self.refused = False
        self.stop_request: StopRequest | None = None
        self._end = State.TRIPPED
        self._samples = scenario.samples
        self._check = LimitCheck(limits, dt, port.auxiliary_inputs, port.auxiliary_names, tares, groups)
        self.levels = LevelWatch(limits, dt, port.auxiliary_names, tares, acting, levels.quantities) or None
        self._stop = SafeStop(limits, dt, tares, groups)
        self._bridges = BridgeCount(bridge, dt)
        self.late = self._bridges.late
        self.timing: Data = {}
        """Timing of a rig with its own loop. Empty for other rigs, whose timing the node measures."""
        at_zero = np.zeros(len(limits))
        self._passive = np.zeros(len(port.auxiliary_inputs))
        rates = [limit.force_rate for limit in limits.values() if limit.force_rate is not None]
        self._n_moved = len(limits) - len(rates)
        self._load_stop = LoadStop(limits, self._n_moved, dt, self._check.measurement) if rates else None
        self.pause = Pause(bridge, limits, dt)
        self._dt = dt
        fading = fading_of(bridge, limits, dt)
        self._bridge = CommandBridge(fading, dt, np.zeros(len(limits)), self._passive, rates)
        self._sent = self._sent_before = self._aims = at_zero.tolist()
        self._measured = self._shown = Measurement(0, at_zero, at_zero, at_zero)
        self._driving: Command | None = None
        self._driven_before: Command | None = None
        self._between = 0
        self._unfit = ""
        self._sampled = True

    @property
    def failure(self) -> str:
        return self.port.failure

    def close(self) -> None:
        if self._open:
            self._open = False
            self.port.close()

    @property
    def ended(self) -> bool:
        return self.machine.state in ENDED

    @property
    def stop_due(self) -> bool:
        return self.stop_request is not None and self.stop_request.due(self.sample + 1)

    @property
    def counts(self) -> Data:
        """Slowed samples, pauses, and added time (s), unless pauses are impossible; numbers of levels, if any."""
        counts: Data = {}
        if self.pause.allowed or self.pause.count:
            counts = {"slowed": self.slowed, "pauses": self.pause.count, "paused_s": self._between * self._dt}
        return counts | ({} if self.levels is None else {"levels": self.levels.numbers()})

    def truth(self) -> Measurement | None:
        true = self.port.truth()
        if true is not None:
            true.sample = self.sample
        return true

    def connect(self, pacer: Callable[[], int] | None = None) -> None:
        """Open the port and move a simulator to its start. Raises ConfigError if opening fails."""
        open_port(self.port, None if pacer is None else partial(self._bridges.tick, pacer))
        self._open = True
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.machine.to(state)

    def begin(self) -> None:
        self.machine.to(State.RUNNING)
        self.port.begin()
        set_trigger(self.port, True)

    def first(self, sample: int = 0, sent: list[float] | None = None) -> Measurement:
        """Start the test and return the first Measurement, which the port must provide without waiting.

        To continue a test after ``sample``, pass the commands ``sent`` (m) of that sample.
        """
        self.begin()
        measured = self.complete()
        assert measured is not None
        if sent is not None:
            self.sample = sample
            self._sent = self._sent_before = self._aims = sent
        return measured

    def trip(self, reason: str, sample: int = 0) -> None:
        """Request a safe stop at ``sample``, or now if ``sample`` has passed."""
        self._request_stop(StopRequest(reason, sample))

    def hold(self, reason: str) -> None:
        """Request a safe stop for the operator. The test then ends as held instead of tripped."""
        if not self.ended:
            self._request_stop(StopRequest(reason, end=State.HELD))

    def _request_stop(self, request: StopRequest) -> None:
        """Keep the earliest request. A hold only brings a pending trip forward."""
        first = self.stop_request
        if first is None:
            self.stop_request = request
        elif max(request.sample, self.sample + 1) < first.sample:
            self.stop_request = replace(first, sample=request.sample) if request.end is State.HELD else request

    def settle(self) -> None:
        """Trip a finished test if the monitor requested a stop after the last sample."""
        request = self.stop_request
        if self.machine.state is State.FINISHED and request is not None and request.end is not State.HELD:
            self.machine.to(State.TRIPPED, f"sample {self.sample}: {request.reason}")

    def late_command(self, command: Command) -> None:
        """Count a late Command. The bridge continues from the values of this Command, which is not sent."""
        self.late_commands += 1
        self._bridge.received(self.under_way.at_its_tick(command))

    def tick(self, command: Command | None, late: bool = False) -> Measurement | None:
        self.begin_tick(command, late)
        return self.complete()

    def begin_tick(self, command: Command | None, late: bool = False) -> None:
        """Run the first half of a tick: send the command if it is permitted, otherwise a command of the safe stop.

        Without a command the rig trips. If the command is only ``late``, the rig bridges the gap or pauses.
        """
        tick = self.port.wait_tick()
        sample, self._sampled = tick - self._between, True
        if command is not None and command.flags & FLAG_TRIPPED:  # axes do not check Commands with this flag
            command = replace(command, flags=command.flags & ~FLAG_TRIPPED)
        if command is not None and self.under_way.depth:
            command = self.under_way.at_its_tick(command)
        if self._handover is not None:
            self._heed(self._handover.requests)
        if not self.stopping:
            command = self._driven(command, late, sample)
            if reason := self._refusal(command, sample):
                self._begin_stop(reason, sample)
        if self.stopping or command is None:
            self._sampled = True
            position = self._stop.step()
            command = Command(sample, position, position, self._passive, FLAG_TRIPPED)
            if self._load_stop is not None:
                command = self._load_stop.command(command, self._measured, self._shown)
        asked = command.target.tolist(), command.command.tolist()  # a port may change the arrays
        self.port.write(command if tick == command.sample else replace(command, sample=tick))
        self._sent_before = self._sent
        self._aims, self._sent = asked
        self._driven_before, self._driving = self._driving, command

    def complete(self) -> Measurement | None:
        """Run the second half of a tick, once the port is ready: measure and check. Return None during a pause."""
        shown = self._shown = self.port.read()
        measured = self._measured = shown if self._handover is None else self._handover.presented(shown)
        command = self._driving
        if command is None:
            check_first(measured, self.port.interlock)
            self._sent = self._sent_before = measured.command.tolist()
            self._bridge.start(measured.command)
            self.under_way.start = Command(0, stands := measured.command.copy(), stands, self._passive)
            if self.levels is not None:
                self.levels.judge(None, shown)
            return measured
        self.ticks = measured.sample
        sample = measured.sample = shown.sample = self.ticks - self._between
        port = self.port
        if port.interlock:
            measured.interlock = INTERLOCK_OPEN
        if not self.stopping:
            opened = why_opened(port, measured) if measured.interlock == INTERLOCK_OPEN else ""
            reason = opened or why_failed(port, measured.hydraulics)
            reason = reason or (self._handover.lost() if self._handover is not None else "")
            aims = self._aims
            if self.under_way.depth:
                aims = self.under_way.compared(aims, shown.displacement.tolist(), self.pause.active)
            reason = reason or self._check.measurement(shown, aims, command.control_mode)
            reason = reason or port.partial_stop
            if self._handover is not None:
                reason = reason or self._handover.following(command, shown, self.pause.active)
            breach = self.levels.judge(command, shown, aims) if self.levels is not None else None
            if reason or breach is not None:
                self._begin_stop(reason, sample, breach)
            elif not self._sampled:
                self._between += 1
                if self._handover is not None and self.pause.rests:
                    self._handover.rest(sample - 1, shown.force.tolist())
                return None
            # not for learning: the Target is missing or late, or the port has replaced data
            if command.flags or measured.flags or self._bridges.watches:
                measured.flags |= command.flags & (FLAG_BRIDGED | FLAG_SLOWED)
                self._count_sample(sample, measured.flags)
        self.sample = sample
        if self.stopping:
            measured.flags |= FLAG_TRIPPED
            if self._stop.at_rest and (self._load_stop is None or self._load_stop.at_rest):
                self.machine.to(self._end)
        elif sample == self._samples:
            set_trigger(self.port, False)
            self.machine.to(State.FINISHED)
            if late := self._bridges.breach:
                self.trip(late)
        return measured

    def _count_sample(self, sample: int, flags: int) -> None:
        self.bridged += (bridged := flags & FLAG_BRIDGED > 0)
        self.slowed += flags & FLAG_SLOWED > 0
        if bridged or self._bridges.watches:
            self._bridges.sampled(sample, bridged)

    def _heed(self, asked: OperatorRequests) -> None:
        if asked.stop_reason:
            self.hold(asked.stop_reason)
        pause = self.pause
        pause.held = asked.held and self._driving is not None and not self.stopping
        if pause.held and pause.can_be_held and self._driving is not None:
            pause.begin(self._driven_before or self._driving, self._driving)
            self._bridges.follow(False)

    def _driven(self, command: Command | None, late: bool, sample: int) -> Command | None:
        if (self.pause.allowed or self.pause.active) and self._stands_still(command, late):
            return self._paused(command, sample)
        if command is None and not late:
            return None
        if command is None:
            missing = "Command"
            command = self._bridge.command(sample)
        else:
            missing = "Target"
            command = self._bridge.rejoin(command)
        if command.flags & FLAG_BRIDGED or self._bridges.in_a_row:
            self._bridges.follow(command.flags & FLAG_BRIDGED > 0, missing)
        return command

    def _stands_still(self, command: Command | None, late: bool) -> bool:
        pause, driving = self.pause, self._driving
        if driving is None or not (late or command is not None):
            return pause.active
        bridged = command is None or bool(command.flags & FLAG_BRIDGED)
        wanting = command is None and pause.needs_command if pause.active else bridged
        if wanting and pause.allowed and self._bridges.exhausted:
            pause.begin(self._driven_before or driving, driving)
            self._bridges.follow(False)
        return pause.active

    def _paused(self, command: Command | None, sample: int) -> Command:
        pause = self.pause
        apart: Array | float = 0.0
        if command is None and pause.needs_command:
            command = self._bridge.command(sample)
        elif command is not None:
            target = command.target
            command = self._bridge.rejoin(command)
            apart = (command.target - target)[: self._n_moved]
        if command is not None:
            self._unfit = self._check.command(command, pause.known.command.tolist(), pause.known.control_mode)
            pause.supply(command, apart)
        driven = pause.command(sample)
        self._sampled = pause.sampled
        if self._handover is not None and not pause.active:
            self._handover.under_way()
        if pause.sampled:
            self._bridges.follow(driven.flags & FLAG_BRIDGED > 0, "Target")
        return driven

    def _refusal(self, command: Command | None, sample: int) -> str:
        modes = self._driving.control_mode if self._driving is not None else b""
        beyond = "no command came" if command is None else self._check.command(command, self._sent, modes)
        beyond = self._unfit or beyond
        self.refused = command is not None and bool(beyond)
        if self.stop_request is not None and self.stop_request.due(sample):
            return self.stop_request.reason
        if (self._bridges.in_a_row or self._bridges.overruns) and (breach := self._bridges.breach):
            return breach
        if self.pause.active and (breach := self.pause.breach):
            return breach
        return beyond

    def _begin_stop(self, reason: str, sample: int, breach: Breach | None = None) -> None:
        if breach is not None:
            if breach.action == HOLD and not reason:
                self._request_stop(StopRequest(breach.reason, end=State.HELD))
            elif breach.action == INTERLOCK:
                self.port.drop_heartbeat()
            reason = reason or breach.reason
        request = self.stop_request
        if request is not None and self.port.interlock:
            reason = request.reason  # the request names the cause; the open interlock is only the effect
        if request is not None and reason == request.reason:
            self._end = request.end
        self.machine.to(State.STOPPING, f"sample {sample}: {reason}")
        self.stopping = True
        set_trigger(self.port, False)
        if self._handover is not None:
            self._handover.stopping(reason)
        before, last = np.array(self._sent_before), np.array(self._sent)
        if self._n_moved < len(last):
            earlier, driving = self._driven_before, self._driving
            modes = (
                b"" if earlier is None else earlier.control_mode,
                b"" if driving is None else driving.control_mode,
            )
            before, last = held_places((before, last), modes, self._n_moved, self._measured)
        self._stop.begin(before, last)
        if self._load_stop is not None:
            self._load_stop.begin(self._driven_before, self._driving, self._stop, reason)


def check_armed(port: Port) -> None:
    """Raise ConfigError for a ``port`` to real actuators that no operator has armed."""
    if not (port.simulated or port.armed):
        raise ConfigError(
            f"{port.label}: is not a simulator. Only an operator can arm a real rig, with rths test "
            "(doc/procedure.md)"
        )


def check_first(measured: Measurement, lost: str) -> None:
    """Raise PortError if Measurement 0 has no finite commands, at which the rig could be held."""
    if not np.isfinite(measured.command).all():
        raise PortError(lost or f"Measurement 0: command = {measured.command.tolist()} m: must be finite")


def open_port(port: Port, pacer: Callable[[], int] | None = None) -> None:
    check_armed(port)
    port.open(pacer)
