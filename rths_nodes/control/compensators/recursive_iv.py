# SPDX-License-Identifier: Apache-2.0
"""Learning an inverse by instrumental variables: recursive least squares that return to the identified inverse.

From one sample's command u, measured displacement m and target d, all three through one low-pass filter and
without their slow means, y = u, phi_i and z_i the i-th derivatives of m and d, for each axis:

    P += delta (P_0 - P),   e = y - c phi,   K = P z / (R + z P z),   c += K e,   P -= K z P

Instrumental variables (Soederstroem & Stoica, System Identification, 1989, chapter 8): the noise of the measured
displacement biases ordinary least squares towards small coefficients; the target has no noise and moves as the
measurement does. The gain K vanishes without motion, so no trigger amplitude is needed. Forgetting leads P back to
the covariance P_0 of the identification: coefficients that the motion does not determine stay as identified.

- Subtracting the mean of the last ``memory`` seconds from all signals removes offsets of sensors and valves.
- R is the variance in e of the sensor's noise, times the number of dependent samples of e. The noise is estimated
  from the third differences of the measurement, which contain no motion.
- e is limited (Huber) at ``deviations`` times its expected standard deviation, (R + z P z)^0.5, against saturated
  valves, shocks and nonlinear rigs.
- The coefficients stay within ``deviations`` standard deviations of the identified ones.
- After a bridged sample learning rests for the memory of the filter.

It learns once per block of samples; all but the correction is computed before the last sample of the block.
``single_inverse.py`` has the code for one axis, in floats, ``coupled_inverse.py`` for several, in arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.control.compensators.derivative_filter import DerivativeFilter, impulse_response
from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function
from rths_nodes.core.samples import Array

T = TypeVar("T")
N = TypeVar("N", float, Numbers)
FADED = 8.0
"""Periods of the cut-off frequency after which the filter has forgotten."""

OF_DIFFERENCES = 20.0
"""Variance of the third differences of white noise over its own: 1 + 9 + 9 + 1."""


class Law(NamedTuple):
    """The law in arrays, m = derivatives times axes, ordered by derivative, in powers of the cut-off frequency."""

    block: Array
    """Matrix of the filter for a block, ``(4, 5 + decimation)``."""
    units: Array
    """``(m,)``: a coefficient is its number over this."""
    first: Array
    """Identified coefficients ``(n_axes, m)``; likewise their bounds ``low`` and ``high``."""
    low: Array
    high: Array
    prior: Array
    """P_0, ``(n_axes, m, m)``."""
    forget: float
    """delta."""
    noise_gain: Array
    """R of each axis per variance of white noise in each measured displacement, ``(n_axes, n_axes)``."""
    least_noise: float
    """m^2."""
    deviations: float
    settling: NDArray[np.int64]
    """Memory of the filter, in blocks, ``(1,)``: a bare integer would be part of the compiled text."""
    per_spread: Array
    """1 over the standard deviation of the identified coefficients; 0 without one."""
    powers: int
    """Coefficients per axis and axis' motion."""


def law_of(params: AnyParams, identified: Array, dt: float) -> Law:
    """Return the law for ``identified`` coefficients ``(order + 1, n_axes, n_axes)``; ``dt`` in s."""
    count, n, _ = identified.shape
    every, cutoff = params.decimation, params.cutoff_frequency
    low_pass = DerivativeFilter(cutoff, dt)
    units = low_pass.frequency ** np.arange(count)[:, None, None]

    def rows_of(coefficients: Array) -> Array:
        return np.ascontiguousarray((coefficients * units).transpose(1, 0, 2).reshape(n, -1))

    first = rows_of(identified)
    sizes = np.abs(identified).max(axis=2, keepdims=True)  # of the axis' own motion, as a rule
    share = np.array(params.relative_deviation[:count])[:, None, None]
    spread = rows_of(share * np.broadcast_to(sizes, identified.shape))
    dependent = max(1.0, 1.0 / (every * dt) / (2.0 * cutoff))
    return Law(
        block=low_pass.matrix(every),
        units=np.repeat(units.ravel(), n),
        first=first,
        low=first - params.deviations * spread,
        high=first + params.deviations * spread,
        prior=np.array([np.diag(row**2) for row in spread]),
        forget=min(1.0, every * dt / params.memory),
        noise_gain=dependent * _noise_passed(cutoff, first.reshape(n, count, n), dt),
        least_noise=params.displacement_noise_rms**2,
        deviations=params.deviations,
        settling=np.array([-(-round(1.0 / (cutoff * dt)) // every)]),
        per_spread=np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0),
        powers=count,
    )


def _noise_passed(cutoff: float, rows: Array, dt: float) -> Array:
    """Return the variance of e per variance of white noise in each measured displacement, ``(n, n)``."""
    seen = impulse_response(cutoff, dt, round(FADED / (cutoff * dt)))[:, : rows.shape[1]]
    passed: Array = np.square(np.einsum("kp,rpc->krc", seen, rows)).sum(axis=0)
    return passed


class Constants(NamedTuple):
    """The command of one axis, or of several, and its learning."""

    lead: float
    """s."""
    slope: Sequence[float] | Array
    """Weights of the last accelerations for the third derivative, oldest first."""
    still: tuple[float, ...]
    """Zero for each of several axes."""
    identified: Sequence[object]
    """Four coefficients; with several axes a row per axis, ordered by derivative."""
    learning: Any
    """Empty without learning."""


class State(NamedTuple):
    """State of one axis; with several, tuples in place of numbers."""

    coefficients: Any
    past: Sequence[float] | Array
    """Accelerations, m/s^2, oldest first; with several axes ``(samples, n_axes)``."""
    command: float | Numbers
    target: float | Numbers
    """Both of the last sample, m; the target read ahead."""
    watched: Any


def inverse(watched_by: Function, series: Function) -> Function:
    """Return the step with commands by ``series`` and coefficients by ``watched_by`` (``watch`` or ``kept``)."""

    def step(
        k: Constants, s: State, x: N, v: N, a: N, m: N, f: N, rests: bool, preparing: bool
    ) -> tuple[tuple[object, ...], N]:
        """Learn from the last sample's command, measurement and target, then return the command of the inverse."""
        lead, slope, _, _, law = k
        coefficients, past, command, target, watched = s
        # the measurement belongs to command and target of the last sample
        watched, coefficients = watched_by(law, watched, coefficients, command, m, target, rests)
        past, target, command = series(lead, slope, coefficients, past, x, v, a)
        return (coefficients, past, command, target, watched), command

    return step


def kept(
    k: tuple[()], s: tuple[()], coefficients: T, u: object, m: object, d: object, rests: bool
) -> tuple[tuple[()], T]:
    """Keep the identified coefficients: no learning."""
    return s, coefficients
