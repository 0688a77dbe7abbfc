# SPDX-License-Identifier: Apache-2.0
"""The servo-hydraulic plant of the benchmark: closed form, figures of the paper, limits, specimens with mass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming
from scipy import signal

from rths_nodes.core.errors import ConfigError

DT = 1.0 / 4096.0
M, K = 29.13, 1.19e6
C = 2.0 * 0.0097 * M * math.sqrt(K / M)
WAVE = 1e-3 * np.sin(2.0 * np.pi * 3.0 * DT * np.arange(2000))


@pytest.fixture
def plant(make: Callable[..., Any]) -> Callable[..., Any]:
    def plant(held: dict[str, Any] | None = None, **data: Any) -> Any:
        inner = held or {"type": "kelvin_voigt", "stiffness": K, "damping": C}
        specimen = make("specimen", "with_mass", mass=M, specimen=inner)
        return make("actuator", "servo_hydraulic_linear", DT, specimen, **data)

    return plant


def driven(actuator: Any, commands: np.ndarray = WAVE) -> np.ndarray:
    """Displacement, velocity and force at every sample."""
    rows = []
    for command in commands.tolist():
        actuator.step(command)
        rows.append((actuator.displacement, actuator.velocity, actuator.force))
    return np.array(rows)


def coefficients(actuator: Any) -> tuple[np.ndarray, float]:
    """A5 to A0 ``(6,)``, highest power first, and B0 of the plant on the linear specimen, in SI."""
    m, c, k, p = M, C, K, actuator.constants.of_rate
    sum_1, sum_2 = k + c * p.a3 + p.a2, c + m * p.a3
    denominator = [
        m,
        sum_2 + m * p.b1,
        sum_1 + sum_2 * p.b1 + m * p.b2,
        k * p.a3 + sum_1 * p.b1 + sum_2 * p.b2,
        k * p.a3 * p.b1 + sum_1 * p.b2,
        k * p.a3 * p.b2 + p.a1_b0,
    ]
    return np.array(denominator), p.a1_b0 * p.gain


def test_it_is_the_transfer_function_of_the_paper(plant: Callable[..., Any]) -> None:
    denominator, b0 = coefficients(plant())
    held = np.append(WAVE, WAVE[-1])  # the command of a sample acts from its beginning
    _, exact, _ = signal.lsim((b0, denominator), held, DT * np.arange(len(held)), interp=False)
    np.testing.assert_allclose(driven(plant())[:, 0], exact[1:], atol=1e-12)


def test_poles_amplitudes_and_delays_are_those_of_the_benchmark(plant: Callable[..., Any]) -> None:
    denominator, _ = coefficients(plant())
    poles = sorted(np.roots(denominator), key=lambda pole: (pole.real, pole.imag))
    np.testing.assert_allclose(poles, [-184 - 230j, -184 + 230j, -48.2, -8 - 422j, -8 + 422j], rtol=2e-3, atol=0.1)
    omega = 2.0 * np.pi * np.array([0.01, 2.0, 5.0, 10.0])
    # the command is held: half a sample, of which the response at the samples shows the other half
    response = plant().frequency_response(omega) * np.exp(-0.5j * omega * DT)
    np.testing.assert_allclose(np.abs(response), [1.01, 0.98, 0.85, 0.63], atol=0.006)
    np.testing.assert_allclose(-1e3 * np.angle(response) / omega, [25.1, 24.6, 22.7, 19.0], atol=0.05)


def test_the_force_is_that_of_the_whole_specimen(plant: Callable[..., Any]) -> None:
    x, v, f = driven(plant()).T
    inside = slice(1, -1)
    acceleration = (v[2:] - v[:-2]) / (2.0 * DT)
    np.testing.assert_allclose(f[inside], (K * x + C * v)[inside] + M * acceleration, atol=2e-3 * abs(f).max())


def test_in_parts_it_is_the_same_as_exactly(plant: Callable[..., Any]) -> None:
    exact = driven(plant(hold="ramp"))
    in_parts = driven(plant(hold="ramp", valve_limit=1.0))  # never reached, but then nothing is taken as linear
    size = np.abs(exact).max(axis=0)
    np.testing.assert_allclose(in_parts / size, exact / size, atol=1e-7)


def test_the_force_stays_within_its_limit(plant: Callable[..., Any]) -> None:
    free, limited = driven(plant(), 3.0 * WAVE), driven(plant(max_force=2000.0), 3.0 * WAVE)
    assert abs(free[:, 2]).max() > 3000.0
    assert abs(limited[:, 2]).max() == 2000.0
    # what it may push at most bends the spring by so much, and some more where it swings
    assert abs(limited[:, 0]).max() == pytest.approx(2000.0 / K, rel=0.15)
    before = np.argmax(abs(limited[:, 2]) >= 1999.0)
    np.testing.assert_array_equal(limited[: before - 1], free[: before - 1])


def test_a_valve_with_a_dead_band_settles_short_of_its_command(plant: Callable[..., Any]) -> None:
    """f' + a3 f = q at rest: the valve's error holds up the force of the spring, and the dead band more of it."""
    actuator = plant(dead_band=1e-4)
    x = driven(actuator, np.full(8000, 1e-3))[-1, 0]
    p = actuator.constants.of_rate
    held_up = p.a3 * K * p.b2 / p.a1_b0
    assert x == pytest.approx((p.gain * 1e-3 - 1e-4) / (1.0 + held_up), rel=1e-4)


def test_a_valve_at_its_limit_moves_no_faster(plant: Callable[..., Any]) -> None:
    limited = driven(plant(valve_limit=1e-4), np.full(400, 5e-3))
    p = plant().constants.of_rate
    fastest = p.a1_b0 / p.b2 * 1e-4 / p.a2
    assert fastest * 0.8 < limited[:, 1].max() < fastest * 1.35


def test_a_yielding_specimen_is_solved_with_its_states(plant: Callable[..., Any]) -> None:
    """A Maxwell damper whose dashpot is rigid is its two springs."""
    stiff = {"type": "maxwell_damper", "damping": 1e12, "series_stiffness": 0.4 * K, "parallel_stiffness": 0.6 * K}
    spring = {"type": "kelvin_voigt", "stiffness": K, "damping": 0.0}
    expected = driven(plant(held=spring))
    size = np.abs(expected).max(axis=0)
    np.testing.assert_allclose(driven(plant(held=stiff)) / size, expected / size, atol=2e-5)


def test_the_response_with_a_specimen_with_states_is_its_slope_at_rest(plant: Callable[..., Any]) -> None:
    omega = 2.0 * np.pi * np.array([1.0, 5.0, 20.0])
    softening = plant(held={"type": "maxwell_damper", "damping": 1e3, "series_stiffness": K})
    size = 1e-6
    t = DT * np.arange(16384)
    for w, expected in zip(omega, softening.frequency_response(omega), strict=True):
        softening.reset()
        x = driven(softening, size * np.sin(w * t))[8192:, 0]
        waves = np.column_stack([np.sin(w * (t[8192:])), np.cos(w * (t[8192:]))])
        s, c = np.linalg.lstsq(waves, x, rcond=None)[0] / size
        assert complex(s, c) == pytest.approx(complex(expected), rel=1e-3)


def test_a_specimen_without_mass_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"Use specimen\.type = with_mass"):
        make("actuator", "servo_hydraulic_linear", DT, make("specimen", "kelvin_voigt"))


def test_the_mass_of_a_specimen_is_felt_by_every_actuator_that_moves_it(make: Callable[..., Any]) -> None:
    """Of one that follows exactly, the force is m a + c v + k x of its command."""
    inner = {"type": "kelvin_voigt", "stiffness": K, "damping": C}
    specimen = make("specimen", "with_mass", mass=M, specimen=inner)
    x, v, f = driven(make("actuator", "pure_delay", DT, specimen)).T
    acceleration = np.diff(v, prepend=0.0) / DT
    np.testing.assert_allclose(f, K * x + C * v + M * acceleration, atol=1e-9 * abs(f).max())


def test_the_flow_limited_actuator_refuses_a_mass(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("specimen", "mass")):
        make("actuator", "servo_hydraulic", DT, make("specimen", "with_mass", mass=M))
