"""Where an axis lies in its corridor: displacement, force, and the energy that its specimen has absorbed.

The energy gains (f + f') / 2 (x - x'), with displacement x (m) and force f (N); the dash is the sample before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Constants(NamedTuple):
    """``persistence``: samples in a row outside of a band after which the axis has left its corridor."""

    persistence: int


class State(NamedTuple):
    """Displacement (m) and force (N) before, absorbed energy (J); samples outside: in a row, and in all."""

    displacement: float
    force: float
    energy: float
    displacement_row: int
    force_row: int
    energy_row: int
    displacement_count: int
    force_count: int
    energy_count: int


def rest(displacement: float, force: float) -> State:
    """Before the first sample, where the test begins (m, N)."""
    return State(displacement, force, 0.0, 0, 0, 0, 0, 0, 0)


def outside(value: float, lower: float, upper: float) -> bool:
    """Whether ``value`` is not in its band; a band that is not a number is none."""
    return lower == lower and not lower <= value <= upper


def step(
    constants: Constants, state: State, displacement: float, force: float, bands: Sequence[float]
) -> tuple[State, tuple[float, int]]:
    """A sample; beside the state the absorbed energy (J) and what has left its band: quantity 0, 1, 2; 3 for none.

    ``bands``: lower and upper one of displacement (m), force (N) and energy (J).
    """
    (persistence,) = constants
    x, f, energy, x_row, f_row, e_row, x_count, f_count, e_count = state
    energy += 0.5 * (force + f) * (displacement - x)
    if outside(displacement, bands[0], bands[1]):
        x_row, x_count = x_row + 1, x_count + 1
    else:
        x_row = 0
    if outside(force, bands[2], bands[3]):
        f_row, f_count = f_row + 1, f_count + 1
    else:
        f_row = 0
    if outside(energy, bands[4], bands[5]):
        e_row, e_count = e_row + 1, e_count + 1
    else:
        e_row = 0
    left = 0 if x_row >= persistence else 1 if f_row >= persistence else 2 if e_row >= persistence else 3
    now = (displacement, force, energy, x_row, f_row, e_row, x_count, f_count, e_count)
    return now, (energy, left)  # type: ignore[return-value]
