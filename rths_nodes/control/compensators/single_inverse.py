"""The identified inverse of one axis: its command, and the law of ``instrument.py``, in floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.control.compensators.derivative_filter import KNOWN, ORDER, Five, Four, added, block_of
from rths_nodes.control.compensators.instrument import (
    OF_DIFFERENCES,
    Covariance,
    Law,
    corrected,
    farthest,
    within,
)
from rths_nodes.core.arithmetic import dot, sqrt
from rths_nodes.core.samples import Array


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


class Learning(NamedTuple):
    """What each sample needs, and what the last one of a block does."""

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


def correction_of(law: Law) -> Correction:
    """``law`` of one axis in numbers."""
    per_square = 1.0 / ((law.block.shape[1] - KNOWN) * OF_DIFFERENCES)
    return Correction(
        forget=law.forget,
        prior=four(np.diagonal(law.prior[0])),
        noise_gain=float(law.noise_gain[0, 0]) * per_square,
        least_noise=law.least_noise / per_square,
        deviations=law.deviations,
        low=four(law.low[0]),
        high=four(law.high[0]),
        first=four(law.first[0]),
        per_spread=four(law.per_spread[0]),
        units=four(law.units, 1.0),
        settling=law.settling,
    )


def four(values: Array, missing: float = 0.0) -> Four:
    """``values`` and behind them what is ``missing`` of four."""
    a, b, c, d = values.tolist() + [missing] * (ORDER - len(values))
    return a, b, c, d


def unlearned(k: Learning) -> Watched:
    """As identified, the signals at rest before."""
    a, b, c, d = k.correction.prior
    covariance = (a, 0.0, 0.0, 0.0, b, 0.0, 0.0, c, 0.0, d)
    still = (0.0, *NOTHING)
    row = k.correction.first
    known = Knowledge(row, covariance, covariance, still, still, still, (0.0, NOTHING, NOTHING), 0.0, 0, 0, 0.0)
    return Watched(-2, False, NOTHING, NOTHING, NOTHING, 0.0, 0.0, 0.0, 0.0, known)


def watch(k: Learning, s: Any, coefficients: Four, u: float, m: float, d: float, rests: bool) -> tuple[Any, Four]:
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


def blocks(s: Any) -> int:
    """Blocks that were learned from."""
    count: int = s[-1][-3]
    return count


def deviations_of(s: Knowledge, units: Four) -> Four:
    """Standard deviations of the coefficients."""
    aa, _, _, _, bb, _, _, cc, _, dd = s.covariance
    e, f, g, h = units
    return sqrt(max(aa, 0.0)) / e, sqrt(max(bb, 0.0)) / f, sqrt(max(cc, 0.0)) / g, sqrt(max(dd, 0.0)) / h


class Constants(NamedTuple):
    """What the command is made of, and how it is learned."""

    lead: float
    """s."""
    slope: Any
    """Weights of the last accelerations, the oldest first: the third derivative."""
    identified: Any
    learning: Any
    """Nothing where it does not learn."""


class State(NamedTuple):
    """One axis."""

    coefficients: Four
    past: tuple[float, ...]
    """Accelerations, m/s^2, the oldest first."""
    command: float
    target: float
    """Both of the last sample, m; the target read ahead."""
    watched: Any


def constants_of(lead: float, slope: Array, identified: Array, law: Any) -> Constants:
    """Of coefficients ``(order + 1, 1, 1)``."""
    learning: Any = ()
    if law:
        block = block_of(law.block)
        learning = Learning(block.inputs, block.known, len(block.inputs) - 1, correction_of(law))
    return Constants(lead, tuple(slope.tolist()), four(identified[:, 0, 0]), learning)


def rest(k: Constants) -> State:
    """At rest at zero, with the coefficients as identified."""
    learning = unlearned(k.learning) if k.learning else ()
    return State(k.identified, (0.0,) * len(k.slope), 0.0, 0.0, learning)


def of_series(
    lead: float, slope: Any, coefficients: Four, past: Any, x: float, v: float, a: float
) -> tuple[Any, float, float]:
    """Past accelerations, the target read ahead, and the command: the sum of the derivatives."""
    past = past[1:] + (a,)
    jerk = dot(slope, past)
    if lead > 0.0:
        half, third = 0.5 * lead, lead / 3.0
        x += lead * (v + half * (a + third * jerk))
        v += lead * (a + half * jerk)
        a += lead * jerk
    c0, c1, c2, c3 = coefficients
    return past, x, c0 * x + c1 * v + c2 * a + c3 * jerk


def inverse(watched_by: Callable[..., Any]) -> Callable[..., Any]:
    """The step whose coefficients are ``watched_by`` a law: by ``watch``, or ``kept`` as identified."""

    def step(
        k: Constants,
        s: State,
        x: float,
        v: float,
        a: float,
        measured: float,
        force: float,
        rests: bool,
        preparing: bool,
    ) -> tuple[Any, float]:
        lead, slope, _, law = k
        coefficients, past, command, target, watched = s
        # the measurement belongs to the command and the target of the last sample
        watched, coefficients = watched_by(law, watched, coefficients, command, measured, target, rests)
        past, target, command = of_series(lead, slope, coefficients, past, x, v, a)
        return (coefficients, past, command, target, watched), command

    return step


def kept(
    law: tuple[()], watched: tuple[()], coefficients: Four, u: float, m: float, d: float, rests: bool
) -> tuple[tuple[()], Four]:
    """As ``watch``, where nothing is learned."""
    return watched, coefficients


learning, as_identified = inverse(watch), inverse(kept)
