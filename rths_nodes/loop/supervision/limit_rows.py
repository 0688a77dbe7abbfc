# SPDX-License-Identifier: Apache-2.0
"""Limits as rows: bounds of a quantity of an axis, persistence, and action.

``acting`` compares any rows; functions named ``of_...`` compute their quantities. A move has its rows written out
(``broken_alone``), because a loop at every sample would take half as long again. All are kernels: numbers, no
texts; nan is beyond every bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rths_nodes.core.arithmetic import rounded
from rths_nodes.core.braking import braking_way, way_left
from rths_nodes.core.limits import STOP
from rths_nodes.core.samples import MODE_FORCE, MODE_HELD, Array

Floats = Sequence[float] | Array
NONE, NEVER = -1, 2**62
"""No row acts; the persistence of one that never does."""


class Row(NamedTuple):
    """Limit: ``action`` is due after ``persistence`` samples of the value at ``place`` outside ``low``, ``high``.

    ``quantity`` is its name, or a text on a value beyond.
    """

    quantity: str
    axis: str
    place: int
    low: float
    high: float
    persistence: int = 1
    action: str = STOP


Table = tuple[tuple[tuple[int, float, float, int], ...], list[int], list[int]]
"""Rows: index, bounds, persistence; by index consecutive samples beyond, and the last of them."""


def table(rows: Iterable[Row]) -> Table:
    """Return the table of ``rows``, in order of priority, for ``acting``."""
    found = tuple((row.place, row.low, row.high, row.persistence) for row in rows)
    places = 1 + max((place for place, *_ in found), default=0)
    return found, [0] * places, [NONE - 1] * places


def acting(limits: Table, values: Floats, sample: int) -> int:
    """Return the first row that acts, or NONE; counts restart unless ``sample`` - 1 was beyond."""
    rows, in_a_row, last = limits
    found = NONE
    for place, low, high, persistence in rows:
        if low <= values[place] <= high:
            continue
        in_a_row[place] = in_a_row[place] + 1 if last[place] == sample - 1 else 1
        last[place] = sample
        if found == NONE and in_a_row[place] >= persistence:
            found = place
    return found


Move = tuple[int, float, float, float, float]
"""Bounds of an axis, m: index, zero of commands, stroke, largest step in a sample, twice its largest change."""
PER_MOVE = 5
TARGET, PLACE, STEP, WAY, COMMON_WAY = range(PER_MOVE)


def broken_alone(moves: Sequence[Move], targets: Floats, commands: Floats, previous: Floats) -> int:
    """Return PER_MOVE times the axis plus the limit that the first impossible move breaks, or NONE.

    The target is finite, the position within the stroke, the step v within the largest, the braking distance
    within the remaining l: v^2 <= 2 a l suffices. Only beyond that whole samples are counted.
    """
    for axis, zero, stroke, most, braking in moves:
        now, target = commands[axis], targets[axis]
        step = now - previous[axis]
        place = now + zero
        left = stroke - abs(place)
        if target - target != 0.0:
            return PER_MOVE * axis + TARGET
        if not left >= 0.0:
            return PER_MOVE * axis + PLACE
        if not -most <= step <= most:
            return PER_MOVE * axis + STEP
        if step * step > braking * left and _too_long(place, step, stroke, 2.0 * abs(step) / braking):
            return PER_MOVE * axis + WAY
    return NONE


def broken_together(groups: Sequence[Sequence[Move]], commands: Floats, previous: Floats) -> int:
    """Return :func:`broken_alone` of axes that stop together: |v| N <= 2 l, with the N samples of the slowest."""
    for group in groups:
        longest = 0.0
        for axis, _, _, _, braking in group:
            samples = 2.0 * abs(commands[axis] - previous[axis]) / braking
            longest = samples if samples > longest else longest
        for axis, zero, stroke, _, _ in group:
            place, step = commands[axis] + zero, commands[axis] - previous[axis]
            if abs(step) * longest > 2.0 * (stroke - abs(place)) and _too_long(place, step, stroke, longest):
                return PER_MOVE * axis + COMMON_WAY
    return NONE


def _too_long(place: float, step: float, stroke: float, samples: float) -> bool:
    whole = rounded(samples)
    return braking_way(step, whole if whole >= samples else whole + 1.0) > way_left(place, step, stroke)


PER_LOAD = 7
Load = tuple[int, float, float, float]
"""Constants of a force axis: index, zeros of commands in m and N, dt (s)."""


def of_load_commands(
    loads: Sequence[Load], targets: Floats, commands: Floats, previous: Floats, modes: tuple[bytes, bytes, bytes]
) -> list[float]:
    """Return target, command, 1 for refused newtons, force, its rate, position and velocity, by load.

    ``modes``: now, before, and as reported by the rig. Values in the other unit are 0.
    """
    modes_now, before, told = modes
    values, at = [0.0] * (PER_LOAD * len(loads)), 0
    for axis, zero, force_zero, dt in loads:
        now, forced = commands[axis], len(modes_now) > 0 and modes_now[axis] == MODE_FORCE
        same = forced == (len(before) > 0 and before[axis] == MODE_FORCE)
        rate = (now - previous[axis]) / dt if same else 0.0
        taken = len(told) > 0 and (told[axis] == MODE_FORCE or told[axis] == MODE_HELD)
        values[at], values[at + 1], values[at + 2] = targets[axis], now, 1.0 if forced and not taken else 0.0
        if forced:
            values[at + 3], values[at + 4] = now + force_zero, rate
        else:
            values[at + 5], values[at + 6] = now + zero, rate
        at += PER_LOAD
    return values


def of_errors(
    zeros: Sequence[tuple[float, float, bool]], moved: Floats, forces: Floats, targets: Floats, modes: bytes
) -> list[float]:
    """Return displacement from zero, and error by axis: target minus displacement (m), or minus force (N).

    ``zeros``: of displacement and force, and whether force controls the axis: its error is 0 in other modes.
    """
    values = [0.0] * (2 * len(zeros))
    for axis in range(len(zeros)):
        zero, force_zero, loaded = zeros[axis]
        place = moved[axis] - zero
        error = targets[axis] - place
        if loaded:
            forced = len(modes) > 0 and modes[axis] == MODE_FORCE
            error = targets[axis] + force_zero - forces[axis] if forced else 0.0
        values[2 * axis], values[2 * axis + 1] = place, error
    return values


Lists = tuple[list[float], list[float], list[float], list[float], list[float]]
"""Displacements, forces, commands, targets, and displacements from their reference, by axis."""
PER_AXIS = 7


def of_levels(now: Lists, before: Lists, rate: float) -> list[float]:
    """Return the first PER_AXIS of QUANTITIES of each axis; ``rate`` in Hz."""
    places, forces, commands, targets, moved = now
    places_before, forces_before, commands_before, _, _ = before
    values = [0.0] * (PER_AXIS * len(places))
    for axis in range(len(places)):
        x, force, command, target = places[axis], forces[axis], commands[axis], targets[axis]
        at = PER_AXIS * axis
        values[at], values[at + 1], values[at + 2] = x, force, (force - forces_before[axis]) * rate
        values[at + 3], values[at + 4] = command - commands_before[axis], (x - places_before[axis]) * rate
        values[at + 5], values[at + 6] = command - target, target - moved[axis]
    return values
