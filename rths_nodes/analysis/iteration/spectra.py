# SPDX-License-Identifier: Apache-2.0
"""Whole histories in the frequency domain: zero-phase filters, derivatives, polynomials of s.

A history begins at rest and ends anywhere. After its end it fades to zero over ``FADE`` s and stays there for as
long again, so that its end does not leak into its beginning. All filters look ahead, because a run is over before
the next one begins.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array

FADE = 1.0
"""s."""
FLAT = 0.8
"""Share of the cut-off up to which a filter is 1."""


class Spectra:
    """Spectra of histories of ``samples`` samples every ``dt`` s, by columns."""

    def __init__(self, samples: int, dt: float) -> None:
        from scipy.fft import next_fast_len

        self.samples, self.dt = samples, dt
        self._fade = math.ceil(min(FADE, 0.25 * samples * dt) / dt)
        self._fall: Array = 0.5 + 0.5 * np.cos(np.linspace(0.0, np.pi, self._fade + 1)[1:])
        self._length: int = next_fast_len(samples + 2 * self._fade, real=True)
        self.frequencies: Array = np.asarray(np.fft.rfftfreq(self._length, dt), np.float64)
        """Hz."""

    @property
    def s(self) -> Complex:
        """Variable of Laplace, rad/s."""
        return np.asarray(2j * np.pi * self.frequencies)

    def of(self, history: Array) -> Complex:
        """Return spectra ``(m, ...)`` of ``history`` ``(samples, ...)``."""
        tail = np.multiply.outer(self._fall, history[-1])
        return np.asarray(np.fft.rfft(np.concatenate([history, tail]), self._length, axis=0))

    def faded(self, history: Array) -> Complex:
        """Return spectra of a history that fades before its end: late parts must not alias."""
        window = np.concatenate([np.ones(self.samples - self._fade), self._fall])
        return self.of(history * window[:, None])

    def history(self, spectra: Complex) -> Array:
        """Return histories ``(samples, ...)`` of ``spectra``."""
        return np.asarray(np.fft.irfft(spectra, self._length, axis=0)[: self.samples])

    def pass_to(self, cutoff: float) -> Array:
        """Gain of a low-pass: one up to ``FLAT`` of the ``cutoff`` (Hz), a cosine to zero there."""
        part = np.clip((self.frequencies / cutoff - FLAT) / (1.0 - FLAT), 0.0, 1.0)
        return np.asarray(0.5 + 0.5 * np.cos(np.pi * part))

    def low_passed(self, history: Array, cutoff: float) -> Array:
        found = self.of(history)
        return self.history(_by_row(self.pass_to(cutoff), found) * found)

    def motion(self, history: Array, cutoff: float) -> Array:
        """Return ``history`` ``(samples, n)`` below ``cutoff`` with its derivatives: ``(samples, 3, n)``."""
        found = self.of(history)
        found = _by_row(self.pass_to(cutoff), found) * found
        rows = [self.history(_by_row(self.s**power, found) * found) for power in range(3)]
        return np.stack(rows, axis=1)


def _by_row(gain: Array | Complex, spectra: Complex) -> Complex:
    return np.asarray(gain.reshape(len(gain), *([1] * (spectra.ndim - 1))))


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else math.nan


def noise_rms(history: Array) -> Array:
    """Return the rms ``(n,)`` of white noise in ``history`` ``(samples, n)``, by its upper half spectrum.

    No motion has such frequencies at the servo rates of tests; ``history`` keeps its unit.
    """
    taper = np.hanning(len(history))[:, None]
    power = np.abs(np.fft.rfft(taper * history, axis=0)) ** 2
    upper = power[len(power) // 2 :].mean(axis=0)  # of a bin; white noise has the same in all of them
    return np.asarray(np.sqrt(upper / float(np.square(taper).sum())))
