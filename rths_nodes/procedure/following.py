# SPDX-License-Identifier: Apache-2.0
"""Checks that a rig follows its commands, closely in slow motions, and that its sensors respond to motion.

If the interlock is open, the pressure is off, or the controller itself drives the rig, actuators do not follow.
They may later jump to the external command. While the rig does not follow, the command therefore tracks the
position of the rig, within the limits of velocity and stroke. Closing the interlock then moves nothing. If the
pressure has only dropped to low, the command moves once to the position of the rig.

An open interlock may be only a signal, so that the rig still follows. A command that tracks the rig would then run
away, because of the static error of the control loop. The command therefore waits, moves towards the position of
the rig, and waits again. If an axis has followed this motion, its command moves no further.

``slow_error`` bounds the tracking error in slow motions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.core.errors import Problems
from rths_nodes.core.protocols import WITHOUT_PRESSURE, Port, why_opened
from rths_nodes.core.samples import (
    HYDRAULICS_HIGH,
    HYDRAULICS_LOW,
    HYDRAULICS_NOT_TOLD,
    HYDRAULICS_OFF,
    MODE_FORCE,
    Array,
    Command,
    Measurement,
    by_force,
    equal,
)
from rths_nodes.loop.procedure_record import AxisChecks
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.stages.frozen import FINE_BLOCKS, LATE_S, STUCK, OneWay, least_travel
from rths_nodes.loop.supervision.safe_stop import LastPositions
from rths_nodes.procedure.clearance import Offsets

AGREEMENT = 0.02
"""Largest accepted difference of active command and measured position, as a fraction of the sensor's range."""
MOVED = 1e-4
"""Largest accepted difference between active and sent command, as a fraction of the command's range. A difference
up to the resolution of the command is always accepted."""


def _range(axis: Axis, channel: str) -> float:
    return float(getattr(axis.rig_axis, channel).range_si) if axis.rig_axis else axis.limits.stroke


def command_mismatch(axes: Mapping[str, Axis], active: Array, displacement: Array) -> str:
    """Return a message if a controller must not switch to the external command, otherwise an empty string.

    ``active`` is the controller's active command, ``displacement`` the measured position, both ``(n_axes,)`` m.
    """
    problems = Problems()
    for (name, axis), command, x in zip(axes.items(), active.tolist(), displacement.tolist(), strict=True):
        bound = AGREEMENT * _range(axis, "displacement")
        if not abs(command - x) <= bound:
            problems.append(
                f"axes.{name}: the controller drives to {command:.6g} m, {x:.6g} m is measured: the external "
                f"command is accepted only where they differ by <= {bound:.6g} m"
            )
    return "\n".join(problems)


def rejected_command(axes: Mapping[str, Axis], active: Array, sent: Array) -> str:
    """Return a message if the controller does not accept the last command ``sent``, otherwise an empty string.

    Force-controlled axes are not checked. They are held at the position that their force loop has reached, and
    follow only changes of the command.
    """
    for (name, axis), now, last in zip(axes.items(), active.tolist(), sent.tolist(), strict=True):
        bound = max(MOVED * _range(axis, "command"), axis.output.resolution)
        if not (axis.limits.of_force or abs(now - last) <= bound):
            return (
                f"axes.{name}: the controller drives to {now:.6g} m, {last:.6g} m was sent last: it does not take "
                "the external command"
            )
    return ""


ANOTHER_MODE = "rig: the controller has changed its control mode"
DROPPED = "rig: its hydraulics have dropped from high to low: the actuators follow slowly"
TRIAL, VERDICT, RESTS, LAST_WAIT = 2, 3, 5, 8
"""Times after the loss of the rig, in multiples of ``taken_after``. ``TRIAL``: the command moves towards the rig.
``VERDICT``: axes that have followed this motion are identified. ``RESTS`` to ``LAST_WAIT``: the static error of
these axes is averaged."""
WENT_ALONG = 0.5
"""Smallest ratio of an axis's travel to the trial motion for which the axis counts as following."""
TAKEN_AFTER_S = 0.1
"""Time after which a controller at rest must have accepted the sent command, s."""


class LossWatch:
    """Determines from each Measurement whether the rig of ``scenario`` follows its commands.

    ``reason`` is the reason why the rig does not follow, or an empty string. ``count`` is the number of losses,
    and ``last`` the reason for the last loss. ``pressure`` and ``modes`` are the initial hydraulic state and
    control modes. If an axis is force-controlled, modes and active commands are not checked.
    """

    def __init__(self, scenario: Scenario, pressure: int = HYDRAULICS_NOT_TOLD, modes: bytes = b"") -> None:
        limits = scenario.limits.values()
        self._axes = scenario.axes
        self._step = np.array([axis.velocity for axis in limits]) * scenario.dt
        self._stroke = np.array([axis.stroke for axis in limits])
        self._ends = np.array([_range(axis, "displacement") for axis in self._axes.values()])
        self._at_rest = MOVED * np.array([_range(axis, "command") for axis in self._axes.values()])
        """Largest change of displacement within ``taken_after`` ticks that counts as rest, m."""
        self.taken_after = scenario.port.transport_samples + math.ceil(TAKEN_AFTER_S / scenario.dt)
        """Number of ticks at rest after which the actuators have reached the last command."""
        self._by_force, self.places = any(axis.of_force for axis in limits), LastPositions(limits)
        self.count, self.last, self.reason = 0, "", ""
        self._pressure, self._modes = pressure, modes
        self._dropped, self._elsewhere = False, ""
        self._sent: Array | None = None
        self._still = self._ticks = 0
        self._from = self._trial = self._sum = np.zeros(0)
        self._follows = np.zeros(0, bool)
        self._measured: deque[Array] = deque(maxlen=self.taken_after + 1)
        """Last displacements, ``(n_axes,)`` m; NaN for a sensor at or beyond the end of its range."""
        self._missed: Array | None = None
        """Displacement minus command of a following rig at rest, m. None after motion; NaN for force commands."""

    def accept(self, pressure: int) -> None:
        self._pressure, self._dropped = pressure, False

    def receive(self, port: Port, measured: Measurement, sent: Array, modes: bytes = b"") -> None:
        """Process a Measurement of the rig at ``port``. The last command was ``sent``, in control ``modes``."""
        same = self._sent is not None and equal(sent, self._sent)
        self._still, self._sent = self._still + 1 if same else 0, sent
        within = np.abs(measured.displacement) < self._ends
        self._measured.append(np.where(within, measured.displacement, np.nan))
        if self._by_force:
            self.places.receive(measured, measured)
        pressure = measured.hydraulics
        if pressure != HYDRAULICS_LOW:
            self._dropped = False
        elif self._pressure in (HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD):
            self._dropped = True
        self._pressure = pressure
        reason = self._why(port, measured, sent)
        if reason and not self.reason:
            self.count, self.last, self._ticks = self.count + 1, reason, 0
        led_on = not (same or self.reason)
        self.reason = reason
        if reason or pressure == HYDRAULICS_LOW:
            return
        rests = self._still >= self.taken_after
        if rests and (np.abs(self._measured[-1] - self._measured[0]) <= self._at_rest).all():  # NaN means motion
            missed = self._measured[-1] - sent
            self._missed = np.where(by_force(modes), np.nan, missed) if modes else missed
        elif led_on:
            self._missed = None

    def _why(self, port: Port, measured: Measurement, sent: Array) -> str:
        off = measured.hydraulics == HYDRAULICS_OFF
        reason = why_opened(port, measured) or (WITHOUT_PRESSURE if off else DROPPED if self._dropped else "")
        if reason or self._by_force:
            return reason
        if self._modes and measured.control_mode and measured.control_mode != self._modes:
            return ANOTHER_MODE
        if not (self._elsewhere or self._still >= self.taken_after) or (active := port.active_command) is None:
            return ""
        self._elsewhere = rejected_command(self._axes, active, sent)
        return self._elsewhere

    def next(self, command: Array, shift: Array) -> Array | None:
        """Return the command to send after ``command``, towards the rig's position, or None if the rig follows.

        ``shift`` ``(n_axes,)`` m is displacement minus command at rest. If the rig was lost at rest and under
        pressure, the measured difference replaces ``shift`` for commands in m.
        """
        if not self.reason:
            return None
        if self._missed is not None:
            shift = np.where(np.isnan(self._missed), shift, self._missed)
        stands = np.clip(self._measured[-1] - shift, -self._stroke, self._stroke)
        way = np.where(np.isfinite(stands), stands - command, 0.0)
        if self.joined(way):
            self._dropped = False
        way = self._tried(way, self._measured[-1], command, shift)
        return np.asarray(command + np.clip(way, -self._step, self._step))

    def _tried(self, way: Array, measured: Array, command: Array, shift: Array) -> Array:
        self._ticks += 1
        waited = self._ticks / self.taken_after
        if waited <= 1 or waited > LAST_WAIT:
            return way
        if waited == TRIAL:
            self._from, self._trial = measured, np.clip(way, -self._step, self._step)
            return way
        if waited == VERDICT:
            along = (measured - self._from) * np.sign(self._trial)
            self._follows = along >= WENT_ALONG * np.abs(self._trial)  # NaN counts as not following
            if not self._follows.any():
                self._ticks = LAST_WAIT * self.taken_after
            self._sum = np.zeros_like(way)
        elif waited > RESTS:
            self._sum += measured - command
        if waited == LAST_WAIT:
            mean = self._sum / ((LAST_WAIT - RESTS) * self.taken_after)
            self._missed = np.where(self._follows, mean, shift)
        return np.zeros_like(way)

    def joined(self, way: Array) -> bool:
        """Return true if the velocity limits permit the travel ``way`` ``(n_axes,)`` m in one tick."""
        return bool((np.abs(way) <= self._step).all())


LEAST_ERROR = 1e-3
"""Smallest default of ``slow_error``, m."""
TIMES_FOUND = 3.0
"""Ratio of the default of ``slow_error`` to the tracking error that the small move predicts."""
TIMES_LATE = 3.0
"""Ratio of the assumed lag to the lag in the small move."""
WHY = "the actuator does not follow, or the displacement sensor is wrong"


class _Axis:
    def __init__(
        self, scenario: Scenario, name: str, index: int, offsets: Offsets, checks: AxisChecks | None
    ) -> None:
        self.name, self._known, results = name, checks is not None, checks or AxisChecks()
        limits, rig = scenario.axes[name].limits, scenario.axes[name].rig_axis
        assert rig is not None  # a procedure needs a rig file
        self._shift = float(offsets.displacement[index] - offsets.held[index])
        self._zero, self._bound = float(offsets.force[index]), rig.slow_error
        self._missed: float | None = None
        """Tracking error at the first sample, m."""
        fastest = max((motion.velocity for motion in (rig.small_move, rig.unloading) if motion), default=0.0)
        self._least = LEAST_ERROR
        if checks is None:  # the small move has tighter guards
            move = rig.small_move.displacement if rig.small_move else 0.0
            self._least = max(LEAST_ERROR, move, LATE_S * fastest)
        self._lag = (results.late or 0.0) * fastest
        self._static, self._under = results.static_error or 0.0, results.static_error_force or 0.0
        steps = rig.displacement.step_si, rig.force.step_si
        scatter = float(offsets.displacement_scatter[index]), float(offsets.force_scatter[index])
        way, felt = least_travel(steps, scatter, (results.lost_motion or 0.0) + self._static, limits.stroke)
        late = max(LATE_S, TIMES_LATE * (results.late or 0.0)) + scenario.port.transport_samples * scenario.dt
        block = max(1, round(late / FINE_BLOCKS / scenario.dt))
        self._moved, stiffness = OneWay(way, block), results.stiffness or 0.0
        stiffnesses, names = {**results.beside, name: stiffness}, list(scenario.axes)
        self._stiffness = [(names.index(axis), value) for axis, value in stiffnesses.items()]
        self._pushed = OneWay(max(stiffness * way, felt / STUCK), block, felt) if stiffness > 0.0 else None

    def why(self, command: float, displacement: float, force: float, slow: bool, window: bool) -> str:
        """Return a message if the axis does not follow its ``command``, otherwise an empty string.

        The tracking error is bounded only in a ``slow`` motion. If ``window`` is true, the error is the distance
        from the range of recent commands, of at least LATE_S seconds.
        """
        travel, settled = self._moved.stuck(command, displacement), self._moved.settled
        if travel is not None and self._known:  # the small move has its own guards
            gone, shown = travel
            return (
                f"axes.{self.name}: the displacement does not follow the command: it has changed by "
                f"{_mm(shown)} while the command moved by {_mm(gone)} in one direction: {WHY}"
            )
        if not slow or (window and not settled):
            return ""
        low, high = self._moved.window if window else (command, command)
        at_command, bound = displacement - self._shift, self._bound
        error = at_command - min(max(at_command, low), high)
        if bound is None:
            more = max(1.0, abs(force - self._zero) / self._under) if self._under else 1.0
            bound = max(self._least, TIMES_FOUND * (self._static * more + self._lag))
        if not settled:  # the rig may still be settling after a motion
            self._missed = abs(error) if self._missed is None else self._missed
            bound += self._missed
        if abs(error) <= bound:  # NaN counts as an error
            return ""
        return (
            f"axes.{self.name}.slow_error: measured - command = {_mm(error)}: must be within +- {_mm(bound)} in "
            f"a slow motion: {WHY}"
        )

    def mute(self, displacements: Sequence[float], force: float) -> str:
        """Return a warning if the load cell seems dead, otherwise an empty string.

        A dead load cell responds in neither direction of motion; a force on a plateau responds in one direction.
        The expected force is computed from stiffnesses of the small moves and ``displacements`` (m) of all axes.
        """
        if self._pushed is None:
            return ""
        expected = sum(stiffness * displacements[index] for index, stiffness in self._stiffness)
        travel = self._pushed.stuck(expected, force)
        if travel is None or not self._pushed.both_ways:
            return ""
        self._pushed = None  # report a dead load cell only once
        expected, shown = travel
        return (
            f"axes.{self.name}: the force does not respond to motion of the rig in either direction: it has "
            f"changed by {shown:.4g} N, but should have changed by about {expected:.4g} N. Check the load cell"
        )


class Following:
    """Checks that the axes of ``scenario`` follow their commands, relative to the ``offsets``.

    ``checks`` are the results of the small moves by axis. ``warnings`` holds a message for each load cell
    that does not respond to motion.
    """

    def __init__(self, scenario: Scenario, offsets: Offsets, checks: Mapping[str, AxisChecks]) -> None:
        self._axes = [
            _Axis(scenario, name, index, offsets, checks.get(name)) for index, name in enumerate(scenario.axes)
        ]
        self._held = offsets.held
        self.warnings: list[str] = []

    def slow(self, command: Array, measured: Measurement) -> str:
        """Return the reason to stop a slow motion, or an empty string. ``command`` ``(n_axes,)`` m is untared."""
        return self._why(command, measured, True)

    def test(self, command: Command, shown: Measurement, paused: bool) -> str:
        """Return the reason to stop a test, or an empty string.

        ``command`` is relative to the zero of the test. The Measurement ``shown`` is untared. ``paused`` is true
        while the test comes to rest, is at rest, or returns from a pause.
        """
        return self._why(command.command + self._held, shown, paused, command.control_mode, in_test=True)

    def _why(
        self, command: Array, measured: Measurement, slow: bool, modes: bytes = b"", in_test: bool = False
    ) -> str:
        displacements, forces = measured.displacement.tolist(), measured.force.tolist()
        rows = zip(self._axes, command.tolist(), displacements, forces, strict=True)
        for index, (axis, sent, displacement, force) in enumerate(rows):
            if modes and modes[index] == MODE_FORCE:  # the command of this axis is in N
                continue
            if reason := axis.why(sent, displacement, force, slow, window=in_test):
                return reason
            if in_test and (warning := axis.mute(displacements, force)):
                self.warnings.append(warning)
        return ""


def _mm(metres: float) -> str:
    return f"{1e3 * metres:.3f} mm"
