# SPDX-License-Identifier: Apache-2.0
"""Commands corrected from run to run: iterative learning control with the identified inverse.

    u_j = u_1 + W (L z_j - u_1) + w_j    w_j+1 = Q (w_j + L (z_j - y_j))    w_1 = W (u_1 - L z_1)

with the target z_j, the commands u_j, the measured displacements y_j and the learned commands w_j of run j
(Arimoto, Kawamura & Miyazaki 1984). Q and L are combined with a feedforward command as in Bristow, Tharayil &
Alleyne (2006). Q and W are low-pass filters. The inverse of the rig,

    L = e^(s tau) (C_0 + C_1 s + ... + C_4 s^4)

is fitted to the first run, by least squares of its commands on its displacements. The target is the instrumental
variable. The delay tau is the candidate with the widest frequency range. In a band, |u - L y| / |u| is
|1 - L T| plus the effect of the noise, where T is the rig. Q ends where measured errors are mostly noise. The same
ratio with the instrumental variable is free of noise and gives the end of W.

A fade to zero over ``FADE`` s and zeros of the same duration are appended, so that
the end does not leak into the beginning. All filters are zero-phase.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array

FADE = 1.0
FLAT = 0.8
ORDER = 4
"""Highest derivative in L."""
WORST = 0.5
"""Largest permitted |1 - L T|, including noise, in the band of Q."""
KNOWN = 0.3
"""Largest permitted |1 - L T|, excluding noise, in the band of W."""
EXPECTED = 0.02
"""Fraction of the commands that a usable L leaves unexplained. The weights of the fit depend on this fraction."""
QUIET = 1e-6
"""Smallest power of the commands in a band, relative to the strongest band. The fit ends at a weaker band."""
LONGEST, TRIED = 1.25, 11
"""``LONGEST``: ratio of the longest tried delay to the delay of best correlation. ``TRIED``: number of delays."""
PASSES = 4
WIDTH = 2.0 ** (1.0 / 3.0)
LEAST_LINES = 12


class Spectra:
    """Transforms histories to spectra and back. Each column has ``samples`` samples, one every ``dt`` (s)."""

    def __init__(self, samples: int, dt: float) -> None:
        from scipy.fft import next_fast_len

        self.samples, self.dt = samples, dt
        self._fade = math.ceil(min(FADE, 0.25 * samples * dt) / dt)
        self._fall: Array = 0.5 + 0.5 * np.cos(np.linspace(0.0, np.pi, self._fade + 1)[1:])
        self._length: int = next_fast_len(samples + 2 * self._fade, real=True)
        self.frequencies: Array = np.asarray(np.fft.rfftfreq(self._length, dt), np.float64)

    @property
    def s(self) -> Complex:
        return np.asarray(2j * np.pi * self.frequencies)

    def of(self, history: Array) -> Complex:
        tail = np.multiply.outer(self._fall, history[-1])
        return np.asarray(np.fft.rfft(np.concatenate([history, tail]), self._length, axis=0))

    def faded(self, history: Array) -> Complex:
        """Return the spectra of ``history`` faded to zero, so that its end does not leak into its beginning."""
        window = np.concatenate([np.ones(self.samples - self._fade), self._fall])
        return self.of(history * window[:, None])

    def history(self, spectra: Complex) -> Array:
        return np.asarray(np.fft.irfft(spectra, self._length, axis=0)[: self.samples])

    def pass_to(self, cutoff: float) -> Array:
        """Return the gain of a low-pass filter: 1 up to ``FLAT`` times ``cutoff`` (Hz), then a cosine to 0."""
        part = np.clip((self.frequencies / cutoff - FLAT) / (1.0 - FLAT), 0.0, 1.0)
        return np.asarray(0.5 + 0.5 * np.cos(np.pi * part))

    def low_passed(self, history: Array, cutoff: float) -> Array:
        spectrum = self.of(history)
        return self.history(_by_row(self.pass_to(cutoff), spectrum) * spectrum)

    def motion(self, history: Array, cutoff: float) -> Array:
        """Return ``history`` ``(samples, n)`` below ``cutoff`` (Hz) with two derivatives, ``(samples, 3, n)``."""
        spectrum = self.of(history)
        spectrum = _by_row(self.pass_to(cutoff), spectrum) * spectrum
        rows = [self.history(_by_row(self.s**power, spectrum) * spectrum) for power in range(3)]
        return np.stack(rows, axis=1)


def _by_row(gain: Array | Complex, spectra: Complex) -> Complex:
    return np.asarray(gain.reshape(len(gain), *([1] * (spectra.ndim - 1))))


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else math.nan


def noise_rms(history: Array) -> Array:
    """Return the rms ``(n,)`` of white noise in ``history`` ``(samples, n)``, from the spectrum's upper half."""
    taper = np.hanning(len(history))[:, None]
    power = np.abs(np.fft.rfft(taper * history, axis=0)) ** 2
    upper = power[len(power) // 2 :].mean(axis=0)  # white noise has the same power in every line
    return np.asarray(np.sqrt(upper / float(np.square(taper).sum())))


class Inverse(NamedTuple):
    """Identified inverse L of each axis (see the module), with its frequency ranges."""

    delay: Array
    """Delay tau, ``(n_axes,)`` s."""
    coefficients: Array
    """Coefficients C, ``(ORDER + 1, n_axes)``."""
    bands: Array
    """Upper ends of the bands, ``(m,)`` Hz."""
    left: Array
    """|1 - L T| of the worst axis by band, with and without noise, ``(m, 2)``."""
    learned_to: float
    """Upper end of Q, Hz."""
    known_to: float
    """Upper end of W, Hz; at least ``learned_to``."""

    @property
    def late(self) -> Array:
        """Low-frequency delay, ``(n_axes,)`` s: tau plus C_1 / C_0 (see the module)."""
        return np.asarray(self.delay + self.coefficients[1] / self.coefficients[0])

    def response(self, spectra: Spectra) -> Complex:
        """Return L at the frequencies of ``spectra``, ``(lines, n_axes)``."""
        powers = spectra.s[:, None] ** np.arange(len(self.coefficients))
        return np.asarray(np.exp(np.outer(spectra.s, self.delay)) * (powers @ self.coefficients))


def fitted(
    spectra: Spectra, command: Array, moved: Array, target: Array, axes: tuple[str, ...], cutoff: float | None
) -> Inverse:
    """Return the inverse of each of ``axes``, fitted to the histories of a run, ``(samples, n_axes)`` m.

    ``cutoff`` (Hz) replaces the upper end of Q. Raises ConfigError if an axis is at rest or no band is usable.
    """
    u, y, z = (spectra.faded(values) for values in (command, moved, target))
    for axis, name in enumerate(axes):
        if not (np.abs(u[:, axis]).max() > 0.0 and np.abs(y[:, axis]).max() > 0.0):
            raise ConfigError(f"{name}: the axis does not move, so its inverse cannot be identified")
    noise = spectra.samples * noise_rms(moved) ** 2
    edges = _edges(spectra.frequencies)
    rows = [
        _of_axis(spectra, edges, (u[:, axis], y[:, axis], z[:, axis]), float(noise[axis]))
        for axis in range(len(axes))
    ]
    delay, coefficients = np.array([row[0] for row in rows]), np.array([row[1] for row in rows]).T
    inverse = Inverse(delay, coefficients, spectra.frequencies[edges[1:]], np.zeros((0, 2)), np.inf, np.inf)
    left = _left(edges, u, u - inverse.response(spectra) * y, z)
    learned, usable = (
        _trusted(inverse.bands, column, worst) for column, worst in zip(left.T, (WORST, KNOWN), strict=True)
    )
    learned = learned if cutoff is None else cutoff
    if not learned:
        raise ConfigError(
            f"the displacements of the first run do not explain {100.0 * float(left[0, 0]):.3g} % of its commands "
            f"below {inverse.bands[0]:.3g} Hz; the unexplained fraction must be <= {100.0 * WORST:g} %"
        )
    return inverse._replace(left=left, learned_to=learned, known_to=max(learned, usable))


def _edges(frequencies: Array) -> list[int]:
    edges = [1]
    while True:
        last = max(int(np.searchsorted(frequencies, WIDTH * frequencies[edges[-1]])), edges[-1] + LEAST_LINES)
        if last >= len(frequencies):
            return edges
        edges.append(last)


def _of_axis(
    spectra: Spectra, edges: list[int], signals: tuple[Complex, Complex, Complex], noise: float
) -> tuple[float, Array]:
    """Return the delay (s) and coefficients of an axis from ``signals``: commands, displacements and targets.

    A spectral line is weighted by its inverse expected error power: a fraction of the command's power plus the
    ``noise`` amplified by L.
    """
    u, y, z = signals
    lags = np.fft.irfft(y * np.conj(u))
    longest = LONGEST * spectra.dt * int(np.argmax(lags[: len(lags) // 2]))
    power = np.array([np.mean(np.abs(u[a:b]) ** 2) for a, b in pairwise(edges)])
    lines, least = np.diff(edges), QUIET * power.max()

    def polynomial(delay: float) -> Array:
        # start without L, which amplifies the noise
        coefficients, spread = np.zeros(0), EXPECTED**2 * power + noise * (power.max() / power)
        for _ in range(PASSES):
            weak = np.flatnonzero(power < np.maximum(spread, least))
            count = max(int(weak[0]) if len(weak) else len(power), 1)
            end, weight = edges[count], np.repeat(1.0 / spread[:count], lines[:count])[:, None]
            s = spectra.s[1:end]
            scale = np.abs(s[-1]) ** np.arange(ORDER + 1)
            powers = s[:, None] ** np.arange(ORDER + 1)
            regressors = powers / scale * (y[1:end] * np.exp(s * delay))[:, None]
            instruments = weight * powers / scale * z[1:end, None]
            left, right = ((np.conj(instruments).T @ values).real for values in (regressors, u[1:end, None]))
            coefficients = np.linalg.lstsq(left, right[:, 0], rcond=1e-12)[0] / scale
            middle = spectra.s[np.array(edges[:-1]), None] ** np.arange(ORDER + 1) @ coefficients
            spread = EXPECTED**2 * power + np.abs(middle) ** 2 * noise
        return coefficients

    best: tuple[float, float, Array] = (-1.0, 0.0, np.zeros(0))
    for delay in np.unique(np.linspace(0.0, longest, TRIED)):
        coefficients = polynomial(delay)
        response = np.exp(spectra.s * delay) * (spectra.s[:, None] ** np.arange(ORDER + 1) @ coefficients)
        left = _left(edges, *(candidate[:, None] for candidate in (u, u - response * y, z)))[:, 1]
        bad = np.flatnonzero(left > KNOWN)
        good = left[: bad[0]] if len(bad) else left
        # prefer the widest range, then the best fit
        score = len(good) - (float(np.mean(good)) if len(good) else 1.0)
        best = max(best, (score, float(delay), coefficients), key=lambda candidate: candidate[0])
    return best[1:]


def _left(edges: list[int], u: Complex, rest: Complex, z: Complex) -> Array:
    """Return the unexplained fraction ``rest / u`` of the commands in each band, for the worst axis, ``(m, 2)``.

    The first column includes the noise. The second column does not, because it uses the targets ``z``.
    """
    rows = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for a, b in pairwise(edges):
            part, segment, by = rest[a:b], u[a:b], np.conj(z[a:b])
            noisy = np.sqrt((np.abs(part) ** 2).sum(axis=0) / (np.abs(segment) ** 2).sum(axis=0))
            quiet = np.abs((part * by).sum(axis=0)) / np.abs((segment * by).sum(axis=0))
            rows.append((noisy.max(), quiet.max()))
    return np.nan_to_num(np.array(rows), nan=np.inf)


def _trusted(bands: Array, left: Array, worst: float) -> float:
    bad = np.flatnonzero(left > worst)
    count = int(bad[0]) if len(bad) else len(bands)
    return float(bands[count - 1]) if count else 0.0


def corrected(
    spectra: Spectra, inverse: Inverse, first: Array, last: tuple[Array, Array, Array], wanted: Array
) -> Array:
    """Return the next commands, ``(samples, n_axes)`` m, for the ``wanted`` displacements.

    ``first`` are the commands of the first run. ``last`` holds commands, targets and displacements of the last
    run.
    """
    command, target, moved = last
    response, u_1 = inverse.response(spectra), spectra.of(first)
    w, q = (spectra.pass_to(end)[:, None] for end in (inverse.known_to, inverse.learned_to))
    ahead, now = (u_1 + w * (response * spectra.of(values) - u_1) for values in (wanted, target))
    error = response * spectra.of(target - moved)
    return spectra.history(ahead + q * (spectra.of(command) - now + error))
