"""The identified inverse of several axes: its command, and the law of ``instrument.py``, in arrays in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rths_nodes.control.compensators.derivative_filter import KNOWN, ORDER
from rths_nodes.control.compensators.instrument import OF_DIFFERENCES, Law
from rths_nodes.core.arithmetic import dot, matvec, sqrt
from rths_nodes.core.samples import Array

TAIL = 3
"""Measurements that their third difference needs beside the newest."""


class Correction(NamedTuple):
    """The law, and the columns ``(5 + decimation, 4, 1)`` of the filter's block: the known ones, then inputs."""

    columns: Array
    units: Array
    first: Array
    low: Array
    high: Array
    prior: Array
    forget: float
    noise_gain: Array
    least_noise: float
    deviations: float
    settling: int
    per_spread: Array
    powers: int
    """Coefficients of each axis of each axis' motion."""


class Watched(NamedTuple):
    """``signals`` are commands, measured displacements and targets, 3 n numbers."""

    place: int
    """Of the last sample in its block; -1 behind the last one."""
    coming: Array
    """``(4, 3 n)``: what is known of the filtered signals at the end of the block."""
    known: Array
    """``(5, 3 n)``: filtered at the end of the last block, and the last signals."""
    mean: Array
    """Means of the filtered signals; of the first block the sum of the signals so far, in front."""
    tail: Array
    """The last three measurements, the newest first."""
    squares: Array
    """Sum of the third differences squared."""
    noise: Array
    """Its mean."""
    rows: Array
    covariance: Array
    faded: Array
    """P led back to P_0, for the next correction."""
    distance: Array
    learned: int
    """Blocks learned from; -1 in the first of all."""
    resting: int


def correction_of(law: Law) -> Correction:
    """``law`` with the sums of its blocks in place of means."""
    columns = np.ascontiguousarray(law.block.T)[:, :, None]
    per_square = 1.0 / ((len(columns) - KNOWN) * OF_DIFFERENCES)
    return Correction(
        columns=columns,
        units=law.units,
        first=law.first,
        low=law.first - law.reach,
        high=law.first + law.reach,
        prior=law.prior,
        forget=law.forget,
        noise_gain=law.noise_gain * per_square,
        least_noise=law.least_noise / per_square,
        deviations=law.deviations,
        settling=law.settling,
        per_spread=np.divide(1.0, law.spread, out=np.zeros_like(law.spread), where=law.spread > 0.0),
        powers=law.first.shape[1] // len(law.first),
    )


def unlearned(k: Correction) -> Watched:
    """As identified, the signals at rest before."""
    n = len(k.first)
    signals = [np.zeros((rows, 3 * n)) for rows in (ORDER, KNOWN, ORDER)]
    noise = [np.zeros((TAIL, n)), np.zeros(n), np.zeros(n)]
    knowledge = k.first.copy(), k.prior.copy(), k.prior.copy(), np.zeros(n)
    found: Any = (-1, *signals, *noise, *knowledge, -1, 0)
    return Watched(*found)


def blocks(s: Watched) -> int:
    """Blocks that were learned from."""
    return s[-2]


def watch(k: Correction, s: Watched, signals: Array, rests: bool) -> tuple[Any, bool]:
    """The next sample's ``signals``, m; True where something was learned."""
    columns, _, _, _, _, prior, forget, _, _, _, settling, _, _ = k
    place, coming, known, mean, tail, squares, noise, rows, covariance, faded, distance, count, resting = s
    n, last = len(rows), len(columns) - KNOWN - 1
    measured = signals[n : 2 * n]
    if place < 0:
        coming[:] = 0.0
        squares[:] = 0.0
        if count < 0:  # at rest before, at whatever the sensors show there
            tail[:] = measured
    place += 1
    coming += columns[KNOWN + place] * signals
    third = measured - tail[2] + 3.0 * (tail[1] - tail[0])
    squares += third * third
    tail[2] = tail[1]
    tail[1] = tail[0]
    tail[0] = measured
    if rests:
        resting = settling + 1
    if count < 0:
        mean[0] += signals
    else:
        for index in range(place, KNOWN if place == last else place + 1):
            if index < KNOWN:
                coming += columns[index] * known[index]
    if place == KNOWN or (place == last and last < KNOWN):
        faded[:] = covariance + forget * (prior - covariance)
    learns = False
    if place == last:
        if count < 0:
            mean[0] *= 1.0 / (last + 1)
            coming += (columns[0] + columns[KNOWN - 1]) * mean[0]
            mean[:] = 0.0
            count = 0
        known[:ORDER] = coming
        known[ORDER] = signals
        learns = resting == 0
        if learns:
            count += 1
            learn(k, s, count)
        else:
            resting -= 1
        place = -1
    arrays = coming, known, mean, tail, squares, noise, rows, covariance, faded, distance
    return (place, *arrays, count, resting), learns


def learn(k: Correction, s: Watched, count: int) -> None:
    """At the end of block ``count``: means, noise and one step of the recursion."""
    _, _, first, low, high, _, forget, noise_gain, least_noise, deviations, _, per_spread, powers = k
    _, coming, _, mean, _, squares, noise, rows, covariance, faded, distance, _, _ = s
    n, size = rows.shape
    share = max(forget, 1.0 / count)  # of all samples so far, until the memory is full
    mean += share * (coming - mean)
    noise += share * (squares - noise)
    moving = coming - mean
    seen, z = moving[:powers, n : 2 * n].copy().reshape(size), moving[:powers, 2 * n :].copy().reshape(size)
    variance = matvec(noise_gain, np.maximum(noise, least_noise))
    covariance[:] = faded
    for axis in range(n):
        row, p = rows[axis], covariance[axis]
        pz = matvec(p, z)
        expected = float(variance[axis]) + dot(z, pz)
        bound = deviations * sqrt(expected)
        error = float(moving[0, axis]) - dot(row, seen)
        if error < -bound:
            error = -bound
        if error > bound:
            error = bound
        row += error / expected * pz
        p -= (pz / expected).reshape(size, 1) * pz
    rows[:] = np.minimum(np.maximum(rows, low), high)
    away = np.maximum(rows - first, first - rows) * per_spread
    for axis in range(n):
        for place in range(size):
            if away[axis, place] > distance[axis]:
                distance[axis] = away[axis, place]


class Constants(NamedTuple):
    """What the command is made of, and how it is learned."""

    lead: float
    """s."""
    slope: Array
    """Weights of the last accelerations, the oldest first: the third derivative."""
    identified: Array
    """A row for each axis: for each derivative the coefficients of all axes."""
    learning: Any
    """Nothing where it does not learn."""


class State(NamedTuple):
    """All axes."""

    matrix: Array
    """The coefficients."""
    past: Array
    """Accelerations ``(samples, n_axes)``, m/s^2, the oldest first."""
    motion: Array
    """Displacement to third derivative of all axes."""
    signals: Array
    """Commands, measured displacements and targets, m."""
    watched: Any


def constants_of(lead: float, slope: Array, identified: Array, law: Any) -> Constants:
    """Of coefficients ``(order + 1, n_axes, n_axes)``."""
    return Constants(lead, slope, np.hstack(list(identified)), correction_of(law) if law else ())


def rest(k: Constants) -> State:
    """At rest at zero, with the coefficients as identified."""
    n = len(k.identified)
    past = np.zeros((len(k.slope), n))
    learning = unlearned(k.learning) if k.learning else ()
    return State(k.identified.copy(), past, np.zeros((ORDER) * n), np.zeros(3 * n), learning)


def of_series(k: Constants, s: Any, x: Array, v: Array, a: Array) -> Array:
    """The commands, m: the sum of the derivatives of the target, read ahead."""
    lead, slope, _, _ = k
    matrix, past, motion, signals, _ = s
    n, size = matrix.shape
    past[:-1] = past[1:]
    past[-1] = a
    jerk = matvec(past.T, slope)
    if lead > 0.0:
        half, third = 0.5 * lead, lead / 3.0
        x = x + lead * (v + half * (a + third * jerk))
        v = v + lead * (a + half * jerk)
        a = a + lead * jerk
    motion[:n] = x
    motion[n : 2 * n] = v
    motion[2 * n : 3 * n] = a
    motion[3 * n :] = jerk
    commands = matvec(matrix, motion[:size])
    signals[:n] = commands
    signals[2 * n :] = x
    return commands


def learning(
    k: Constants,
    s: State,
    x: Array,
    v: Array,
    a: Array,
    measured: Array,
    force: Array,
    rests: bool,
    preparing: bool,
) -> tuple[Any, Array]:
    """The measurements belong to the commands and the targets of the last sample."""
    _, _, _, law = k
    matrix, past, motion, signals, known = s
    signals[len(matrix) : 2 * len(matrix)] = measured
    known, learns = watch(law, known, signals, rests)
    if learns:
        matrix[:] = known[7] / law[1]
    s_now = (matrix, past, motion, signals, known)
    return s_now, of_series(k, s_now, x, v, a)


def as_identified(
    k: Constants,
    s: State,
    x: Array,
    v: Array,
    a: Array,
    measured: Array,
    force: Array,
    rests: bool,
    preparing: bool,
) -> tuple[Any, Array]:
    """The same without learning."""
    matrix, past, motion, signals, known = s
    return (matrix, past, motion, signals, known), of_series(k, s, x, v, a)
