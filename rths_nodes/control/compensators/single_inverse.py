# SPDX-License-Identifier: Apache-2.0
"""Identified inverse of one axis: the law of ``coupled_inverse.py``, computed with floats instead of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rths_nodes.control.compensators.coupled_inverse import OF_DIFFERENCES, Constants, Law, State, inverse, kept
from rths_nodes.control.compensators.derivative_filter import KNOWN, ORDER, Columns, Five, Four, block_of, limited
from rths_nodes.core.arithmetic import Numbers, dot, first, sqrt
from rths_nodes.core.samples import Array

Covariance = tuple[float, float, float, float, float, float, float, float, float, float]
"""Upper triangle of the covariance P of four coefficients, row by row."""
Knowledge = tuple[
    Four, Covariance, Covariance, tuple[Five, Five, Five], tuple[float, Four, Four], float, int, int, float
]
"""Part of the learning state that changes once per block.

- Coefficients, their covariance P, and P moved towards the identified covariance for the next correction.
- Command, measured displacement and target, filtered at the end of the last block, each with its last input. In
  the first block the first number of each signal is the sum of its inputs.
- Means of the filtered signals, and mean sum of squared third differences in a block.
- Number of blocks used for learning, number of blocks until learning resumes, and largest distance from the
  identified coefficients, in standard deviations."""
Correction = tuple[float, Four, float, float, float, Four, Four, Four, Four, Four, NDArray[np.int64]]
"""Constants of ``Law`` as numbers. Each tuple has four elements; unused elements are 0, and unused units are 1.

In order: ``forget``; diagonal of ``prior``; ``noise_gain`` per sum of squared third differences in a block; the
smallest such sum; ``deviations``; lower, upper and identified coefficients; their reciprocal standard deviations;
their units; and the memory of the filter in blocks."""
Learning = tuple[Columns, Columns, int, Correction]
"""Contributions of inputs and of earlier values to the filter's states after a block, index of the last sample of
a block, and correction."""
NOTHING = (0.0, 0.0, 0.0, 0.0)
AT_REST = (NOTHING, NOTHING, NOTHING)


Watched = tuple[int, bool, tuple[Four, Four, Four], float, float, float, float, Knowledge]
"""Index of the last sample in its block, -1 after the end of a block and -2 before the first sample; True after
the first block; contributions of past samples to the filtered signals at the end of the block; the last three
measurements, newest first; sum of squared third differences; knowledge."""


def correction_of(law: Law) -> Correction:
    per_square = 1.0 / ((law.block.shape[1] - KNOWN) * OF_DIFFERENCES)
    prior, noise_gain = four(np.diagonal(law.prior[0])), float(law.noise_gain[0, 0]) * per_square
    low, high, first, per_spread = (four(bound[0]) for bound in (law.low, law.high, law.first, law.per_spread))
    noise, ends = (noise_gain, law.least_noise / per_square, law.deviations), (low, high, first, per_spread)
    return law.forget, prior, *noise, *ends, four(law.units, 1.0), law.settling


def four(values: Array, missing: float = 0.0) -> Four:
    a, b, c, d = values.tolist() + [missing] * (ORDER - len(values))
    return a, b, c, d


def unlearned(k: Learning) -> Watched:
    _, _, _, (_, (a, b, c, d), _, _, _, _, _, first, _, _, _) = k
    covariance = (a, 0.0, 0.0, 0.0, b, 0.0, 0.0, c, 0.0, d)
    still, means = (0.0, *NOTHING), (0.0, NOTHING, NOTHING)
    knowledge = (first, covariance, covariance, (still, still, still), means, 0.0, 0, 0, 0.0)
    return -2, False, AT_REST, 0.0, 0.0, 0.0, 0.0, knowledge


def watch(
    k: Learning, s: Watched, coefficients: Four, u: float, m: float, d: float, rests: bool
) -> tuple[tuple[object, ...], Four]:
    """Update the coefficients once per block from command ``u``, displacement ``m`` and target ``d`` (m)."""
    inputs, columns, last, correction = k
    row, begun, signals, before, earlier, first, squares, knowledge = s
    if row < -1:  # until the test, the rig was at rest at the first measured position
        before = earlier = first = m
        row = -1
    row += 1
    signals = all_added(signals, inputs[row], u, m, d)
    third = m - first + 3.0 * (earlier - before)
    squares += third * third
    if rests or not begun:
        knowledge = remembered(knowledge, begun, rests, correction, u, m, d)
    if begun and (row < KNOWN or row == last):
        _, _, _, (command, measured, target), _, _, _, _, _ = knowledge
        for index in range(row, KNOWN if row == last else row + 1):
            signals = all_added(signals, columns[index], command[index], measured[index], target[index])
    if row == KNOWN or (row == last and last < KNOWN):
        knowledge = led_back(knowledge, correction)
    if row < last:
        return (row, begun, signals, m, before, earlier, squares, knowledge), coefficients
    if not begun:  # before the first block, assume that each signal equals its mean over that block
        _, _, _, (command, measured, target), _, _, _, _, _ = knowledge
        share = 1.0 / (last + 1)
        for index in (0, KNOWN - 1):
            signals = all_added(
                signals, columns[index], share * command[0], share * measured[0], share * target[0]
            )
    (a, b, c, e), (f, g, h, i), (p, q, r, t) = signals
    ends = (a, b, c, e, u), (f, g, h, i, m), (p, q, r, t, d)
    knowledge, coefficients = learned(correction, knowledge, coefficients, ends, squares)
    return (-1, True, AT_REST, m, before, earlier, 0.0, knowledge), coefficients


def all_added(
    s: tuple[Four, Four, Four], column: Sequence[float] | Array, u: float, m: float, d: float
) -> tuple[Four, Four, Four]:
    """Return the filtered signals plus the contributions of one command u, measurement m and target d."""
    k, n, o, y = column[0], column[1], column[2], column[3]
    (a, b, c, e), (f, g, h, i), (p, q, r, t) = s
    return (
        (a + k * u, b + n * u, c + o * u, e + y * u),
        (f + k * m, g + n * m, h + o * m, i + y * m),
        (p + k * d, q + n * d, r + o * d, t + y * d),
    )


def remembered(s: Knowledge, begun: bool, rests: bool, k: Correction, u: float, m: float, d: float) -> Knowledge:
    """Sum the signals of the first block (``begun`` false). Pause learning after a bridged sample (``rests``)."""
    row, covariance, faded, (command, measured, target), means, noise, count, resting, distance = s
    if not begun:
        command = (command[0] + u, 0.0, 0.0, 0.0, 0.0)
        measured = (measured[0] + m, 0.0, 0.0, 0.0, 0.0)
        target = (target[0] + d, 0.0, 0.0, 0.0, 0.0)
    if rests:
        _, _, _, _, _, _, _, _, _, _, settling = k
        resting = settling[0] + 1
    return row, covariance, faded, (command, measured, target), means, noise, count, resting, distance


def led_back(s: Knowledge, k: Correction) -> Knowledge:
    """Move the covariance towards the identified covariance before the next correction."""
    row, covariance, _, signals, means, noise, count, resting, distance = s
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
    return row, covariance, faded, signals, means, noise, count, resting, distance


def learned(
    k: Correction, s: Knowledge, coefficients: Four, signals: tuple[Five, Five, Five], squares: float
) -> tuple[Knowledge, Four]:
    """Update the means, noise, coefficients and covariance at the end of a block."""
    row, covariance, faded, _, means, noise, count, resting, distance = s
    if resting:
        return (row, covariance, faded, signals, means, noise, count, resting - 1, distance), coefficients
    of_command, of_measured, of_target = means
    command, measured, target = signals
    count += 1
    forget, _, noise_gain, least_noise, deviations, low, high, first, per_spread, units, _ = k
    share = max(forget, 1.0 / count)  # average of all samples until the memory is full
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
    knowledge = (row, covariance, faded, signals, means, noise, count, resting, distance)
    return knowledge, (a / e, b / f, c / g, d / h)


def without_mean(mean: Four, filtered: Five, share: float) -> tuple[Four, Four]:
    """Return ``mean`` updated by ``share`` of the deviation of ``filtered``, and the remaining deviation."""
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
    """Return ``row`` and ``covariance`` corrected by ``y`` (m); ``variance`` is R of ``coupled_inverse.py``."""
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
    gain = limited(y - (a * p + b * q + c * r + d * s), -bound, bound) / expected
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
    """Return the four coefficients, limited to their bounds."""
    a, b, c, d = row
    e, f, g, h = low
    p, q, r, s = high
    return limited(a, e, p), limited(b, f, q), limited(c, g, r), limited(d, h, s)


def farthest(row: Four, first: Four, per_spread: Four) -> float:
    """Return the largest distance of a coefficient from its identified value, in standard deviations."""
    a, b, c, d = row
    e, f, g, h = first
    p, q, r, s = per_spread
    return max(max(abs(a - e) * p, abs(b - f) * q), max(abs(c - g) * r, abs(d - h) * s))


def blocks(s: Watched) -> int:
    return s[-1][-3]


def shown_of(count: int, learns: bool) -> Callable[..., Numbers]:
    like = (0.0,) * count

    def identified(k: Constants, s: State) -> Numbers:
        coefficients, _, _, _, _ = s
        return first(like, coefficients)

    def shown(k: Constants, s: State) -> Numbers:
        """Return coefficients, their standard deviations, and the largest distance from identified values."""
        _, _, _, _, learning = k
        _, _, _, correction = learning
        _, _, _, _, _, _, _, _, _, units, _ = correction
        coefficients, _, _, _, watched = s
        _, _, _, _, _, _, _, knowledge = watched
        _, covariance, _, _, _, _, _, _, distance = knowledge
        return first(like, coefficients) + first(like, deviations_of(covariance, units)) + (distance,)

    return shown if learns else identified


def deviations_of(covariance: Covariance, units: Four) -> Four:
    """Return the standard deviations P_ii^0.5 / unit of the coefficients; ``units`` are scale factors."""
    aa, _, _, _, bb, _, _, cc, _, dd = covariance
    e, f, g, h = units
    return sqrt(max(aa, 0.0)) / e, sqrt(max(bb, 0.0)) / f, sqrt(max(cc, 0.0)) / g, sqrt(max(dd, 0.0)) / h


def constants_of(lead: float, slope: Array, identified: Array, law: Law | tuple[()]) -> Constants:
    learning: Learning | tuple[()] = ()
    if law:
        inputs, columns = block_of(law.block)
        learning = inputs, columns, len(inputs) - 1, correction_of(law)
    return Constants(lead, tuple(slope.tolist()), (), four(identified[:, 0, 0]), learning)


def rest(k: Constants) -> State:
    learning = unlearned(k.learning) if k.learning else ()
    return State(k.identified, (0.0,) * len(k.slope), 0.0, 0.0, learning)


def of_series(
    lead: float, slope: Sequence[float], coefficients: Four, past: Numbers, x: float, v: float, a: float
) -> tuple[Numbers, float, float]:
    """Return the last accelerations, the target extrapolated by ``lead`` (s), and the command."""
    past = past[1:] + (a,)
    jerk = dot(slope, past)
    if lead > 0.0:
        half, third = 0.5 * lead, lead / 3.0
        x += lead * (v + half * (a + third * jerk))
        v += lead * (a + half * jerk)
        a += lead * jerk
    c0, c1, c2, c3 = coefficients
    return past, x, c0 * x + c1 * v + c2 * a + c3 * jerk


learning, as_identified = inverse(watch, of_series), inverse(kept, of_series)
