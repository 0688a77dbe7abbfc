"""Learning an inverse by an instrument: recursive least squares that lead back to what was identified.

From one sample's command u, measured displacement m and target d, all three through one low-pass filter and
without their slow means, y = u, phi_i and z_i the i-th derivatives of m and d, for each axis:

    P += delta (P_0 - P),   e = y - c phi,   K = P z / (R + z P z),   c += K e,   P -= K z P

Least squares by an instrument (Soederstroem & Stoica, System Identification, 1989, chapter 8): the measured
displacement carries noise, which biases its own least squares towards small coefficients and never comes to rest;
the target carries none and moves as the measurement does. So the gain K comes from the target alone: without
motion there is none, and no trigger amplitude is needed. Forgetting leads P back to the covariance P_0 of what was
identified instead of letting it grow: a coefficient of which the motion tells nothing stays where it was
identified to be.

- An offset, of the sensor or of a valve, is a constant in y - c phi. The mean of the last ``memory`` seconds,
  taken off all signals alike, removes it and leaves the relation between them as it is.
- R is the variance that the noise of the sensor leaves in e, times the samples of e that depend on each other.
  The noise is seen in the third differences of the measurement, where nothing is left of a motion.
- e is cut off (Huber) at ``deviations`` times the standard deviation that it should have, (R + z P z)^0.5: a
  valve at its end, a shock and a rig that is not linear teach little.
- The coefficients stay within ``deviations`` standard deviations of what was identified.
- Behind a bridged sample learning rests for the time that the filter remembers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rths_nodes.control.compensators.derivative_filter import DerivativeFilter
from rths_nodes.core.samples import Array

FADED = 8.0
"""Periods of the cut-off frequency after which the filter has forgotten."""

TAIL = 3
"""Samples before a block that its third differences need."""

OF_DIFFERENCES = 20.0
"""Variance of the third differences of white noise over its own: 1 + 9 + 9 + 1."""


class Settings(NamedTuple):
    """How it is learned: parameters of ``identified_inverse`` by their names."""

    relative_deviation: tuple[float, ...]
    deviations: float
    memory: float
    """s."""
    decimation: int
    cutoff_frequency: float
    """Hz."""
    displacement_noise_rms: float
    """m."""


class Learning:
    """A row of coefficients for each axis, and how well they are known.

    ``coefficients`` ``(order + 1, n_axes, n_axes)``, their standard ``deviation`` of the same shape, and the
    ``distance`` ``(n_axes,)`` that a coefficient of an axis has gone from what was identified, in standard
    deviations, the largest so far.
    Inside, derivatives count in powers of the cut-off frequency, so that all are of one size.
    """

    def __init__(self, settings: Settings, identified: Array, dt: float) -> None:
        """``identified`` as ``coefficients``; ``dt`` is the servo period in s."""
        count, n, _ = identified.shape
        self._shape, self._n = (count, n, n), n
        every, cutoff = settings.decimation, settings.cutoff_frequency
        filter_ = DerivativeFilter(cutoff, dt, 1)
        self._block = filter_.block(every)
        self._order = filter_.ORDER
        self._units = filter_.frequency ** np.arange(count)[:, None]
        self._first = self._rows_of(identified)
        sizes = np.abs(identified).max(axis=2, keepdims=True)  # of the axis' own motion, as a rule
        spread = np.array(settings.relative_deviation[:count])[:, None, None] * np.broadcast_to(sizes, self._shape)
        self._spread = self._rows_of(spread)
        self._prior = np.array([np.diag(row**2) for row in self._spread])
        self._forget = min(1.0, every * dt / settings.memory)
        self._deviations = settings.deviations
        self._range = settings.deviations * self._spread
        self._least_noise = settings.displacement_noise_rms**2
        dependent = max(1.0, 1.0 / (every * dt) / (2.0 * cutoff))
        self._noise_gain = dependent * self._noise_passed(filter_, dt)
        self._settling = -(-round(1.0 / (cutoff * dt)) // every)
        self.reset()

    def _rows_of(self, coefficients: Array) -> Array:
        """Coefficients ``(count, n, n)`` as a row for each axis ``(n, count * n)``, in powers of the cut-off."""
        scaled = coefficients * self._units[:, :, None]
        return np.ascontiguousarray(scaled.transpose(1, 0, 2).reshape(self._n, -1))

    def _noise_passed(self, filter_: DerivativeFilter, dt: float) -> Array:
        """Variance of e of each axis per variance of white noise in each measured displacement, ``(n, n)``."""
        filter_.reset()
        samples = round(FADED / (filter_.frequency / (2.0 * np.pi) * dt))
        impulse = np.array([filter_.step(np.array([float(k == 0)]))[:, 0].copy() for k in range(samples)])
        seen = impulse[:, : self._shape[0]]
        row = self._first.reshape(self._n, self._shape[0], self._n)
        passed: Array = np.square(np.einsum("kp,rpc->krc", seen, row)).sum(axis=0)
        return passed

    def reset(self) -> None:
        """As identified, the signals at rest before."""
        self._rows = self._first.copy()
        self._covariance = self._prior.copy()
        self._filtered = np.zeros((self._order, 3 * self._n))
        self._last = np.zeros((1, 3 * self._n))
        self._tail = np.zeros((TAIL, self._n))
        self._mean = np.zeros((self._order, 3 * self._n))
        self._noise = np.zeros(self._n)
        self._begun, self._learned, self._resting = False, 0, 0
        self.distance = np.zeros(self._n)
        self._publish()

    def rest(self) -> None:
        """A bridged sample: what it left in the filter teaches nothing."""
        self._resting = self._settling + 1

    def learn(self, rows: Array) -> None:
        """The next block ``(decimation, 3 n_axes)`` of commands, measured displacements and targets, m."""
        noise = self._take(rows)
        if self._resting:
            self._resting -= 1
            return
        self._learned += 1
        share = max(self._forget, 1.0 / self._learned)  # of all samples so far, until the memory is full
        self._mean += share * (self._filtered - self._mean)
        self._noise += share * (noise - self._noise)
        self._correct(self._filtered - self._mean, self._noise_gain @ np.maximum(self._noise, self._least_noise))
        self._publish()

    def _take(self, rows: Array) -> Array:
        """The filter goes on by the block ``rows``; the variance of the noise in its measurements, ``(n,)``."""
        measured = rows[:, self._n : 2 * self._n]
        if not self._begun:  # at rest before, at whatever the sensors show there
            self._begun = True
            self._last = rows.mean(axis=0, keepdims=True)
            self._filtered[0] = self._last
            self._tail[:] = measured[0]
        self._filtered, self._last = self._block @ np.concatenate([self._filtered, self._last, rows]), rows[-1:]
        m = np.concatenate([self._tail, measured])
        self._tail = m[-TAIL:]
        third = m[3:] - m[:-3] + 3.0 * (m[1:-2] - m[2:-1])
        variance: Array = np.square(third).mean(axis=0) / OF_DIFFERENCES
        return variance

    def _correct(self, moving: Array, variance: Array) -> None:
        """One step of the recursion by the filtered signals and the ``variance`` of each axis' e, ``(n,)``."""
        n, count = self._n, self._shape[0]
        y = moving[0, :n]
        seen = moving[:count, n : 2 * n].ravel()
        instrument = moving[:count, 2 * n :].ravel()
        self._covariance += self._forget * (self._prior - self._covariance)
        for axis, (row, p) in enumerate(zip(self._rows, self._covariance, strict=True)):
            pz = p @ instrument
            expected = float(variance[axis] + instrument @ pz)
            bound = self._deviations * math.sqrt(expected)
            error = min(max(float(y[axis] - row @ seen), -bound), bound)
            row += error / expected * pz
            p -= np.outer(pz / expected, pz)
        np.clip(self._rows, self._first - self._range, self._first + self._range, out=self._rows)

    def _publish(self) -> None:
        self.coefficients = self._matrices(self._rows)
        variances = np.diagonal(self._covariance, axis1=1, axis2=2)
        self.deviation = self._matrices(np.sqrt(np.maximum(variances, 0.0)))
        away = np.abs(self._rows - self._first)
        share = np.divide(away, self._spread, out=np.zeros_like(away), where=self._spread > 0.0)
        self.distance = np.maximum(self.distance, share.max(axis=1))

    def _matrices(self, rows: Array) -> Array:
        found: Array = rows.reshape(self._n, self._shape[0], self._n).transpose(1, 0, 2) / self._units[:, :, None]
        return found
