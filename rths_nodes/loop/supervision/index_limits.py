# SPDX-License-Identifier: Apache-2.0
"""Limits on the indices, judged at every sample."""

from __future__ import annotations

import math
from collections.abc import MutableSequence
from typing import NamedTuple

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.energy_monitor import EnergyMonitor
from rths_nodes.loop.supervision.indices import Tracking

ROUNDED = 0.999
"""Share of a bound that also holds for another order of summation."""
SPAN = 32
"""Samples: 31 ms at 1024 Hz."""


class Constants(NamedTuple):
    """``span`` of the samples (s), ``smallest`` amplitude (m)."""

    span: float
    smallest: float


class State(NamedTuple):
    """TI (m^2) of the last samples, indexed by number; updated in place."""

    ring: MutableSequence[float]


def rest() -> State:
    """State before the first sample: TI has been zero."""
    return State([0.0] * SPAN)


def step(
    constants: Constants, state: State, place: int, indicator: float, reach: float
) -> tuple[State, tuple[float, float]]:
    """Advance by a sample; return state, slope (m^2/s), and slope over the squared amplitude (1/s).

    The slope of TI over the last ``SPAN`` samples is pi f X^2 sin(phi) for a sine of frequency f and amplitude X
    with the lag phi. ``place`` is the number of the sample modulo ``SPAN``, ``indicator`` in m^2. The amplitude is
    ``reach`` (m), the largest target so far, but at least the smallest.
    """
    span, smallest = constants
    (ring,) = state
    slope = (indicator - ring[place]) / span
    ring[place] = indicator
    amplitude = reach if reach > smallest else smallest
    relative = slope / (amplitude * amplitude) if amplitude else 0.0
    return (ring,), (slope, relative)  # type: ignore[return-value]


class IndexLimits:
    """Limits on the running energy monitor (%) and on the slope of the tracking indicator (m^2/s); None: none.

    The slope over the last ``SPAN`` samples is judged once there are as many; ``rate_over_amplitude`` (1/s)
    divides it by the square of the largest target so far, at least ``smallest`` (m). An indicator that is no
    number breaks every limit.
    """

    def __init__(
        self,
        n_axes: int,
        dt: float,
        energy_percent: float | None,
        rate: float | None,
        rate_over_amplitude: float | None,
        smallest: float | None,
    ) -> None:
        self._energy_percent = energy_percent
        self._rates = (
            ("tracking_indicator_rate", rate, "m^2/s"),
            ("tracking_indicator_rate_over_amplitude", rate_over_amplitude, "1/s"),
        )
        self.steep = rate is not None or rate_over_amplitude is not None
        self._constants = Constants(SPAN * dt, smallest or 0.0)
        self._states = [rest() for _ in range(n_axes)]
        self._samples = 0

    def energy_within(self, reference: float) -> float:
        """Return an energy error (J) within the limit for any input energy; ``reference`` in J."""
        return math.inf if self._energy_percent is None else ROUNDED * self._energy_percent * reference / 100.0

    def beyond(self, percents: Array) -> bool:
        """Return whether one of these running energy monitors (%) is beyond its limit."""
        limit = self._energy_percent
        return limit is not None and bool((np.abs(percents) > limit).any())

    def broken(self, tracking: Tracking, energy: EnergyMonitor, total: float) -> str:
        """Return the limit broken at this sample, as text, or empty; ``total``: sum of the indicators."""
        if (limit := self._energy_percent) is not None:
            energy.take(tracking.sample)
            percent = energy.running_percent(tracking.energy_error)
            if abs(percent) > limit:
                return _words("energy_error_percent", percent, limit, "%")
        if self.steep and (words := self._too_steep(tracking)):
            return words
        return "" if total - total == 0.0 else _words("tracking_indicator", math.nan, math.inf, "m^2")

    def _too_steep(self, tracking: Tracking) -> str:
        place = self._samples % SPAN
        self._samples += 1
        slopes = []
        for n, (indicator, reach) in enumerate(zip(tracking.indicator, tracking.reach, strict=True)):
            self._states[n], found = step(self._constants, self._states[n], place, indicator, reach)
            slopes.append(found)
        if self._samples < SPAN:
            return ""
        for (name, limit, unit), values in zip(self._rates, zip(*slopes, strict=True), strict=True):
            if limit is not None and not abs(worst := max(values, key=_size)) <= limit:
                return _words(name, worst, limit, unit)
        return ""


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else abs(value)


def _words(name: str, value: float, limit: float, unit: str) -> str:
    return f"{name}: {value:.6g} {unit}: must be within +- {limit:g} {unit}"
