# SPDX-License-Identifier: Apache-2.0
"""Limits as rows: the lowest and highest that a quantity of an axis may be, for how long not, and what is due.

``acting`` compares, whatever the rows are of; what begins with ``of`` gives their quantities. A move has its rows
written out (``broken_alone``): it comes at every sample, and a loop over them would take half as long again. All
of these are kernels: numbers inside, words outside; what is not a number is beyond every bound.
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
    """A limit: the value at ``place`` is within ``low`` and ``high``; ``action`` is due where it is not for
    ``persistence`` samples in a row. ``quantity`` is its name, or what is said of a value beyond.
    """

    quantity: str
    axis: str
    place: int
    low: float
    high: float
    persistence: int = 1
    action: str = STOP


Table = tuple[tuple[tuple[int, float, float, int], ...], list[int], list[int]]
"""Rows: place, lowest, highest, persistence; by place how many samples in a row were beyond, and the last."""


def table(rows: Iterable[Row]) -> Table:
    """Return the table that ``acting`` needs of ``rows``, which are in the order in which they count."""
    found = tuple((row.place, row.low, row.high, row.persistence) for row in rows)
    places = 1 + max((place for place, *_ in found), default=0)
    return found, [0] * places, [NONE - 1] * places


def acting(limits: Table, values: Floats, sample: int) -> int:
    """Place of the first row that acts, or NONE; a row counts anew where it was not beyond at ``sample`` - 1."""
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
    """PER_MOVE times the axis plus which limit the first one breaks that must not go on; NONE where all may.

    The target is finite, the place within the stroke, the step v within the largest, the braking way within the l
    that is left: v^2 <= 2 a l is enough. Only beyond that begun samples are counted.
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
    """As :func:`broken_alone`, of axes that stop together: |v| N <= 2 l, all take the N samples of the slowest."""
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
"""Constants of an axis that is controlled by force: index, zeros of commands in m and N, dt (s)."""


def of_load_commands(
    loads: Sequence[Load], targets: Floats, commands: Floats, previous: Floats, modes: tuple[bytes, bytes, bytes]
) -> list[float]:
    """Return for each load target, command, 1 where the rig takes no newtons, force, its rate, place, velocity.

    ``modes``: of these and of those before, and as the rig tells them. What is of the other unit is 0.
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
    """Return by axis the displacement from its zero, and its error: target minus that (m), or minus force (N).

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
"""By axis displacements, forces, commands, targets, and displacements from where these count."""
PER_AXIS = 7


def of_levels(now: Lists, before: Lists, rate: float) -> list[float]:
    """The first PER_AXIS of QUANTITIES of each axis; ``rate`` in Hz."""
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
