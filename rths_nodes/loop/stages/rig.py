# SPDX-License-Identifier: Apache-2.0
"""Rig stage: port, limits, state of the test and safe stop.

If a rig has one node per axis, each axis has a stage with its own port, limits and safe stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, PortError, show, unknown
from rths_nodes.core.limits import HOLD, INTERLOCK
from rths_nodes.core.parameters import evolved
from rths_nodes.core.protocols import Port, why_failed, why_opened
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_BRIDGED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    HYDRAULICS_OFF,
    INTERLOCK_OPEN,
    Array,
    Command,
    Measurement,
    by_force,
)
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports.common import set_trigger
from rths_nodes.loop.interrupts import raised_at_once
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.force_axes import DISPLACEMENT, FORCE
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import BridgeCount, CommandBridge, Pause, fading_of
from rths_nodes.loop.supervision.handover import Handover, OperatorRequests
from rths_nodes.loop.supervision.hops import UnderWay
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import LastPositions, LoadStop, SafeStop, held_places
from rths_nodes.loop.supervision.states import ENDED, State, StopRequest, TestMachine


class RigStage:
    """Drives the rig through its ``port``: by Commands within the limits, otherwise by the safe stop.

    ``bridged`` counts the bridged samples, and ``slowed`` the samples of restarts after a ``pause``.
    ``ticks`` includes the ticks of pauses. ``stopping`` is true from the first sample of the safe stop.
    ``refused`` is true if the last Command exceeded a limit.

    The handover of a procedure defines the zero of the test. Limits apply to untared values; other components
    receive tared values. Raises ConfigError if a real rig is not armed, or if a number of the scenario is refused.
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
        self._shown = Measurement(0, at_zero, at_zero, at_zero)
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
        """Results of levels and, for a rig that can pause, slowed samples, pauses and their total time (s)."""
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
        """Open the port, and enter the state POSITIONED. Raises ConfigError if the port cannot be opened."""
        open_port(self.port, None if pacer is None else partial(self._bridges.tick, pacer))
        self._open = True
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.machine.to(state)

    def begin(self) -> None:
        self.machine.to(State.RUNNING)
        self.port.begin()
        set_trigger(self.port, True)

    def first(self, sample: int = 0, sent: list[float] | None = None) -> Measurement:
        """Start the test and return the first Measurement, which the port must return without waiting.

        To continue a test after ``sample``, pass the commands ``sent`` (m) of this sample.
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
        """Keep the earliest request. An earlier hold changes only the sample of a pending trip."""
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
        """Count a late Command, which is not sent. The bridge continues from its values."""
        self.late_commands += 1
        self._bridge.received(self.under_way.at_its_tick(command))

    def tick(self, command: Command | None, late: bool = False) -> Measurement | None:
        self.begin_tick(command, late)
        return self.complete()

    def begin_tick(self, command: Command | None, late: bool = False) -> None:
        """Run the first half of a tick: send the command if it is permitted, otherwise a command of the safe stop.

        Without a command the rig trips. If the command is ``late``, the rig bridges the gap or pauses instead.
        """
        tick = self.port.wait_tick()
        sample, self._sampled = tick - self._between, True
        if command is not None and command.flags & FLAG_TRIPPED:  # with this flag, axes would ignore breaches
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
                command = self._load_stop.command(command, self._shown)
        asked = command.target.tolist(), command.command.tolist()  # copies, because a port may change the arrays
        self.port.write(command if tick == command.sample else replace(command, sample=tick))
        self._sent_before = self._sent
        self._aims, self._sent = asked
        self._driven_before, self._driving = self._driving, command

    def complete(self) -> Measurement | None:
        """Run the second half of a tick, once the port is ready: measure and check. Return None during a pause."""
        shown = self._shown = self.port.read()
        measured = shown if self._handover is None else self._handover.presented(shown)
        if self._load_stop is not None:
            self._load_stop.places.receive(measured, shown)
        command = self._driving
        if command is None:
            check_first(measured, self.port.interlock)
            self._sent = self._sent_before = measured.command.tolist()
            self._bridge.start(measured.command)
            self.under_way.start = Command(0, stands := measured.command.copy(), stands, self._passive)
            if reason := self._reason(None, measured, shown):
                self.trip(reason)
            return measured
        self.ticks = measured.sample
        sample = measured.sample = shown.sample = self.ticks - self._between
        if self.port.interlock:
            measured.interlock = INTERLOCK_OPEN
        if not self.stopping:
            if reason := self._reason(command, measured, shown):
                self._begin_stop(reason, sample)
            elif not self._sampled:
                self._between += 1
                if self._handover is not None and self.pause.rests:
                    self._handover.rest(sample - 1, shown.force.tolist())
                return None
            # flag a sample with missing, late or replaced data, so that no component learns from it
            if command.flags or measured.flags or self._bridges.watches:
                measured.flags |= command.flags & (FLAG_BRIDGED | FLAG_SLOWED)
                self.bridged += (bridged := measured.flags & FLAG_BRIDGED > 0)
                self.slowed += measured.flags & FLAG_SLOWED > 0
                if bridged or self._bridges.watches:
                    self._bridges.sampled(sample, bridged)
        else:  # a stop has no target, so its tracking error is 0
            aims = measured.displacement.tolist()
            reason, level, action = self._check.measurement(shown, aims), "", ""
            if self.levels is not None:
                level, action = self.levels.judge(command, shown, aims)
            if action == INTERLOCK:
                self.port.drop_heartbeat()
                reason = reason or level
            if reason and self._end is State.HELD:
                self._end, self.machine.reason = State.TRIPPED, f"sample {sample}: {reason}"
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

    def _reason(self, command: Command | None, measured: Measurement, shown: Measurement) -> str:
        port, handover, aims = self.port, self._handover, self._aims
        opened = why_opened(port, measured) if port.interlock or measured.interlock == INTERLOCK_OPEN else ""
        failed = port.failure or measured.hydraulics == HYDRAULICS_OFF
        reason = opened or (why_failed(port, measured.hydraulics) if failed else "")
        reason = reason or (handover.lost() if handover is not None else "")
        if command is not None and self.under_way.depth:
            aims = self.under_way.compared(aims, shown.displacement.tolist(), self.pause.active)
        modes = b"" if command is None else command.control_mode
        reason = reason or self._check.measurement(shown, aims, modes) or port.partial_stop
        if command is not None and (measured.flags & FLAG_BRIDGED or self._bridges.far):
            reason = reason or self._bridges.measured(measured.flags & FLAG_BRIDGED > 0)
        if handover is not None and command is not None:
            reason = reason or handover.following(command, shown, self.pause.active)
        if self.levels is None:
            return reason
        level, action = self.levels.judge(command, shown, None if command is None else aims)
        if action == HOLD and not reason:
            self._request_stop(StopRequest(level, end=State.HELD))
        elif action == INTERLOCK:
            port.drop_heartbeat()
        return reason or level

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

    def _begin_stop(self, reason: str, sample: int) -> None:
        request = self.stop_request
        if request is not None and self.port.interlock:
            reason = request.reason  # report the cause; the open interlock is only its effect
        if request is not None and reason == request.reason:
            self._end = request.end
        self.machine.to(State.STOPPING, f"sample {sample}: {reason}")
        self.stopping = True
        set_trigger(self.port, False)
        if self._handover is not None:
            self._handover.stopping(reason)
        before, last = np.array(self._sent_before), np.array(self._sent)
        if self._load_stop is not None:
            then, now = (b"" if c is None else c.control_mode for c in (self._driven_before, self._driving))
            before, last = held_places((before, last), (then, now), self._n_moved, self._load_stop.places.last)
        self._stop.begin(before, last)
        if self._load_stop is not None:
            self._load_stop.begin(self._driven_before, self._driving, self._stop, reason)


def check_armed(port: Port) -> None:
    """Raise ConfigError if ``port`` drives real actuators and no operator has armed it."""
    if not (port.simulated or port.armed):
        raise ConfigError(
            f"{port.label}: this port drives a real rig, which only an operator can arm, with rths test "
            "(doc/procedure.md)"
        )


def check_first(measured: Measurement, lost: str) -> None:
    """Raise PortError if a command of Measurement 0 is not finite. ``lost`` is the reason, or an empty string."""
    if not np.isfinite(measured.command).all():
        raise PortError(lost or f"Measurement 0: command = {measured.command.tolist()} m: must be finite")


def open_port(port: Port, pacer: Callable[[], int] | None = None) -> None:
    check_armed(port)
    with raised_at_once():  # a stop request must end a long wait of the port for its rig
        port.open(pacer)


def check_layout(scenario: Scenario) -> None:
    for path, reason in _coupled(scenario):
        raise ConfigError(f"{path}: requires a single actuator node (actuator_nodes = one), because {reason}")
    for name in scenario.axes:
        if not name.isidentifier() or not name.isascii() or "__" in name:
            raise ConfigError(
                f"axes.{name}: the name must consist of ASCII letters, digits and single _, and must not begin "
                "with a digit, because it is the namespace of the axis node"
            )


def _coupled(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield path and reason for each setting that requires a single node for all axes."""
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
    if mine.mode == FORCE and not by_controller(mine):  # the actuator node of the rig closes the force loop
        mine = evolved(mine, mode=DISPLACEMENT, load=None, force_control=None)
    return evolved(scenario, axes={axis: mine})


def takes_force(scenario: Scenario, axis: str) -> bool:
    return axis in scenario.axes and by_controller(scenario.axes[axis])


class AxisStage:
    """Drives one ``axis`` of a rig with its own port, limits and safe stop.

    ``wrap(port)`` returns the port to use. Arrays have the shape ``(1,)``. The rig stage holds the state of the
    test. This stage follows the Commands of the rig stage, and stops by itself if necessary. Coupled axes stop
    later, with the rig. ``trip`` is the reason why the axis no longer follows Commands, or empty.

    Ticks of a pause also have Command numbers. Commands can be in N if the controller of the axis closes a force
    loop. A force axis that stops by itself holds its position.
    """

    def __init__(self, scenario: Scenario, axis: str, wrap: Callable[[Port], Port] = lambda port: port) -> None:
        mine = alone(scenario, axis)
        limits, dt = mine.limits, mine.dt
        if mine.hops.depth:  # with hops, tracking errors need past samples, which only the rig stage stores
            limits = {axis: evolved(limits[axis], tracking_error=None)}
        self.port = wrap(Assembly(mine).port)
        self.trip = ""
        self.out_of_sequence = False
        """True if a Command was missing. The rig has then continued without this axis and cannot control it."""
        self._loaded = any(limit.of_force for limit in limits.values())
        self._check = LimitCheck(limits, dt)
        self._stop = SafeStop(limits, dt)
        self._next = 0
        self._sent = self._sent_before = [0.0]
        self._mode = self._mode_before = b""
        self._places = LastPositions(limits.values())

    @property
    def sample(self) -> int:
        return self._next - 1

    @property
    def at_rest(self) -> bool:
        """True once the axis has stopped after a trip, or if its last Command is in m and did not move it."""
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
            before, last = held_places(sent, modes, 0, self._places.last)
            self._stop.begin(last if self._loaded else before, last)

    def follow(self, command: Command) -> Measurement | None:
        """Return Measurement k for Command k, or None for a repeated Command. Command 0 causes no motion.

        If a Command is missing, the axis stops by itself and numbers its Measurements by its own ticks.
        """
        if command.sample < self._next:
            return None
        if command.sample > self._next:
            self.out_of_sequence = True
            self.stop(f"received Command {command.sample}, expected Command {self._next}")
            return self.stop_alone()
        if command.sample == 0:
            self.port.begin()
            first = self.port.read()
            self._places.receive(first, first)
            check_first(first, self.port.interlock)
            self._next = 1
            self._sent = self._sent_before = first.command.tolist()
            return first
        if not self.trip and (reason := self._check.command(command, self._sent, self._mode)):
            self.stop(reason)
        if self.trip:
            return self.stop_alone()
        measured = self._tick(command)
        # while the rig stops all axes together, a breach must not stop this axis alone
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
        measured = self.port.read()
        if self._loaded:
            self._places.receive(measured, measured)
        return measured
