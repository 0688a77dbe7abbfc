# SPDX-License-Identifier: Apache-2.0
"""Identification for ``identified_inverse``: periodic noise on one axis at a time, a polynomial of third order.

1. Some periods of noise, without the first: the rig has then settled, and a whole period has no leakage. Measured
   and applied command are averaged over the periods, means removed.
2. G(f) at the excited lines, measured over applied command; for coupled axes the matrix, from all tests together.
3. Least squares of  G(f) (C_0 + C_1 s + C_2 s^2 + C_3 s^3) = I,  s = j 2 pi f, over the lines up to the frequency
   of the structure's motion: in a narrower band a polynomial fits the inverse of a rig of higher order better.

The coefficients contain all delay between command and measurement, including transport.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.identification.frequency_responses import Experiment
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.models.inverse import DERIVATIVES

POWERS = len(DERIVATIVES)


class Lines(NamedTuple):
    """Response of a rig at the lines of a periodic excitation."""

    frequency: Array
    """``(f,)`` Hz."""
    response: Complex
    """Measured displacement over applied command, ``(f, n_axes, n_axes)``."""

    def up_to(self, frequency: float) -> Lines:
        kept = self.frequency <= frequency * (1.0 + ROUNDING)
        return Lines(self.frequency[kept], self.response[kept])


class Fit(NamedTuple):
    """Coefficients ``(4, n_axes, n_axes)`` of displacement to jerk, zero beyond the fitted order."""

    coefficients: Array
    deviation: Array
    """Standard deviation of each by the residuals, of the same shape."""
    error: Array
    """Rms residual of the identity by rows, ``(n_axes,)``: the share that the inverse misses."""


def lines(experiments: Sequence[Experiment], dt: float, period: float, band: tuple[float, float]) -> Lines:
    """Return the response at the multiples of 1 / ``period`` (Hz) within ``band`` (Hz), sampled every ``dt`` (s).

    The first period of the ``experiments``, and the rest after the last whole one, are omitted. Raises ValueError
    for a period that is no whole number of samples, experiments shorter than two periods, and axes that were not
    driven on their own.
    """
    samples = round(period / dt)
    if abs(samples * dt - period) > ROUNDING * period:
        raise ValueError(f"a period of {period:g} s is no whole number of samples")
    first = max(1, math.ceil(band[0] * period * (1.0 - ROUNDING)))
    last = math.floor(band[1] * period * (1.0 + ROUNDING))
    found = [_spectra(experiment, samples, slice(first, last + 1)) for experiment in experiments]
    command, measured = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
    if not np.linalg.cond(command).max() < 1.0 / ROUNDING:
        raise ValueError("the experiments do not drive every axis on its own")
    # measured = G command, every test a column
    response = np.linalg.solve(command.transpose(0, 2, 1), measured.transpose(0, 2, 1)).transpose(0, 2, 1)
    return Lines(np.arange(first, last + 1) / period, response)


def _spectra(experiment: Experiment, samples: int, kept: slice) -> tuple[Complex, Complex]:
    """Return command and displacement at the lines ``kept``, ``(f, n_axes)`` each, averaged over the periods."""
    periods = len(experiment.command) // samples
    if periods < 2:
        raise ValueError(f"{len(experiment.command)} samples: must be two periods of {samples} or more")
    found = []
    for history in experiment:
        settled = history[samples : periods * samples]
        mean = settled.reshape(periods - 1, samples, -1).mean(axis=0)
        found.append(np.fft.rfft(mean, axis=0)[kept])
    return found[0], found[1]


def fit(seen: Lines, order: int = POWERS - 1) -> Fit:
    """Return the best coefficients up to ``order`` for the lines ``seen``. Raises ValueError for too few lines."""
    (count, n, _), used = seen.response.shape, order + 1
    if count <= used * n:
        raise ValueError(f"{count} lines: must be more than {used * n}")
    s = 2j * np.pi * seen.frequency
    scale = float(np.abs(s).max())
    powers = (s / scale)[:, None] ** np.arange(used)
    # row r: sum over i, c of C_i[r, c] s^i G[c, :] is the r-th row of the identity
    terms = np.einsum("fi,fcd->fdic", powers, seen.response).reshape(count * n, used * n)
    left = np.vstack([terms.real, terms.imag])
    aim = np.tile(np.eye(n, dtype=complex), (count, 1))  # (f d, r): of each column d of G
    right = np.vstack([aim.real, aim.imag])
    solution, _, _, _ = np.linalg.lstsq(left, right, rcond=None)
    rest = right - left @ solution
    freedom = 2 * count * n - used * n
    variance = np.square(rest).sum(axis=0) / freedom
    spread = np.sqrt(np.outer(np.diag(np.linalg.inv(left.T @ left)), variance))
    units = scale ** np.arange(used)[:, None, None]

    def matrices(columns: Array) -> Array:
        found = np.zeros((POWERS, n, n))
        found[:used] = columns.reshape(used, n, n).transpose(0, 2, 1) / units
        return found

    return Fit(matrices(solution), matrices(spread), np.sqrt(np.square(rest).sum(axis=0) / count))
