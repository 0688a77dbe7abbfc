# SPDX-License-Identifier: Apache-2.0
"""The check of Commands and Measurements against the limits of the axes: rows (``limit_rows.py``), in words.

What every axis must have (stroke, velocity, force) acts at the first sample, by a stop; ``levels.py`` has what an
axis may have beside that.

The software limits are not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rths_nodes.core.braking import braked_together, braking_way, changes_of_step, samples_to_rest, way_left
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_HELD, Command, Measurement
from rths_nodes.laboratory.corrections import forces_shown, shown_forces
from rths_nodes.loop.supervision import limit_rows as rows
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.limit_rows import Floats, Row, acting, broken_alone, broken_together

LARGEST = sys.float_info.max
TARGET, COMMAND = ": target = {}: must be finite", ": command = {}: must be finite"
RUN_AWAY = f"{TARGET}: the response has run away, or lies beyond the reach of the setup"
TAKEN = ": the rig tells no control mode in which it takes commands in N (MODE_HELD, MODE_FORCE): it gets none"
STROKE = ".limits.stroke: command = {:.6g} m: must be within +- {:g} m"
VELOCITY = ".limits.velocity: command = {:.6g} m/s: must be within +- {:g} m/s"
WAY = (
    ".limits.stroke: command = {:.6g} m at {:.4g} m/s: its braking way of {:.4g} m must be within the {:.4g} m "
    "that are left to +- {:g} m"
)
LOAD = ".limits.force: command = {:.6g} N: must be within +- {:g} N"
LOAD_RATE = ".limits.force_rate: command = {:.6g} N/s: must be within +- {:g} N/s"
DISPLACEMENT = ".limits.stroke: measured = {:.6g} m: must be within +- {:g} m"
FORCE = ".limits.force: measured = {:.6g} N: must be within +- {:g} N"
MOVED = (
    ".rig_axis.elastic_limit: measured = {:.6g} m from the zero of the test: must be within +- {:g} m on this rung"
)
ERROR = ".limits.tracking_error: target - measured = {:.6g} m: must be within +- {:g} m"
LOAD_ERROR = ".limits.force_error: target - measured = {:.6g} N: must be within +- {:g} N"


class Bounds(NamedTuple):
    """Bounds that the kernels of ``limit_rows.py`` get: of moves, of axes that stop together, of measurements.

    ``zeros`` are those of ``of_errors``, where more than displacements and forces is limited, ``beside``.
    """

    moves: Sequence[rows.Move]
    groups: Sequence[Sequence[rows.Move]]
    measurements: rows.Table
    zeros: Sequence[tuple[float, float, bool]]
    beside: bool


class LimitCheck:
    """Checks commands before they are sent and measurements when they come, against the limits of all axes.

    Commands and targets count from the zero of the test, which ``tares`` tell; measurements as the sensors show
    them. Limits are of what sensors and controller show: where a force is corrected, of the channel beside it.
    Axes with the same number in ``groups`` stop together; those that are controlled by force stand behind the
    others. What is given by axis is in m, or in N where its mode says force. Each check says why not, or nothing.
    """

    def __init__(
        self,
        limits: dict[str, Limits],
        dt: float,
        auxiliary_inputs: Sequence[str] = (),
        auxiliary_names: Sequence[str] = (),
        tares: Tares | None = None,
        groups: Sequence[int] = (),
    ) -> None:
        self._inputs, self._channels, self._rate = auxiliary_inputs, auxiliary_names, 1.0 / dt
        self._axes, each = list(limits), list(limits.values())
        self._shown = shown_forces(auxiliary_names, self._axes)
        self._told = bytes([MODE_HELD]) * len(each)
        """Modes of the last Measurement."""
        zeros, changes = (tares or Tares.none(len(each))).rows(), changes_of_step(each, dt)
        moved = [(i, lim) for i, lim in enumerate(each) if not lim.of_force]
        self._moves = [(i, zeros[i][2], lim.stroke, lim.velocity * dt, 2.0 * changes[i]) for i, lim in moved]
        together = [group for group in braked_together(each, groups) if len(group) > 1]
        self._groups = [[self._moves[i] for i in group] for group in together]
        self._loads = [(i, zeros[i][2], zeros[i][1], dt) for i, lim in enumerate(each) if lim.of_force]
        self._of_command = list(_of_load_commands(limits))
        measured = list(_of_measurements(limits, zeros))
        self._of_measurement = {row.place: row for row in measured}
        self._commands, self._measurements = rows.table(self._of_command), rows.table(measured)
        self._zeros = [(place, force, lim.of_force) for lim, (place, force, *_) in zip(each, zeros, strict=True)]
        self._beside = any(row.place >= 2 * len(each) for row in measured)
        """True where more than displacements and forces is limited."""

    @property
    def bounds(self) -> Bounds:
        """Bounds that the kernels get, of axes that follow displacements and whose forces are not corrected."""
        return Bounds(self._moves, self._groups, self._measurements, self._zeros, self._beside)

    def command(self, command: Command, previous: Floats, modes: bytes = b"") -> str:
        """Why ``command`` must not be sent; ``previous`` was sent before, in ``modes``."""
        given = (command.target.tolist(), command.command.tolist(), command.auxiliary.tolist())
        return self.commanded(*given, previous, command.control_mode, modes)

    def commanded(
        self, targets: Floats, commands: Floats, auxiliary: Floats, previous: Floats, modes: bytes, before: bytes
    ) -> str:
        """As :meth:`command`, of numbers by axis, the ``modes`` of these and those ``before``."""
        if self._loads:
            all_modes = modes, before, self._told
            values = rows.of_load_commands(self._loads, targets, commands, previous, all_modes)
            if (place := acting(self._commands, values, 0)) >= 0:
                return _words(self._of_command[place], values)
        code = broken_alone(self._moves, targets, commands, previous)
        if code < 0 and self._groups:
            code = broken_together(self._groups, commands, previous)
        if code >= 0:
            return self._unfit(code, targets, commands, previous)
        return _not_finite("command", auxiliary, self._inputs) if auxiliary else ""

    def _unfit(self, code: int, targets: Floats, commands: Floats, previous: Floats) -> str:
        i, what = divmod(code, rows.PER_MOVE)
        _, zero, stroke, most, _ = move = self._moves[i]
        now, step, rate, axis = commands[i], commands[i] - previous[i], self._rate, f"axes.{self._axes[i]}"
        if what == rows.TARGET:
            return axis + RUN_AWAY.format(targets[i])
        if what == rows.PLACE:
            return axis + (STROKE.format(now + zero, stroke) if math.isfinite(now) else COMMAND.format(now))
        if what == rows.STEP:
            return axis + VELOCITY.format(step * rate, most * rate)
        group = [move] if what == rows.WAY else next(group for group in self._groups if move in group)
        samples = samples_to_rest(
            (commands[j] - previous[j] for j, *_ in group), (0.5 * braking for *_, braking in group)
        )
        way, left = braking_way(step, samples), way_left(now + zero, step, stroke)
        return axis + WAY.format(now + zero, step * rate, way, left, stroke)

    def measurement(self, measured: Measurement, targets: Floats, modes: bytes = b"") -> str:
        """Why the rig must not go on after ``measured``; ``targets`` are in ``modes``."""
        given = (measured.displacement.tolist(), measured.force.tolist(), measured.auxiliary.tolist())
        return self.measured(*given, targets, modes, measured.control_mode)

    def measured(
        self, moved: list[float], forces: list[float], channels: Floats, targets: Floats, modes: bytes, told: bytes
    ) -> str:
        """As :meth:`measurement`, of numbers by axis, and the modes that the rig has ``told``."""
        if self._shown:
            forces = forces_shown(forces, channels, self._shown)
        values, self._told = moved + forces, told
        if self._beside:
            values += rows.of_errors(self._zeros, moved, forces, targets, modes)
        if (place := acting(self._measurements, values, 0)) >= 0:
            return _words(self._of_measurement[place], values)
        return _not_finite("measured", channels, self._channels) if channels else ""


class OutgoingCommands(LimitCheck):
    """Knows which Commands may be published by who makes them; the rig checks them again, when they have come."""

    _sent: Floats = ()
    _modes = b""

    def start(self, measured: Measurement) -> None:
        """Measurement 0: what the rig stands at, from where the first Command sets out."""
        self._sent, self._modes = measured.command.tolist(), b""

    def refusal(self, command: Command) -> str:
        """Why ``command`` must not be published; empty when it may, and then the next one follows it."""
        commands, modes = command.command.tolist(), command.control_mode
        given = command.target.tolist(), commands, command.auxiliary.tolist()
        reason = self.commanded(*given, self._sent, modes, self._modes)
        if not reason:
            self._sent, self._modes = commands, modes
        return reason


def _of_load_commands(limits: dict[str, Limits]) -> Iterator[Row]:
    place = 0
    for axis, lim in limits.items():
        bounds = {LOAD: lim.force, LOAD_RATE: lim.force_rate, STROKE: lim.stroke, VELOCITY: lim.velocity}
        within = {TARGET: LARGEST, COMMAND: LARGEST, TAKEN: 0.0} | bounds
        for quantity, most in within.items() if lim.of_force else ():
            yield Row(quantity, axis, place, -(most or 0.0), most or 0.0)
            place += 1


def _of_measurements(limits: dict[str, Limits], zeros: Sequence[Sequence[float]]) -> Iterator[Row]:
    """Yield rows of displacement, force and ``rows.of_errors``; those of axes controlled by force come first.

    ``zeros`` are the rows of ``Tares``.
    """
    n, axes = len(limits), enumerate(limits.items())
    for i, (axis, lim) in sorted(axes, key=lambda each: not each[1][1].of_force):
        yield Row(DISPLACEMENT, axis, i, -lim.stroke, lim.stroke)
        yield Row(FORCE, axis, n + i, -lim.force, lim.force)
        if (reach := zeros[i][3]) < math.inf:
            yield Row(MOVED, axis, 2 * (n + i), -reach, reach)
        quantity, error = (LOAD_ERROR, lim.force_error) if lim.of_force else (ERROR, lim.tracking_error)
        if error is not None:
            yield Row(quantity, axis, 2 * (n + i) + 1, -error, error)


def _words(row: Row, values: Floats) -> str:
    return f"axes.{row.axis}" + row.quantity.format(values[row.place], row.high)


def _not_finite(what: str, auxiliary: Floats, names: Sequence[str]) -> str:
    for index, value in enumerate(auxiliary):
        if not math.isfinite(value):
            name = names[index] if index < len(names) else f"auxiliary[{index}]"
            return f"{what} {name} = {value}: must be finite"
    return ""
