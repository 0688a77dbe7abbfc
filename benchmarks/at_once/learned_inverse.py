"""The compensator ``identified_inverse``, learning, of many runs at a time."""

from __future__ import annotations

import numpy as np

from at_once.arrays import Array, product
from rths_nodes.control.compensators.coupled_inverse import TAIL
from rths_nodes.control.compensators.derivative_filter import ORDER
from rths_nodes.control.compensators.identified_inverse import IdentifiedInverse, constants_in_arrays
from rths_nodes.control.compensators.instrument import OF_DIFFERENCES


class LearnedInverse:
    """The law of all runs with ``params`` at ``dt`` (s); ``lead`` ``(runs,)`` s is each run's own.

    ``distance`` ``(n_axes, runs)``: the largest so far of how far a coefficient has gone, in standard deviations.
    """

    def __init__(self, params: IdentifiedInverse.Params, dt: float, lead: Array) -> None:
        _, self._slope, identified, own = constants_in_arrays(params, dt)
        self._own, self._lead, self._every = own, lead, params.decimation
        self._ahead = bool(lead.any())
        count, n, _ = identified.shape
        self._count, self._n, self._runs = count, n, len(lead)
        self._units = own.units[:, None]
        self._first, self._per_spread = own.first[:, :, None], own.per_spread[:, :, None]
        self._prior = own.prior[..., None]
        self._rows = np.tile(self._first, self._runs)
        self._covariance = np.tile(self._prior, self._runs)
        self._coefficients = self._rows / self._units
        axes = (n, self._runs)
        self._past = np.zeros((len(self._slope), *axes))
        self._filtered = np.zeros((ORDER, 3 * n * self._runs))
        self._mean = np.zeros_like(self._filtered)
        self._noise, self._learned = np.zeros(axes), 0
        self._block: list[Array] = []
        self._pair = np.zeros(axes), np.zeros(axes)
        self.distance = np.zeros(axes)

    def step(self, x: Array, v: Array, a: Array, measured: Array) -> Array:
        """The commands m; all ``(n_axes, runs)``."""
        self._block.append(np.array([self._pair[0], measured, self._pair[1]]))
        if len(self._block) == self._every:
            self._learn(np.array(self._block))
            self._block.clear()
        motion = [x, v, a]
        if self._ahead or self._count > len(motion):
            motion = self._read_ahead(x, v, a)
        u = product(self._coefficients, np.concatenate(motion[: self._count]))
        self._pair = u, motion[0]
        return u

    def _read_ahead(self, x: Array, v: Array, a: Array) -> list[Array]:
        """Displacement to third derivative ``lead`` later."""
        self._past[:-1] = self._past[1:]
        self._past[-1] = a
        tau, jerk = self._lead, np.tensordot(self._slope, self._past, 1)
        return [
            x + tau * (v + 0.5 * tau * (a + tau / 3.0 * jerk)),
            v + tau * (a + 0.5 * tau * jerk),
            a + tau * jerk,
            jerk,
        ]

    def _learn(self, block: Array) -> None:
        """The next ``block`` ``(decimation, 3, n_axes, runs)`` of commands, measured displacements, targets."""
        own, n, count = self._own, self._n, self._count
        m, rows = block[:, 1], block.reshape(len(block), -1)
        if not self._learned:  # at rest before, at whatever the sensors show there
            self._last = rows.mean(axis=0, keepdims=True)
            self._filtered[0] = self._last
            self._tail = np.repeat(m[:1], TAIL, axis=0)
        self._filtered = own.block @ np.concatenate([self._filtered, self._last, rows])
        self._last = rows[-1:]
        m = np.concatenate([self._tail, m])
        self._tail = m[-TAIL:]
        third = m[3:] - m[:-3] + 3.0 * (m[1:-2] - m[2:-1])
        self._learned += 1
        share = max(own.forget, 1.0 / self._learned)
        self._mean += share * (self._filtered - self._mean)
        self._noise += share * (np.square(third).mean(axis=0) / OF_DIFFERENCES - self._noise)
        moving = (self._filtered - self._mean).reshape(-1, 3, n, self._runs)
        y, seen, z = moving[0, 0], *(moving[:count, i].reshape(count * n, -1) for i in (1, 2))
        self._covariance += own.forget * (self._prior - self._covariance)
        pz = product(self._covariance, z)
        expected = own.noise_gain @ np.maximum(self._noise, own.least_noise) + (z * pz).sum(axis=1)
        bound = own.deviations * np.sqrt(expected)
        error = np.clip(y - (self._rows * seen).sum(axis=1), -bound, bound)
        gain = pz / expected[:, None]
        self._rows += error[:, None] * gain
        self._covariance -= gain[:, :, None] * pz[:, None]
        np.clip(self._rows, own.low[:, :, None], own.high[:, :, None], out=self._rows)
        self._coefficients = self._rows / self._units
        away = np.abs(self._rows - self._first) * self._per_spread
        self.distance = np.maximum(self.distance, away.max(axis=1))
