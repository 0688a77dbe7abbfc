# SPDX-License-Identifier: Apache-2.0
"""The response spectrum of an excitation: what it does to oscillators of every period."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.signal import cont2discrete, lfilter, ss2tf

from rths_nodes.core.samples import Array

DAMPING = 0.05
"""Damping ratio of the oscillators, as codes have it."""


class Spectrum(NamedTuple):
    """Largest relative displacement (m) and pseudo-acceleration (m/s^2) by period (s), ``(m,)`` each."""

    period: Array
    displacement: Array
    pseudo_acceleration: Array


def response_spectrum(acceleration: Array, step: float, periods: Array, damping: float = DAMPING) -> Spectrum:
    """Spectrum of ground ``acceleration`` ``(n,)`` m/s^2 every ``step`` (s), at rest before, for ``periods`` (s).

    Exact where the acceleration is linear between its values (Nigam & Jennings 1969); the extremes are those at
    the values. S_a = (2 pi / T)^2 S_d.
    """
    moved = np.array(
        [_largest(acceleration, step, 2.0 * math.pi / period, damping) for period in periods.tolist()]
    )
    return Spectrum(periods, moved, (2.0 * math.pi / periods) ** 2 * moved)


def _largest(acceleration: Array, step: float, omega: float, damping: float) -> float:
    # in units of the oscillator's own time, so that both states are of one size
    rows = ([[0.0, 1.0], [-1.0, -2.0 * damping]], [[0.0], [-1.0]], [[1.0, 0.0]], [[0.0]])
    a, b, c, d, _ = cont2discrete([np.array(row) for row in rows], omega * step, method="foh")
    above, below = ss2tf(a, b, c, d)
    moved = lfilter(above[0], below, acceleration)
    return float(np.abs(moved).max(initial=0.0)) / omega**2
