# SPDX-License-Identifier: Apache-2.0
"""Command stage: computes Command k + 1 from Targets and Measurement k, with ramp, setup and compensator.

A force axis is held in position at the start of the test, then controlled by force, and possibly held again. The
command of a force axis equals its target (``loop/scenario/force_axes.py``), because only the force controller
knows the delay and compliance of the actuator.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from rths_nodes.core.arithmetic import is_finite
from rths_nodes.core.control import Rows, rows_of
from rths_nodes.core.errors import ComponentError
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import Compensator, Setup
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_AT_BOUND,
    FLAG_BRIDGED,
    FLAG_RESTING,
    FLAG_SLOWED,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    ROUNDING,
    Command,
    Measurement,
    Target,
)
from rths_nodes.core.wire import Codec
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.force_axes import load_history
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.bridges import MotionBridge, fading_of
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.mechanics.axial_load import vertical_share


def in_time(step: float, half: float, x: float, before: float, a: float) -> float:
    """Return the velocity (m/s) at ``x`` (m), one ``step`` (s) after ``before`` (m).

    ``half`` is half of ``step``, and ``a`` is the acceleration at ``x`` (m/s^2).
    """
    return (x - before) / step + half * a


class InTime:
    """Corrects late velocities of an integrator: v = (x - x_before) / h + h a / 2.

    x and x_before (m) are the displacements of this and the previous Target. a (m/s^2) is the acceleration, and h
    (s) the ``step`` in rig time. The quotient is the velocity in the middle of the step (exact for ``cr``). The
    second term extrapolates this velocity to the end of the step, like ``central_difference``. Targets up to
    number ``start``, of a soft start or at rest, are not changed.
    """

    def __init__(self, step: float, start: int) -> None:
        self._step, self._half, self._start = step, 0.5 * step, start
        self._before: list[float] = []

    def resume(self, before: list[float]) -> None:
        self._before = before

    def of(self, target: Target) -> Target:
        """Return the Target with corrected velocities. Call this method with every Target, in order."""
        x, before, step, half = target.displacement.tolist(), self._before, self._step, self._half
        self._before = x
        if target.step <= self._start or not all(map(math.isfinite, target.velocity.tolist())):
            return target  # a velocity that is not finite is refused later, by the limits
        rows = zip(x, before, target.acceleration.tolist(), strict=True)
        velocity = np.array([in_time(step, half, *row) for row in rows])
        return Target(  # positional arguments, because `replace` takes longer than the rest of this method
            target.step,
            target.displacement,
            velocity,
            target.acceleration,
            target.exact_acceleration,
            target.external_force,
            target.restoring_force,
            target.auxiliary,
            target.flags,
            target.energies,
        )


DOUBTFUL = FLAG_BRIDGED | FLAG_SLOWED
"""Flags of samples during which a compensator must not adapt."""
PATIENCE = 0.6
"""Longest wait for a Target after a Measurement in real time, as a fraction of a sample. The remainder is for
computing and sending the Command."""


class CommandStage:
    """Converts Targets at the integration step to compensated Commands at the servo rate.

    A real-time host first calls :meth:`assume_realtime`. The host calls :meth:`bridge` instead of :meth:`next` if
    :meth:`ready` returns False. ``bridged`` counts samples with a late Target, and ``dropped`` repeated Targets.
    """

    def __init__(self, assembly: Assembly) -> None:
        # The stage has its own setup, because a setup searches from its last solution. If it were shared with the
        # numerical stage, results would depend on the order of calls, which differs between hosts.
        self.setup: Setup = assembly.fresh("setup")
        scenario, names = assembly.scenario, assembly.names
        n_axes = len(scenario.moved_axes)
        self.substeps = scenario.samples_per_step
        self.samples = scenario.samples
        self.ramp = assembly.ramp
        self.compensator, self.state = assembly.compensator, assembly.compensator.state
        self.state_names = names.state
        self.bridged = self.dropped = 0
        self._longest = scenario.bridge.longest(scenario.dt)
        self._pauses = scenario.bridge.pauses
        self._in_a_row = 0
        self._bridge = MotionBridge(
            self.setup, scenario.dt, self.substeps, fading_of(scenario.bridge, scenario.limits, scenario.dt)
        )
        loaded = [*enumerate(scenario.axes.values())][n_axes:]
        self._loads = [force_target(number, axis, scenario.dt) for number, axis in loaded]
        self._n_moved = n_axes
        self._targets: deque[Target] = deque()
        self._next_step = self._followed = 0
        self._ahead = 0
        self._n_interface = None if names.interface == names.observed else len(names.interface)
        step = self.substeps * scenario.dt
        self._in_time = InTime(step, scenario.soft_start_steps) if assembly.late_velocity else None
        self.ready_to: float = -1
        """Number of the last Command whose Target is available; infinite after the last Target."""
        self._flags = 0
        self._auxiliary = EMPTY
        self._rows: Rows = ([0.0] * n_axes, [0.0] * n_axes, [0.0] * n_axes)
        self._bounds = bounds_of(self.compensator)
        self._finite = True
        self._named = {family: type_of(getattr(scenario, family)) for family in ("ramp", "compensator")}

    def open(self) -> None:
        self.compensator.open()

    def close(self) -> None:
        self.compensator.close()

    def assume_realtime(self) -> None:
        """Set real-time mode, in which :meth:`ready` does not wait for Targets that the ramp can predict."""
        self._ahead = self.ramp.predicted

    def target(self, target: Target) -> None:
        """Receive the next Target. Raises ValueError if a Target is missing."""
        if target.step < self._next_step:
            self.dropped += 1
            return
        if target.step != self._next_step:
            raise ValueError(f"received Target {target.step}, expected Target {self._next_step}")
        self._next_step += 1
        if (n := self._n_interface) is not None:
            x, v, a = target.displacement[:n], target.velocity[:n], target.acceleration[:n]
            target = replace(target, displacement=x, velocity=v, acceleration=a)
        if self._in_time is not None:
            target = self._in_time.of(target)
        reach = target.step * self.substeps
        self.ready_to = reach + self._ahead if reach < self.samples else math.inf
        if target.step == 0:
            self._flags, self._auxiliary = target.flags, target.auxiliary
            self.ramp.start(target)
            self._bridge.follow(0, rows_of(target))
        else:
            self._targets.append(target)

    def resume(self, step: int, before: list[float]) -> None:
        self._next_step = step + 1
        if self._in_time is not None:
            self._in_time.resume(before)

    def ready(self, sample: int) -> bool:
        return sample <= self.ready_to

    @property
    def paused(self) -> bool:
        return self._pauses and self._next_step > 0 and self._in_a_row == self._longest

    def next(self, measured: Measurement) -> Command | None:
        """Return Command k + 1 for Measurement k. Return None after the last sample, or if the rig has tripped.

        The compensator also processes the last Measurement, so that its final state is complete.
        """
        if measured.flags & FLAG_TRIPPED:
            return None
        sample = measured.sample + 1
        if sample <= self.samples:
            step, substep = -(-sample // self.substeps), measured.sample % self.substeps + 1
            if self._targets:
                self._follow(step)
            ramp = self.ramp
            rows = ramp.rows(substep) if self._followed >= step else ramp.predicted_rows(substep)
            total = sum(rows[0], 0.0)  # starting with a float is twice as fast
            if total - total != 0.0 and self._finite:
                self._blame("ramp", "displacement", rows[0])
            rows = self.setup.moved(rows)
            self._rows = self._bridge.motion(sample, rows) if self._bridge.apart else rows
            self._in_a_row = 0
        return self._command(sample, measured, 0)

    def bridge(self, measured: Measurement) -> Command | None:
        """Return a Command, flagged as bridged, that continues the motion of the last Target.

        Return None after ``bridge.max_bridge``, or if :meth:`next` would return None.
        """
        sample = measured.sample + 1
        if measured.flags & FLAG_TRIPPED or sample > self.samples:
            return self.next(measured)
        if not self._next_step or self._in_a_row == self._longest:
            return None
        self._follow(-(-sample // self.substeps))
        self._rows = self._bridge.motion(sample)
        self._in_a_row += 1
        self.bridged += 1
        return self._command(sample, measured, FLAG_BRIDGED)

    def _follow(self, step: int) -> None:
        while self._targets and self._targets[0].step <= step:
            target = self._targets.popleft()
            self._flags, self._auxiliary = target.flags, target.auxiliary
            self._followed = target.step
            rows = rows_of(target)
            if not self._bridge.follow(target.step, rows):
                # replace the Target by NaN, which trips the rig even if the ramp would ignore the invalid value
                self._finite = False
                target = replace(target, displacement=np.full_like(target.displacement, np.nan))
                rows = rows_of(target)
            self.ramp.follow_rows(target, rows)

    def _command(self, sample: int, measured: Measurement, flags: int) -> Command | None:
        of_target = self._flags
        rests = (measured.flags | flags) & DOUBTFUL != 0 or of_target & FLAG_RESTING != 0
        preparing = of_target & FLAG_SOFT_START != 0
        displacement, force = measured.displacement.tolist(), measured.force.tolist()
        if self._loads:
            n = self._n_moved
            displacement, force = displacement[:n], force[:n]
        x, v, a = self._rows
        commands = self.compensator.commands(x, v, a, displacement, force, rests, preparing)
        if sample > self.samples:
            return None
        total = sum(commands, 0.0)
        if total - total != 0.0 and is_finite((x, v, a, displacement, force)):
            self._blame("compensator", "command", commands)
        flags |= of_target
        if self._bounds and self._at_bound():
            flags |= FLAG_AT_BOUND
        if not self._loads:
            return Command(sample, np.array(x), np.array(commands), self._auxiliary, flags)
        loads, load_modes = zip(*(load(sample, measured, x) for load in self._loads), strict=True)
        modes = bytes([MODE_DISPLACEMENT] * self._n_moved + [*load_modes])
        target, command = np.array([*x, *loads]), np.array([*commands, *loads])
        return Command(sample, target, command, self._auxiliary, flags, modes)

    def _blame(self, family: str, name: str, values: Sequence[float]) -> None:
        for value in values:
            if not math.isfinite(value):
                raise ComponentError(f"{family}.type = {self._named[family]!r}: {name} = {value}: must be finite")

    def _at_bound(self) -> bool:
        values = self.compensator.state()
        return any(not low < values[index] < high for index, low, high in self._bounds)


def command_warm_up(assembly: Assembly) -> Callable[[Codec], Command | None]:
    """Return a function that passes a Target to a twin stage and returns its Command, or None after the last step.

    See :func:`rths_nodes.loop.stages.numerical.step_warm_up`.
    """
    stage, names = CommandStage(assembly.twin()), assembly.names
    rest, nothing = np.zeros(len(names.axes)), np.zeros(len(names.observed))
    measured = Measurement(0, rest, rest, rest, np.zeros(len(names.auxiliary)))
    target = Target(0, nothing, nothing, nothing, nothing, nothing, nothing, np.zeros(len(names.inputs)))
    stage.target(target)

    def warm_up(codec: Codec) -> Command | None:
        target.step += 1
        stage.target(codec.unpack_target(codec.pack_target(target, 0))[0])
        command = stage.next(measured)
        measured.sample += stage.substeps
        if command is not None:
            codec.pack_command(command, 0)
        return command

    return warm_up


def outgoing_of(assembly: Assembly) -> LimitCheck:
    scenario, names = assembly.scenario, assembly.names
    arguments = scenario.limits, scenario.dt, names.inputs, names.auxiliary
    return LimitCheck(*arguments, groups=scenario.stop_groups)


def bounds_of(compensator: Compensator) -> list[tuple[int, float, float]]:
    limits, bounds = compensator.state_limits, []
    for index, name in enumerate(compensator.state_names):
        bare = name.partition("[")[0]
        if any(math.isfinite(end) for end in limits.get(bare, ())):
            low, high = limits[bare]
            low = low + ROUNDING * abs(low) if math.isfinite(low) else low
            high = high - ROUNDING * abs(high) if math.isfinite(high) else high
            bounds.append((index, low, high))
    return bounds


def force_target(
    number: int, axis: Any, dt: float
) -> Callable[[int, Measurement, Sequence[float]], tuple[float, int]]:
    """Return a function that computes target and mode of the force ``axis`` with index ``number``. ``dt`` is in s.

    Its arguments are a sample number, the last Measurement, and the targets (m) of the displacement axes. One of
    these targets inclines the axis under a vertical load. The result is in N in MODE_FORCE, otherwise in m.
    """
    load, law = axis.own_load, axis.force_control.law
    ends = math.inf if load.held_from is None else load.held_from
    begun = 0.0
    held: float | None = None
    history: Callable[[float], float] | None = None  # None while the axis is held

    def step(sample: int, measured: Measurement, aimed: Sequence[float]) -> tuple[float, int]:
        nonlocal held, begun, history
        time = sample * dt
        if load.held_for < time <= ends:
            inclined = load.vertical
            share = vertical_share(aimed[law.coupled_to - 1], law.column.actuator_length) if inclined else 1.0
            if history is None:
                force = float(measured.force[number])
                begun, history = time, load_history(load, axis.limits.force_rate, dt, force * share)
                return force, MODE_FORCE
            return history(time - begun) / share, MODE_FORCE
        if history is not None or held is None:
            # before force control, hold the commanded position; afterwards, only the measured position is known
            held = float((measured.command if history is None else measured.displacement)[number])
            history = None
        return held, MODE_DISPLACEMENT

    return step


class DueCommands:
    """Assigns received Commands to the ticks of a ``rig``. With hops, Commands are received before their ticks."""

    def __init__(self, rig: RigStage) -> None:
        self._rig, self._depth = rig, rig.under_way.depth
        self.early: list[Command] = []

    @property
    def number(self) -> int:
        return self._rig.sample + 1 + (self._rig.pause.coming is not None) - self._depth

    def kept(self) -> Command | None:
        """Return the next tick's Command if it was received earlier, otherwise None.

        With hops, the first ticks hold the start position. During a pause, return None once the pause has the next
        sample's Command.
        """
        if self._rig.pause.coming is not None:
            return None
        number, kept = self.number, self.early
        if number <= 0:
            assert self._rig.under_way.start is not None  # set by Measurement 0
            return replace(self._rig.under_way.start, sample=number)
        while kept and kept[0].sample <= number:
            command = kept.pop(0)
            if command.sample == number:
                return command
            self._rig.late_command(command)
        return None

    def arrived(self, command: Command) -> Command | None:
        """Return ``command`` if it is due at the next tick, otherwise None.

        A late Command is counted. A Command with an impossible sample number trips the rig.
        """
        waits = self._rig.pause.coming is not None
        early = command.sample + self._depth - self._rig.sample - 1 - waits
        if early == 0 and not waits:
            return command
        if early < 0:
            self._rig.late_command(command)
        elif early <= self._depth:
            self._keep(command)
        else:
            number = self.number
            expected = f"{number} to {number + self._depth}" if self._depth else f"{number}"
            self._rig.trip(f"received Command {command.sample}, expected Command {expected}")
        return None

    def of(self, command: Command | None) -> Command | None:
        """Receive ``command``, which must not be late, and return the next tick's Command."""
        if not self._depth:
            return command
        if command is not None:
            self._keep(command)
        return self.kept()

    def _keep(self, command: Command) -> None:
        insort(self.early, command, key=attrgetter("sample"))
