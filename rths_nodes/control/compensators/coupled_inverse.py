# SPDX-License-Identifier: Apache-2.0
"""Identified inverse of several axes: computes commands and updates the coefficients, using arrays.

``recursive_iv.py`` describes the law of the updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.control.compensators.derivative_filter import KNOWN, ORDER, limited
from rths_nodes.control.compensators.recursive_iv import OF_DIFFERENCES, Constants, Law, State, inverse, kept
from rths_nodes.core.arithmetic import Numbers, along, dot, first, matvec, numbers, put, replaced, sqrt, times
from rths_nodes.core.samples import Array

TAIL = 3
"""Number of earlier measurements that the third differences of a block need."""
Rows = tuple[Numbers, ...]


class Watched(NamedTuple):
    """State of the learning, whose arrays change in place.

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
    """Write ``rows`` into ``terms`` from ``position`` on, ordered by derivative; return the next position."""
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
        """Return coefficients, standard deviations, and largest distance of each axis, in deviations."""
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
    """Return state and coefficients after a sample; the coefficients are updated at the end of a block."""
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
    """Advance the filter by a block; return the noise variance of the block's measurements, ``(n,)`` m^2."""
    block = k[0]
    _, rows, seen, _, noise, _, _, _, count, _ = s
    n, every = len(noise), len(rows) - KNOWN
    signals = rows[KNOWN:]
    seen[TAIL:] = signals[:, n : 2 * n]
    if count < 0:  # the rig was at rest before, at the first measured position
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
    """Update means, noise, coefficients and covariances by one step of the recursion in ``recursive_iv.py``."""
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
    """Return the past accelerations, the targets extrapolated by ``lead`` (s), and the commands."""
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
