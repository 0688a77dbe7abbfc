# SPDX-License-Identifier: Apache-2.0
"""Tests of stiffness, damping and delay from cycles."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.identification.experiments import Cyclic, at_small, cyclic, equivalent

DT, FREQUENCY, CYCLES, AMPLITUDE = 1.0 / 1024.0, 1.7, 5, 0.01
OMEGA = 2.0 * math.pi * FREQUENCY
TIME = np.arange(0.0, CYCLES / FREQUENCY, DT)
"""No integer number of samples per cycle."""
MOTION = AMPLITUDE * np.sin(OMEGA * TIME)


def cycles_of(force: np.ndarray, command: np.ndarray = MOTION) -> Cyclic:
    return cyclic(command, MOTION, force, DT, FREQUENCY, CYCLES)


def bilinear(x: np.ndarray, stiffness: float, yields: float, share: float) -> np.ndarray:
    """Force of a spring that yields at ``yields`` (m), its stiffness then ``share`` of the first."""
    plastic, force = 0.0, np.empty_like(x)
    for k, value in enumerate(x):
        plastic += max(0.0, value - plastic - yields) - max(0.0, plastic - value - yields)
        force[k] = stiffness * (share * value + (1.0 - share) * (value - plastic))
    return force


def test_spring_and_dashpot_are_identified_with_noise_and_offset() -> None:
    k, c = 7.6e6, 0.64e6
    noise = np.random.default_rng(1).normal(0.0, 500.0, len(TIME))
    test = cycles_of(2000.0 + k * MOTION + c * OMEGA * AMPLITUDE * np.cos(OMEGA * TIME) + noise)
    assert test.storage_stiffness == pytest.approx(k, rel=2e-3)
    assert test.effective_stiffness == pytest.approx(k, rel=1e-2)
    assert test.damping == pytest.approx(c, rel=2e-3)
    assert test.loss_factor == pytest.approx(c * OMEGA / k, rel=5e-3)
    assert test.energy == pytest.approx(math.pi * c * OMEGA * AMPLITUDE**2, rel=2e-3)
    assert test.damping_ratio == pytest.approx(c * OMEGA / (2.0 * k), rel=1e-2)
    spring = equivalent([test, test])
    assert (spring.stiffness, spring.damping) == (test.storage_stiffness, pytest.approx(test.damping))


def test_equivalent_values_are_within_their_ranges() -> None:
    """A motion with a third harmonic changes the damping by energy and amplitude."""
    k, c, tests = 1e6, 2e4, []
    for frequency in (0.5 * FREQUENCY, FREQUENCY):
        omega = 2.0 * math.pi * frequency
        time = np.arange(0.0, CYCLES / frequency, DT)
        moved = AMPLITUDE * (np.cos(omega * time) + 0.1 * np.cos(3.0 * omega * time))
        rate = -omega * AMPLITUDE * (np.sin(omega * time) + 0.3 * np.sin(3.0 * omega * time))
        tests.append(cyclic(moved, moved, k * moved + c * rate, DT, frequency, CYCLES))
        assert tests[-1].damping == pytest.approx(c * (1.0 + 0.3**2) / 1.1**2, rel=1e-3)  # Jacobsen's
    spring = equivalent(tests)
    assert spring.damping == pytest.approx(c, rel=1e-6)
    assert spring.damping_range == pytest.approx((c, c), rel=1e-6)
    softer = cyclic(moved, moved, 0.5 * k * moved + 3.0 * c * rate, DT, FREQUENCY, CYCLES)
    spring = equivalent([*tests, softer])
    for value, (least, most) in (
        (spring.stiffness, spring.stiffness_range),
        (spring.damping, spring.damping_range),
    ):
        assert least < value < most
    assert spring.damping_range == pytest.approx((c, 3.0 * c), rel=1e-6)


def test_bilinear_spring_dissipates_energy_of_parallelogram() -> None:
    """W = 4 F_d (X - x_y) with F_d = (1 - share) k x_y; K = F(X) / X: EN 15129, Annex."""
    k, yields, share = 1e6, 0.004, 0.1
    time = np.arange(0.0, (CYCLES + 1) / FREQUENCY, DT)
    force = bilinear(AMPLITUDE * np.sin(OMEGA * time), k, yields, share)
    steady = time >= 1.0 / FREQUENCY
    moved = (AMPLITUDE * np.sin(OMEGA * time))[steady]
    test = cyclic(moved, moved, force[steady], DT, FREQUENCY, CYCLES)
    most = share * k * AMPLITUDE + (1.0 - share) * k * yields
    assert test.energy == pytest.approx(4.0 * (1.0 - share) * k * yields * (AMPLITUDE - yields), rel=2e-3)
    assert test.effective_stiffness == pytest.approx(most / AMPLITUDE, rel=2e-2)


def test_actuator_gain_and_delay_relate_measurement_to_command() -> None:
    late = 0.013
    test = cycles_of(MOTION, 1.25 * AMPLITUDE * np.sin(OMEGA * (TIME + late)))
    assert (test.gain, test.delay) == (pytest.approx(0.8, rel=1e-9), pytest.approx(late, rel=1e-9))
    assert (test.wanted, test.amplitude) == (pytest.approx(1.25 * AMPLITUDE), pytest.approx(AMPLITUDE, rel=1e-4))


def test_scatter_is_deviation_over_cycles() -> None:
    """The stiffness differs between cycles, the loss angle does not."""
    stiffnesses = 1e6 * np.array([0.9, 1.0, 1.1, 1.05, 0.95])
    stiffness = stiffnesses[np.minimum((TIME * FREQUENCY + 1e-9).astype(int), CYCLES - 1)]
    test = cycles_of(stiffness * (MOTION + 0.1 * AMPLITUDE * np.cos(OMEGA * TIME)))
    assert test.stiffness_scatter == pytest.approx(stiffnesses.std(ddof=1), rel=1e-6)
    assert test.loss_factor_scatter == pytest.approx(0.0, abs=1e-9)


def test_single_cycle_has_no_scatter() -> None:
    first = TIME < 1.0 / FREQUENCY
    moved = MOTION[first]
    test = cyclic(moved, moved, 1e6 * moved, DT, FREQUENCY, 1)
    assert math.isnan(test.stiffness_scatter)
    with pytest.raises(ValueError, match=naming("1", "cycles", "scatter")):
        at_small([test])
    with pytest.raises(ValueError, match=naming("-1e+06 N/m", "> 0")):
        at_small([cycles_of(-1e6 * MOTION)])


def test_small_stiffness_is_from_slowest_small_test() -> None:
    small, faster = cycles_of(1e6 * MOTION), replace(cycles_of(1.03e6 * MOTION), frequency=3.4)
    large = replace(cycles_of(0.5e6 * MOTION), wanted=0.02)
    assert at_small([large, faster, small]) == {
        "stiffness": pytest.approx(1e6, abs=1e-3),
        "stiffness_scatter": pytest.approx(0.03e6, abs=1e-3),
        "loss_factor": pytest.approx(0.0, abs=1e-3),
        "loss_factor_scatter": pytest.approx(0.0, abs=1e-3),
    }


@pytest.mark.parametrize(
    ("command", "force", "message"),
    [
        (MOTION, MOTION[1:], ("must be equal",)),
        (MOTION[:20], MOTION[:20], ("too few",)),
        (0.0 * MOTION, MOTION, ("must", "move", "frequency")),
    ],
)
def test_unsuitable_histories_are_refused(
    command: np.ndarray, force: np.ndarray, message: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=naming(*message)):
        cyclic(command, MOTION[: len(command)], force, DT, FREQUENCY, CYCLES)
