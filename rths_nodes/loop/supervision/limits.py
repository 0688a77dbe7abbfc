# SPDX-License-Identifier: Apache-2.0
"""Check of Commands and Measurements against the limits of the axes: rows (``limit_rows.py``) with texts.

Required limits (stroke, velocity, force) stop at the first sample; optional ones are in ``levels.py``.

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
    """Bounds for the kernels of ``limit_rows.py``: moves, axes that stop together, measurements.

    ``zeros`` as of ``of_errors``, if more than displacements and forces is limited (``beside``).
    """

    moves: Sequence[rows.Move]
    groups: Sequence[Sequence[rows.Move]]
    measurements: rows.Table
    zeros: Sequence[tuple[float, float, bool]]
    beside: bool


class LimitCheck:
    """Checks commands before they are sent and measurements on arrival, against the limits of all axes.

    Commands and targets count from the zero of the test (``tares``); measurements are untared. Limits apply to
    readings of sensors and controller: for a corrected force, to its original channel. Axes with the same number
    in ``groups`` stop together; force axes come last. Values by axis are in m, or in N in force mode. Each check
    returns a reason, or empty.
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
        """True if more than displacements and forces is limited."""

    @property
    def bounds(self) -> Bounds:
        """Bounds for kernels, of displacement axes with uncorrected forces."""
        return Bounds(self._moves, self._groups, self._measurements, self._zeros, self._beside)

    def command(self, command: Command, previous: Floats, modes: bytes = b"") -> str:
        """Return why ``command`` must not be sent; ``previous`` was sent before, in ``modes``."""
        given = (command.target.tolist(), command.command.tolist(), command.auxiliary.tolist())
        return self.commanded(*given, previous, command.control_mode, modes)

    def commanded(
        self, targets: Floats, commands: Floats, auxiliary: Floats, previous: Floats, modes: bytes, before: bytes
    ) -> str:
        """Judge numbers by axis as :meth:`command`; ``modes`` of these and ``before``."""
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
        """Return why the rig must not continue after ``measured``; ``targets`` are in ``modes``."""
        given = (measured.displacement.tolist(), measured.force.tolist(), measured.auxiliary.tolist())
        return self.measured(*given, targets, modes, measured.control_mode)

    def measured(
        self, moved: list[float], forces: list[float], channels: Floats, targets: Floats, modes: bytes, told: bytes
    ) -> str:
        """Judge numbers by axis as :meth:`measurement`; ``told``: modes reported by the rig."""
        if self._shown:
            forces = forces_shown(forces, channels, self._shown)
        values, self._told = moved + forces, told
        if self._beside:
            values += rows.of_errors(self._zeros, moved, forces, targets, modes)
        if (place := acting(self._measurements, values, 0)) >= 0:
            return _words(self._of_measurement[place], values)
        return _not_finite("measured", channels, self._channels) if channels else ""


class OutgoingCommands(LimitCheck):
    """Check of Commands before they are published; the rig checks them again on arrival."""

    _sent: Floats = ()
    _modes = b""

    def start(self, measured: Measurement) -> None:
        """Take Measurement 0, from which the first Command starts."""
        self._sent, self._modes = measured.command.tolist(), b""

    def refusal(self, command: Command) -> str:
        """Return why ``command`` must not be published; if empty, it is the predecessor of the next one."""
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
    """Yield rows of displacement, force, ``rows.of_errors``, force axes first; ``zeros`` of ``Tares``."""
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
