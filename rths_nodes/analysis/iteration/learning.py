# SPDX-License-Identifier: Apache-2.0
"""Commands that are corrected from run to run: iterative learning control with the identified inverse.

    u_j+1 = u_1 + Q (u_j - u_1 + L (z - y_j))            L = e^(s T) (C_0 + C_1 s + C_2 s^2 + C_3 s^3)

with the commands u_j that run j was sent, the displacements y_j that it measured and the target z (Arimoto, Kawamura
& Miyazaki 1984 for the idea; Bristow, Tharayil & Alleyne 2006 for Q and L, their Eq. (3), in parallel to the
commands u_1 of the first run). What is left of an error at a frequency, from run to run, is |Q (1 - L T)| of it,
with T the rig from command to displacement: below one it converges.

The inverse L is fitted to the first run, by least squares of the commands on the measured displacements with the
target as instrument, which the noise of the sensor does not bias; the delay T by which they correlate best is taken
out before. The fit tells how far L may be trusted: |u - L y| over |u| in a band *is* |1 - L T| there, with what the
noise makes of it. Q ends where that exceeds one half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.iteration.spectra import Spectra
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.models.inverse import ORDER

WORST = 0.5
"""Largest |1 - L T| of a band that Q lets through."""
HELD = 0.9999
"""Share of the power of the commands that lies below the end of the fit."""
WIDTH = 2.0 ** (1.0 / 3.0)
"""Ratio of the ends of a band."""
LEAST_LINES = 12
"""Lines of the spectrum in a band."""


class Inverse(NamedTuple):
    """L of each axis, and how far it holds."""

    delay: Array
    """T ``(n_axes,)`` s."""
    coefficients: Array
    """C ``(ORDER + 1, n_axes)``, s^power."""
    bands: Array
    """Upper ends of the bands ``(m,)`` Hz."""
    contraction: Array
    """|1 - L T| with noise, by band and axis, ``(m, n_axes)``."""
    cutoff: float
    """End of Q, Hz."""

    def response(self, spectra: Spectra) -> Complex:
        """L at the frequencies of ``spectra``, ``(lines, n_axes)``."""
        powers = spectra.s[:, None] ** np.arange(len(self.coefficients))
        return np.asarray(np.exp(np.outer(spectra.s, self.delay)) * (powers @ self.coefficients))


def fitted(
    spectra: Spectra, command: Array, moved: Array, target: Array, axes: tuple[str, ...], cutoff: float | None
) -> Inverse:
    """The inverse of each of ``axes`` from a run's ``command``, ``moved`` and ``target``, ``(samples, n_axes)`` m.

    ``cutoff`` (Hz) is the end of Q where somebody gives it. Raises ConfigError where an axis does not move, and
    where no band can be trusted.
    """
    u, y, z = (spectra.faded(values) for values in (command, moved, target))
    rows = []
    for axis, name in enumerate(axes):
        power = np.cumsum(np.abs(u[:, axis]) ** 2)
        if not (power[-1] > 0.0 and np.abs(y[:, axis]).max() > 0.0):
            raise ConfigError(f"{name}: does not move: there is nothing to learn from")
        end = int(np.searchsorted(power, HELD * power[-1])) + 1
        rows.append(_of_axis(spectra, u[:, axis], y[:, axis], z[:, axis], max(end, LEAST_LINES)))
    delay, coefficients = np.array([row[0] for row in rows]), np.array([row[1] for row in rows]).T
    found = Inverse(delay, coefficients, np.zeros(0), np.zeros((0, len(axes))), cutoff or 0.0)
    bands, left = _by_band(spectra, u, found.response(spectra) * y)
    found = found._replace(bands=bands, contraction=left)
    if cutoff is not None:
        return found
    bad = np.flatnonzero((left > WORST).any(axis=1))
    kept = bands if not len(bad) else bands[: bad[0]]
    if not len(kept):
        raise ConfigError(
            f"the commands of the first run do not explain its displacements below {bands[0]:.3g} Hz (what is left "
            f"is {100.0 * float(left[0].max()):.3g} %, must be <= {100.0 * WORST:g} %): nothing can be learned from it"
        )
    return found._replace(cutoff=float(kept[-1]))


def _of_axis(spectra: Spectra, u: Complex, y: Complex, z: Complex, end: int) -> tuple[float, Array]:
    """Delay (s) and coefficients, from the lines below ``end``."""
    lags = np.fft.irfft(y * np.conj(u))
    delay = spectra.dt * int(np.argmax(lags[: len(lags) // 2]))
    s = spectra.s[:end]
    scale = np.abs(s[-1]) ** np.arange(ORDER + 1)
    powers = s[:, None] ** np.arange(ORDER + 1) / scale
    regressors, instruments = powers * (y[:end] * np.exp(s * delay))[:, None], powers * z[:end, None]
    left, right = (_real(instruments, values) for values in (regressors, u[:end, None]))
    return delay, np.linalg.lstsq(left, right[:, 0], rcond=1e-10)[0] / scale


def _real(a: Complex, b: Complex) -> Array:
    """Real part of a^H b: coefficients are real."""
    return np.asarray((np.conj(a).T @ b).real)


def _by_band(spectra: Spectra, u: Complex, explained: Complex) -> tuple[Array, Array]:
    """Upper ends of the bands (Hz), and of each the part of ``u`` that is not ``explained``, by axis."""
    f, ends, left = spectra.frequencies, [], []
    first = 1
    while first < len(f):
        last = max(int(np.searchsorted(f, WIDTH * f[first])), first + LEAST_LINES)
        if last >= len(f):
            break
        part, rest = u[first:last], (u - explained)[first:last]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt((np.abs(rest) ** 2).sum(axis=0) / (np.abs(part) ** 2).sum(axis=0))
        ends.append(f[last])
        left.append(np.nan_to_num(ratio, nan=np.inf))
        first = last
    return np.array(ends), np.array(left)


def corrected(
    spectra: Spectra, inverse: Inverse, first: Array, command: Array, target: Array, moved: Array
) -> Array:
    """Commands ``(samples, n_axes)`` m of the next run, from those of the ``first`` run and of this one."""
    passed = spectra.pass_to(inverse.cutoff)[:, None]
    learned = spectra.of(command - first) + inverse.response(spectra) * spectra.of(target - moved)
    return np.asarray(first + spectra.history(passed * learned))
