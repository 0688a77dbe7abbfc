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
the correction is left. Here stands the text for one axis, in floats; ``coupled_inverse.py`` has it in arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rths_nodes.control.compensators.derivative_filter import (
    KNOWN,
    ORDER,
    DerivativeFilter,
    Five,
    Four,
    added,
)
from rths_nodes.core.arithmetic import sqrt
from rths_nodes.core.samples import Array

FADED = 8.0
"""Periods of the cut-off frequency after which the filter has forgotten."""

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


class Law(NamedTuple):
    """The law in arrays. Derivatives count in powers of the cut-off frequency, so that all are of one size.

    A row of coefficients for each axis ``(n_axes, m)``, m = derivatives times axes: for each derivative those of
    all axes.
    """

    block: Array
    """Of the filter, ``(4, 5 + decimation)``."""
    units: Array
    """``(m,)``: a coefficient is its number over this."""
    first: Array
    """As identified."""
    spread: Array
    """Standard deviations of what was identified."""
    reach: Array
    """How far a coefficient may go."""
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


def law_of(settings: Settings, identified: Array, dt: float) -> Law:
    """Of coefficients as ``identified``, ``(order + 1, n_axes, n_axes)``; ``dt`` is the servo period in s."""
    count, n, _ = identified.shape
    every, cutoff = settings.decimation, settings.cutoff_frequency
    low_pass = DerivativeFilter(cutoff, dt)
    units = low_pass.frequency ** np.arange(count)[:, None, None]

    def rows_of(coefficients: Array) -> Array:
        return np.ascontiguousarray((coefficients * units).transpose(1, 0, 2).reshape(n, -1))

    first = rows_of(identified)
    sizes = np.abs(identified).max(axis=2, keepdims=True)  # of the axis' own motion, as a rule
    share = np.array(settings.relative_deviation[:count])[:, None, None]
    spread = rows_of(share * np.broadcast_to(sizes, identified.shape))
    dependent = max(1.0, 1.0 / (every * dt) / (2.0 * cutoff))
    return Law(
        block=low_pass.matrix(every),
        units=np.repeat(units.ravel(), n),
        first=first,
        spread=spread,
        reach=settings.deviations * spread,
        prior=np.array([np.diag(row**2) for row in spread]),
        forget=min(1.0, every * dt / settings.memory),
        noise_gain=dependent * _noise_passed(low_pass, first.reshape(n, count, n), dt),
        least_noise=settings.displacement_noise_rms**2,
        deviations=settings.deviations,
        settling=-(-round(1.0 / (cutoff * dt)) // every),
    )


def _noise_passed(low_pass: DerivativeFilter, rows: Array, dt: float) -> Array:
    """Variance of e of each axis per variance of white noise in each measured displacement, ``(n, n)``."""
    impulse = np.zeros((round(FADED / (low_pass.frequency / (2.0 * np.pi) * dt)), 1))
    impulse[0] = 1.0
    seen = low_pass.states(impulse)[:, : rows.shape[1], 0]
    passed: Array = np.square(np.einsum("kp,rpc->krc", seen, rows)).sum(axis=0)
    return passed


# One axis


Covariance = tuple[float, float, float, float, float, float, float, float, float, float]
"""P by its upper triangle, row by row."""


class Correction(NamedTuple):
    """The law of one axis in numbers; four coefficients, of which those beyond the order are nothing."""

    forget: float
    prior: Four
    """Diagonal of P_0."""
    noise_gain: float
    """R per sum of the third differences squared in a block."""
    least_noise: float
    """The least of these sums."""
    deviations: float
    low: Four
    high: Four
    """Ends of the ranges."""
    first: Four
    per_spread: Four
    """1 over the standard deviation; 0 of a coefficient that has none."""
    units: Four
    settling: int


class Constants(NamedTuple):
    """What each sample needs, and what the others do."""

    inputs: Any
    known: Any
    """Columns of the filter's block."""
    last: int
    """Place of the last sample of a block."""
    correction: Correction


class Knowledge(NamedTuple):
    """What changes once in a block."""

    row: Four
    covariance: Covariance
    faded: Covariance
    """P led back to P_0, for the next correction."""
    command: Five
    measured: Five
    target: Five
    """Filtered at the end of the last block, and the last input; in the first block its sum so far, in front."""
    means: tuple[float, Four, Four]
    """Of the filtered signals."""
    noise: float
    """Sum of the third differences squared in a block, on the mean."""
    learned: int
    resting: int
    distance: float
    """Farthest that a coefficient has gone from what was identified, in standard deviations."""


class Watched(NamedTuple):
    """What changes with every sample."""

    place: int
    """Of the last sample in its block; -1 behind the last one, -2 before the first of all."""
    begun: bool
    """The first block is over."""
    command: Four
    measured: Four
    target: Four
    """What is known of the filtered signals at the end of the block."""
    before: float
    earlier: float
    first: float
    """The last three measurements."""
    squares: float
    """Sum of the third differences squared."""
    knowledge: Knowledge


NOTHING = (0.0, 0.0, 0.0, 0.0)


def constants_of(law: Law, settings: Settings, dt: float) -> Constants:
    """``law`` of one axis in numbers."""
    every = settings.decimation
    block = DerivativeFilter(settings.cutoff_frequency, dt).block(every)
    first, spread, reach = law.first[0], law.spread[0], law.reach[0]
    per_square = 1.0 / (every * OF_DIFFERENCES)
    correction = Correction(
        forget=law.forget,
        prior=four(np.diagonal(law.prior[0])),
        noise_gain=float(law.noise_gain[0, 0]) * per_square,
        least_noise=law.least_noise / per_square,
        deviations=law.deviations,
        low=four(first - reach),
        high=four(first + reach),
        first=four(first),
        per_spread=four(np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0)),
        units=four(law.units, 1.0),
        settling=law.settling,
    )
    return Constants(block.inputs, block.known, every - 1, correction)


def four(values: Array, missing: float = 0.0) -> Four:
    """``values`` and behind them what is ``missing`` of four."""
    a, b, c, d = values.tolist() + [missing] * (ORDER - len(values))
    return a, b, c, d


def rest(k: Constants) -> Watched:
    """As identified, the signals at rest before."""
    a, b, c, d = k.correction.prior
    covariance = (a, 0.0, 0.0, 0.0, b, 0.0, 0.0, c, 0.0, d)
    still = (0.0, *NOTHING)
    row = k.correction.first
    known = Knowledge(row, covariance, covariance, still, still, still, (0.0, NOTHING, NOTHING), 0.0, 0, 0, 0.0)
    return Watched(-2, False, NOTHING, NOTHING, NOTHING, 0.0, 0.0, 0.0, 0.0, known)


def watch(k: Constants, s: Any, coefficients: Four, u: float, m: float, d: float, rests: bool) -> tuple[Any, Four]:
    """The next sample's command, measured displacement and target (m); after the last of a block, learn."""
    inputs, known, last, correction = k
    place, begun, command, measured, target, before, earlier, first, squares, knowledge = s
    if place < -1:  # at rest before, at whatever the sensor shows there
        before = earlier = first = m
        place = -1
    place += 1
    column = inputs[place]
    command, measured, target = added(command, column, u), added(measured, column, m), added(target, column, d)
    third = m - first + 3.0 * (earlier - before)
    squares += third * third
    if rests or not begun:
        knowledge = remembered(knowledge, begun, rests, correction, u, m, d)
    if begun and (place < KNOWN or place == last):
        _, _, _, of_command, of_measured, of_target, _, _, _, _, _ = knowledge
        for index in range(place, KNOWN if place == last else place + 1):
            column = known[index]
            command = added(command, column, of_command[index])
            measured = added(measured, column, of_measured[index])
            target = added(target, column, of_target[index])
    if place == KNOWN or (place == last and last < KNOWN):
        knowledge = led_back(knowledge, correction)
    if place < last:
        return (place, begun, command, measured, target, m, before, earlier, squares, knowledge), coefficients
    if not begun:
        command, measured, target = at_rest_before(known, last, knowledge, command, measured, target)
    signals = with_input(command, u), with_input(measured, m), with_input(target, d)
    knowledge, coefficients = learned(correction, knowledge, coefficients, signals, squares)
    return (-1, True, NOTHING, NOTHING, NOTHING, m, before, earlier, 0.0, knowledge), coefficients


def remembered(s: Any, begun: bool, rests: bool, k: Correction, u: float, m: float, d: float) -> tuple[Any, ...]:
    """In the first block, its sums; behind a bridged sample, that what it left in the filter teaches nothing."""
    row, covariance, faded, command, measured, target, means, noise, count, resting, distance = s
    if not begun:
        command = (command[0] + u, 0.0, 0.0, 0.0, 0.0)
        measured = (measured[0] + m, 0.0, 0.0, 0.0, 0.0)
        target = (target[0] + d, 0.0, 0.0, 0.0, 0.0)
    if rests:
        _, _, _, _, _, _, _, _, _, _, settling = k
        resting = settling + 1
    return row, covariance, faded, command, measured, target, means, noise, count, resting, distance


def at_rest_before(
    known: Any, last: int, s: Knowledge, command: Four, measured: Four, target: Four
) -> tuple[Four, Four, Four]:
    """The filtered signals, which stood at the means of their first block before it."""
    _, _, _, of_command, of_measured, of_target, _, _, _, _, _ = s
    share = 1.0 / (last + 1)
    for index in (0, KNOWN - 1):
        column = known[index]
        command = added(command, column, share * of_command[0])
        measured = added(measured, column, share * of_measured[0])
        target = added(target, column, share * of_target[0])
    return command, measured, target


def led_back(s: Any, k: Correction) -> tuple[Any, ...]:
    """P + delta (P_0 - P), ahead of the correction."""
    row, covariance, _, command, measured, target, means, noise, count, resting, distance = s
    delta, (a, b, c, d), _, _, _, _, _, _, _, _, _ = k
    aa, ab, ac, ad, bb, bc, bd, cc, cd, dd = covariance
    faded = (
        aa + delta * (a - aa),
        ab - delta * ab,
        ac - delta * ac,
        ad - delta * ad,
        bb + delta * (b - bb),
        bc - delta * bc,
        bd - delta * bd,
        cc + delta * (c - cc),
        cd - delta * cd,
        dd + delta * (d - dd),
    )
    return row, covariance, faded, command, measured, target, means, noise, count, resting, distance


def learned(
    k: Correction, s: Knowledge, coefficients: Four, signals: tuple[Five, Five, Five], squares: float
) -> tuple[Any, Four]:
    """At the end of a block: means, noise and one step of the recursion."""
    row, covariance, faded, _, _, _, means, noise, count, resting, distance = s
    of_command, of_measured, of_target = means
    command, measured, target = signals
    if resting:
        return with_signals(s, signals, resting - 1), coefficients
    count += 1
    forget, _, noise_gain, least_noise, deviations, low, high, first, per_spread, units, _ = k
    share = max(forget, 1.0 / count)  # of all samples so far, until the memory is full
    of_command += share * (command[0] - of_command)
    of_measured, seen = without_mean(of_measured, measured, share)
    of_target, instrument = without_mean(of_target, target, share)
    noise += share * (squares - noise)
    variance = noise_gain * max(noise, least_noise)
    row, covariance = corrected(row, faded, command[0] - of_command, seen, instrument, variance, deviations)
    row = within(row, low, high)
    distance = max(distance, farthest(row, first, per_spread))
    a, b, c, d = row
    e, f, g, h = units
    means = (of_command, of_measured, of_target)
    known = (row, covariance, faded, command, measured, target, means, noise, count, resting, distance)
    return known, (a / e, b / f, c / g, d / h)


def with_signals(s: Knowledge, signals: tuple[Five, Five, Five], resting: int) -> tuple[Any, ...]:
    """What is known where the ``signals`` teach nothing."""
    row, covariance, faded, _, _, _, means, noise, count, _, distance = s
    command, measured, target = signals
    return row, covariance, faded, command, measured, target, means, noise, count, resting, distance


def with_input(states: Four, value: float) -> Five:
    """The filtered signal, and the last input."""
    a, b, c, d = states
    return a, b, c, d, value


def without_mean(mean: Four, filtered: Five, share: float) -> tuple[Four, Four]:
    """``mean`` with its ``share`` of what was ``filtered``, and the rest of that."""
    a, b, c, d = mean
    p, q, r, s, _ = filtered
    a += share * (p - a)
    b += share * (q - b)
    c += share * (r - c)
    d += share * (s - d)
    return (a, b, c, d), (p - a, q - b, r - c, s - d)


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
    """``row`` within its ranges."""
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


def blocks(s: Watched) -> int:
    """Blocks that were learned from."""
    _, _, _, _, _, _, _, _, _, (*_, count, _, _) = s
    return count


def deviations_of(s: Knowledge, units: Four) -> Four:
    """Standard deviations of the coefficients."""
    aa, _, _, _, bb, _, _, cc, _, dd = s.covariance
    e, f, g, h = units
    return sqrt(max(aa, 0.0)) / e, sqrt(max(bb, 0.0)) / f, sqrt(max(cc, 0.0)) / g, sqrt(max(dd, 0.0)) / h
