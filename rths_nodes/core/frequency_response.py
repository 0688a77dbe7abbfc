# SPDX-License-Identifier: Apache-2.0
"""Frequency responses of sampled components: compensators and actuators with a ``frequency_response``.

``frequency_response(omega)`` takes angular frequencies in rig time, ``(n,)`` rad/s, real or complex (s = j omega).
It returns the ratio of output to input, ``(n,)`` complex, or ``(n, n_axes, n_axes)`` for coupled axes. Adaptive
components use their initial parameters. Derivatives of the input are assumed exact, as in
``analysis/stability/loops.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Complex = NDArray[np.complex128]
Frequencies = NDArray[Any]
"""Angular frequencies, real or complex, ``(n,)`` rad/s."""


def taps(omega: Frequencies, weights: ArrayLike, ages: ArrayLike) -> Complex:
    """Return the response ``(n,)`` of a weighted sum of past inputs; ``weights`` and ``ages`` (s) are ``(m,)``."""
    return np.asarray(np.exp(-1j * np.multiply.outer(omega, np.asarray(ages, float))) @ np.asarray(weights, float))


def held(omega: Frequencies, rows: ArrayLike, output: ArrayLike, dt: float) -> Complex:
    """Return the response ``(n,)`` of a sampled system with input c, state x ``(m,)`` and output y.

    The system is x_k = Phi x_{k-1} + g_0 c_{k-1} + g_1 c_k and y_k = ``output`` [x_k, c_{k-1}, c_k]. ``rows`` are
    [Phi, g_0, g_1] ``(m, m + 2)``. ``output`` is ``(m + 2,)``. The sample period is ``dt`` (s).
    """
    step, out = np.asarray(rows, float), np.asarray(output, float)
    m, z = len(step), np.exp(1j * np.asarray(omega) * dt)
    driven = step[:, m] / z[:, None] + step[:, m + 1]
    states = np.linalg.solve(np.eye(m) - step[:, :m] / z[:, None, None], driven[..., None])[..., 0]
    return np.asarray(states @ out[:m] + out[m] / z + out[m + 1])


def in_series(first: Complex, second: Complex) -> Complex:
    if first.ndim == 1 and second.ndim == 1:
        return first * second
    if second.ndim == 1:
        return second[:, None, None] * first
    return np.asarray(first[:, None, None] * second if first.ndim == 1 else second @ first)
