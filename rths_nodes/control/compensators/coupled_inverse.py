# SPDX-License-Identifier: Apache-2.0
"""Identified inverse: the law that updates the coefficients, and the kernel for several axes.

The law is recursive least squares with instrumental variables, starting from the identified inverse.

The command y, measured displacement m and target d pass the same low-pass filter. Their means over the last
``memory`` seconds are subtracted. With the coefficients c and the i-th derivatives phi_i and z_i of m and d, for
each axis and each block of ``decimation`` samples:

    P += delta (P_0 - P),   e = y - c phi,   K = P z / (R + z P z),   c += K e,   P -= K z P

Noise of the measured displacement would bias ordinary least squares. The target has no noise and is correlated
with the measurement (Soederstroem & Stoica, System Identification, 1989, chapter 8). K vanishes without motion. P
returns by the fraction delta to the covariance P_0 of the identification, so coefficients not determined by the
motion stay as identified.

- R is the variance of e due to sensor noise, times the number of dependent samples of e. The noise is estimated
  from the third differences of the measurement, which contain no motion.
- e is limited (Huber) to ``deviations`` times its expected standard deviation, (R + z P z)^0.5, because of
  saturated valves, shocks and nonlinear rigs.
- The coefficients stay within ``deviations`` standard deviations of the identified coefficients.
- After a bridged sample, updates pause for one period of the filter's cut-off frequency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.control.compensators.derivative_filter import (
    KNOWN,
    ORDER,
    DerivativeFilter,
    impulse_response,
    limited,
)
from rths_nodes.core.arithmetic import Numbers, along, dot, first, matvec, numbers, put, replaced, sqrt, times
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

    A row has m numbers, one per derivative and axis, ordered by derivative and scaled by powers of the cut-off
    frequency.
    """

    block: Array
    """Matrix of the filter for a block, ``(4, 5 + decimation)``."""
    units: Array
    """Scale factors ``(m,)``: a coefficient is the scaled number divided by its factor."""
    first: Array
    """Identified coefficients ``(n_axes, m)``; their bounds ``low`` and ``high`` have the same shape."""
    low: Array
    high: Array
    prior: Array
    """Covariance P_0 of the identification, ``(n_axes, m, m)``."""
    forget: float
    noise_gain: Array
    """Ratio of R for each axis to the noise variance of each measured displacement, ``(n_axes, n_axes)``."""
    least_noise: float
    """Smallest assumed noise variance, m^2."""
    deviations: float
    settling: NDArray[np.int64]
    """Memory of the filter in blocks, as an array ``(1,)`` to prevent a literal in the generated C code."""
    per_spread: Array
    """Reciprocal standard deviations of the identified coefficients; 0 if a deviation is 0."""
    powers: int
    """Number of coefficients for each pair of a commanded and a moving axis."""


def law_of(params: AnyParams, identified: Array, dt: float) -> Law:
    """Return the law for ``identified`` coefficients ``(order + 1, n_axes, n_axes)``, sampled every ``dt`` (s)."""
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
    """Four identified coefficients, or one row per axis for several axes, ordered by derivative."""
    learning: Any


class State(NamedTuple):
    """State of one axis; with several axes, each number is a tuple."""

    coefficients: Any
    past: Sequence[float] | Array
    """Last accelerations, m/s^2, oldest first; for several axes ``(samples, n_axes)``."""
    command: float | Numbers
    target: float | Numbers
    """``command`` (m) and ``target`` (m, extrapolated by the lead) belong to the last sample."""
    watched: Any


def inverse(watched_by: Function, series: Function) -> Function:
    """Return a step function that learns with ``watched_by`` and computes commands with ``series``."""

    def step(
        k: Constants, s: State, x: N, v: N, a: N, m: N, f: N, rests: bool, preparing: bool
    ) -> tuple[tuple[object, ...], N]:
        """Learn from the command, measurement and target of the last sample. Return the next command."""
        lead, slope, _, _, law = k
        coefficients, past, command, target, watched = s
        # this measurement belongs to the command and target of the last sample
        watched, coefficients = watched_by(law, watched, coefficients, command, m, target, rests)
        past, target, command = series(lead, slope, coefficients, past, x, v, a)
        return (coefficients, past, command, target, watched), command

    return step


def renewed(s: State) -> bool:
    """Return whether a block has just ended."""
    _, _, _, _, watched = s
    row: int = watched[0]
    return row == -1


def kept(
    k: tuple[()], s: tuple[()], coefficients: T, u: object, m: object, d: object, rests: bool
) -> tuple[tuple[()], T]:
    return s, coefficients


# Kernel for several axes, with arrays

TAIL = 3
"""Number of earlier measurements that the third differences of a block need."""
Rows = tuple[Numbers, ...]


class Watched(NamedTuple):
    """Learning state. Its arrays are modified in place.

    The 3 n signals of n axes are their commands, measured displacements and targets.
    """

    row: int
    samples: Array
    """``(5 + decimation, 3 n)``: four rows of filter states after the last block, the last signals of that block,
    and the signals of this block."""
    seen: Array
    """``(3 + decimation, n)``: three measurements before the block and all measurements of the block."""
    mean: Array
    noise: Array
    """Noise variance of each measurement, m^2."""
    rows: Array
    covariance: Array
    distance: Array
    blocks: int
    """Number of blocks used for learning; -1 in the first block."""
    resting: int


def unlearned(k: Law) -> Watched:
    n, samples = len(k.first), k.block.shape[1]
    signals = np.zeros((samples, 3 * n)), np.zeros((samples - KNOWN + TAIL, n)), np.zeros((ORDER, 3 * n))
    return Watched(-1, *signals, np.zeros(n), k.first.copy(), k.prior.copy(), np.zeros(n), -1, 0)


def blocks(s: Watched) -> int:
    return s[-2]


def by_power(rows: Sequence[Numbers] | Array, count: int, terms: Array, position: int) -> int:
    """Write ``rows`` into ``terms`` from ``position`` on, ordered by derivative. Return the next position."""
    n = len(rows)
    for power in range(count):
        for row in rows:
            for axis in range(n):
                terms[position] = row[power * n + axis]
                position += 1
    return position


def shown_of(count: int, learns: bool) -> Callable[..., Array]:
    def identified(k: Constants, s: State) -> Array:
        rows, _, _, _, _ = s
        values = np.empty(count * len(rows) * len(rows))
        by_power(rows, count, values, 0)
        return values

    def shown(k: Constants, s: State) -> Array:
        """Return coefficients, their standard deviations, and largest distance per axis from identified values."""
        _, _, _, _, (_, units, _, _, _, _, _, _, _, _, _, _, _) = k
        rows, _, _, _, (_, _, _, _, _, _, covariance, distance, _, _) = s
        n, size = len(rows), count * len(rows)
        deviations = np.empty((n, size))
        for axis in range(n):
            for row in range(size):
                deviations[axis, row] = sqrt(max(covariance[axis, row, row], 0.0)) / units[row]
        values = np.empty(2 * n * size + n)
        row = by_power(rows, count, values, 0)
        row = by_power(deviations, count, values, row)
        put(values, row, distance)
        return values

    return shown if learns else identified


def watch(
    k: Law, s: Watched, rows: Rows, command: Numbers, measured: Numbers, target: Numbers, rests: bool
) -> tuple[tuple[object, ...], Rows]:
    """Return the state and coefficients after a sample. The coefficients change at the end of a block."""
    row, samples, seen, mean, noise, learned, covariance, distance, count, resting = s
    settling, last = k[10], len(samples) - KNOWN - 1
    row += 1
    samples[KNOWN + row] = np.array(command + measured + target)
    if rests:
        resting = settling[0] + 1
    if row == last:
        row = -1
        count = max(count, 0)
        variance = taken(k, s)
        if resting == 0:
            count += 1
            learn(k, s, variance, count)
            rows = replaced(rows, learned / k[1])
        else:
            resting -= 1
    return (row, samples, seen, mean, noise, learned, covariance, distance, count, resting), rows


def taken(k: Law, s: Watched) -> Array:
    """Advance the filter by a block. Return the noise variances (m^2) of the measurements, ``(n,)``."""
    block = k[0]
    _, rows, seen, _, noise, _, _, _, count, _ = s
    n, every = len(noise), len(rows) - KNOWN
    signals = rows[KNOWN:]
    seen[TAIL:] = signals[:, n : 2 * n]
    if count < 0:  # until the test, the rig was at rest at the first measured position
        rows[ORDER] = matvec(signals.T, np.full(every, 1.0 / every))
        rows[0] = rows[ORDER]
        seen[:TAIL] = seen[TAIL]
    filtered = np.empty((ORDER, 3 * n))
    for row in range(ORDER):
        filtered[row] = matvec(rows.T, block[row])
    rows[:ORDER] = filtered
    rows[ORDER] = rows[len(rows) - 1]
    third = seen[3:] - seen[:-3] + 3.0 * (seen[1:-2] - seen[2:-1])
    seen[:TAIL] = seen[every:]
    return matvec((third * third).T, np.full(every, 1.0 / (every * OF_DIFFERENCES)))


def learn(k: Law, s: Watched, variance: Array, count: int) -> None:
    """Update the means, noise, coefficients and covariances in place."""
    _, _, ends, low, high, prior, forget, noise_gain, least_noise, deviations, _, per_spread, powers = k
    _, samples, _, mean, noise, rows, covariance, distance, _, _ = s
    n, size = len(rows), len(rows[0])
    share = max(forget, 1.0 / count)  # average of all samples until the memory is full
    mean += share * (samples[:ORDER] - mean)
    noise += share * (variance - noise)
    moving = samples[:ORDER] - mean
    seen, z = moving[:powers, n : 2 * n].reshape(size), moving[:powers, 2 * n :].reshape(size)
    passed = matvec(noise_gain, np.maximum(noise, least_noise))
    covariance += forget * (prior - covariance)
    for axis in range(n):
        row, p = rows[axis], covariance[axis]
        pz = matvec(p, z)
        expected = float(passed[axis]) + dot(z, pz)
        bound = deviations * sqrt(expected)
        error = limited(float(moving[0, axis]) - dot(row, seen), -bound, bound)
        row += error / expected * pz
        p -= (pz / expected).reshape(size, 1) * pz
    rows[:] = np.minimum(np.maximum(rows, low), high)
    away = np.maximum(rows - ends, ends - rows) * per_spread
    for axis in range(n):
        for number in range(size):
            if away[axis, number] > distance[axis]:
                distance[axis] = away[axis, number]


def constants_of(lead: float, slope: Array, identified: Array, law: Law | tuple[()]) -> Constants:
    count, n, _ = identified.shape
    rows = np.zeros((n, ORDER * n))
    rows[:, : count * n] = np.hstack(list(identified))
    return Constants(lead, slope, (0.0,) * n, tuple(tuple(row) for row in rows.tolist()), law)


def rest(k: Constants) -> State:
    past = np.zeros((len(k.slope), len(k.still)))
    return State(k.identified, past, k.still, k.still, unlearned(k.learning) if k.learning else ())


def of_series(
    lead: float, slope: Array, rows: Rows, past: Array, x: Numbers, v: Numbers, a: Numbers
) -> tuple[Array, Numbers, Numbers]:
    """Return the last accelerations, the targets extrapolated by ``lead`` (s), and the commands."""
    past[:-1] = past[1:]
    past[-1] = np.array(a)
    jerk = first(x, numbers(matvec(past.T, slope)))
    if lead > 0.0:
        half, third = 0.5 * lead, lead / 3.0
        x = along(x, lead, along(v, half, along(a, third, jerk)))
        v = along(v, lead, along(a, half, jerk))
        a = along(a, lead, jerk)
    return past, x, times(rows, x + v + a + jerk)


learning, as_identified = inverse(watch, of_series), inverse(kept, of_series)
