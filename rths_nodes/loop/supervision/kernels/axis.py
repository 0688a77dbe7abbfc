# SPDX-License-Identifier: Apache-2.0
"""Tracking of a target by one axis: control error, tracking indicator and work on the error (Chen & Ricles 2010).

Eq. (15)          sums of (c - m)^2 and c^2, with target c and measured displacement m, m
Eqs. (8) to (9b)  TI = (A - TA) / 2, where A gains (c + c') (m - m') / 2 and TA gains (m + m') (c - c') / 2, m^2
Fig. 11           W gains (f + f') / 2 ((m - m') - (c - c')), with measured force f (N), times the energy of the
                  structure over that of the specimen, J

The dash is the sample before. What is not a number stays in maxima and sums. The largest values are kept as
squares: the root of a square is the size of the number itself, to the bit.
"""

from __future__ import annotations

from typing import NamedTuple


class Constants(NamedTuple):
    """``weight``: half the energy of the structure over that of a specimen to scale."""

    weight: float


class State(NamedTuple):
    """Squared largest error and target; sums of squares, TI (m^2), W (J); previous c, m (m), f (N)."""

    largest_error: float
    largest_target: float
    errors: float
    targets: float
    indicator: float
    energy: float
    target: float
    measured: float
    force: float


def rest(target: float, measured: float, force: float) -> State:
    """State before the first sample, at rest (m) under ``force`` (N)."""
    return State(*anew(target, measured, force))


def anew(target: float, measured: float, force: float) -> tuple[float, ...]:
    return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, target, measured, force


def step(
    constants: Constants, state: State, target: float, measured: float, force: float
) -> tuple[State, tuple[float, float]]:
    """Advance by a sample; return state, TI (m^2) and W (J)."""
    (weight,) = constants
    largest, reach, errors, targets, indicator, energy, c, m, f = state
    error = target - measured
    square = error * error
    errors += square
    if not square <= largest and largest == largest:
        largest = square
    square = target * target
    targets += square
    if not square <= reach and reach == reach:
        reach = square
    wanted, moved = target - c, measured - m
    indicator += 0.25 * ((target + c) * moved - (measured + m) * wanted)
    energy += weight * (force + f) * (moved - wanted)
    now = (largest, reach, errors, targets, indicator, energy, target, measured, force)
    return now, (indicator, energy)  # type: ignore[return-value]
