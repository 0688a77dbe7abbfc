# SPDX-License-Identifier: Apache-2.0
"""Growing motions of a linear loop, and the values of a parameter at which one begins to grow.

Parameters as in ``characteristic`` of the loops: a gain on the tested forces, a further delay of every axis, and a
ratio, a factor on all natural frequencies of the structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from rths_nodes.analysis.stability.continuous_loop import ContinuousLoop
from rths_nodes.analysis.stability.sampled_loop import MARGINAL, SampledLoop
from rths_nodes.analysis.stability.turns import HZ, ROUNDS, turn
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.samples import ROUNDING, Array

Loop = ContinuousLoop | SampledLoop

PER_DECADE = 400
"""Frequencies of the search for crossings."""
COUNTED_PER_DECADE = 100
"""Frequencies of counting growing motions in discrete time, besides the rig's."""
LOWEST = 1e-3
"""Share of the lowest natural frequency at which a sweep begins."""
LEAST_GAIN = 1e-4
"""Least factor on the tested forces, above the poles of an undamped structure."""
BESIDE = 1e-6
"""Relative distance from a pole at which a loop is evaluated."""
ROUGH = 1e-6
"""Relative move of a root below which Newton's iteration converges quadratically, up to rounding."""
NEAR = 0.2
"""Largest relative move of a root in one iteration."""


@dataclass(frozen=True)
class Crossing:
    """Value of a parameter at which a motion of ``frequency`` (Hz) neither grows nor decays.

    ``growing``: it grows with the value; ``roots``: two for a conjugate pair.
    """

    value: float
    frequency: float
    growing: bool
    roots: int = 2


def follow(loop: Loop, motion: complex, parameter: str, values: Array, **state: float) -> Complex:
    """Follow a root (rad/s) of the loop while ``parameter`` (gain, delay, ratio) takes ``values`` in turn."""
    path = []
    for value in values.tolist():
        motion = settle(loop, motion, **{parameter: value}, **state)
        path.append(motion)
    return np.array(path)


def settle(loop: Loop, motion: complex, **state: float) -> complex:
    """Return the root of the loop near ``motion`` (rad/s) by Newton's iteration, up to rounding."""
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
    """Return the alias of ``motion`` (rad/s) at the steps of a sampled loop."""
    if not loop.sampled:
        return motion
    turn = 2.0 * loop.highest
    return complex(motion.real, (motion.imag + loop.highest) % turn - loop.highest)


def growing_motions(loop: Loop, frequencies: Iterable[float] = (), **state: float) -> int:
    """Return the number of roots with positive real part, in continuous time up to the servo's Nyquist frequency.

    Argument principle; a conjugate pair counts twice. ``frequencies`` (rad/s) are resolved closely; ``state``:
    gain, delay, ratio. Raises ConfigError if the turns cannot be resolved.
    """
    ratio = state.get("ratio", 1.0)

    def function(s: Frequencies) -> Complex:
        return loop.characteristic(s, **state)

    low = MARGINAL * loop.scale
    if isinstance(loop, SampledLoop):  # half of the unit circle; there is nothing beyond it
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
    """Return a logarithmic sweep (rad/s) up to ``top``, with ``frequencies`` inserted.

    Motions of the numerical substructure lie between two of them: without damping they are poles.
    """
    top = top or loop.highest
    numerical = np.sqrt(np.abs(np.linalg.eigvals(np.linalg.solve(loop.whole.mass, loop.whole.stiffness))))
    places = [*frequencies, *(numerical * (1.0 - BESIDE)).tolist(), *(numerical * (1.0 + BESIDE)).tolist()]
    inside = [omega for omega in places if LOWEST * loop.scale < omega < top]
    lowest = LOWEST * min(inside, default=loop.scale)
    even = np.geomspace(lowest, top, max(2, math.ceil(per_decade * math.log10(top / lowest))))
    return np.unique(np.concatenate([even, inside]))


def delays(loop: Loop, grid: Array, shorter: float) -> list[Crossing]:
    """Return further delays (s), from ``-shorter`` on, at which an eigenvalue of the open loop is -1."""
    crossings = []
    for omega, value, slope in _zeros(_open(loop), lambda values: np.abs(values) - 1.0, grid):
        period = HZ * loop.time_ratio / omega
        least = float(np.angle(-value)) / omega * loop.time_ratio
        growing = (slope / value).real < 0.0  # a lag destabilises where the magnitude falls
        first = math.ceil((-shorter * (1.0 + ROUNDING) - least) / period)
        for periods in range(first, max(first, 1) + 1):
            crossings.append(Crossing(least + periods * period, omega / HZ, growing))
    return crossings


def _open(loop: Loop) -> Callable[[Array], Complex]:
    return lambda omega: np.asarray(np.linalg.eigvals(loop.open_loop(loop.border + 1j * omega)), complex)


def gains(loop: Loop, grid: Array) -> list[Crossing]:
    """Return factors on the tested forces at which an eigenvalue of the open loop is -1."""
    zeros = _zeros(_open(loop), lambda values: values.imag, grid)
    return [
        Crossing(-1.0 / value.real, omega / HZ, (-1j * value / slope).real > 0.0)
        for omega, value, slope in zeros
        if -1.0 / LEAST_GAIN < value.real < 0.0
    ]


def ratios(loop: ContinuousLoop, grid: Array) -> list[Crossing]:
    """Return factors on all natural frequencies at which a motion with the rig's response is undamped."""
    least = MARGINAL * loop.scale

    def damping(motions: Complex) -> Array:
        return np.where(motions.imag > least, -motions.real, 1.0)

    crossings = []
    for omega, motion, slope in _zeros(lambda w: loop.states(loop.rig(w / loop.time_ratio)), damping, grid):
        rounding = abs(slope.real) * omega < MARGINAL * abs(motion)  # changes its sign by rounding only
        if abs(motion.real) < MARGINAL * motion.imag and not rounding:
            ratio = omega / motion.imag
            growing = (slope / (1.0 + 1j * slope * ratio)).real > 0.0
            crossings.append(Crossing(ratio, motion.imag / HZ, growing))
    return crossings


def _zeros(
    function: Callable[[Array], Complex], measure: Callable[[Complex], Array], grid: Array
) -> list[tuple[float, complex, complex]]:
    """Return place, value and slope of sign changes of ``measure`` of ``function``, ``(n, m)`` on the ``grid``."""
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
    """Permute the rows ``(n, m)`` for continuous columns."""
    tracked = values.copy()
    if values.shape[1] == 1:
        return tracked
    for row in range(1, len(tracked)):
        before, after = tracked[row - 1][:, None], values[row][None, :]
        distance = np.abs(after - before) / (np.abs(after) + np.abs(before) + 1e-300)
        tracked[row] = values[row][linear_sum_assignment(distance)[1]]
    return tracked
