"""Levels that axes may have beside their limits, and the whole rig: rows (``rows.py``), and their words."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.limits import INDICATE, QUANTITIES, SHARE_S, WHOLE, Disagreement, Level, Limits
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Command, Measurement
from rths_nodes.laboratory.corrections import forces_shown, shown_forces
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.rows import NEVER, NONE, PER_AXIS, Row, acting, of_levels, table

WHOLE_RIG = "whole rig"
"""In the place of an axis: what concerns all of them."""
_UNITS = QUANTITIES | WHOLE
_IN_A_ROW = {
    "bridge_length": " in a row were bridged",
    "bridged_share": " of the samples of a second were bridged",
    "parameter_at_bound": " in a row had an adaptive parameter of the compensator at its bound",
}


class Breach(NamedTuple):
    """A level that was broken: why, and what is to be done (``core/limits.py``)."""

    reason: str
    action: str


class LevelWatch:
    """Watches the levels of all axes; ``told`` has what was found beyond one for the first time.

    A level is two rows of one value: what is told beyond the first is acted upon beyond the second.
    """

    def __init__(
        self,
        limits: dict[str, Limits],
        dt: float,
        channels: Sequence[str] = (),
        tares: Tares | None = None,
        whole: Mapping[str, Level] | None = None,
    ) -> None:
        """Arguments as of :meth:`of`."""
        self._rate, self._zeros = 1.0 / dt, (tares or Tares.none(len(limits))).rows()
        self._shown = shown_forces(channels, list(limits))
        self._second_sensors: list[tuple[int, int, int]] = []
        """Of each disagreement 0 for displacements and 1 for forces, the axis, the channel."""
        self._told: dict[int, Row] = {}
        self._acted: dict[int, Row] = {}
        end = PER_AXIS * len(limits)
        for index, (axis, lim) in enumerate(limits.items()):
            for quantity, level in (lim.levels.given() if lim.levels else {}).items():
                place = PER_AXIS * index + list(QUANTITIES).index(quantity)
                if isinstance(level, Disagreement):
                    place = end + len(WHOLE) + len(self._second_sensors)
                    which = int(quantity == "force_disagreement")
                    self._second_sensors.append((which, index, _second(axis, quantity, level.channel, channels)))
                self._add(place, quantity, axis, level)
        for quantity, level in (whole or {}).items():
            self._add(end + list(WHOLE).index(quantity), quantity, WHOLE_RIG, level)
        self._telling, self._acting = table(self._told.values()), table(self._acted.values())
        self._ends = dict.fromkeys(self._told, (math.inf, -math.inf))
        self._beyond: dict[int, tuple[int, int]] = {}
        """By place how many samples were beyond what is told, and the first of them."""
        self._calls = 0
        self._before: list[list[float]] = []
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

        ``channels``: names of the auxiliary ones, with units; ``tares`` as of a ``LimitCheck``; ``whole``: levels of
        the whole rig. Raises ConfigError for a channel that is not there.
        """
        watch = cls(limits, dt, channels, tares, whole)
        return watch if watch._told else None

    def _add(self, place: int, quantity: str, axis: str, level: Level) -> None:
        """The rows of a ``level`` of the value at ``place``."""
        low, high = _or(level.minimum, -math.inf), _or(level.maximum, math.inf)
        warn_low, warn_high = _or(level.warn_minimum, low), _or(level.warn_maximum, high)
        persistence = NEVER if level.action == INDICATE else level.persistence
        self._told[place] = Row(quantity, axis, place, warn_low, warn_high, NEVER, INDICATE)
        self._acted[place] = Row(quantity, axis, place, low, high, persistence, level.action)

    def judge(self, command: Command | None, measured: Measurement) -> Breach | None:
        """The first level that Measurement k with Command k breaks; without one the applied command is both."""
        values, call = self._values(command, measured), self._calls
        self._calls = call + 1
        for place, (low, high) in self._ends.items():
            self._ends[place] = min(low, values[place]), max(high, values[place])
        if acting(self._telling, values, call) == NONE:
            return None
        broken = acting(self._acting, values, call)
        for place in self._told:
            if self._telling[2][place] == call:
                samples, first = self._beyond.get(place, (0, measured.sample))
                self._beyond[place] = samples + 1, first
                if not samples:
                    self.told.append(f"sample {measured.sample}: {self._words(place, values[place], call)}")
        return (
            Breach(self._words(broken, values[broken], call), self._acted[broken].action) if broken >= 0 else None
        )

    def _values(self, command: Command | None, measured: Measurement) -> list[float]:
        """Of ``of_levels``, of the whole rig, and beside second sensors."""
        displacements, forces = measured.displacement.tolist(), measured.force.tolist()
        auxiliary = measured.auxiliary.tolist()
        if self._shown:
            forces = forces_shown(forces, auxiliary, self._shown)
        moved = [x - zero for x, (zero, *_) in zip(displacements, self._zeros, strict=True)]
        if command is None:
            applied = zip(measured.command.tolist(), self._zeros, strict=True)
            commands = targets = [x - zero for x, (_, _, zero, _) in applied]
        else:
            commands, targets = command.command.tolist(), command.target.tolist()
        now = [displacements, forces, commands, targets, moved]
        values = of_levels(now, self._before or now, self._rate) + self._of_rig(command, measured)
        self._before = now
        return values + [now[which][axis] - auxiliary[channel] for which, axis, channel in self._second_sensors]

    def _of_rig(self, command: Command | None, measured: Measurement) -> list[float]:
        """Values of the whole rig, as in WHOLE; a bridged Command tells nothing of a parameter at its bound.

        A second of samples counts from the first one on.
        """
        flags = 0 if command is None else command.flags
        bridged, second = bool((flags | measured.flags) & FLAG_BRIDGED), self._second
        self._bridged = self._bridged + 1 if bridged else 0
        if not flags & FLAG_BRIDGED:
            self._at_bound = self._at_bound + 1 if flags & FLAG_AT_BOUND else 0
        self._in_second += bridged - (second[0] if len(second) == second.maxlen else False)
        second.append(bridged)
        return [float(self._bridged), self._in_second / (second.maxlen or 1), float(self._at_bound)]

    def _words(self, place: int, value: float, call: int) -> str:
        """What is wrong with the ``value`` at ``place``, of this ``call``."""
        _, in_a_row, last = self._acting
        lasted = in_a_row[place] if last[place] == call else 0
        quantity, axis, _, low, high, _, _ = (self._acted if lasted else self._told)[place]
        bound, sign = (low, ">=") if value < low else (high, "<=")
        behind = f" for {lasted} samples" if lasted > 1 and axis != WHOLE_RIG else ""
        behind, unit = _IN_A_ROW.get(quantity, behind), _UNITS[quantity]
        return f"{level_path(axis, quantity)}: {value:.6g} {unit}{behind}: must be {sign} {bound:g} {unit}"

    def take_told(self) -> list[str]:
        """What was found since this was asked last, in words."""
        told, self.told = self.told, []
        return told

    def numbers(self) -> dict[str, Any]:
        """Of each axis and quantity how far it went, and how long and since when it was beyond what is told."""
        found: dict[str, Any] = {}
        for place, row in self._told.items():
            (low, high), (samples, first) = self._ends[place], self._beyond.get(place, (0, 0))
            beyond = {"samples": float(samples)} | ({"first": float(first)} if samples else {})
            ends = {"lowest": low, "highest": high} if low <= high else {}
            found.setdefault(row.axis, {})[row.quantity] = ends | beyond
        return found


def _second(axis: str, quantity: str, channel: str, channels: Sequence[str]) -> int:
    """Place of the second sensor. Raises ConfigError for a channel that does not measure the same."""
    names = [name.partition(" [")[0] for name in channels]
    place = f"{level_path(axis, quantity)}.channel"
    if channel not in names:
        raise unknown(place, "channel", channel, names)
    second = names.index(channel)
    unit = channels[second].partition(" [")[2].rstrip("]")
    if unit != QUANTITIES[quantity]:
        told = unit or "a number without unit"
        raise ConfigError(f"{place} = {channel!r}: is in {told}: must be in {QUANTITIES[quantity]}")
    return second


def level_numbers(watch: LevelWatch | None) -> dict[str, Any]:
    """What a test tells of its levels; nothing where there are none."""
    return {} if watch is None else {"levels": watch.numbers()}


def level_path(axis: str, quantity: str) -> str:
    """Where a level stands in the scenario."""
    if axis == WHOLE_RIG:
        return f"levels.{quantity}"
    return f"axes.{axis}.limits.levels.{quantity}"


def level_notes(timing: Mapping[str, Any]) -> list[str]:
    """What was beyond a level in a test, a sentence for each; nothing where none was."""
    return [
        f"{level_path(axis, quantity)}: beyond its level in {row['samples']:.0f} samples, from sample "
        f"{row['first']:.0f} on; {row['lowest']:.4g} to {row['highest']:.4g} {_UNITS[quantity]} in the test"
        for axis, rows in timing.get("levels", {}).items()
        for quantity, row in rows.items()
        if row.get("samples")
    ]


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
