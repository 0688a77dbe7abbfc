# SPDX-License-Identifier: Apache-2.0
"""Update of an inverse by instrumental variables: recursive least squares that begin with the identified inverse.

Command y, measured displacement m and target d pass the same low-pass filter, and their means over the last
``memory`` seconds are subtracted. With the coefficients c and the i-th derivatives phi_i and z_i of m and d, for
each axis and each block of ``decimation`` samples:

    P += delta (P_0 - P),   e = y - c phi,   K = P z / (R + z P z),   c += K e,   P -= K z P

Noise of the measured displacement would bias ordinary least squares; the target has no noise and is correlated
with the measurement (Soederstroem & Stoica, System Identification, 1989, chapter 8). K vanishes without motion. P
returns by the fraction delta to the covariance P_0 of the identification, so that coefficients not determined by
the motion stay as identified.

- R is the variance of e due to sensor noise, times the number of dependent samples of e. The noise is estimated
  from the third differences of the measurement, which contain no motion.
- e is limited (Huber) to ``deviations`` times its expected standard deviation, (R + z P z)^0.5, because of
  saturated valves, shocks and nonlinear rigs.
- The coefficients stay within ``deviations`` standard deviations of the identified coefficients.
- After a bridged sample, updates pause for the memory of the filter, one period of its cut-off frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.control.compensators.derivative_filter import DerivativeFilter, impulse_response
from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import AnyParams
from rths_nodes.core.samples import Array

T = TypeVar("T")
N = TypeVar("N", float, Numbers)
FADED = 8.0
"""Length of the filter's impulse response, in periods of its cut-off frequency."""
MOST = 1_000_000
"""Largest length of the impulse response, samples."""
OF_DIFFERENCES = 20.0
"""Variance of the third differences of white noise, divided by the variance of the noise: 1 + 9 + 9 + 1."""


class Law(NamedTuple):
    """Constants of the law, as arrays.

    A row has m numbers (derivatives times axes), ordered by derivative and scaled by powers of the cut-off
    frequency.
    """

    block: Array
    """Matrix of the filter for a block, ``(4, 5 + decimation)``."""
    units: Array
    """``(m,)``: a scaled number divided by its unit is the coefficient."""
    first: Array
    """Identified coefficients ``(n_axes, m)``; their bounds ``low`` and ``high`` have the same shape."""
    low: Array
    high: Array
    prior: Array
    """Covariance P_0 of the identification, ``(n_axes, m, m)``."""
    forget: float
    noise_gain: Array
    """R of each axis per noise variance of each measured displacement, ``(n_axes, n_axes)``."""
    least_noise: float
    """Smallest assumed noise variance, m^2."""
    deviations: float
    settling: NDArray[np.int64]
    """Memory of the filter in blocks, as an array ``(1,)``, because a plain integer would become a literal in the
    generated C code."""
    per_spread: Array
    """Reciprocal standard deviations of the identified coefficients; 0 if a deviation is 0."""
    powers: int
    """Number of coefficients for each pair of a commanded and a moving axis."""


def law_of(params: AnyParams, identified: Array, dt: float) -> Law:
    """Return the law for ``identified`` coefficients ``(order + 1, n_axes, n_axes)``; ``dt`` in s."""
    count, n, _ = identified.shape
    every, cutoff = params.decimation, params.cutoff_frequency
    low_pass = DerivativeFilter(cutoff, dt)
    units = low_pass.frequency ** np.arange(count)[:, None, None]

    def rows_of(coefficients: Array) -> Array:
        return np.ascontiguousarray((coefficients * units).transpose(1, 0, 2).reshape(n, -1))

    first = rows_of(identified)
    sizes = np.abs(identified).max(axis=2, keepdims=True)  # usually the coefficient of the axis itself
    share = np.array(params.relative_deviation[:count])[:, None, None]
    spread = rows_of(share * np.broadcast_to(sizes, identified.shape))
    dependent = max(1.0, 1.0 / (every * dt) / (2.0 * cutoff))
    if FADED / (cutoff * dt) > MOST:
        least = f"{FADED / (MOST * dt):g} Hz"
        raise ConfigError(f"compensator.cutoff_frequency = {cutoff:g} Hz: must be >= {least}")
    seen = impulse_response(cutoff, dt, round(FADED / (cutoff * dt)))[:, :count]
    passed = np.square(np.einsum("kp,rpc->krc", seen, first.reshape(n, count, n))).sum(axis=0)
    return Law(
        block=low_pass.matrix(every),
        units=np.repeat(units.ravel(), n),
        first=first,
        low=first - params.deviations * spread,
        high=first + params.deviations * spread,
        prior=np.array([np.diag(row**2) for row in spread]),
        forget=min(1.0, every * dt / params.memory),
        noise_gain=dependent * passed,
        least_noise=params.displacement_noise_rms**2,
        deviations=params.deviations,
        settling=np.array([-(-round(1.0 / (cutoff * dt)) // every)]),
        per_spread=np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0),
        powers=count,
    )


class Constants(NamedTuple):
    lead: float
    slope: Sequence[float] | Array
    """Weights of the last accelerations for the third derivative, oldest first."""
    still: tuple[float, ...]
    """One zero per axis; empty for a single axis."""
    identified: Sequence[object]
    """Four coefficients; for several axes one row per axis, ordered by derivative."""
    learning: Any


class State(NamedTuple):
    """State of one axis; with several axes, each number is a tuple."""

    coefficients: Any
    past: Sequence[float] | Array
    """Last accelerations, m/s^2, oldest first; for several axes ``(samples, n_axes)``."""
    command: float | Numbers
    target: float | Numbers
    """``command`` and ``target`` are of the last sample, m. The target is extrapolated by the lead."""
    watched: Any


def inverse(watched_by: Function, series: Function) -> Function:
    """Return a step that learns with ``watched_by`` and computes commands with ``series``."""

    def step(
        k: Constants, s: State, x: N, v: N, a: N, m: N, f: N, rests: bool, preparing: bool
    ) -> tuple[tuple[object, ...], N]:
        """Learn from command, measurement and target of the last sample; then compute the next command."""
        lead, slope, _, _, law = k
        coefficients, past, command, target, watched = s
        # this measurement belongs to command and target of the last sample
        watched, coefficients = watched_by(law, watched, coefficients, command, m, target, rests)
        past, target, command = series(lead, slope, coefficients, past, x, v, a)
        return (coefficients, past, command, target, watched), command

    return step


def renewed(s: State) -> bool:
    """Return whether the last step ended a block."""
    _, _, _, _, watched = s
    row: int = watched[0]
    return row == -1


def kept(
    k: tuple[()], s: tuple[()], coefficients: T, u: object, m: object, d: object, rests: bool
) -> tuple[tuple[()], T]:
    return s, coefficients
