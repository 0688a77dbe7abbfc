# SPDX-License-Identifier: Apache-2.0
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

It learns once in a block of samples. What each of them adds to the filtered signals and to the estimate of the
noise is added at that sample, and what is known of a block before its end, at its first ones: at the last one only
the correction is left. ``single_inverse.py`` has the text for one axis, in floats, ``coupled_inverse.py`` that for
several, in arrays; here are the constants of the law, and the step that is made of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rths_nodes.control.compensators.derivative_filter import DerivativeFilter, Four, impulse_response
from rths_nodes.core.arithmetic import Numbers, sqrt
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
    """The law in arrays. Derivatives count in powers of the cut-off frequency, so that all are of one size.

    A row of coefficients for each axis ``(n_axes, m)``, m = derivatives times axes: for each derivative those of
    all axes.
    """

    block: Array
    """Matrix of the filter for a block, ``(4, 5 + decimation)``."""
    units: Array
    """``(m,)``: a coefficient is its number over this."""
    first: Array
    """As identified."""
    low: Array
    high: Array
    """Ends of the ranges of the coefficients."""
    prior: Array
    """P_0, ``(n_axes, m, m)``."""
    forget: float
    """delta."""
    noise_gain: Array
    """R of each axis per variance of white noise in each measured displacement, ``(n_axes, n_axes)``."""
    least_noise: float
    """m^2."""
    deviations: float
    settling: int
    """Blocks that the filter remembers."""
    per_spread: Array
    """1 over the standard deviation of what was identified; 0 of a coefficient that has none."""
    powers: int
    """Coefficients of each axis of each axis' motion."""


def law_of(params: AnyParams, identified: Array, dt: float) -> Law:
    """The law for coefficients as ``identified``, ``(order + 1, n_axes, n_axes)``; ``dt``: servo period, s.

    ``params`` are those of ``identified_inverse``.
    """
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
        settling=-(-round(1.0 / (cutoff * dt)) // every),
        per_spread=np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0),
        powers=count,
    )


def _noise_passed(cutoff: float, rows: Array, dt: float) -> Array:
    """Variance of e of each axis per variance of white noise in each measured displacement, ``(n, n)``."""
    seen = impulse_response(cutoff, dt, round(FADED / (cutoff * dt)))[:, : rows.shape[1]]
    passed: Array = np.square(np.einsum("kp,rpc->krc", seen, rows)).sum(axis=0)
    return passed


class Constants(NamedTuple):
    """The command of one axis, or of several, and how it is learned."""

    lead: float
    """s."""
    slope: Sequence[float] | Array
    """Weights of the last accelerations, the oldest first: the third derivative."""
    still: tuple[float, ...]
    """Zero for each of several axes."""
    identified: Sequence[object]
    """Four coefficients; of several axes a row for each, of displacement to third derivative those of all axes."""
    learning: Any
    """Nothing where it does not learn."""


class State(NamedTuple):
    """State of one axis; of several there are tuples in place of numbers."""

    coefficients: Any
    past: Sequence[float] | Array
    """Accelerations, m/s^2, the oldest first: of several axes ``(samples, n_axes)``."""
    command: float | Numbers
    target: float | Numbers
    """Both of the last sample, m; the target read ahead."""
    watched: Any


def inverse(watched_by: Function, series: Function) -> Function:
    """The step whose command is a ``series`` and whose coefficients are ``watched_by`` a law.

    That is ``watch`` of one of both texts, or ``kept``, as identified.
    """

    def step(
        k: Constants, s: State, x: N, v: N, a: N, m: N, f: N, rests: bool, preparing: bool
    ) -> tuple[tuple[object, ...], N]:
        lead, slope, _, _, law = k
        coefficients, past, command, target, watched = s
        # the measurement belongs to the command and the target of the last sample
        watched, coefficients = watched_by(law, watched, coefficients, command, m, target, rests)
        past, target, command = series(lead, slope, coefficients, past, x, v, a)
        return (coefficients, past, command, target, watched), command

    return step


def kept(
    k: tuple[()], s: tuple[()], coefficients: T, u: object, m: object, d: object, rests: bool
) -> tuple[tuple[()], T]:
    """In place of ``watch`` where nothing is learned."""
    return s, coefficients


# The recursion of one axis with four coefficients, of which those beyond the order are nothing

Covariance = tuple[float, float, float, float, float, float, float, float, float, float]
"""P by its upper triangle, row by row."""


def corrected(
    row: Four, covariance: Covariance, y: float, seen: Four, z: Four, variance: float, deviations: float
) -> tuple[Four, Covariance]:
    """One step of the recursion by the filtered signals and R, the ``variance`` of e."""
    aa, ab, ac, ad, bb, bc, bd, cc, cd, dd = covariance
    a, b, c, d = row
    p, q, r, s = seen
    f, g, h, i = z
    pa = aa * f + ab * g + ac * h + ad * i
    pb = ab * f + bb * g + bc * h + bd * i
    pc = ac * f + bc * g + cc * h + cd * i
    pd = ad * f + bd * g + cd * h + dd * i
    expected = variance + (f * pa + g * pb + h * pc + i * pd)
    bound = deviations * sqrt(expected)
    error = y - (a * p + b * q + c * r + d * s)
    if error < -bound:
        error = -bound
    if error > bound:
        error = bound
    gain = error / expected
    ka, kb, kc, kd = pa / expected, pb / expected, pc / expected, pd / expected
    covariance = (
        aa - ka * pa,
        ab - ka * pb,
        ac - ka * pc,
        ad - ka * pd,
        bb - kb * pb,
        bc - kb * pc,
        bd - kb * pd,
        cc - kc * pc,
        cd - kc * pd,
        dd - kd * pd,
    )
    return (a + gain * pa, b + gain * pb, c + gain * pc, d + gain * pd), covariance


def within(row: Four, low: Four, high: Four) -> Four:
    a, b, c, d = row
    e, f, g, h = low
    p, q, r, s = high
    a = e if a < e else p if a > p else a
    b = f if b < f else q if b > q else b
    c = g if c < g else r if c > r else c
    d = h if d < h else s if d > s else d
    return a, b, c, d


def farthest(row: Four, first: Four, per_spread: Four) -> float:
    """The largest distance of a coefficient from what was identified, in standard deviations."""
    a, b, c, d = row
    e, f, g, h = first
    p, q, r, s = per_spread
    return max(max(abs(a - e) * p, abs(b - f) * q), max(abs(c - g) * r, abs(d - h) * s))
