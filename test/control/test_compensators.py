# SPDX-License-Identifier: Apache-2.0
"""Compensators: exact inverses; the adaptive law as published, and each of its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.loop.indices.tracking import Tracking

DT = 1.0 / 1024.0


@pytest.fixture
def plant(make: Callable[..., Any]) -> Callable[..., Any]:
    """The first-order actuator of Eq. (3), without a load."""

    def plant(alpha: float) -> Any:
        nothing = make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0)
        return make("actuator", "first_order", DT, nothing, alpha=alpha)

    return plant


def motion(x: float, flagged: bool = False) -> Motion:
    return Motion(np.array([x]), np.zeros(1), np.zeros(1), flagged)


def track(compensator: Any, plant: Any, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measured displacements ``(n,)`` and inner states ``(n, 3)`` behind ``plant``, at each target."""
    measured, states = [], []
    for target in targets.tolist():
        command = compensator.step(motion(target), np.array([plant.displacement]))
        plant.step(float(command[0]))
        measured.append(plant.displacement)
        states.append(tuple(compensator.state()))
    return np.array(measured), np.array(states)


def sine(seconds: float, amplitude: float = 0.02) -> np.ndarray:
    return amplitude * np.sin(2.0 * np.pi * DT * np.arange(1, round(seconds / DT) + 1))


# Without adaptation


def test_none_sends_the_target(make: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(make("compensator", "none", DT, 1).step(motion(0.3), np.zeros(1)), [0.3])


@pytest.mark.parametrize("alpha", [1.0, 15.0, 29.0, 45.5])
def test_the_inverse_undoes_the_first_order_actuator(
    make: Callable[..., Any], plant: Callable[..., Any], alpha: float
) -> None:
    targets = sine(2.0)
    measured, _ = track(make("compensator", "inverse", DT, 1, alpha=alpha), plant(alpha), targets)
    np.testing.assert_allclose(measured, targets, atol=1e-16)


def test_the_inverse_is_eq_5b(make: Callable[..., Any]) -> None:
    inverse = make("compensator", "inverse", DT, 2, alpha=15.0)
    first, second = np.array([0.1, -0.2]), np.array([0.3, 0.5])
    inverse.step(Motion(first, first, first), np.zeros(2))
    command = inverse.step(Motion(second, second, second), np.zeros(2))
    np.testing.assert_allclose(command, 15.0 * second - 14.0 * first)


# The adaptive law as published


def test_the_adaptive_inverse_with_the_true_alpha_is_the_identity(
    make: Callable[..., Any], plant: Callable[..., Any]
) -> None:
    targets = sine(5.0)
    measured, states = track(make("compensator", "adaptive_inverse", DT, 1, alpha_es=29.0), plant(29.0), targets)
    np.testing.assert_allclose(measured, targets, atol=1e-15)
    np.testing.assert_allclose(states[:, 1], 0.0, atol=1e-9)


def test_the_law_is_that_of_the_paper(make: Callable[..., Any]) -> None:
    """Eqs. (5b) to (10), once more, with arrays of the whole history and millimetres."""
    rng = np.random.default_rng(1)
    c, m = rng.normal(size=(2, 50)).cumsum(axis=1)
    k_p, k_i, es = 0.4, 0.04, 15.0
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=es)
    commands, states = [], []
    for k in range(50):
        seen = m[k - 1] if k else 0.0
        commands.append(float(law.step(motion(1e-3 * c[k]), np.array([1e-3 * seen]))[0]))
        states.append(tuple(law.state()))
    c0, m0 = np.insert(c, 0, 0.0), np.insert(m, 0, 0.0)
    area = np.cumsum((c0[1:] + c0[:-1]) * np.diff(m0) / 2.0)
    complement = np.cumsum((m0[1:] + m0[:-1]) * np.diff(c0) / 2.0)
    indicator = (area - complement) / 2.0
    integral = np.insert(np.cumsum(DT * indicator), 0, 0.0)[:-1]  # one sample late
    delta = np.insert(k_p * indicator + k_i * integral, 0, 0.0)[:-1]
    np.testing.assert_allclose([state[1] for state in states], delta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([state[2] for state in states[1:]], 1e-6 * indicator[:-1], rtol=1e-9)
    alpha = es + delta
    np.testing.assert_allclose(commands, 1e-3 * (alpha * c - (alpha - 1.0) * c0[:-1]), rtol=1e-9, atol=1e-12)


def test_k_i_is_a_tenth_of_k_p_by_default(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    targets = sine(3.0)
    left_out, given = (
        track(
            make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, k_p_per_mm2=0.3, **k_i),
            plant(29.0),
            targets,
        )
        for k_i in ({}, {"k_i_per_mm2_s": 0.1 * 0.3})
    )
    np.testing.assert_array_equal(left_out[1], given[1])
    none = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, k_p_per_mm2=0.3, k_i_per_mm2_s=0.0)
    assert track(none, plant(29.0), targets)[1][-1, 1] < given[1][-1, 1]


def test_without_gains_it_is_the_inverse(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    targets = sine(1.0)
    fixed, _ = track(make("compensator", "inverse", DT, 1, alpha=15.0), plant(29.0), targets)
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, k_p_per_mm2=0.0)
    np.testing.assert_array_equal(track(law, plant(29.0), targets)[0], fixed)


def test_its_indicator_is_the_monitors(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    targets = sine(1.0)
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0)
    measured, states = track(law, plant(29.0), targets)
    indicator, _ = Tracking(1, 1).over(targets[:, None], measured[:, None])
    np.testing.assert_allclose(states[1:, 2], indicator[:-1, 0], rtol=1e-9, atol=1e-18)


def test_axes_adapt_on_their_own(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    targets = sine(1.0)
    both = make("compensator", "adaptive_inverse", DT, 2, alpha_es=15.0)
    plants = [plant(29.0), plant(20.0)]
    for target in targets.tolist():
        command = both.step(
            Motion(np.full(2, target), np.zeros(2), np.zeros(2)), np.array([p.displacement for p in plants])
        )
        for p, value in zip(plants, command.tolist(), strict=True):
            p.step(value)
    alone = [make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0) for _ in plants]
    states = [track(law, plant(alpha), targets)[1][-1] for law, alpha in zip(alone, (29.0, 20.0), strict=True)]
    np.testing.assert_array_equal(both.state(), np.concatenate(states))


# Options


def test_alpha_stays_within_its_limits(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    law = make(
        "compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, k_p_per_mm2=4.0, alpha_min=10.0, alpha_max=20.0
    )
    _, states = track(law, plant(29.0), sine(5.0))
    assert states[:, 0].max() == 20.0
    assert states[:, 0].min() >= 10.0


def test_the_integral_rests_while_alpha_is_at_a_limit(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    """Afterwards the actuator is fast: once TI has come back to zero, no wound-up integral keeps alpha high."""
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, alpha_max=16.0)
    late, fast = plant(29.0), plant(2.0)
    _, states = track(law, late, sine(10.0))
    assert states[-1, 0] == 16.0
    fast.displacement = late.displacement
    _, states = track(law, fast, sine(20.0))
    led = states[:, 2] < 0.0
    assert led.any()
    assert states[led, 0].max() < 15.5


def test_alpha_moves_no_faster_than_its_rate(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, alpha_rate=5.0)
    _, states = track(law, plant(29.0), sine(4.0))
    assert np.abs(np.diff(states[:, 0])).max() == pytest.approx(5.0 * DT)
    free = track(make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0), plant(29.0), sine(4.0))[1]
    assert np.abs(np.diff(free[:, 0])).max() > 5.0 * DT


def quiet_drift(law: Any, plant: Any) -> float:
    """Change of alpha from 5 s to 20 s after the motion died."""
    targets = np.concatenate((sine(3.3), np.full(20 * 1024, sine(3.3)[-1])))
    states = track(law, plant, targets)[1]
    return float(states[-1, 0] - states[-15 * 1024, 0])


def test_in_quiet_tails_the_published_law_drifts(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    assert abs(quiet_drift(make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0), plant(29.0))) > 1.0


def test_quiet_velocity_stops_the_drift(make: Callable[..., Any], plant: Callable[..., Any]) -> None:
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, quiet_velocity=0.005)
    assert abs(quiet_drift(law, plant(29.0))) < 1e-9


def test_quiet_velocity_changes_nothing_while_the_motion_is_strong(
    make: Callable[..., Any], plant: Callable[..., Any]
) -> None:
    literal, remedied = (
        track(make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0, **option), plant(29.0), sine(5.0))
        for option in ({}, {"quiet_velocity": 0.005})
    )
    np.testing.assert_array_equal(literal[1], remedied[1])


def test_flagged_samples_do_not_adapt(make: Callable[..., Any]) -> None:
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=15.0)
    for x in (1.0, 2.0, 3.0):
        law.step(motion(0.001 * x), np.array([0.0005 * x]))
    before = tuple(law.state())
    law.step(motion(0.5, flagged=True), np.array([0.3]))
    assert tuple(law.state()) == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"alpha_min": 30.0, "alpha_max": 20.0}, ("alpha_min", "30", "< alpha_max", "20")),
        ({"alpha_es": 5.0, "alpha_min": 10.0}, ("alpha_es", "5", "alpha_min", "alpha_max")),
        ({"alpha_es": 25.0, "alpha_max": 20.0}, ("alpha_es", "25", "alpha_min", "alpha_max")),
    ],
)
def test_limits_that_do_not_fit_together_are_refused(
    make: Callable[..., Any], data: dict[str, float], message: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        make("compensator", "adaptive_inverse", DT, 1, **data)
