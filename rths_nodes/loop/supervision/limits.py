# SPDX-License-Identifier: Apache-2.0
"""Limits as rows: bounds of a value, with persistence, action, and the text for a breach.

:func:`acting` checks values against rows. :func:`broken_alone` checks displacement commands without rows, because
a loop over rows takes 50 % longer. These functions and :func:`of_errors`, which computes values, are kernels. NaN
violates every bound.

:class:`LimitCheck` checks Commands and Measurements against the required limits (stroke, velocity, force). The rig
stops at the first sample with a breach. Optional limits are in ``levels.py``. The software limits are not a safety
function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rths_nodes.core.arithmetic import rounded
from rths_nodes.core.limits import (
    STOP,
    Limits,
    braked_together,
    braking_way,
    changes_of_step,
    samples_to_rest,
    way_left,
)
from rths_nodes.core.samples import MODE_FORCE, MODE_HELD, Array, Command, Measurement
from rths_nodes.laboratory.corrections import forces_shown, shown_forces
from rths_nodes.loop.supervision.handover import Tares

Floats = Sequence[float] | Array
NONE, NEVER = -1, 2**62
"""``NONE``: result if no row takes action. ``NEVER``: persistence of a row that never takes action."""


class Row(NamedTuple):
    """Limit of the value at index ``slot``, with bounds ``low`` and ``high``.

    ``action`` is due after ``persistence`` consecutive samples outside the bounds. A report consists of ``path``
    and ``text``, formatted with value, ``high``, ``low``, violated relation, violated bound, and duration.
    """

    path: str
    slot: int
    low: float
    high: float
    persistence: int = 1
    action: str = STOP
    text: str = ""

    def words(self, value: float, duration: str = "") -> str:
        sign, bound = (">=", self.low) if value < self.low else ("<=", self.high)
        return self.path + self.text.format(value, self.high, self.low, sign, bound, duration)


def within(path: str, slot: int, most: float, unit: str, noun: str = "") -> Row:
    """Return a row that limits the magnitude of the value at index ``slot`` to ``most``."""
    shown = f"{noun} = " if noun else ""
    return Row(path, slot, -most, most, text=f": {shown}{{:.6g}} {unit}: must be within +- {{:g}} {unit}")


Table = tuple[tuple[tuple[int, float, float, int], ...], list[int], list[int]]
"""Rows (index of a value, lower bound, upper bound, persistence), and two lists by index: the number of
consecutive samples outside the bounds, and the last of these samples."""


def table(rows: Iterable[Row]) -> Table:
    """Return ``rows``, in order of priority, as a table for :func:`acting`."""
    bounds = tuple((row.slot, row.low, row.high, row.persistence) for row in rows)
    size = 1 + max((index for index, *_ in bounds), default=0)
    return bounds, [0] * size, [NONE - 1] * size


def acting(limits: Table, values: Floats, sample: int) -> int:
    """Return the ``slot`` of the first row of ``limits`` whose action is due, or NONE."""
    rows, in_a_row, last = limits
    first = NONE
    for index, low, high, persistence in rows:
        if not low <= values[index] <= high:
            in_a_row[index] = in_a_row[index] + 1 if last[index] == sample - 1 else 1
            last[index] = sample
            if first == NONE and in_a_row[index] >= persistence:
                first = index
    return first


Move = tuple[int, float, float, float, float]
"""Constants of an axis: index, zero of its commands, stroke, largest step, and twice the largest change of the
step per sample (m)."""
PER_MOVE = 5
TARGET, PLACE, STEP, WAY, COMMON_WAY = range(PER_MOVE)


def broken_alone(moves: Sequence[Move], targets: Floats, commands: Floats, previous: Floats) -> int:
    """Return PER_MOVE * axis + TARGET, PLACE, STEP or WAY for the first violated limit, or NONE."""
    for axis, zero, stroke, most, braking in moves:
        now, target = commands[axis], targets[axis]
        step = now - previous[axis]
        position = now + zero
        left = stroke - abs(position)
        if target - target != 0.0:
            return PER_MOVE * axis + TARGET
        if not left >= 0.0:
            return PER_MOVE * axis + PLACE
        if not -most <= step <= most:
            return PER_MOVE * axis + STEP
        if step * step > braking * left and _too_long(position, step, stroke, 2.0 * abs(step) / braking):
            return PER_MOVE * axis + WAY
    return NONE


def broken_together(groups: Sequence[Sequence[Move]], commands: Floats, previous: Floats) -> int:
    """Return PER_MOVE * axis + COMMON_WAY for the first axis that cannot stop together with its group, or NONE.

    All axes of a group take as many samples to stop as its slowest axis.
    """
    for group in groups:
        longest = 0.0
        for axis, _, _, _, braking in group:
            samples = 2.0 * abs(commands[axis] - previous[axis]) / braking
            longest = samples if samples > longest else longest
        for axis, zero, stroke, _, _ in group:
            position, step = commands[axis] + zero, commands[axis] - previous[axis]
            if abs(step) * longest > 2.0 * (stroke - abs(position)) and _too_long(position, step, stroke, longest):
                return PER_MOVE * axis + COMMON_WAY
    return NONE


def _too_long(position: float, step: float, stroke: float, samples: float) -> bool:
    """Return whether braking within ``samples`` takes more than the remaining stroke."""
    least = rounded(samples)
    return braking_way(step, least if least >= samples else least + 1.0) > way_left(position, step, stroke)


def of_errors(
    zeros: Sequence[tuple[float, float, bool]], moved: Floats, forces: Floats, targets: Floats, modes: bytes
) -> list[float]:
    """Return two values for each axis: the displacement from its zero (m), and the tracking error.

    The error of a displacement axis is the target minus this displacement (m). The error of a force axis is the
    target minus the force (N) in MODE_FORCE, and 0 in other modes. Each element of ``zeros`` contains the zeros of
    displacement (m) and force (N), and true for a force axis.
    """
    values = [0.0] * (2 * len(zeros))
    for axis in range(len(zeros)):
        zero, force_zero, loaded = zeros[axis]
        position = moved[axis] - zero
        error = targets[axis] - position
        if loaded:
            forced = len(modes) > 0 and modes[axis] == MODE_FORCE
            error = targets[axis] + force_zero - forces[axis] if forced else 0.0
        values[2 * axis], values[2 * axis + 1] = position, error
    return values


NO_TARGET, NO_COMMAND = ": target = {}: must be finite", ": command = {}: must be finite"
NOT_TAKEN = ": the rig reports no control mode for commands in N (MODE_HELD or MODE_FORCE), so none are sent"
MOVED = (
    ".rig_axis.elastic_limit: measured = {:.6g} m from the zero of the test: must be within +- {:g} m on this rung"
)


class LimitCheck:
    """Checks commands before they are sent, and measurements on arrival, against the limits of all axes.

    Commands and targets are relative to the zero of the test (``tares``). Measurements are untared, and forces are
    checked before they are corrected. Axes with the same number in ``groups`` stop together. Force axes are last.
    Commands and targets are in m, or in N in force mode.

    ``beside`` is true if measurements have limits other than displacement and force.
    """

    _sent: Floats = ()
    _modes = b""

    def __init__(
        self,
        limits: dict[str, Limits],
        dt: float,
        auxiliary_inputs: Sequence[str] = (),
        auxiliary_names: Sequence[str] = (),
        tares: Tares | None = None,
        groups: Sequence[int] = (),
    ) -> None:
        self._inputs, self._channels, self.rate = auxiliary_inputs, auxiliary_names, 1.0 / dt
        self._paths, axis_limits = [f"axes.{axis}" for axis in limits], list(limits.values())
        self._shown = shown_forces(auxiliary_names, list(limits))
        self._told = bytes([MODE_HELD]) * len(axis_limits)
        """Control modes in the last Measurement."""
        zeros, changes = (tares or Tares.none(len(axis_limits))).rows(), changes_of_step(axis_limits, dt)
        moved = [(i, lim) for i, lim in enumerate(axis_limits) if not lim.of_force]
        self.moves = [(i, zeros[i][2], lim.stroke, lim.velocity * dt, 2.0 * changes[i]) for i, lim in moved]
        together = [group for group in braked_together(axis_limits, groups) if len(group) > 1]
        self.groups = [[self.moves[i] for i in group] for group in together]
        self.loads = [(i, lim, zeros[i][2], zeros[i][1], dt) for i, lim in enumerate(axis_limits) if lim.of_force]
        measured = list(_of_measurements(limits, zeros))
        self.of_measurement = {row.slot: row for row in measured}
        self.measurements = table(measured)
        self.zeros = [(*zero[:2], lim.of_force) for lim, zero in zip(axis_limits, zeros, strict=True)]
        self.beside = any(row.slot >= 2 * len(axis_limits) for row in measured)

    def command(self, command: Command, previous: Floats, modes: bytes = b"") -> str:
        """Return the reason to refuse ``command``, or an empty string. ``modes`` are the modes of ``previous``."""
        targets, commands = command.target.tolist(), command.command.tolist()
        if self.loads and (reason := self._unfit_load(command, targets, commands, previous, modes)):
            return reason
        code = broken_alone(self.moves, targets, commands, previous)
        if code < 0 and self.groups:
            code = broken_together(self.groups, commands, previous)
        if code >= 0:
            return self._unfit(code, targets, commands, previous)
        return _not_finite("command", command.auxiliary.tolist(), self._inputs) if len(command.auxiliary) else ""

    def _unfit_load(
        self, command: Command, targets: Floats, commands: Floats, previous: Floats, before: bytes
    ) -> str:
        modes, shown = command.control_mode, self._told
        for i, lim, zero, force_zero, dt in self.loads:
            path, now, forced = self._paths[i], commands[i], len(modes) > 0 and modes[i] == MODE_FORCE
            same = forced == (len(before) > 0 and before[i] == MODE_FORCE)
            rate = (now - previous[i]) / dt if same else 0.0
            if not math.isfinite(targets[i]):
                return path + NO_TARGET.format(targets[i])
            if not math.isfinite(now):
                return path + NO_COMMAND.format(now)
            if forced and not (shown and shown[i] in (MODE_FORCE, MODE_HELD)):
                return path + NOT_TAKEN
            rows = ("stroke", "m", now + zero), ("velocity", "m/s", rate)
            if forced:
                rows = ("force", "N", now + force_zero), ("force_rate", "N/s", rate)
            for key, unit, value in rows:
                most = getattr(lim, key)
                if not -most <= value <= most:
                    return within(f"{path}.limits.{key}", i, most, unit, "command").words(value)
        return ""

    def _unfit(self, code: int, targets: Floats, commands: Floats, previous: Floats) -> str:
        i, limit = divmod(code, PER_MOVE)
        _, zero, stroke, most, _ = move = self.moves[i]
        now, step, rate, axis = commands[i], commands[i] - previous[i], self.rate, self._paths[i]
        if limit == TARGET:
            reason = "the response has run away, or lies beyond the reach of the setup"
            return f"{axis}{NO_TARGET.format(targets[i])}: {reason}"
        if limit == PLACE:
            row = within(f"{axis}.limits.stroke", i, stroke, "m", "command")
            return row.words(now + zero) if math.isfinite(now) else axis + NO_COMMAND.format(now)
        if limit == STEP:
            return within(f"{axis}.limits.velocity", i, most * rate, "m/s", "command").words(step * rate)
        group = [move] if limit == WAY else next(group for group in self.groups if move in group)
        samples = samples_to_rest(
            (commands[j] - previous[j] for j, *_ in group), (0.5 * braking for *_, braking in group)
        )
        way, left = braking_way(step, samples), way_left(now + zero, step, stroke)
        return (
            f"{axis}.limits.stroke: command = {now + zero:.6g} m at {step * rate:.4g} m/s: its braking way of "
            f"{way:.4g} m must be within the {left:.4g} m that are left to +- {stroke:g} m"
        )

    def measurement(self, measured: Measurement, targets: Floats, modes: bytes = b"") -> str:
        """Return the reason to stop after ``measured``, or an empty string. ``modes`` belong to ``targets``."""
        moved, forces = measured.displacement.tolist(), measured.force.tolist()
        channels = measured.auxiliary.tolist()
        if self._shown:
            forces = forces_shown(forces, channels, self._shown)
        values, self._told = moved + forces, measured.control_mode
        if self.beside:
            values += of_errors(self.zeros, moved, forces, targets, modes)
        if (index := acting(self.measurements, values, 0)) >= 0:
            return self.of_measurement[index].words(values[index])
        return _not_finite("measured", channels, self._channels) if channels else ""

    def start(self, measured: Measurement) -> None:
        """Make the applied commands of ``measured`` the previous commands of :meth:`refusal`."""
        self._sent, self._modes = measured.command.tolist(), b""

    def refusal(self, command: Command) -> str:
        """Return the reason not to publish ``command``, or an empty string. The rig checks the Command again."""
        reason = self.command(command, self._sent, self._modes)
        if not reason:
            self._sent, self._modes = command.command.tolist(), command.control_mode
        return reason


def _of_measurements(limits: dict[str, Limits], zeros: Sequence[Sequence[float]]) -> Iterator[Row]:
    n, axes = len(limits), enumerate(limits.items())
    for i, (axis, lim) in sorted(axes, key=lambda pair: not pair[1][1].of_force):
        path, reach = f"axes.{axis}", zeros[i][3]
        yield within(f"{path}.limits.stroke", i, lim.stroke, "m", "measured")
        yield within(f"{path}.limits.force", n + i, lim.force, "N", "measured")
        if reach < math.inf:
            yield Row(path, 2 * (n + i), -reach, reach, text=MOVED)
        key, unit = ("force_error", "N") if lim.of_force else ("tracking_error", "m")
        if (most := getattr(lim, key)) is not None and most < math.inf:
            yield within(f"{path}.limits.{key}", 2 * (n + i) + 1, most, unit, "target - measured")


def _not_finite(noun: str, auxiliary: Floats, names: Sequence[str]) -> str:
    for index, value in enumerate(auxiliary):
        if not math.isfinite(value):
            name = names[index] if index < len(names) else f"auxiliary[{index}]"
            return f"{noun} {name} = {value}: must be finite"
    return ""
