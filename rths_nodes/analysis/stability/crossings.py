# SPDX-License-Identifier: Apache-2.0
"""Unstable modes of a linear loop, and values of a parameter at which a mode becomes unstable.

The parameters are the arguments ``gain``, ``delay`` and ``ratio`` of ``characteristic``. In discrete time, only
the gain simply multiplies the frequency response. The limit of ``ratio``, a factor on the natural frequencies, is
found by counting unstable modes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, linear_sum_assignment

from rths_nodes.analysis.stability.loops import HZ, MARGINAL, ROUNDS, ContinuousLoop, SampledLoop, turn
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.samples import ROUNDING, Array

Loop = ContinuousLoop | SampledLoop
PER_DECADE = 400
COUNTED_PER_DECADE = 100
LOWEST = 1e-3
"""Fraction of the lowest natural frequency at which a sweep begins."""
LEAST_GAIN = 1e-4
"""Smallest scale factor of the tested forces in the search. It excludes the poles of an undamped structure."""
OFFSET = 1e-6
ROUGH = 1e-6
NEAR = 0.2
CORRECTED = (0.01, 0.03, 0.1, 0.3)
"""Largest correction of a delay limit, by attempt, as a phase angle of the motion, rad."""
FARTHEST = 16.0
"""Largest scale factor of the natural frequencies in the search. Its inverse is the smallest factor."""
STEP = 1.03
HALVINGS = 8
VERIFIED = 1e-3
ASIDE = 1e-4


@dataclass(frozen=True)
class Crossing:
    """Value of a parameter at which a motion of ``frequency`` (Hz) neither grows nor decays.

    ``growing`` is true if the growth rate increases with the value. ``roots`` is 2 for a conjugate pair.
    """

    value: float
    frequency: float
    growing: bool
    roots: int = 2


def follow(loop: Loop, motion: complex, parameter: str, values: Array, **state: float) -> Complex:
    """Follow the root ``motion`` (rad/s) along ``values`` of ``parameter``. Return the root for each value."""
    path = [motion]
    for value in values.tolist():
        path.append(settle(loop, path[-1], **{parameter: value}, **state))
    return np.array(path[1:])


def settle(loop: Loop, motion: complex, **state: float) -> complex:
    """Return the root of the loop near ``motion`` (rad/s), found by Newton's method up to rounding errors."""
    before = math.inf
    for _ in range(ROUNDS):
        h = 1e-6 * abs(motion)
        here, above, below = loop.characteristic(np.array([motion, motion + h, motion - h]), **state)
        slope = (above - below) / (2.0 * h)
        if not (np.isfinite(here) and slope):
            break
        move = complex(here / slope)
        motion -= move * min(1.0, NEAR * abs(motion) / (abs(move) or 1.0))
        size = abs(move) / (abs(motion) or 1.0)
        if size < loop.finest or (size < ROUGH and size > 0.5 * before):
            break
        before = size
    return motion


def folded(loop: Loop, motion: complex) -> complex:
    """Return the alias of ``motion`` (rad/s) below the Nyquist frequency of a sampled loop."""
    if not isinstance(loop, SampledLoop):
        return motion
    turn = 2.0 * loop.highest
    return complex(motion.real, (motion.imag + loop.highest) % turn - loop.highest)


def growing_motions(loop: Loop, frequencies: Iterable[float] = (), **state: float) -> int:
    """Return the number of unstable roots, including conjugates.

    In continuous time, only roots below the servo's Nyquist frequency are included. ``frequencies`` (rad/s) are
    additional points of the evaluated path. ``state`` may contain gain, delay and ratio. Raises ConfigError if the
    number cannot be determined.
    """
    ratio = state.get("ratio", 1.0)

    def function(s: Frequencies) -> Complex:
        return loop.characteristic(s, **state)

    low = MARGINAL * loop.scale
    if isinstance(loop, SampledLoop):  # half of the unit circle covers all frequencies
        top = loop.highest / ratio
        rig = loop.rig_grid(state.get("delay", 0.0)) / ratio
        grid = np.union1d(sweep(loop, frequencies, top, COUNTED_PER_DECADE), rig)
        return round(-turn(function, low + 1j * np.concatenate([[0.0], grid[grid <= top]])) / math.pi)
    top = loop.highest
    axis = low + 1j * np.concatenate([[0.0], sweep(loop, frequencies, top)])
    over = np.geomspace(low, top, PER_DECADE) + 1j * top
    down = top + 1j * np.concatenate([np.geomspace(top, LOWEST * loop.scale, 4 * PER_DECADE), [0.0]])
    return round(-sum(turn(function, path) for path in (axis, over, down)) / math.pi)


def sweep(loop: Loop, frequencies: Iterable[float] = (), top: float = 0.0, per_decade: int = PER_DECADE) -> Array:
    """Return a logarithmic sweep (rad/s) with ``frequencies``, up to ``top``, by default ``loop.highest``.

    The sweep includes values just below and above each undamped natural frequency of the numerical substructure.
    """
    top = top or loop.highest
    numerical = np.sqrt(np.abs(np.linalg.eigvals(np.linalg.solve(loop.whole.mass, loop.whole.stiffness))))
    places = [*frequencies, *(numerical * (1.0 - OFFSET)).tolist(), *(numerical * (1.0 + OFFSET)).tolist()]
    inside = [omega for omega in places if LOWEST * loop.scale < omega < top]
    lowest = LOWEST * min(inside, default=loop.scale)
    even = np.geomspace(lowest, top, max(2, math.ceil(per_decade * math.log10(top / lowest))))
    return np.unique(np.concatenate([even, inside]))


def delays(loop: Loop, grid: Array, shorter: float) -> list[Crossing]:
    """Return the additional delays (s), at least ``-shorter``, at which an eigenvalue of the open loop is -1.

    In discrete time, the factor e^{-s delay} is only approximate. Each delay is therefore corrected until the
    motion at its frequency neither grows nor decays.
    """
    crossings = []
    for omega, value, slope in _zeros(_open(loop), lambda values: np.abs(values) - 1.0, grid):
        period = HZ * loop.time_ratio / omega
        least = float(np.angle(-value)) / omega * loop.time_ratio
        growing = (slope / value).real < 0.0  # a lag destabilises if the magnitude decreases
        first = math.ceil((-shorter * (1.0 + ROUNDING) - least) / period)
        for periods in range(first, max(first, 1) + 1):
            crossings.append(Crossing(least + periods * period, omega / HZ, growing))
    if not isinstance(loop, SampledLoop):
        return crossings
    corrected = (
        _corrected(loop, "delay", one, [loop.time_ratio / (HZ * one.frequency) * angle for angle in CORRECTED])
        for one in crossings
    )
    return [one for one in corrected if one is not None and one.value >= -shorter]


def _open(loop: Loop) -> Callable[[Array], Complex]:
    return lambda omega: np.asarray(np.linalg.eigvals(loop.open_loop(loop.border + 1j * omega)), complex)


def gains(loop: Loop, grid: Array) -> list[Crossing]:
    """Return the scale factors of the tested forces at which an eigenvalue of the open loop is -1."""
    crossings = [
        Crossing(-1.0 / value.real, omega / HZ, (-1j * value / slope).real > 0.0)
        for omega, value, slope in _zeros(_open(loop), lambda values: values.imag, grid)
        if -1.0 / LEAST_GAIN < value.real < 0.0
    ]
    return [*crossings, *_gains_at_ends(loop)] if isinstance(loop, SampledLoop) else crossings


def _gains_at_ends(loop: SampledLoop) -> Iterator[Crossing]:
    slow = ASIDE * loop.scale  # a structure without stiffness has a pole at s = 0
    for omega in (0.0, loop.highest):
        values = np.linalg.eigvals(loop.open_loop(np.array([slow + 1j * omega])))[0]
        real = values[np.abs(values.imag) < MARGINAL * np.abs(values.real)].real
        real = real[(real < 0.0) & (real > -1.0 / LEAST_GAIN)]
        for gain in (-1.0 / real).tolist():
            below, above = (growing_motions(loop, gain=gain * (1.0 + side * ASIDE)) for side in (-1, 1))
            if below != above:
                yield Crossing(gain, omega / HZ, above > below, roots=1)


def ratios(loop: ContinuousLoop, grid: Array) -> list[Crossing]:
    """Return the factors on all natural frequencies at which a motion neither grows nor decays."""
    least = MARGINAL * loop.scale

    def damping(motions: Complex) -> Array:
        return np.where(motions.imag > least, -motions.real, 1.0)

    crossings = []
    for omega, motion, slope in _zeros(lambda w: loop.states(loop.rig(w / loop.time_ratio)), damping, grid):
        rounding = abs(slope.real) * omega < MARGINAL * abs(motion)  # the sign changes only because of rounding
        if abs(motion.real) < MARGINAL * motion.imag and not rounding:
            ratio = omega / motion.imag
            growing = (slope / (1.0 + 1j * slope * ratio)).real > 0.0
            crossings.append(Crossing(ratio, motion.imag / HZ, growing))
    return crossings


def _zeros(
    function: Callable[[Array], Complex], measure: Callable[[Complex], Array], grid: Array
) -> list[tuple[float, complex, complex]]:
    """Return argument, value and slope of an entry of ``function`` at each zero of ``measure(value)``."""
    tracks = _tracked(function(grid))
    signs = measure(tracks) > 0.0
    rows, columns = np.nonzero(signs[1:] != signs[:-1])
    if not len(rows):
        return []
    low, high = grid[rows], grid[rows + 1]
    at_low, at_high, sign = tracks[rows, columns], tracks[rows + 1, columns], signs[rows, columns]
    for _ in range(ROUNDS):
        middle = 0.5 * (low + high)
        value = _nearest(function(middle), 0.5 * (at_low + at_high))
        same = (measure(value) > 0.0) == sign
        low, at_low = np.where(same, middle, low), np.where(same, value, at_low)
        high, at_high = np.where(same, high, middle), np.where(same, at_high, value)
    h = 1e-6 * middle
    slope = (_nearest(function(middle + h), value) - _nearest(function(middle - h), value)) / (2.0 * h)
    return list(zip(middle.tolist(), value.tolist(), slope.tolist(), strict=True))


def _nearest(values: Complex, wanted: Complex) -> Complex:
    index = np.argmin(np.abs(values - wanted[:, None]), axis=1)
    return np.asarray(values[np.arange(len(values)), index])


def _tracked(values: Complex) -> Complex:
    """Permute the entries of each row ``(n, m)`` so that columns are continuous."""
    tracked = values.copy()
    for row in range(1, len(tracked) if values.shape[1] > 1 else 0):
        before, after = tracked[row - 1][:, None], values[row][None, :]
        distance = np.abs(after - before) / (np.abs(after) + np.abs(before) + 1e-300)
        tracked[row] = values[row][linear_sum_assignment(distance)[1]]
    return tracked


def _corrected(loop: SampledLoop, parameter: str, about: Crossing, widths: Iterable[float]) -> Crossing | None:
    """Return the limit of ``parameter`` near ``about``, or None. ``widths`` are half widths of the search."""
    border = loop.border
    start = complex(border, HZ * about.frequency)

    def motion(value: float) -> complex:
        return settle(loop, start, **{parameter: value})

    def growth(value: float) -> float:
        return (motion(value).real - border) / abs(start)

    for width in widths:
        low, high = about.value - width, about.value + width
        before, after = growth(low), growth(high)
        if before * after < 0.0:
            value = float(brentq(growth, low, high, xtol=1e-9 * width))
            return Crossing(value, motion(value).imag / HZ, after > before, about.roots)
    return None


def ratio_limit(loop: SampledLoop, frequencies: list[float], growing: int) -> list[Crossing]:
    """Return as a list the scale factor of all natural frequencies, nearest to 1, at which stability changes.

    The factor is above 1 for a stable loop, otherwise below 1. The list is empty if no such factor is found.
    """

    def stable(ratio: float) -> bool:
        return loop.reaches(ratio) and growing_motions(loop, frequencies, ratio=ratio) == 0

    near, factor = 1.0, 1.0 / STEP if growing else STEP
    while stable(near * factor) != bool(growing):
        near *= factor
        if not 1.0 / FARTHEST < near < FARTHEST:
            return []
    return [_between(loop, stable, *sorted((near, near * factor)))]


def verified(loop: SampledLoop, parameter: str, limit: Crossing | None, now: float) -> Crossing | None:
    """Return the ``limit`` of a stable loop, or a nearer limit that the search for crossings has missed."""
    if limit is None:
        return None

    def stable(value: float) -> bool:
        return growing_motions(loop, [HZ * limit.frequency], **{parameter: value}) == 0

    low, high = now, limit.value - VERIFIED * (limit.value - now)
    if stable(high):
        return limit
    low, high = _halved(stable, *_halved(stable, low, high))
    return Crossing(low, _marginal(loop, parameter, low) / HZ, growing=True)


def _marginal(loop: SampledLoop, parameter: str, value: float, top: float = 0.0) -> float:
    """Return the frequency (rad/s) at which the Newton step to a root is shortest relative to the frequency."""
    grid = sweep(loop, top=top)
    values = loop.characteristic(loop.border + 1j * grid, **{parameter: value})
    return float(grid[np.argmin(np.abs(values / (np.gradient(values, grid) * grid)))])


def _between(loop: SampledLoop, stable: Callable[[float], bool], low: float, high: float) -> Crossing:
    """Return the stability limit of the ratio, between ``low`` (stable) and ``high`` (unstable)."""
    low, high = _halved(stable, low, high)
    about = Crossing(low, _marginal(loop, "ratio", low, loop.highest / low) / HZ, growing=True)
    try:
        crossing = _corrected(loop, "ratio", about, [(high - low) * width for width in (1.0, 2.0, 8.0)])
    except ConfigError:  # the integrator allows no higher ratio
        crossing = None
    if crossing is not None and low * (1.0 - ROUNDING) <= crossing.value <= high * (1.0 + ROUNDING):
        return crossing
    low, high = _halved(stable, low, high)
    roots = growing_motions(loop, [HZ * about.frequency], ratio=high) if loop.reaches(high) else 1
    at_the_end = math.pi / (loop.period * loop.step * high) / HZ
    return Crossing(high, about.frequency if roots % 2 == 0 else at_the_end, growing=True, roots=roots)


def _halved(stable: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low, high
