# SPDX-License-Identifier: Apache-2.0
"""Limits of a loop in discrete time.

The gain is a mere factor on its frequency response. Limits of the delay are computed for a force late by e^{-s
delay}, then corrected by the motion at them; the limit of the natural frequencies follows from counting growing
motions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy.optimize import brentq

from rths_nodes.analysis.stability import crossings
from rths_nodes.analysis.stability.crossings import LEAST_GAIN, Crossing, growing_motions, settle, sweep
from rths_nodes.analysis.stability.sampled_loop import MARGINAL, SampledLoop
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import ROUNDING, Array

CORRECTED = (0.01, 0.03, 0.1, 0.3)
"""Correction of a limit of the delay, times the motion, rad."""
FARTHEST = 16.0
"""Largest factor on the natural frequencies, or its inverse, in the search."""
STEP = 1.03
"""Factor between natural frequencies of the search."""
HALVINGS = 8
"""Halvings of the interval of a limit, before the motion itself is followed."""
VERIFIED = 1e-3
"""Share of the range up to a limit that verification omits."""
BESIDE = 1e-4
"""Relative distance from a limit at which growing motions are counted."""


def delays(loop: SampledLoop, grid: Array, shorter: float) -> list[Crossing]:
    """Return further delays (s), from ``-shorter`` on, at which a motion neither grows nor decays."""
    crossings_of_delay = []
    for one in crossings.delays(loop, grid, shorter):
        radian = loop.time_ratio / (HZ * one.frequency)
        widths = [radian * angle for angle in CORRECTED]
        corrected = _corrected(loop, "delay", one, widths)
        if corrected is not None and corrected.value >= -shorter:
            crossings_of_delay.append(corrected)
    return crossings_of_delay


def _corrected(loop: SampledLoop, parameter: str, about: Crossing, widths: Iterable[float]) -> Crossing | None:
    """Return the value within ``widths`` of ``about`` at which the motion lies on the border, or None."""
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


def gains(loop: SampledLoop, grid: Array) -> list[Crossing]:
    """Return factors on the tested forces at which a motion neither grows nor decays, oscillating or not."""
    zeros = crossings.gains(loop, grid)
    slow = BESIDE * loop.scale  # a structure without stiffness has a pole at rest
    for omega in (0.0, loop.highest):
        values = np.linalg.eigvals(loop.open_loop(np.array([slow + 1j * omega])))[0]
        real = values[np.abs(values.imag) < MARGINAL * np.abs(values.real)].real
        real = real[(real < 0.0) & (real > -1.0 / LEAST_GAIN)]
        for gain in (-1.0 / real).tolist():
            below, above = (growing_motions(loop, gain=gain * (1.0 + side * BESIDE)) for side in (-1, 1))
            if below != above:
                zeros.append(Crossing(gain, omega / HZ, above > below, roots=1))
    return zeros


def ratios(loop: SampledLoop, frequencies: list[float], growing: int) -> list[Crossing]:
    """Return the factor on all natural frequencies beyond which a stable loop grows, or a growing one ends."""

    def stable(ratio: float) -> bool:
        return loop.reaches(ratio) and growing_motions(loop, frequencies, ratio=ratio) == 0

    near, factor = 1.0, 1.0 / STEP if growing else STEP
    while stable(near * factor) != bool(growing):
        near *= factor
        if not 1.0 / FARTHEST < near < FARTHEST:
            return []
    return [_between(loop, stable, *sorted((near, near * factor)))]


def verified(loop: SampledLoop, parameter: str, limit: Crossing | None, now: float) -> Crossing | None:
    """Return ``limit`` of a stable loop, or a missed one before it."""
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
    """Return the angular frequency (rad/s) near a marginal motion: with the shortest Newton step."""
    grid = sweep(loop, top=top)
    values = loop.characteristic(loop.border + 1j * grid, **{parameter: value})
    return float(grid[np.argmin(np.abs(values / (np.gradient(values, grid) * grid)))])


def _between(loop: SampledLoop, stable: Callable[[float], bool], low: float, high: float) -> Crossing:
    """Return the limit between a stable ratio and a higher unstable one.

    The motion itself is followed to it; if this leads to another of several close ones, the interval is halved.
    """
    low, high = _halved(stable, low, high)
    about = Crossing(low, _marginal(loop, "ratio", low, loop.highest / low) / HZ, growing=True)
    try:
        crossing = _corrected(loop, "ratio", about, [(high - low) * width for width in (1.0, 2.0, 8.0)])
    except ConfigError:  # the integrator goes no farther
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
