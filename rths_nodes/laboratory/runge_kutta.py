"""One step of the classical Runge-Kutta method for the inner states of a specimen along a motion that is known.

A specimen may have an ``advance`` of its own that does the same to the bit with its arithmetic written out: for
one with two thirds of the time of its rig.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Place = tuple[float, float]
"""Displacement (m) and velocity (m/s)."""
Advance = Callable[[Sequence[float], float, Place, Place, Place], list[float]]
"""From states, step (s) and the places at its start, middle and end to the states at its end."""


def advance_of(specimen: Any) -> Advance:
    """How the states of ``specimen`` go on by one step."""
    own: Advance | None = getattr(specimen, "advance", None)
    if own is not None:
        return own
    rate = specimen.rate
    return lambda state, h, start, middle, end: by_rates(rate, state, h, start, middle, end)


def by_rates(
    rate: Callable[[Sequence[float], float, float], Sequence[float]],
    state: Sequence[float],
    h: float,
    start: Place,
    middle: Place,
    end: Place,
) -> list[float]:
    """The states a step of ``h`` (s) later."""
    half = 0.5 * h
    k1 = rate(state, *start)
    k2 = rate([s + half * k for s, k in zip(state, k1, strict=True)], *middle)
    k3 = rate([s + half * k for s, k in zip(state, k2, strict=True)], *middle)
    k4 = rate([s + h * k for s, k in zip(state, k3, strict=True)], *end)
    slopes = zip(state, k1, k2, k3, k4, strict=True)
    return [s + h / 6.0 * (a + 2.0 * (b + c) + d) for s, a, b, c, d in slopes]
