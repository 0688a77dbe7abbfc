"""Slope of the tracking indicator of an axis over the last ``SPAN`` samples.

For a sine of frequency f and amplitude X that is late by an angle phi it is pi f X^2 sin(phi), m^2/s.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import NamedTuple

SPAN = 32
"""Samples: 31 ms at 1024 Hz."""


class Constants(NamedTuple):
    """``span`` of the samples (s), ``smallest`` amplitude (m)."""

    span: float
    smallest: float


class State(NamedTuple):
    """TI (m^2) of the last samples, each in the place of its number; worked in place."""

    ring: MutableSequence[float]


def rest() -> State:
    """Before the first sample: TI has been zero."""
    return State([0.0] * SPAN)


def step(
    constants: Constants, state: State, place: int, indicator: float, reach: float
) -> tuple[State, tuple[float, float]]:
    """A sample; beside the state the slope (m^2/s), and the slope over the square of the amplitude (1/s).

    ``place`` is the number of the sample modulo ``SPAN``, ``indicator`` in m^2. The amplitude is ``reach`` (m),
    the largest target so far, but at least the smallest.
    """
    span, smallest = constants
    (ring,) = state
    slope = (indicator - ring[place]) / span
    ring[place] = indicator
    amplitude = reach if reach > smallest else smallest
    relative = slope / (amplitude * amplitude) if amplitude else 0.0
    return (ring,), (slope, relative)  # type: ignore[return-value]
