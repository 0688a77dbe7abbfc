# SPDX-License-Identifier: Apache-2.0
"""Tests of actuators: closed forms of delays and linear plants; limits and order of the servo-hydraulic one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import each_mentions, naming
from scipy import signal

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

DT = 1.0 / 1024.0
FREE = {"stiffness": 0.0, "damping": 0.0}


def actuator(name: str, specimen: dict[str, float] | None = None, **data: Any) -> Any:
    """An actuator on a spring and dashpot, by default without load."""
    return make("actuator", name, DT, make("specimen", "kelvin_voigt", **(specimen or FREE)), **data)


def follow(actuator: Any, commands: np.ndarray) -> np.ndarray:
    displacements = []
    for command in commands.tolist():
        actuator.step(command)
        displacements.append(actuator.displacement)
    return np.array(displacements)


@pytest.mark.parametrize("samples", [0.0, 0.25, 1.0, 3.5, 28.0, 28.75])
def test_pure_delay_is_exact_on_a_ramp(samples: float) -> None:
    late = actuator("pure_delay", delay=samples * DT)
    k = np.arange(1, 101)
    shown = follow(late, 0.002 * k)
    np.testing.assert_allclose(shown, 0.002 * np.maximum(k - samples, 0.0), atol=1e-15)
    assert late.velocity == pytest.approx(0.002 / DT)


def test_pure_delay_refuses_delay_in_wrong_unit() -> None:
    with pytest.raises(ValueError, match=naming("actuator.delay", "28000 s")):
        actuator("pure_delay", delay=28_000.0)


def test_first_order_lags_ramp_by_alpha_minus_one_samples() -> None:
    ramp = 1e-4 * np.arange(-27, 2001)
    shown = follow(actuator("first_order", alpha=29.0), ramp[28:])
    np.testing.assert_allclose(shown[-10:], ramp[-38:-28], rtol=1e-12)
    waves = np.sin(np.arange(50.0))
    np.testing.assert_allclose(follow(actuator("first_order", alpha=1.0), waves), waves, atol=1e-15)


def test_first_order_step_response_is_closed_form() -> None:
    shown = follow(actuator("first_order", alpha=5.0), np.ones(50))
    np.testing.assert_allclose(shown, 1.0 - (1.0 - 1.0 / 5.0) ** np.arange(1, 51), rtol=1e-12)


@pytest.mark.parametrize("name", ["first_order", "pure_delay", "second_order", "amplitude_dependent"])
def test_force_follows_from_displacement_and_velocity(name: str) -> None:
    loaded = actuator(name, {"stiffness": 3.0, "damping": 2.0})
    previous = 0.0
    for command in (0.1, 0.3, 0.2):
        loaded.step(command)
        if name in ("first_order", "pure_delay"):  # the others have the exact derivative
            assert loaded.velocity == pytest.approx((loaded.displacement - previous) / DT)
        assert loaded.force == pytest.approx(3.0 * loaded.displacement + 2.0 * loaded.velocity)
        previous = loaded.displacement


def test_unloaded_servo_hydraulic_moves_at_max_velocity() -> None:
    shown = follow(actuator("servo_hydraulic"), np.full(600, 10.0))
    assert (shown[-1] - shown[-101]) / (100 * DT) == pytest.approx(0.76, rel=1e-6)


def test_dashpot_slows_servo_hydraulic_by_load_pressure() -> None:
    c = 0.64e6
    pushed = actuator("servo_hydraulic", {"stiffness": 0.0, "damping": c})
    follow(pushed, np.full(600, 10.0))
    half = 0.5 * 0.76**2 * c / 1.7e6  # v = v_max sqrt(1 - c v / F_max), solved for v
    assert pushed.velocity == pytest.approx(-half + math.sqrt(half**2 + 0.76**2), rel=2e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_servo_hydraulic_stalls_at_max_force(sign: float) -> None:
    stiff = actuator("servo_hydraulic", {"stiffness": 1.7e7, "damping": 0.0})
    follow(stiff, np.full(3000, sign * 10.0))
    assert stiff.displacement == pytest.approx(sign * 0.1, rel=1e-3)
    assert abs(stiff.velocity) < 1e-3


def test_runge_kutta_converges_with_fourth_order() -> None:
    # monotonic: the load pressure has a kink where the valve changes sign
    commands = 2.0 * (DT * np.arange(1, 101)) ** 2

    def run(substeps: int) -> np.ndarray:
        spring = {"stiffness": 7.6e6, "damping": 0.0}
        return follow(actuator("servo_hydraulic", spring, substeps=substeps, hold="ramp"), commands)

    exact = run(64)
    errors = [np.abs(run(substeps) - exact).max() for substeps in (1, 2, 4)]
    assert errors[0] / errors[1] > 12.0
    assert errors[1] / errors[2] > 12.0
    assert errors[2] < 1e-9


def test_force_of_large_damper_converges_within_sample() -> None:
    """The force depends on the velocity that it reduces: the iterations leave an error of 0.3 um in 57 mm."""
    commands = 6.0 * (DT * np.arange(1, 101)) ** 2
    damper = {"stiffness": 0.0, "damping": 0.64e6}
    default, fine = (
        follow(actuator("servo_hydraulic", damper, substeps=substeps, hold="ramp"), commands)
        for substeps in (4, 64)
    )
    assert np.abs(default - fine).max() < 3e-7


def test_small_slow_signal_lags_by_inverse_gain() -> None:
    omega = 2.0 * np.pi * 0.5
    time = DT * np.arange(1, 4097)
    shown = follow(actuator("servo_hydraulic", hold="ramp"), 0.001 * np.sin(omega * time))[2048:]
    phase = np.angle(np.sum(shown * np.exp(-1j * omega * time[2048:]))) + np.pi / 2.0
    assert -phase / omega == pytest.approx(28.0 / 1024.0, abs=0.5e-3)


def test_staircase_lags_ramp_by_half_a_sample() -> None:
    commands = 0.01 * DT * np.arange(1, 1001)
    stairs, ramp = (follow(actuator("servo_hydraulic", hold=hold), commands)[-1] for hold in ("staircase", "ramp"))
    assert stairs - ramp == pytest.approx(0.01 * DT / 2.0, rel=1e-3)


def test_computed_spring_exerts_no_force_on_actuator() -> None:
    commands = np.full(300, 10.0)
    free, computed, real = (
        make("actuator", "servo_hydraulic", DT, make("specimen", name, **data))
        for name, data in (
            ("kelvin_voigt", FREE),
            ("computed_spring", {"stiffness": 1.7e7}),
            ("kelvin_voigt", {"stiffness": 1.7e7, "damping": 0.0}),
        )
    )
    expected = follow(free, commands)
    np.testing.assert_array_equal(follow(computed, commands), expected)
    assert computed.force == 1.7e7 * computed.displacement
    assert follow(real, commands)[-1] < 0.5 * expected[-1]


P2 = {"natural_frequency": 15.571359045, "damping_ratio": 0.6415455449}
OMEGA, ZETA = 2.0 * np.pi * P2["natural_frequency"], P2["damping_ratio"]
HOLDS = ("staircase", "ramp")


def sine_response(actuator: Any, frequency: float, amplitude: float = 1e-3, lead: int = 0) -> complex:
    """Steady displacement over command at ``frequency`` (Hz); the command leads by ``lead`` samples.

    A whole number of periods makes the projection onto the frequency exact.
    """
    periods = max(1, round(frequency))  # in one second, which has a whole number of samples
    omega = 2.0 * np.pi * periods
    time = DT * np.arange(1, 3073)
    shown = follow(actuator, amplitude * np.sin(omega * (time + lead * DT)))[2048:]
    return complex(2.0 * np.mean(shown * np.exp(-1j * omega * time[2048:])) / (-1j * amplitude))


@pytest.mark.parametrize(("frequency", "delay"), [(2.0, 13.70e-3), (10.0, 15.63e-3)])
def test_p2_has_delays_of_published_tests(frequency: float, delay: float) -> None:
    """The command is computed at the beginning of its sample: the delays include one sample of transport."""
    response = sine_response(actuator("second_order"), frequency, lead=-1)
    assert -np.angle(response) / (2.0 * np.pi * frequency) == pytest.approx(delay, abs=0.02e-3)


@pytest.mark.parametrize("frequency", [30.0, 10.0])
def test_lag_at_natural_frequency_is_90_degrees(frequency: float) -> None:
    late = actuator("second_order", natural_frequency=frequency, damping_ratio=0.7, hold="ramp")
    response = sine_response(late, frequency)
    assert np.degrees(np.angle(response)) == pytest.approx(-90.0, abs=0.01)
    assert abs(response) == pytest.approx(1.0 / (2.0 * 0.7), rel=0.004)


def test_second_order_step_response_is_closed_form() -> None:
    late = actuator("second_order", **P2)
    shown, velocities = [], []
    for _ in range(200):
        late.step(1.0)
        shown.append(late.displacement)
        velocities.append(late.velocity)
    time, damped = DT * np.arange(1, 201), OMEGA * math.sqrt(1.0 - ZETA**2)
    decay = np.exp(-ZETA * OMEGA * time)
    oscillation = np.cos(damped * time) + ZETA * OMEGA / damped * np.sin(damped * time)
    np.testing.assert_allclose(shown, 1.0 - decay * oscillation, atol=1e-13)
    np.testing.assert_allclose(velocities, decay * OMEGA**2 / damped * np.sin(damped * time), atol=1e-11)


def random_commands(count: int = 300) -> np.ndarray:
    return np.random.default_rng(7).normal(size=count)


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize(
    ("numerator", "denominator"),
    [
        ([OMEGA**2], [1.0, 2.0 * ZETA * OMEGA, OMEGA**2]),
        ([60.0], [1.0, 60.0]),
        # roll-off, servovalve and loop gain: the servo-hydraulic actuator, without limits
        ([1.3e9], np.polymul([1.0, 250.0], np.polyadd(np.polymul([1.0, 528.0, 142e3], [1.0, 0.0]), [5.2e6]))),
        ([0.0, 2.0, 30.0], [3.0, 40.0, 30.0]),
        ([1e-4, 1.0], [5e-5, 8e-3, 1.0]),
    ],
    ids=["second order", "first order", "fourth order", "leading zero", "a zero"],
)
def test_transfer_function_agrees_with_scipy(hold: str, numerator: list[float], denominator: Any) -> None:
    plant = actuator(
        "transfer_function", numerator=numerator, denominator=list(map(float, denominator)), hold=hold
    )
    numerator = np.trim_zeros(numerator)
    commands = random_commands()
    shown = follow(plant, commands)
    time = DT * np.arange(len(commands) + 1)
    # a held command acts from the instant before its sample
    inputs = np.append(0.0, commands) if hold == "ramp" else np.append(commands, 0.0)
    _, expected, _ = signal.lsim((numerator, denominator), inputs, time, interp=hold == "ramp")
    np.testing.assert_allclose(shown, expected[1:], atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("hold", HOLDS)
def test_second_order_equals_its_transfer_function(hold: str) -> None:
    second_order = actuator("second_order", **P2, hold=hold)
    coefficients = {"numerator": [OMEGA**2], "denominator": [1.0, 2.0 * ZETA * OMEGA, OMEGA**2]}
    general = actuator("transfer_function", **coefficients, hold=hold)
    for command in random_commands(100).tolist():
        second_order.step(command)
        general.step(command)
        assert general.displacement == pytest.approx(second_order.displacement, rel=1e-10, abs=1e-12)
        assert general.velocity == pytest.approx(second_order.velocity, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("name", ["second_order", "amplitude_dependent"])
def test_velocity_is_derivative_at_sample(name: str, hold: str) -> None:
    """Reference: backward difference of the displacement in steps a hundred times smaller."""
    fine = 100
    coarse = actuator(name, **({"memory": 1e6, "saturation_velocity": 1e9} if "depend" in name else {}), hold=hold)
    free = make("specimen", "kelvin_voigt", **FREE)
    detailed = make("actuator", "second_order", DT / fine, free, hold=hold)
    previous = 0.0
    for command in 1e-3 * random_commands(20):
        coarse.step(float(command))
        start = previous if hold == "ramp" else command
        path = [start + (command - start) * part / fine for part in range(1, fine + 1)]
        last = [0.0, 0.0, *follow(detailed, np.array(path))][-3:]
        slope = (1.5 * last[2] - 2.0 * last[1] + 0.5 * last[0]) * fine / DT
        assert coarse.displacement == pytest.approx(last[2], rel=1e-8, abs=1e-12)
        assert coarse.velocity == pytest.approx(slope, rel=1e-4, abs=1e-6)
        previous = command


@pytest.mark.parametrize(("numerator", "gain"), [([100.0], 1.0), ([80.0], 0.8)])
def test_transfer_function_settles_at_dc_gain(numerator: list[float], gain: float) -> None:
    data = {"numerator": numerator, "denominator": [1.0, 15.0, 100.0]}
    plant = actuator("transfer_function", **data)
    assert follow(plant, np.full(4096, 0.01))[-1] == pytest.approx(0.01 * gain, rel=1e-9)
    cautions = from_data(registry.load("actuator", "transfer_function").Params, data).cautions(None)
    assert each_mentions(cautions, *([] if gain == 1.0 else [("numerator[-1] / denominator[-1]", "0.8")]))


def test_velocity_of_ramp_is_reached_with_feedthrough() -> None:
    lead = {"numerator": [0.01, 1.0], "denominator": [0.02, 1.0], "hold": "ramp"}
    plant = actuator("transfer_function", **lead)
    k = np.arange(1, 1001)
    shown = follow(plant, 1e-3 * k)
    np.testing.assert_allclose(shown[-10:], 1e-3 * k[-10:] - 1e-3 / DT * 0.01, rtol=1e-10)
    assert plant.velocity == pytest.approx(1e-3 / DT, rel=1e-10)
    first = actuator("transfer_function", **lead)
    first.step(1.0)
    slope, fading = 1.0 / DT, math.exp(-DT / 0.02)
    assert first.velocity == pytest.approx(slope * (1.0 - 0.5 * fading), rel=1e-12)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({"numerator": [1.0], "denominator": [1.0]}, ("actuator.denominator", "0", "1", "12")),
        ({"numerator": [1.0], "denominator": [0.0, 1.0]}, ("actuator.denominator", "last", "must not be 0")),
        ({"numerator": [1.0], "denominator": [1.0, 0.0]}, ("actuator.denominator", "last", "must not be 0")),
        ({"numerator": [0.0], "denominator": [1.0, 1.0]}, ("actuator.numerator", "must not be 0")),
        ({"numerator": [1.0, 0.0, 0.0], "denominator": [1.0, 1.0]}, ("actuator.numerator", "order", "2", "<= 1")),
        ({"numerator": [1.0, 1.0], "denominator": [2.0, 1.0]}, ("actuator", "hold", "ramp")),
        ({"numerator": [1.0], "denominator": [1.0, -2.0, 4.0]}, ("actuator.denominator", "rad/s", "< 0")),
    ],
)
def test_invalid_transfer_function_is_refused(data: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        from_data(registry.load("actuator", "transfer_function").Params, data, "actuator")


def test_unsolvable_dynamics_are_refused() -> None:
    with pytest.raises(ConfigError, match=naming("solved", "step")):
        actuator("transfer_function", numerator=[1e50], denominator=[1e-50, 1e50])


@pytest.mark.parametrize("hold", HOLDS)
def test_amplitude_dependent_without_saturation_is_second_order(hold: str) -> None:
    linear = follow(actuator("second_order", **P2, hold=hold), random_commands())
    shown = follow(actuator("amplitude_dependent", **P2, saturation_velocity=1e9, hold=hold), random_commands())
    np.testing.assert_allclose(shown, linear, atol=1e-11)


@pytest.mark.parametrize("amplitude", [0.002, 0.010, 0.030])
def test_steady_vibration_has_natural_frequency_of_its_velocity(amplitude: float) -> None:
    data: dict[str, Any] = {"memory": 1e4, "hold": "ramp"}
    response = sine_response(actuator("amplitude_dependent", **P2, **data), 2.0, amplitude)
    velocity = abs(response) * 2.0 * np.pi * 2.0 * amplitude
    slower = P2["natural_frequency"] / math.hypot(1.0, velocity / 0.3)
    linear = actuator("second_order", natural_frequency=slower, damping_ratio=ZETA, hold="ramp")
    # the first period from rest may be faster than the steady ones
    assert response == pytest.approx(sine_response(linear, 2.0, amplitude), rel=0.02)


def test_delay_grows_with_amplitude_and_recovers() -> None:
    delays = [
        -np.angle(sine_response(actuator("amplitude_dependent", hold="ramp"), 2.0, amplitude)) / (4.0 * np.pi)
        for amplitude in (1e-5, 0.01, 0.03)
    ]
    assert delays[0] == pytest.approx(13.21e-3, abs=0.02e-3)
    assert delays[2] > delays[1] + 2e-3 > delays[0] + 2e-3
    recovered = actuator("amplitude_dependent", hold="ramp")
    follow(recovered, 0.03 * np.sin(4.0 * np.pi * DT * np.arange(1, 1025)))
    follow(recovered, np.zeros(5 * 1024))
    assert sine_response(recovered, 2.0, 1e-5) == pytest.approx(
        sine_response(actuator("second_order", **P2, hold="ramp"), 2.0, 1e-5), rel=1e-3
    )


def test_extreme_command_raises_no_exception() -> None:
    for name in ("second_order", "amplitude_dependent"):
        driven = actuator(name)
        for command in (1e300, -1e300, math.inf, math.nan, 0.0):
            driven.step(command)
        assert isinstance(driven.displacement, float)


# Servo-hydraulic plant of the benchmark

STEP = 1.0 / 4096.0
M, K = 29.13, 1.19e6
C = 2.0 * 0.0097 * M * math.sqrt(K / M)
WAVE = 1e-3 * np.sin(2.0 * np.pi * 3.0 * STEP * np.arange(2000))


def plant(held: dict[str, Any] | None = None, **data: Any) -> Any:
    inner = held or {"type": "kelvin_voigt", "stiffness": K, "damping": C}
    specimen = make("specimen", "with_mass", mass=M, specimen=inner)
    return make("actuator", "servo_hydraulic_linear", STEP, specimen, **data)


def motion_of(actuator: Any, commands: np.ndarray = WAVE) -> np.ndarray:
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


def test_plant_has_published_transfer_function() -> None:
    denominator, b0 = coefficients(plant())
    held = np.append(WAVE, WAVE[-1])  # the command of a sample acts from its beginning
    _, exact, _ = signal.lsim((b0, denominator), held, STEP * np.arange(len(held)), interp=False)
    np.testing.assert_allclose(motion_of(plant())[:, 0], exact[1:], atol=1e-12)


def test_poles_amplitudes_and_delays_are_published_values() -> None:
    denominator, _ = coefficients(plant())
    poles = sorted(np.roots(denominator), key=lambda pole: (pole.real, pole.imag))
    np.testing.assert_allclose(poles, [-184 - 230j, -184 + 230j, -48.2, -8 - 422j, -8 + 422j], rtol=2e-3, atol=0.1)
    omega = 2.0 * np.pi * np.array([0.01, 2.0, 5.0, 10.0])
    # the command is held: half a sample, of which the response at the samples shows the other half
    response = plant().frequency_response(omega) * np.exp(-0.5j * omega * STEP)
    np.testing.assert_allclose(np.abs(response), [1.01, 0.98, 0.85, 0.63], atol=0.006)
    np.testing.assert_allclose(-1e3 * np.angle(response) / omega, [25.1, 24.6, 22.7, 19.0], atol=0.05)


def test_plant_force_includes_mass_of_specimen() -> None:
    x, v, f = motion_of(plant()).T
    inside = slice(1, -1)
    acceleration = (v[2:] - v[:-2]) / (2.0 * STEP)
    np.testing.assert_allclose(f[inside], (K * x + C * v)[inside] + M * acceleration, atol=2e-3 * abs(f).max())


def test_stepwise_solution_agrees_with_exact_one() -> None:
    exact = motion_of(plant(hold="ramp"))
    in_parts = motion_of(plant(hold="ramp", valve_limit=1.0))  # never reached; disables the linear solution
    size = np.abs(exact).max(axis=0)
    np.testing.assert_allclose(in_parts / size, exact / size, atol=1e-7)


def test_plant_force_stays_within_limit() -> None:
    free, limited = motion_of(plant(), 3.0 * WAVE), motion_of(plant(max_force=2000.0), 3.0 * WAVE)
    assert abs(free[:, 2]).max() > 3000.0
    assert abs(limited[:, 2]).max() == 2000.0
    # static displacement under the largest force, exceeded by oscillation
    assert abs(limited[:, 0]).max() == pytest.approx(2000.0 / K, rel=0.15)
    before = np.argmax(abs(limited[:, 2]) >= 1999.0)
    np.testing.assert_array_equal(limited[: before - 1], free[: before - 1])


def test_dead_band_leaves_steady_error() -> None:
    """Steady state: f' + a3 f = q. The valve's error balances the spring, and the dead band adds to the error."""
    actuator = plant(dead_band=1e-4)
    x = motion_of(actuator, np.full(8000, 1e-3))[-1, 0]
    p = actuator.constants.of_rate
    error_ratio = p.a3 * K * p.b2 / p.a1_b0
    assert x == pytest.approx((p.gain * 1e-3 - 1e-4) / (1.0 + error_ratio), rel=1e-4)


def test_valve_limit_bounds_velocity() -> None:
    limited = motion_of(plant(valve_limit=1e-4), np.full(400, 5e-3))
    p = plant().constants.of_rate
    fastest = p.a1_b0 / p.b2 * 1e-4 / p.a2
    assert fastest * 0.8 < limited[:, 1].max() < fastest * 1.35


def test_states_of_specimen_are_solved_with_plant() -> None:
    """A Maxwell damper with a rigid dashpot equals its two springs."""
    stiff = {"type": "maxwell_damper", "damping": 1e12, "series_stiffness": 0.4 * K, "parallel_stiffness": 0.6 * K}
    spring = {"type": "kelvin_voigt", "stiffness": K, "damping": 0.0}
    expected = motion_of(plant(held=spring))
    size = np.abs(expected).max(axis=0)
    np.testing.assert_allclose(motion_of(plant(held=stiff)) / size, expected / size, atol=2e-5)


def test_frequency_response_is_linearised_at_rest() -> None:
    omega = 2.0 * np.pi * np.array([1.0, 5.0, 20.0])
    softening = plant(held={"type": "maxwell_damper", "damping": 1e3, "series_stiffness": K})
    size = 1e-6
    t = STEP * np.arange(16384)
    for w, expected in zip(omega, softening.frequency_response(omega), strict=True):
        softening.reset()
        x = motion_of(softening, size * np.sin(w * t))[8192:, 0]
        waves = np.column_stack([np.sin(w * (t[8192:])), np.cos(w * (t[8192:]))])
        s, c = np.linalg.lstsq(waves, x, rcond=None)[0] / size
        assert complex(s, c) == pytest.approx(complex(expected), rel=1e-3)


def test_specimen_without_mass_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Use specimen\.type = with_mass"):
        make("actuator", "servo_hydraulic_linear", STEP, make("specimen", "kelvin_voigt"))


def test_mass_of_specimen_loads_other_actuators() -> None:
    """The force of an exact actuator is m a + c v + k x of its command."""
    inner = {"type": "kelvin_voigt", "stiffness": K, "damping": C}
    specimen = make("specimen", "with_mass", mass=M, specimen=inner)
    x, v, f = motion_of(make("actuator", "pure_delay", STEP, specimen)).T
    acceleration = np.diff(v, prepend=0.0) / STEP
    np.testing.assert_allclose(f, K * x + C * v + M * acceleration, atol=1e-9 * abs(f).max())


def test_flow_limited_actuator_refuses_mass() -> None:
    with pytest.raises(ConfigError, match=naming("specimen", "mass")):
        make("actuator", "servo_hydraulic", STEP, make("specimen", "with_mass", mass=M))
