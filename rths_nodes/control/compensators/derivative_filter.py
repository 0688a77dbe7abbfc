# SPDX-License-Identifier: Apache-2.0
"""A low-pass filter whose inner states are the derivatives of its output.

This is a fourth-order Butterworth filter in phase-variable form, z' = w (A z + b u), with the input u and the
cut-off frequency w (rad/s). The state z holds the output and its first three derivatives, divided by powers of w.
The solution is exact for an input linear between samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

Columns = tuple[Numbers, ...] | Array
"""Contributions of each input in a block to the four states after the block."""
ORDER = 4
KNOWN = ORDER + 1
"""Number of values known before a block: the states and the last input."""
FEW = 64
"""Largest block, samples, that is stored in tuples. Larger blocks are arrays, which compile faster."""
Four = tuple[float, float, float, float]
Five = tuple[float, float, float, float, float]
"""States of the filter and its last input."""


class DerivativeFilter:
    """Fourth-order Butterworth filter; the states ``(4, n)`` are y, y'/w, y''/w^2 and y'''/w^3 of its output y."""

    def __init__(self, cutoff_frequency: float, dt: float) -> None:
        highest = 0.5 / dt
        if cutoff_frequency >= highest:
            raise ConfigError(
                f"compensator.cutoff_frequency = {cutoff_frequency:g} Hz: must be < {highest:g} Hz, "
                "half the servo rate"
            )
        self.frequency = 2.0 * np.pi * cutoff_frequency
        self._transition = self._held(self.frequency * dt)

    @classmethod
    def _held(cls, phase: float) -> Array:
        """Return the matrix ``(4, 6)`` that maps states, last and new input to new states; ``phase`` is w dt."""
        from scipy.linalg import expm

        order = ORDER
        denominator = np.ones(1)
        for angle in (np.pi / 8.0, 3.0 * np.pi / 8.0):
            denominator = np.polymul(denominator, [1.0, 2.0 * np.cos(angle), 1.0])
        system = np.zeros((order + 2, order + 2))
        system[: order - 1, 1:order] = phase * np.eye(order - 1)
        system[order - 1, :order] = -phase * denominator[:0:-1]
        system[order - 1, order] = phase
        system[order, order + 1] = 1.0  # the input's slope, per sample
        solved = expm(system)[:order]
        solved[:, order] -= solved[:, order + 1]
        return np.ascontiguousarray(solved)

    def matrix(self, samples: int) -> Array:
        """Return the matrix ``(4, 5 + samples)`` that maps states, last input and new inputs to final states."""
        now = self._transition
        rows = np.zeros((ORDER, KNOWN + samples))
        rows[:, :ORDER] = np.eye(ORDER)
        for index in range(samples):
            rows = now[:, :ORDER] @ rows
            rows[:, ORDER + index : ORDER + index + 2] += now[:, ORDER:]
        return rows

    def states(self, values: Array) -> Array:
        """Return the states ``(samples, 4, n)`` for inputs ``values`` ``(samples, n)``, starting from zero."""
        states = np.zeros((len(values) + 1, ORDER, values.shape[1]))
        before = np.zeros_like(values[:1])
        for index, now in enumerate(values):
            states[index + 1] = self._transition @ np.vstack([states[index], before, now])
            before = now
        return states[1:]


@lru_cache(maxsize=16)  # all plants of a study use the same filter
def impulse_response(cutoff_frequency: float, dt: float, samples: int) -> Array:
    """Return the filter's states ``(samples, 4)``, read-only, after an input of 1 in the first sample."""
    impulse = np.zeros((samples, 1))
    impulse[0] = 1.0
    response: Array = DerivativeFilter(cutoff_frequency, dt).states(impulse)[..., 0]
    response.setflags(write=False)
    return response


def block_of(matrix: Array) -> tuple[Columns, Columns]:
    """Split the ``matrix`` of a block into columns of its inputs and columns of values known before the block."""
    columns, inputs = matrix.T[:KNOWN], np.ascontiguousarray(matrix.T[KNOWN:])
    return in_numbers(inputs) if len(inputs) <= FEW else inputs, in_numbers(columns)


def in_numbers(rows: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())


def added(states: Four, column: Sequence[float] | Array, value: float) -> Four:
    """Return the filter's four states plus the contribution of one input ``value``."""
    a, b, c, d = states
    return a + column[0] * value, b + column[1] * value, c + column[2] * value, d + column[3] * value


def limited(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value
