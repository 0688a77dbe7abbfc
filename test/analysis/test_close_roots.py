# SPDX-License-Identifier: Apache-2.0
"""Growing motions that lie close together are counted right, wherever the frequencies of the count fall."""

from __future__ import annotations

import math

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.stability.continuous_loop import ContinuousLoop
from rths_nodes.analysis.stability.crossings import PER_DECADE, growing_motions, ratio_limit, settle
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.analysis.stability.sampled_loop import CHANGED, MARGINAL, Lines, SampledLoop
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import taps
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.small_specimen import SmallSpecimen

OMEGA = 10.0
PLACES = np.linspace(0.0, 1.0, 11)
"""Of the distance of two neighbouring frequencies."""


def oscillators(omega: Array, growth: Array) -> ContinuousLoop:
    """Unit masses on springs under test, side by side, roots ``growth`` +- j ``omega``, rig without delay."""
    one = np.eye(len(omega))
    springs = tuple(SmallSpecimen.spring(float(stiffness)) for stiffness in omega**2 + growth**2)
    return ContinuousLoop(
        one,
        np.diag(-2.0 * growth),
        0.0 * one,
        one,
        one,
        springs,
        lambda w: taps(w, [1.0], [0.0]),
        tuple((lambda w: taps(w, [1.0], [0.0])) for _ in omega),
        dt=1e-3,
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("growth", [1e-3, 1e-5])
@pytest.mark.parametrize("apart", [0.0, 0.1, 1.0])
def test_close_roots_are_counted_wherever_they_lie(count: int, growth: float, apart: float) -> None:
    """``growth`` over frequency; ``apart``: distance of two roots over that of two frequencies of a sweep."""
    step = 10.0 ** (1.0 / PER_DECADE)
    for place in PLACES:
        omega = OMEGA * step ** (place + apart * np.arange(count))
        for sign in (1.0, -1.0):
            loop = oscillators(omega, sign * growth * omega)
            assert growing_motions(loop) == (2 * count if sign > 0.0 else 0), (place, sign)


def test_growing_and_decaying_roots_close_together() -> None:
    omega = OMEGA * (1.0 + 1e-4 * np.arange(4))
    for signs in ([1, 1, -1, -1], [1, -1, -1, -1], [1, 1, 1, -1], [-1, 1, -1, 1]):
        loop = oscillators(omega, 1e-5 * omega * np.array(signs))
        assert growing_motions(loop) == 2 * signs.count(1), signs


def test_a_root_on_the_border_is_refused() -> None:
    scale = oscillators(np.array([OMEGA]), np.zeros(1)).scale
    loop = oscillators(np.array([OMEGA]), np.array([MARGINAL * scale]))
    assert loop.scale == pytest.approx(scale, rel=1e-12)
    with pytest.raises(ConfigError, match=naming("resolve", f"{OMEGA / HZ:.4g}")):
        growing_motions(loop)


@pytest.fixture(scope="module")
def three_axes() -> SampledLoop:
    return sampled_loop(files.load("phillips_spencer_2012"))


def motions_near(loop: SampledLoop, about: float, ratio: float) -> list[complex]:
    """The roots (rad/s) within 1 % of ``about``, by Newton's iteration from many places."""
    found: list[complex] = []
    for omega in np.linspace(0.98 * about, 1.02 * about, 15):
        for growth in (-5.0, 0.0, 5.0):
            root = settle(loop, complex(growth, omega), ratio=ratio)
            if abs(root.imag / about - 1.0) < 0.01 and all(abs(root - other) > 1e-4 for other in found):
                found.append(root)
    return found


@pytest.mark.parametrize("ratio", [2.5652 * 1.0002, 2.5703, 2.5747, 2.5749, 2.5753, 2.5759])
def test_three_axes_grow_one_after_another(three_axes: SampledLoop, ratio: float) -> None:
    """Their roots lie within 0.15 rad/s of each other at 1770 rad/s: the count is that of Newton's iteration."""
    roots = motions_near(three_axes, 1770.0 * 2.57 / ratio, ratio)
    assert len(roots) == 3
    wanted = 2 * sum(root.real > 0.0 for root in roots)
    for shift in PLACES:  # other frequencies, the same count
        known = 1760.0 + 30.0 * (shift + np.arange(-3, 4))
        assert growing_motions(three_axes, known.tolist(), ratio=ratio) == wanted


def test_the_limit_is_where_the_first_of_them_begins_to_grow(three_axes: SampledLoop) -> None:
    (limit,) = ratio_limit(three_axes, [], 0)
    roots = motions_near(three_axes, HZ * limit.frequency, limit.value)
    assert len(roots) == 3
    assert max(root.real for root in roots) == pytest.approx(0.0, abs=1e-3)


def test_the_frequencies_of_a_rig_are_close_where_it_resonates() -> None:
    """A delay of 20 powers and two resonances with 1e-3 of damping that fade to 1e-10."""
    powers = np.arange(23_000)
    lines = sum(np.exp(-1e-3 * powers) * np.cos(angle * powers) for angle in (0.3, 2.0))
    found = Lines.of(20.0, np.asarray(lines)[:, None])
    grid = found.grid()
    assert 20.0 * math.pi / CHANGED < len(grid) < 60.0 * math.pi / CHANGED
    values = found.at(1j * grid)[:, 0]
    assert np.max(np.abs(np.diff(values)) / np.maximum(np.abs(values[1:]), np.abs(values[:-1]))) < 3.0 * CHANGED
    for angle in (0.3, 2.0):
        assert np.sum(np.abs(grid - angle) < 1e-3) > 5
