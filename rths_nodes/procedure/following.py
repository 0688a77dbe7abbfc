# SPDX-License-Identifier: Apache-2.0
"""Check that the rig follows: |measured - command| in slow motions, and readings that move with the command.

``slow_error`` bounds the difference at every tick of a slow motion. A sensor that does not move with the rig is
detected by travel, as in tests (``loop/stages/frozen.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from rths_nodes.core.samples import MODE_FORCE, Array, Command, Measurement
from rths_nodes.loop.procedure_record import AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.frozen import FINE_BLOCKS, LATE_S, STUCK, OneWay, least_travel
from rths_nodes.procedure.offsets import Offsets

LEAST_ERROR = 1e-3
"""Smallest default of ``slow_error``, m."""
TIMES_FOUND = 3.0
"""Default of ``slow_error``, relative to the error found by the check."""
TIMES_LATE = 3.0
"""Assumed lag, relative to the lag of the small move."""
WHY = "the actuator does not follow, or the displacement sensor is wrong"


class _Axis:
    """An axis of the rig: position at the offsets, bound, and travels; untared, m and N."""

    def __init__(
        self, scenario: Scenario, name: str, index: int, offsets: Offsets, checks: AxisChecks | None
    ) -> None:
        self.name, self._known = name, checks is not None
        self._found = checks or AxisChecks()
        limits, rig = scenario.axes[name].limits, scenario.axes[name].rig_axis
        self._shift = float(offsets.displacement[index] - offsets.held[index])
        self._zero = float(offsets.force[index])
        self._given = None if rig is None else rig.slow_error
        self._late = self._found.late or 0.0
        self._missed: float | None = None
        """Tracking error at the first sample, m."""
        velocities = (
            [] if rig is None else [motion.velocity for motion in (rig.small_move, rig.unloading) if motion]
        )
        self._fastest = max(velocities, default=0.0)
        self._least = LEAST_ERROR
        if checks is None:  # nothing is known yet; the guards of the small move are tighter
            move = 0.0 if rig is None or rig.small_move is None else rig.small_move.displacement
            self._least = max(LEAST_ERROR, move, LATE_S * self._fastest)
        steps = (0.0, 0.0) if rig is None else (rig.displacement.step_si, rig.force.step_si)
        scatter = float(offsets.displacement_scatter[index]), float(offsets.force_scatter[index])
        lost = (self._found.lost_motion or 0.0) + (self._found.static_error or 0.0)
        way, felt = least_travel(steps, scatter, lost, limits.stroke)
        late = max(LATE_S, TIMES_LATE * self._late) + scenario.port.transport_samples * scenario.dt
        block = max(1, round(late / FINE_BLOCKS / scenario.dt))
        self._moved, stiffness = OneWay(way, block), self._found.stiffness or 0.0
        self._stiffness = {**self._found.beside, name: stiffness}
        self._pushed = OneWay(max(stiffness * way, felt / STUCK), block, felt) if stiffness > 0.0 else None

    def bound(self, force: float) -> float:
        """Return slow_error (m) under a measured ``force`` (N)."""
        if self._given is not None:
            return self._given
        static, under = self._found.static_error or 0.0, self._found.static_error_force or 0.0
        more = max(1.0, abs(force - self._zero) / under) if under else 1.0
        return max(self._least, TIMES_FOUND * (static * more + self._late * self._fastest))

    def slow_error(self, command: float, displacement: float, force: float, window: bool = False) -> str:
        """Return why it does not follow a slow ``command`` or, with ``window``, any command of the last LATE_S."""
        settled = self._moved.settled
        if window and not settled:
            return ""
        low, high = self._moved.window if window else (command, command)
        displacement_error, bound = displacement - self._shift, self.bound(force)
        error = displacement_error - min(max(displacement_error, low), high)
        if not settled:  # the rig may still have to settle after a motion
            self._missed = abs(error) if self._missed is None else self._missed
            bound += self._missed
        if abs(error) <= bound:  # false for nan
            return ""
        return (
            f"axes.{self.name}.slow_error: measured - command = {_mm(error)}: must be within +- {_mm(bound)} in "
            f"a slow motion: {WHY}"
        )

    def stuck(self, command: float, displacement: float) -> str:
        """Return why its displacement does not move with the rig."""
        travel = self._moved.stuck(command, displacement)
        if travel is None or not self._known:  # the small move has guards of its own
            return ""
        return (
            f"axes.{self.name}: the displacement does not move with the rig: it has changed by "
            f"{_mm(travel.shown)} where the command went {_mm(travel.gone)} one way: {WHY}"
        )

    def mute(self, displacements: Mapping[str, float], force: float) -> str:
        """Return why its load cell seems dead: no change there and back. Plateaus in one direction are real.

        The expected force comes from the small moves, by the ``displacements`` (m) of all axes.
        """
        if self._pushed is None:
            return ""
        expected = sum(stiffness * displacements[name] for name, stiffness in self._stiffness.items())
        travel = self._pushed.stuck(expected, force)
        if travel is None or not self._pushed.both_ways:
            return ""
        self._pushed = None  # reported once
        return (
            f"axes.{self.name}: the force does not move with the rig: it has changed by {travel.shown:.4g} N "
            f"where it should by some {travel.gone:.4g} N, there and back: is the load cell dead?"
        )


class Following:
    """Check that the axes of ``scenario`` follow, from the ``offsets`` on, given the ``checks`` of each.

    ``told`` collects warnings: load cells that do not move with the rig.
    """

    def __init__(self, scenario: Scenario, offsets: Offsets, checks: Mapping[str, AxisChecks]) -> None:
        self._axes = [
            _Axis(scenario, name, index, offsets, checks.get(name)) for index, name in enumerate(scenario.axes)
        ]
        self._held = offsets.held
        self.told: list[str] = []

    def slow(self, command: Array, measured: Measurement) -> str:
        """Return why a slow motion must stop: ``command`` ``(n_axes,)`` m, untared; else empty."""
        for axis, sent, displacement, force in self._rows(command, measured):
            if reason := axis.stuck(sent, displacement) or axis.slow_error(sent, displacement, force):
                return reason
        return ""

    def test(self, command: Command, shown: Measurement, paused: bool) -> str:
        """Return why a test must stop: ``command`` from its zero, ``shown`` untared.

        ``paused``: it comes to rest, rests, or returns.
        """
        modes = command.control_mode
        rows = self._rows(command.command + self._held, shown)
        places = dict(zip((axis.name for axis in self._axes), shown.displacement.tolist(), strict=True))
        for index, (axis, sent, displacement, force) in enumerate(rows):
            if modes and modes[index] == MODE_FORCE:  # its command is in N
                continue
            reason = axis.stuck(sent, displacement)
            reason = reason or (axis.slow_error(sent, displacement, force, window=True) if paused else "")
            if reason:
                return reason
            if words := axis.mute(places, force):
                self.told.append(words)
        return ""

    def _rows(self, command: Array, measured: Measurement) -> zip[tuple[_Axis, float, float, float]]:
        columns = (command, measured.displacement, measured.force)
        return zip(self._axes, *(column.tolist() for column in columns), strict=True)


def _mm(metres: float) -> str:
    return f"{1e3 * metres:.3f} mm"
