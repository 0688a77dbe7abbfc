# SPDX-License-Identifier: Apache-2.0
"""Actuators: delays and transfer functions in closed form; limits, order and delay of the servo-hydraulic one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, naming
from scipy import signal

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

DT = 1.0 / 1024.0
FREE = {"stiffness": 0.0, "damping": 0.0}


@pytest.fixture
def actuator(make: Callable[..., Any]) -> Callable[..., Any]:
    """An actuator with a spring and dashpot, by default with nothing to push against."""

    def actuator(name: str, specimen: dict[str, float] | None = None, **data: Any) -> Any:
        return make("actuator", name, DT, make("specimen", "kelvin_voigt", **(specimen or FREE)), **data)

    return actuator


def follow(actuator: Any, commands: np.ndarray) -> np.ndarray:
    shown = []
    for command in commands.tolist():
        actuator.step(command)
        shown.append(actuator.displacement)
    return np.array(shown)


# Late, but otherwise exact


@pytest.mark.parametrize("samples", [0.0, 0.25, 1.0, 3.5, 28.0, 28.75])
def test_pure_delay_is_exact_on_a_ramp(actuator: Callable[..., Any], samples: float) -> None:
    late = actuator("pure_delay", delay=samples * DT)
    k = np.arange(1, 101)
    shown = follow(late, 0.002 * k)
    np.testing.assert_allclose(shown, 0.002 * np.maximum(k - samples, 0.0), atol=1e-15)
    assert late.velocity == pytest.approx(0.002 / DT)


def test_pure_delay_refuses_a_delay_in_the_wrong_unit(actuator: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=naming("actuator.delay", "28000 s")):
        actuator("pure_delay", delay=28_000.0)


def test_first_order_lags_a_ramp_by_alpha_minus_one_samples(actuator: Callable[..., Any]) -> None:
    k = np.arange(1, 2001)
    shown = follow(actuator("first_order", alpha=29.0), 1e-4 * k)
    np.testing.assert_allclose(shown[-10:], 1e-4 * (k[-10:] - 28.0), rtol=1e-12)


def test_first_order_step_response(actuator: Callable[..., Any]) -> None:
    shown = follow(actuator("first_order", alpha=5.0), np.ones(50))
    np.testing.assert_allclose(shown, 1.0 - (1.0 - 1.0 / 5.0) ** np.arange(1, 51), rtol=1e-12)


def test_first_order_with_alpha_one_has_no_delay(actuator: Callable[..., Any]) -> None:
    commands = np.sin(np.arange(50.0))
    np.testing.assert_allclose(follow(actuator("first_order", alpha=1.0), commands), commands, atol=1e-15)


@pytest.mark.parametrize("name", ["first_order", "pure_delay"])
def test_the_force_belongs_to_displacement_and_velocity(actuator: Callable[..., Any], name: str) -> None:
    moved = actuator(name, {"stiffness": 3.0, "damping": 2.0})
    before = 0.0
    for command in (0.1, 0.3, 0.2):
        moved.step(command)
        assert moved.velocity == pytest.approx((moved.displacement - before) / DT)
        assert moved.force == pytest.approx(3.0 * moved.displacement + 2.0 * moved.velocity)
        before = moved.displacement


# Servo-hydraulic


def test_without_load_it_moves_at_its_largest_velocity(actuator: Callable[..., Any]) -> None:
    shown = follow(actuator("servo_hydraulic"), np.full(600, 10.0))
    assert (shown[-1] - shown[-101]) / (100 * DT) == pytest.approx(0.76, rel=1e-6)


def test_a_dashpot_slows_it_down_as_the_load_pressure_says(actuator: Callable[..., Any]) -> None:
    c = 0.64e6
    pushed = actuator("servo_hydraulic", {"stiffness": 0.0, "damping": c})
    follow(pushed, np.full(600, 10.0))
    half = 0.5 * 0.76**2 * c / 1.7e6  # v = v_max sqrt(1 - c v / F_max), solved for v
    assert pushed.velocity == pytest.approx(-half + math.sqrt(half**2 + 0.76**2), rel=2e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_it_stalls_at_its_largest_force(actuator: Callable[..., Any], sign: float) -> None:
    stiff = actuator("servo_hydraulic", {"stiffness": 1.7e7, "damping": 0.0})
    follow(stiff, np.full(3000, sign * 10.0))
    assert stiff.displacement == pytest.approx(sign * 0.1, rel=1e-3)
    assert abs(stiff.velocity) < 1e-3


def test_runge_kutta_converges_with_the_fourth_order(actuator: Callable[..., Any]) -> None:
    # one way only: where the valve changes sign, the load pressure has a kink
    commands = 2.0 * (DT * np.arange(1, 101)) ** 2

    def run(substeps: int) -> np.ndarray:
        spring = {"stiffness": 7.6e6, "damping": 0.0}
        return follow(actuator("servo_hydraulic", spring, substeps=substeps, hold="ramp"), commands)

    exact = run(64)
    errors = [np.abs(run(substeps) - exact).max() for substeps in (1, 2, 4)]
    assert errors[0] / errors[1] > 12.0
    assert errors[1] / errors[2] > 12.0
    assert errors[2] < 1e-9


def test_the_force_of_a_large_damper_is_solved_within_the_sample(actuator: Callable[..., Any]) -> None:
    """It depends on the velocity that it slows down: the few passes are enough for 0.3 um in 57 mm."""
    commands = 6.0 * (DT * np.arange(1, 101)) ** 2
    damper = {"stiffness": 0.0, "damping": 0.64e6}
    usual, fine = (
        follow(actuator("servo_hydraulic", damper, substeps=substeps, hold="ramp"), commands)
        for substeps in (4, 64)
    )
    assert np.abs(usual - fine).max() < 3e-7


def test_a_small_slow_signal_is_late_by_one_over_the_gain(actuator: Callable[..., Any]) -> None:
    omega = 2.0 * np.pi * 0.5
    time = DT * np.arange(1, 4097)
    shown = follow(actuator("servo_hydraulic", hold="ramp"), 0.001 * np.sin(omega * time))[2048:]
    phase = np.angle(np.sum(shown * np.exp(-1j * omega * time[2048:]))) + np.pi / 2.0
    assert -phase / omega == pytest.approx(28.0 / 1024.0, abs=0.5e-3)


def test_a_staircase_is_half_a_sample_later_than_a_ramp(actuator: Callable[..., Any]) -> None:
    commands = 0.01 * DT * np.arange(1, 1001)
    stairs, ramp = (follow(actuator("servo_hydraulic", hold=hold), commands)[-1] for hold in ("staircase", "ramp"))
    assert stairs - ramp == pytest.approx(0.01 * DT / 2.0, rel=1e-3)


def test_a_computed_spring_does_not_hold_it_back(make: Callable[..., Any]) -> None:
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


# Linear plants, solved exactly

P2 = {"natural_frequency": 15.571359045, "damping_ratio": 0.6415455449}
OMEGA, ZETA = 2.0 * np.pi * P2["natural_frequency"], P2["damping_ratio"]
HOLDS = ("staircase", "ramp")


def sine_response(actuator: Any, frequency: float, amplitude: float = 1e-3, lead: int = 0) -> complex:
    """Displacement over command at ``frequency`` (Hz), after the transient; the command leads by ``lead`` samples.

    Over a whole number of periods, so that a projection onto the frequency gives the response exactly.
    """
    periods = max(1, round(frequency))  # in one second: DT has a whole number of samples in it
    omega = 2.0 * np.pi * periods
    time = DT * np.arange(1, 3073)
    shown = follow(actuator, amplitude * np.sin(omega * (time + lead * DT)))[2048:]
    return complex(2.0 * np.mean(shown * np.exp(-1j * omega * time[2048:])) / (-1j * amplitude))


@pytest.mark.parametrize(("frequency", "delay"), [(2.0, 13.70e-3), (10.0, 15.63e-3)])
def test_p2_has_the_delays_of_the_tests_on_a_held_command(
    actuator: Callable[..., Any], frequency: float, delay: float
) -> None:
    """A command computed at the beginning of the sample in which it acts: one sample of transport is in it."""
    response = sine_response(actuator("second_order"), frequency, lead=-1)
    assert -np.angle(response) / (2.0 * np.pi * frequency) == pytest.approx(delay, abs=0.02e-3)


@pytest.mark.parametrize("frequency", [30.0, 10.0])
def test_at_the_natural_frequency_the_lag_is_90_degrees(actuator: Callable[..., Any], frequency: float) -> None:
    late = actuator("second_order", natural_frequency=frequency, damping_ratio=0.7, hold="ramp")
    response = sine_response(late, frequency)
    assert np.degrees(np.angle(response)) == pytest.approx(-90.0, abs=0.01)
    assert abs(response) == pytest.approx(1.0 / (2.0 * 0.7), rel=0.004)


def test_the_step_response_of_the_second_order_is_its_closed_form(actuator: Callable[..., Any]) -> None:
    late = actuator("second_order", **P2)
    shown, speeds = [], []
    for _ in range(200):
        late.step(1.0)
        shown.append(late.displacement)
        speeds.append(late.velocity)
    time, damped = DT * np.arange(1, 201), OMEGA * math.sqrt(1.0 - ZETA**2)
    fading = np.exp(-ZETA * OMEGA * time)
    swing = np.cos(damped * time) + ZETA * OMEGA / damped * np.sin(damped * time)
    np.testing.assert_allclose(shown, 1.0 - fading * swing, atol=1e-13)
    np.testing.assert_allclose(speeds, fading * OMEGA**2 / damped * np.sin(damped * time), atol=1e-11)


def commands_at_random(count: int = 300) -> np.ndarray:
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
def test_a_transfer_function_moves_as_scipy_has_it(
    actuator: Callable[..., Any], hold: str, numerator: list[float], denominator: Any
) -> None:
    plant = actuator(
        "transfer_function", numerator=numerator, denominator=list(map(float, denominator)), hold=hold
    )
    numerator = np.trim_zeros(numerator)
    commands = commands_at_random()
    shown = follow(plant, commands)
    if hold == "ramp":
        time = DT * np.arange(len(commands) + 1)
        _, expected, _ = signal.lsim((numerator, denominator), np.append(0.0, commands), time)
    else:  # held over the sample that ends at its number: at the instants the command of the next one
        time = DT * np.arange(len(commands) + 1)
        _, expected, _ = signal.lsim((numerator, denominator), np.append(commands, 0.0), time, interp=False)
    np.testing.assert_allclose(shown, expected[1:], atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("hold", HOLDS)
def test_the_second_order_is_its_transfer_function(actuator: Callable[..., Any], hold: str) -> None:
    one = actuator("second_order", **P2, hold=hold)
    coefficients = {"numerator": [OMEGA**2], "denominator": [1.0, 2.0 * ZETA * OMEGA, OMEGA**2]}
    other = actuator("transfer_function", **coefficients, hold=hold)
    for command in commands_at_random(100).tolist():
        one.step(command)
        other.step(command)
        assert other.displacement == pytest.approx(one.displacement, rel=1e-10, abs=1e-12)
        assert other.velocity == pytest.approx(one.velocity, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("name", ["second_order", "amplitude_dependent"])
def test_the_velocity_is_the_derivative_at_the_sample(
    actuator: Callable[..., Any], make: Callable[..., Any], name: str, hold: str
) -> None:
    """The same command in steps a hundred times as fine: the displacements before the sample tell the slope."""
    fine = 100
    coarse = actuator(name, **({"memory": 1e6, "saturation_velocity": 1e9} if "depend" in name else {}), hold=hold)
    free = make("specimen", "kelvin_voigt", **FREE)
    detailed = make("actuator", "second_order", DT / fine, free, hold=hold)
    before = 0.0
    for command in 1e-3 * commands_at_random(20):
        coarse.step(float(command))
        start = before if hold == "ramp" else command
        way = [start + (command - start) * part / fine for part in range(1, fine + 1)]
        last = [0.0, 0.0, *follow(detailed, np.array(way))][-3:]
        slope = (1.5 * last[2] - 2.0 * last[1] + 0.5 * last[0]) * fine / DT
        assert coarse.displacement == pytest.approx(last[2], rel=1e-8, abs=1e-12)
        assert coarse.velocity == pytest.approx(slope, rel=1e-4, abs=1e-6)
        before = command


@pytest.mark.parametrize(("numerator", "gain"), [([100.0], 1.0), ([80.0], 0.8)])
def test_a_transfer_function_settles_at_its_dc_gain(
    actuator: Callable[..., Any], numerator: list[float], gain: float
) -> None:
    data = {"numerator": numerator, "denominator": [1.0, 15.0, 100.0]}
    plant = actuator("transfer_function", **data)
    assert plant.dc_gain == gain
    assert follow(plant, np.full(4096, 0.01))[-1] == pytest.approx(0.01 * gain, rel=1e-9)
    cautions = from_data(registry.load("actuator", "transfer_function").Params, data).cautions(None)
    assert each_mentions(cautions, *([] if gain == 1.0 else [("numerator[-1] / denominator[-1]", "0.8")]))


def test_a_ramp_reaches_the_velocity_of_its_command_even_with_feedthrough(actuator: Callable[..., Any]) -> None:
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
    ("data", "words"),
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
def test_refuses_what_is_no_actuator(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(registry.load("actuator", "transfer_function").Params, data, "actuator")


def test_refuses_dynamics_that_cannot_be_solved(actuator: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("solved", "step")):
        actuator("transfer_function", numerator=[1e50], denominator=[1e-50, 1e50])


@pytest.mark.parametrize("name", ["second_order", "amplitude_dependent"])
def test_the_force_belongs_to_the_exact_velocity(actuator: Callable[..., Any], name: str) -> None:
    moved = actuator(name, {"stiffness": 3.0, "damping": 2.0})
    for command in (0.1, 0.3, 0.2):
        moved.step(command)
        assert moved.force == pytest.approx(3.0 * moved.displacement + 2.0 * moved.velocity)


# The faster, the later


@pytest.mark.parametrize("hold", HOLDS)
def test_without_saturation_it_is_the_second_order(actuator: Callable[..., Any], hold: str) -> None:
    linear = follow(actuator("second_order", **P2, hold=hold), commands_at_random())
    shown = follow(actuator("amplitude_dependent", **P2, saturation_velocity=1e9, hold=hold), commands_at_random())
    np.testing.assert_allclose(shown, linear, atol=1e-11)


@pytest.mark.parametrize("amplitude", [0.002, 0.010, 0.030])
def test_a_steady_vibration_sees_the_natural_frequency_of_its_velocity(
    actuator: Callable[..., Any], amplitude: float
) -> None:
    data: dict[str, Any] = {"memory": 1e4, "hold": "ramp"}
    response = sine_response(actuator("amplitude_dependent", **P2, **data), 2.0, amplitude)
    velocity = abs(response) * 2.0 * np.pi * 2.0 * amplitude
    slower = P2["natural_frequency"] / math.hypot(1.0, velocity / 0.3)
    linear = actuator("second_order", natural_frequency=slower, damping_ratio=ZETA, hold="ramp")
    # the first swing from rest may have been faster than the steady one
    assert response == pytest.approx(sine_response(linear, 2.0, amplitude), rel=0.02)


def test_the_delay_grows_with_amplitude_and_the_amplitude_is_forgotten(actuator: Callable[..., Any]) -> None:
    delays = [
        -np.angle(sine_response(actuator("amplitude_dependent", hold="ramp"), 2.0, amplitude)) / (4.0 * np.pi)
        for amplitude in (1e-5, 0.01, 0.03)
    ]
    assert delays[0] == pytest.approx(13.21e-3, abs=0.02e-3)
    assert delays[2] > delays[1] + 2e-3 > delays[0] + 2e-3
    tired = actuator("amplitude_dependent", hold="ramp")
    follow(tired, 0.03 * np.sin(4.0 * np.pi * DT * np.arange(1, 1025)))
    follow(tired, np.zeros(5 * 1024))
    assert sine_response(tired, 2.0, 1e-5) == pytest.approx(
        sine_response(actuator("second_order", **P2, hold="ramp"), 2.0, 1e-5), rel=1e-3
    )


def test_a_command_beyond_all_bounds_leaves_numbers_not_exceptions(actuator: Callable[..., Any]) -> None:
    for name in ("second_order", "amplitude_dependent"):
        wild = actuator(name)
        for command in (1e300, -1e300, math.inf, math.nan, 0.0):
            wild.step(command)
        assert isinstance(wild.displacement, float)
