# SPDX-License-Identifier: Apache-2.0
"""Figure of the excitation: its response spectrum, with the periods of the structure."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtbsv  # scipy.signal, which filters as well, takes half a second to load

from rths_nodes.analysis import energy
from rths_nodes.analysis.figures.sheet import Base, Sheet
from rths_nodes.analysis.figures.style import DASHES, FAINT, INK
from rths_nodes.analysis.figures.view import View, Words
from rths_nodes.analysis.share_of_structure import partition
from rths_nodes.analysis.units import MM, PERCENT, quantity
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import combined, transition
from rths_nodes.numerical.structures.damping import modes

SHORTEST, LONGEST, PERIODS = 0.05, 5.0, 120
"""Shortest and longest period of the spectrum, s, and number of periods, evenly spaced in the logarithm."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
MARKED, LARGEST = 3, 300
"""Marked periods of the structure; none for more degrees of freedom, because they take too long to compute."""


DAMPING = 0.05
"""Damping ratio of the oscillators, as in design codes."""


class Spectrum(NamedTuple):
    """Largest relative displacement (m) and pseudo-acceleration (m/s^2) by period (s), ``(m,)`` each."""

    period: Array
    displacement: Array
    pseudo_acceleration: Array


def response_spectrum(acceleration: Array, step: float, periods: Array, damping: float = DAMPING) -> Spectrum:
    """Spectrum of ground ``acceleration`` ``(n,)`` m/s^2 every ``step`` (s), at rest before, for ``periods`` (s).

    Exact where the acceleration is linear between its values (Nigam & Jennings 1969); the extremes are those at
    the values. S_a = (2 pi / T)^2 S_d.
    """
    moved = np.array(
        [_largest(acceleration, step, 2.0 * math.pi / period, damping) for period in periods.tolist()]
    )
    return Spectrum(periods, moved, (2.0 * math.pi / periods) ** 2 * moved)


def _largest(acceleration: Array, step: float, omega: float, damping: float) -> float:
    # in units of the oscillator's own time, so that both states are of one size
    system, inputs = np.array([[0.0, 1.0], [-1.0, -2.0 * damping]]), np.array([[0.0], [-1.0]])
    phi, before, now = transition(system, inputs, omega * step)
    # the displacement alone: x_k - trace x_{k-1} + det x_{k-2} of what the ground adds (Cayley & Hamilton)
    trace, n = float(np.trace(phi)), len(acceleration)
    rest = phi - trace * np.eye(2)
    added = np.convolve(acceleration, np.hstack([now, before + rest @ now, rest @ before])[0])[:n]
    bands = np.repeat([[1.0], [-trace], [float(np.linalg.det(phi))]], n, axis=1)
    moved = dtbsv(2, np.asfortranarray(bands), added, lower=1, diag=1)
    return float(np.abs(moved).max(initial=0.0)) / omega**2


def spectrum(sheet: Sheet, view: View) -> Words | None:
    """Pseudo-acceleration and displacement over the period; None without a ground acceleration."""
    ground = energy.ground_acceleration(view.of)[view.of.first_step :]
    if len(ground) < 2 or not np.isfinite(ground).all() or not ground.any():
        return None
    step, own = view.run.scenario.step, _periods(view)
    of = response_spectrum(ground, step, np.geomspace(max(SHORTEST, 4.0 * step), LONGEST, PERIODS))
    base = Base("periods", of.period, "period (s)")
    strength = ("pseudo-acceleration (m/s²)", of.pseudo_acceleration)
    moved = ("displacement (mm)", MM * of.displacement)
    for panel, (title, values) in zip(sheet.row(1.9, 6, 6), (strength, moved), strict=True):
        sheet.curve(panel, base, title, values, ("", INK, "-"), 1.1)
        for period in own.tolist():
            panel.axvline(period, color=FAINT, ls=DASHES, lw=0.8, zorder=1.5)
        panel.set(xscale="log", xlabel=base.head, ylabel=title, ylim=(0.0, 1.05 * float(values.max())))
        panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.minorticks_off()
    title = f"Excitation: response spectrum, {PERCENT * DAMPING:g}\u00a0% damping"
    if len(own):
        at = float(response_spectrum(ground, step, own[:1]).pseudo_acceleration[0])
        title = f"Excitation: {quantity(at, 1.0, 'm/s²', 3)} at the first period, {own[0]:.3g}\u00a0s"
    caption = (
        f"Largest response of oscillators with {PERCENT * DAMPING:g}\u00a0% damping to the ground motion of the "
        "test, in the time of the structure."
    )
    if len(own):
        several = f"the first {len(own)} periods" if len(own) > 1 else "the first period"
        caption += f" Dashed: {several} of the whole structure, before it yields."
    return title, caption


def _periods(view: View) -> Array:
    """Return the longest periods (s) of the whole structure within the figure; none if unknown."""
    structure = view.of.assembly.structure
    if structure is None or len(structure.mass) > LARGEST:
        return np.zeros(0)
    try:
        frequencies = partition(view.of.assembly, {}).frequencies[:MARKED]
    except ConfigError:  # too large to be taken apart: as it states itself
        mass, _, stiffness = combined(structure)
        frequencies = modes(mass, stiffness)[0][:MARKED] / (2.0 * math.pi)
    periods = 1.0 / frequencies[frequencies > 0.0]
    return np.asarray(periods[(periods > SHORTEST) & (periods < LONGEST)])
