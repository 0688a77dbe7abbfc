# SPDX-License-Identifier: Apache-2.0
"""The response spectrum of an excitation: what it does to oscillators of every period."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtbsv  # scipy.signal, which filters as well, takes half a second to load

from rths_nodes.core.samples import Array
from rths_nodes.mechanics.discretisation import transition

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
    system, inputs = np.array([[0.0, 1.0], [-1.0, -2.0 * damping]]), np.array([[0.0], [-1.0]])
    phi, before, now = transition(system, inputs, omega * step)
    # the displacement alone: x_k - trace x_{k-1} + det x_{k-2} of what the ground adds (Cayley & Hamilton)
    trace, n = float(np.trace(phi)), len(acceleration)
    rest = phi - trace * np.eye(2)
    added = np.convolve(acceleration, np.hstack([now, before + rest @ now, rest @ before])[0])[:n]
    bands = np.repeat([[1.0], [-trace], [float(np.linalg.det(phi))]], n, axis=1)
    moved = dtbsv(2, np.asfortranarray(bands), added, lower=1, diag=1)
    return float(np.abs(moved).max(initial=0.0)) / omega**2
