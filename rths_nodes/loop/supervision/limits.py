"""The check of Commands and Measurements against the limits of the axes.

What every axis must have (stroke, velocity, force) acts at the first sample, by a stop; :class:`LevelWatch` has
what an axis may have beside that.

The software limits are not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rths_nodes.core.braking import braked_together, changes_of_step, no_way_left
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.limits import INDICATE, QUANTITIES, SHARE_S, WHOLE, Disagreement, Level, Limits
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Array, Command, Measurement
from rths_nodes.laboratory.corrections import shown_forces
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.load_limits import LoadCheck


class LimitCheck:
    """Checks commands before they are sent and measurements when they come, against the limits of all axes.

    Commands and targets count from the zero of the test, which ``tares`` tell; measurements as the sensors show
    them. Limits are of what sensors and controller show: where a force is corrected, of the channel beside it.
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
        self._inputs, self._channels = tuple(auxiliary_inputs), tuple(auxiliary_names)
        self._shown = shown_forces(self._channels, list(limits))
        rows = (tares or Tares.none(len(limits))).rows()
        self._axes = [
            (name, lim.stroke, lim.velocity * dt, lim.force, lim.tracking_error or math.inf)
            + (2.0 * lim.deceleration * dt * dt, zero, place, reach)
            for (name, lim), (place, _, zero, reach) in zip(limits.items(), rows, strict=True)
            if not lim.of_force
        ]
        self._loads = LoadCheck(limits, dt, tares) if len(self._axes) < len(limits) else None
        self._rate = 1.0 / dt
        changes = changes_of_step(limits.values(), dt)
        self._together = [
            [(axis, changes[axis], self._axes[axis]) for axis in group]
            for group in braked_together(limits.values(), groups)
            if len(group) > 1
        ]

    def command(self, command: Command, previous: Iterable[float], modes: bytes = b"") -> str:
        """Why ``command`` must not be sent; empty when it may.

        ``previous``: what was sent before, m by axis, or N where ``modes``, those of then, say force.
        """
        targets, commands = command.target.tolist(), command.command.tolist()
        if self._loads is not None:
            n, before = len(self._axes), list(previous)
            if reason := self._loads.command(targets[n:], commands[n:], before[n:], command.control_mode, modes):
                return reason
            targets, commands, previous = targets[:n], commands[:n], before[:n]
        rows = zip(self._axes, targets, commands, previous, strict=True)
        for (name, stroke, most, _, _, braking, zero, _, _), target, now, last in rows:
            step, place = now - last, now + zero
            if (
                step * step <= braking * (stroke - abs(place))  # v^2 <= 2 a w; not where the place is beyond
                and abs(step) <= most
                and math.isfinite(target)
            ):
                continue
            if not math.isfinite(target):
                why = "the response has run away, or lies beyond the reach of the setup"
                return f"axes.{name}: target = {target}: must be finite: {why}"
            if not math.isfinite(now):
                return f"axes.{name}: command = {now}: must be finite"
            if abs(place) > stroke:
                return f"axes.{name}.limits.stroke: command = {place:.6g} m: must be within +- {stroke:g} m"
            if not abs(step) <= most:
                velocity, bound = step * self._rate, most * self._rate
                return (
                    f"axes.{name}.limits.velocity: command = {velocity:.6g} m/s: must be within +- {bound:g} m/s"
                )
            if reason := no_way_left(name, place, step, self._rate, stroke, math.ceil(2.0 * abs(step) / braking)):
                return reason
        if self._together and (reason := self._leaves_no_way(commands, list(previous))):
            return reason
        return _not_finite("command", command.auxiliary, self._inputs) if command.auxiliary.size else ""

    def _leaves_no_way(self, commands: Sequence[float], previous: Sequence[float]) -> str:
        """Why axes that stop together must not go on with ``commands`` after ``previous``; empty when they may."""
        for group in self._together:
            longest = 0.0
            for axis, change, _ in group:
                longest = max(longest, abs(commands[axis] - previous[axis]) / change)
            for axis, _, (name, stroke, _, _, _, _, zero, _, _) in group:
                step, place = commands[axis] - previous[axis], commands[axis] + zero
                if abs(step) * longest > 2.0 * (stroke - abs(place)):
                    samples = math.ceil(longest)
                    if reason := no_way_left(name, place, step, self._rate, stroke, samples):
                        return reason
        return ""

    def measurement(self, measured: Measurement, target: Array, modes: bytes = b"") -> str:
        """Why the rig must not go on after ``measured``; empty when it may.

        ``target`` ``(n_axes,)``: m, or N where ``modes`` say force.
        """
        if reason := self.loads(measured, target, modes):
            return reason
        displacements, targets = measured.displacement.tolist(), target.tolist()
        forces = forces_shown(measured, self._shown)
        if self._loads is not None:
            n = len(self._axes)
            displacements, forces, targets = displacements[:n], forces[:n], targets[:n]
        rows = zip(self._axes, displacements, forces, targets, strict=True)
        for (name, stroke, _, limit, tracking, _, _, place, reach), displacement, force, wanted in rows:
            # written so that nan does not pass
            if not abs(displacement) <= stroke:
                return (
                    f"axes.{name}.limits.stroke: measured = {displacement:.6g} m: must be within +- {stroke:g} m"
                )
            if not abs(force) <= limit:
                return f"axes.{name}.limits.force: measured = {force:.6g} N: must be within +- {limit:g} N"
            moved = displacement - place
            if not abs(moved) <= reach:
                return (
                    f"axes.{name}.rig_axis.elastic_limit: measured = {moved:.6g} m from the zero of the test: "
                    f"must be within +- {reach:g} m on this rung"
                )
            if not abs(wanted - moved) <= tracking:
                error = wanted - moved
                return (
                    f"axes.{name}.limits.tracking_error: target - measured = {error:.6g} m: "
                    f"must be within +- {tracking:g} m"
                )
        return _not_finite("measured", measured.auxiliary, self._channels) if measured.auxiliary.size else ""

    def loads(self, measured: Measurement, target: Array, modes: bytes) -> str:
        """Why axes that are controlled by force must not go on after ``measured``; empty when they may."""
        if self._loads is None:
            return ""
        n, forces = len(self._axes), forces_shown(measured, self._shown)
        displacements, targets = measured.displacement.tolist(), target.tolist()
        told = measured.control_mode
        return self._loads.measurement(displacements[n:], forces[n:], targets[n:], modes, told)


def forces_shown(measured: Measurement, places: Sequence[tuple[int, int]]) -> list[float]:
    """The forces (N) of all axes as the load cells show them; ``places`` as of :func:`shown_forces`."""
    forces: list[float] = measured.force.tolist()
    for axis, channel in places:
        if channel < len(measured.auxiliary):  # a simulator in place of the rig may lack its channels
            forces[axis] = float(measured.auxiliary[channel])
    return forces


class Breach(NamedTuple):
    """A level that was broken: why, and what is to be done (``core/limits.py``)."""

    reason: str
    action: str


class _Rule:
    """One level of one axis: how long a quantity is beyond it, and how far it went."""

    def __init__(self, axis: str, index: int, quantity: str, level: Level, channels: Sequence[str]) -> None:
        self.axis, self.quantity, self.level = axis, quantity, level
        self.index = index
        if isinstance(level, Disagreement):
            self.value = _beside(axis, quantity, level.channel, channels)
        else:
            self.value = _VALUES[quantity]
        low, high = level.minimum, level.maximum
        self.low, self.high = _or(low, -math.inf), _or(high, math.inf)
        self.warn_low = _or(level.warn_minimum, self.low)
        self.warn_high = _or(level.warn_maximum, self.high)
        self.lowest, self.highest = math.inf, -math.inf
        self.in_a_row = self.samples = 0
        self.first = -1

    def beyond(self, value: float, sample: int) -> bool:
        """Work ``value`` in, which is beyond what is told; whether it now acts."""
        self.first = sample if not self.samples else self.first
        self.samples += 1
        self.in_a_row = 0 if self.low <= value <= self.high else self.in_a_row + 1
        return self.in_a_row >= self.level.persistence and self.level.action != INDICATE

    def words(self, value: float) -> str:
        """What is wrong with ``value``."""
        low, high = (self.low, self.high) if self.in_a_row else (self.warn_low, self.warn_high)
        bound, sign = (low, ">=") if value < low else (high, "<=")
        unit = _UNITS[self.quantity]
        lasted = f" for {self.in_a_row} samples" if self.in_a_row > 1 and self.axis != WHOLE_RIG else ""
        lasted = _IN_A_ROW.get(self.quantity, lasted)
        return (
            f"{level_path(self.axis, self.quantity)}: {value:.6g} {unit}{lasted}: must be {sign} {bound:g} {unit}"
        )


_Row = list[list[float]]
"""Displacement, force, command and target of one sample, by axis, the auxiliary channels, the displacement from
where command and target count, and what was in a row: samples bridged, samples with a parameter at its bound;
and the share of the last second that was bridged."""
_Value = Callable[[_Row, _Row, int, float], float]
"""Of this sample, the one before, the axis and the servo rate."""
_VALUES: dict[str, _Value] = {
    "displacement": lambda now, before, i, rate: now[0][i],
    "force": lambda now, before, i, rate: now[1][i],
    "force_rate": lambda now, before, i, rate: (now[1][i] - before[1][i]) * rate,
    "command_step": lambda now, before, i, rate: now[2][i] - before[2][i],
    "piston_velocity": lambda now, before, i, rate: (now[0][i] - before[0][i]) * rate,
    "command_error": lambda now, before, i, rate: now[2][i] - now[3][i],
    "tracking_error": lambda now, before, i, rate: now[3][i] - now[5][i],
    "bridge_length": lambda now, before, i, rate: now[6][0],
    "parameter_at_bound": lambda now, before, i, rate: now[6][1],
    "bridged_share": lambda now, before, i, rate: now[6][2],
}
WHOLE_RIG = "whole rig"
"""In the place of an axis: what concerns all of them."""
_UNITS = QUANTITIES | WHOLE
_IN_A_ROW = {
    "bridge_length": " in a row were bridged",
    "bridged_share": " of the samples of a second were bridged",
    "parameter_at_bound": " in a row had an adaptive parameter of the compensator at its bound",
}


def _beside(axis: str, quantity: str, channel: str, channels: Sequence[str]) -> _Value:
    """What an axis measures minus a second sensor. Raises ConfigError for a channel that does not measure it."""
    names = [name.partition(" [")[0] for name in channels]
    place = f"{level_path(axis, quantity)}.channel"
    if channel not in names:
        raise unknown(place, "channel", channel, names)
    second, first = names.index(channel), int(quantity == "force_disagreement")
    unit = channels[second].partition(" [")[2].rstrip("]")
    if unit != QUANTITIES[quantity]:
        told = unit or "a number without unit"
        raise ConfigError(f"{place} = {channel!r}: is in {told}: must be in {QUANTITIES[quantity]}")
    return lambda now, before, i, rate: now[first][i] - now[4][second]


class LevelWatch:
    """Watches the levels of all axes; ``told`` has what was found beyond one for the first time."""

    def __init__(
        self,
        rules: Sequence[_Rule],
        dt: float,
        tares: Tares | None = None,
        shown: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._rules, self._rate, self._tares, self._shown = rules, 1.0 / dt, tares, shown
        self._before: _Row | None = None
        self._bridged = self._at_bound = 0
        self._second: deque[bool] = deque(maxlen=max(1, round(SHARE_S / dt)))
        """Whether the samples of the last second were bridged."""
        self._in_second = 0
        self.told: list[str] = []

    @classmethod
    def of(
        cls,
        limits: dict[str, Limits],
        dt: float,
        channels: Sequence[str] = (),
        tares: Tares | None = None,
        whole: Mapping[str, Level] | None = None,
    ) -> LevelWatch | None:
        """The watch for the levels in ``limits``; None where there are none: nothing is done then.

        ``channels``: names of the auxiliary ones, with units; ``tares`` as of a :class:`LimitCheck`; ``whole``:
        levels of the whole rig. Raises ConfigError for a channel that is not there.
        """
        rules = [
            _Rule(axis, index, quantity, level, channels)
            for index, (axis, each) in enumerate(limits.items())
            if each.levels is not None
            for quantity, level in each.levels.given().items()
        ]
        rules += [_Rule(WHOLE_RIG, 0, quantity, level, ()) for quantity, level in (whole or {}).items()]
        return cls(rules, dt, tares, shown_forces(channels, list(limits))) if rules else None

    def judge(self, command: Command | None, measured: Measurement) -> Breach | None:
        """The first level that Measurement k with Command k breaks; without one the applied command is both."""
        tares, displacement = self._tares, measured.displacement
        moved = measured.command if command is None else command.command
        if tares is not None:
            displacement = displacement - tares.displacement
            moved = moved - tares.command if command is None else moved
        target = moved if command is None else command.target
        shown = (measured.displacement, measured.force, moved, target, measured.auxiliary, displacement)
        now = [each.tolist() for each in shown]
        if self._shown:
            now[1] = forces_shown(measured, self._shown)
        now.append(self._in_a_row(command, measured))
        before, rate = self._before or now, self._rate
        self._before = now
        breach = None
        for rule in self._rules:
            value = rule.value(now, before, rule.index, rate)
            rule.lowest = min(rule.lowest, value)
            rule.highest = max(rule.highest, value)
            if rule.warn_low <= value <= rule.warn_high:  # written so that nan is beyond
                rule.in_a_row = 0
                continue
            acts = rule.beyond(value, measured.sample)
            if rule.samples == 1:
                self.told.append(f"sample {measured.sample}: {rule.words(value)}")
            if acts and breach is None:
                breach = Breach(rule.words(value), rule.level.action)
        return breach

    def _in_a_row(self, command: Command | None, measured: Measurement) -> list[float]:
        """Samples bridged, and with a parameter at its bound, of which a bridged Command tells nothing."""
        flags = 0 if command is None else command.flags
        bridged = (flags | measured.flags) & FLAG_BRIDGED
        self._bridged = self._bridged + 1 if bridged else 0
        if not flags & FLAG_BRIDGED:
            self._at_bound = self._at_bound + 1 if flags & FLAG_AT_BOUND else 0
        return [float(self._bridged), float(self._at_bound), self._share(bool(bridged))]

    def _share(self, bridged: bool) -> float:
        """Share of the last second that was bridged; a second of samples counts from the first one on."""
        second = self._second
        self._in_second += bridged - (second[0] if len(second) == second.maxlen else False)
        second.append(bridged)
        return self._in_second / (second.maxlen or 1)

    def take_told(self) -> list[str]:
        """What was found since this was asked last, in words."""
        told, self.told = self.told, []
        return told

    def numbers(self) -> dict[str, Any]:
        """Of each axis and quantity how far it went, and how long and since when it was beyond what is told."""
        found: dict[str, Any] = {}
        for rule in self._rules:
            beyond = {"samples": float(rule.samples)} | ({"first": float(rule.first)} if rule.samples else {})
            ends = {"lowest": rule.lowest, "highest": rule.highest} if rule.lowest <= rule.highest else {}
            found.setdefault(rule.axis, {})[rule.quantity] = ends | beyond
        return found


def level_numbers(watch: LevelWatch | None) -> dict[str, Any]:
    """What a test tells of its levels; nothing where there are none."""
    return {} if watch is None else {"levels": watch.numbers()}


def level_path(axis: str, quantity: str) -> str:
    """Where a level stands in the scenario."""
    if axis == WHOLE_RIG:
        return f"levels.{quantity}"
    return f"axes.{axis}.limits.levels.{quantity}"


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def level_notes(timing: Mapping[str, Any]) -> list[str]:
    """What was beyond a level in a test, a sentence for each; nothing where none was."""
    return [
        f"{level_path(axis, quantity)}: beyond its level in {row['samples']:.0f} samples, from sample "
        f"{row['first']:.0f} on; {row['lowest']:.4g} to {row['highest']:.4g} {_UNITS[quantity]} in the test"
        for axis, rows in timing.get("levels", {}).items()
        for quantity, row in rows.items()
        if row.get("samples")
    ]


def _not_finite(what: str, auxiliary: Array, names: Sequence[str]) -> str:
    """Which auxiliary value is not finite, in words; empty when all are."""
    for index, value in enumerate(auxiliary.tolist()):
        if not math.isfinite(value):
            name = names[index] if index < len(names) else f"auxiliary[{index}]"
            return f"{what} {name} = {value}: must be finite"
    return ""
