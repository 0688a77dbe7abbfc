# SPDX-License-Identifier: Apache-2.0
"""Tests of the adaptive time series compensator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loop_parts import make, simulate
from messages import naming
from scipy.linalg import expm

from rths_nodes.control.compensators.adaptive_time_series import (
    Fit,
    constants,
    empty,
    fitted,
    with_row,
    without_oldest,
)
from rths_nodes.control.compensators.derivative_filter import DerivativeFilter
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data

DT = 1.0 / 1024.0
FREQUENCY, DAMPING_RATIO = 15.571359045, 0.6415455449
"""Of a servo-hydraulic actuator with 13.7 ms of delay at 2 Hz."""
W = 2.0 * math.pi * FREQUENCY
INVERSE = (1.0, 2.0 * DAMPING_RATIO / W, 1.0 / W**2)
DELAY = 0.008
"""A bad guess: the delay of the plant is 13.1 ms."""


class SecondOrder:
    """w^2 (u - x) = x'' + 2 zeta w x', with a command linear between samples: solved exactly."""

    def __init__(self, frequency: float = FREQUENCY, damping_ratio: float = DAMPING_RATIO) -> None:
        w = 2.0 * math.pi * frequency
        system = np.zeros((4, 4))
        system[:2] = [[0.0, 1.0, 0.0, 0.0], [-(w**2), -2.0 * damping_ratio * w, w**2, 0.0]]
        system[2, 3] = 1.0 / DT
        self._rows = expm(system * DT)[:2].tolist()
        self.state = (0.0, 0.0)
        self._before = 0.0

    def step(self, command: float) -> float:
        inputs = (*self.state, self._before, command - self._before)
        x, v = (sum(map(float.__mul__, row, inputs)) for row in self._rows)
        self.state, self._before = (x, v), command
        return x


class PureDelay:
    """The command some samples ago."""

    def __init__(self, samples: int) -> None:
        self._commands = [0.0] * samples

    def step(self, command: float) -> float:
        self._commands.append(command)
        return self._commands.pop(0)


def parts(x: np.ndarray) -> np.ndarray:
    """Displacement, velocity, acceleration ``(3, n)``."""
    v = np.gradient(x, DT)
    return np.array([x, v, np.gradient(v, DT)])


def growing(seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Times, and a factor that grows from 0 to 1 in the first second, smoothly."""
    times = DT * np.arange(1, round(seconds / DT) + 1)
    share = np.clip(times, 0.0, 1.0)
    return times, share**3 * (10.0 - 15.0 * share + 6.0 * share**2)


def rich(seconds: float, amplitude: float = 0.01) -> np.ndarray:
    """Six sines between 0.4 and 4.5 Hz: a motion that determines all three coefficients."""
    times, factor = growing(seconds)
    sines = [np.sin(2.0 * math.pi * f * times + f) for f in (0.4, 0.9, 1.7, 2.6, 3.5, 4.5)]
    return parts(amplitude * factor * np.sum(sines, axis=0) / 2.0)


def sine(seconds: float, frequency: float = 1.0, amplitude: float = 0.01) -> np.ndarray:
    times, factor = growing(seconds)
    return parts(amplitude * factor * np.sin(2.0 * math.pi * frequency * times))


def follow(
    compensator: Any, plant: Any, target: np.ndarray, noise_rms: float = 0.0, flagged: slice = slice(0)
) -> tuple[np.ndarray, np.ndarray]:
    """Displacements of the plant ``(n,)`` and coefficients ``(n, 3)``."""
    noise = noise_rms * np.random.default_rng(7).normal(size=target.shape[1])
    bridged = np.zeros(target.shape[1], dtype=bool)
    bridged[flagged] = True
    measured, moved, coefficients = 0.0, [], []
    for k, (x, v, a) in enumerate(target.T):
        motion = Motion(np.array([x]), np.array([v]), np.array([a]), bool(bridged[k]))
        measured = plant.step(float(compensator.step(motion, np.array([measured + noise[k]]))[0]))
        moved.append(measured)
        coefficients.append(tuple(compensator.state()))
    return np.array(moved), np.array(coefficients)


def gain(plant: Callable[[], Any], noise_rms: float = 0.0) -> tuple[np.ndarray, float]:
    """Last coefficients, and ratio of the errors of the guess and of the adapted law in the last second."""
    target = rich(8.0)
    adapted, coefficients = follow(series(), plant(), target, noise_rms)
    guessed, _ = follow(series(rate=[0.0, 0.0, 0.0]), plant(), target, noise_rms)
    worst = [float(np.abs(moved - target[0])[-1024:].max()) for moved in (guessed, adapted)]
    return coefficients[-1], worst[0] / worst[1]


def series(**data: Any) -> Any:
    return make("compensator", "adaptive_time_series", DT, 1, **({"delay": DELAY} | data))


@pytest.mark.parametrize(("noise", "rtol", "smallest"), [(0.0, 2e-3, 1000.0), (5e-6, 0.02, 500.0)])
def test_inverse_of_second_order_plant_is_identified(noise: float, rtol: float, smallest: float) -> None:
    coefficients, factor = gain(SecondOrder, noise_rms=noise)
    np.testing.assert_allclose(coefficients, INVERSE, rtol=rtol)
    assert factor > smallest


def test_pure_delay_is_identified() -> None:
    """The series of exp(s delay); the residual is its third term."""
    coefficients, factor = gain(lambda: PureDelay(14))
    delay = 14 * DT
    np.testing.assert_allclose(coefficients, (1.0, delay, delay**2 / 2.0), rtol=0.1)
    np.testing.assert_allclose(coefficients[1], delay, rtol=0.02)
    assert factor > 30.0


def test_first_order_actuator_is_identified_in_loop() -> None:
    """alpha = 29: the inverse is x + 28 dt x' - 14 dt^2 x''; a sine determines a0 - w^2 a2 only."""
    data = {"type": "adaptive_time_series", "delay": 0.02}
    overrides = [f"compensator.{key}={value}" for key, value in data.items()]
    outcome, _ = simulate("predefined_sine", "duration=5.0", "ramp.type=quadratic", *overrides)
    a0, a1, a2 = outcome.compensator.values()
    assert a1 == pytest.approx(28.0 * DT, rel=1e-4)
    assert a0 - (2.0 * math.pi) ** 2 * a2 == pytest.approx(1.0 + 14.0 * (2.0 * math.pi * DT) ** 2, abs=1e-6)


def test_changed_plant_is_identified_again() -> None:
    """Two windows later the first plant has no influence."""
    law = series(delay=0.0137)
    follow(law, SecondOrder(), rich(4.0))
    _, coefficients = follow(law, SecondOrder(frequency=14.0, damping_ratio=0.7), rich(6.0))
    w = 2.0 * math.pi * 14.0
    np.testing.assert_allclose(coefficients[-1], (1.0, 1.4 / w, 1.0 / w**2), rtol=5e-3)


def test_amplitude_error_is_compensated() -> None:
    class Small(SecondOrder):
        def step(self, command: float) -> float:
            return 0.9 * super().step(command)

    _, coefficients = follow(series(), Small(), rich(8.0))
    np.testing.assert_allclose(coefficients[-1], np.array(INVERSE) / 0.9, rtol=5e-3)


def test_coefficient_without_range_stays_constant() -> None:
    """With a2 = 0 it is the adaptive law of first order."""
    law = series(initial=[1.0, DELAY, 0.0], lower=[0.7, 0.0, 0.0], upper=[1.3, 0.02, 0.0])
    _, coefficients = follow(law, SecondOrder(), sine(6.0))
    np.testing.assert_array_equal(coefficients[:, 2], 0.0)
    np.testing.assert_allclose(coefficients[-1, 1], INVERSE[1], rtol=1e-3)
    w = 2.0 * math.pi
    np.testing.assert_allclose(coefficients[-1, 0], 1.0 - (w / W) ** 2, rtol=1e-4)


def test_regularization_limits_drift_at_one_frequency() -> None:
    """A sine determines a0 - w^2 a2 only; without regularization noise moves the rest."""

    def wander(ratio: float) -> np.ndarray:
        _, coefficients = follow(series(regularization_ratio=ratio), SecondOrder(), sine(5.0), noise_rms=5e-6)
        return np.ptp(coefficients[-2 * 1024 :], axis=0)

    calm, published = wander(1e-3), wander(1e-12)
    assert published[2] > 10.0 * calm[2]
    assert published[0] > 5.0 * calm[0]


def test_coefficients_stay_within_limits() -> None:
    lower, upper = [0.95, 0.007, 1e-5], [0.999, 0.011, 5e-5]
    law = series(initial=[0.97, 0.008, 2e-5], lower=lower, upper=upper)
    _, coefficients = follow(law, SecondOrder(), rich(6.0))
    assert np.all(coefficients >= lower)
    assert np.all(coefficients <= upper)
    assert (coefficients[-1, 1], coefficients[-1, 2]) == (0.011, 5e-5)


def test_coefficient_rates_are_limited() -> None:
    rate = np.array([0.002, 0.001, 1e-5])
    _, coefficients = follow(series(rate=rate.tolist()), SecondOrder(), rich(5.0))
    moved = np.abs(np.diff(coefficients, axis=0)).max(axis=0)
    np.testing.assert_allclose(moved, rate * DT, rtol=1e-6)


def test_default_limits_and_rates_follow_from_delay() -> None:
    _, coefficients = follow(series(), SecondOrder(frequency=3.0), rich(5.0))
    assert coefficients[0].tolist() == [1.0, DELAY, DELAY**2 / 2.0]
    assert coefficients[:, 1].max() == 2.5 * DELAY
    rates = np.abs(np.diff(coefficients, axis=0)).max(axis=0)
    assert np.all(rates <= np.array([0.6, 2.5 * DELAY, 2.5 * DELAY**2]) / 2.0 * DT * (1.0 + 1e-9))


def test_adaptation_needs_trigger_amplitude() -> None:
    target = rich(3.0, amplitude=1e-3)
    peak = float(np.abs(target[0]).max())
    _, coefficients = follow(series(trigger_amplitude=1.05 * peak), SecondOrder(), target)
    np.testing.assert_array_equal(coefficients, np.tile([1.0, DELAY, DELAY**2 / 2.0], (len(coefficients), 1)))
    _, coefficients = follow(series(trigger_amplitude=0.5 * peak), SecondOrder(), target)
    assert coefficients[-1, 1] != DELAY


def test_coefficients_stay_constant_after_motion() -> None:
    """No drift in the quiet tail, where no row of the window exceeds the trigger."""
    motion = rich(4.0) * np.clip(4.0 - DT * np.arange(1, 4 * 1024 + 1), 0.0, 1.0)
    target = np.concatenate((motion, np.zeros((3, 6 * 1024))), axis=1)
    _, coefficients = follow(series(), SecondOrder(), target, noise_rms=5e-6)
    assert np.ptp(coefficients[-4 * 1024 :], axis=0).tolist() == [0.0, 0.0, 0.0]


def test_flagged_samples_pause_adaptation() -> None:
    flagged = slice(1500, 3000)
    _, coefficients = follow(series(), SecondOrder(), rich(5.0), flagged=flagged)
    assert np.ptp(coefficients[flagged], axis=0).tolist() == [0.0, 0.0, 0.0]
    assert np.ptp(coefficients[3000 : 3000 + 40], axis=0).tolist() == [0.0, 0.0, 0.0]  # the filter settles
    assert np.ptp(coefficients[:1500, 1]) > 0.0
    np.testing.assert_allclose(coefficients[-1], INVERSE, rtol=5e-3)


@pytest.mark.parametrize("decimation", [1, 2, 16])
def test_axes_adapt_independently(decimation: int) -> None:
    """An axis adapts equally alone and in a rig of three, except for the sample of its fit."""
    data = {"delay": DELAY, "decimation": decimation, "window": 0.5}
    target = rich(1.5)
    plants = [SecondOrder(), PureDelay(9), SecondOrder(damping_ratio=0.5)]
    together = make("compensator", "adaptive_time_series", DT, 3, **data)
    measured = np.zeros(3)
    for x, v, a in target.T:
        command = together.step(Motion(*(np.full(3, value) for value in (x, v, a))), measured)
        measured = np.array([plant.step(float(u)) for plant, u in zip(plants, command, strict=True)])
    states = np.reshape(together.state(), (3, 3))
    for axis, plant in enumerate((SecondOrder(), PureDelay(9), SecondOrder(damping_ratio=0.5))):
        coefficients = follow(make("compensator", "adaptive_time_series", DT, 1, **data), plant, target)[1][-1]
        np.testing.assert_allclose(states[axis], coefficients, rtol=1e-12 if axis % decimation == 0 else 0.02)


def test_derivative_filter_has_butterworth_response() -> None:
    """Butterworth: |H| = 1 / sqrt(1 + (f / fc)^8), and a derivative is a factor of j f / fc."""
    cutoff, f = 20.0, 13.0
    phases = 2.0 * math.pi * f * DT * np.arange(1024)
    states = DerivativeFilter(cutoff, DT).states(np.column_stack([np.cos(phases), np.sin(phases)]))[-1]
    z = states[:, 0] + 1j * states[:, 1]
    assert abs(z[0]) == pytest.approx((1.0 + (f / cutoff) ** 8) ** -0.5, rel=2e-3)  # linear between samples
    np.testing.assert_allclose(z[1:] / z[:-1], 1j * f / cutoff, rtol=2e-3, atol=2e-3)


def test_derivative_filter_is_exact_on_straight_line() -> None:
    """It lags by 2.6131 / w, and its slope is the line's."""
    low_pass = DerivativeFilter(20.0, DT)
    w = low_pass.frequency
    states = low_pass.states(0.3 * DT * np.arange(2048.0)[:, None])[-1]
    lag = 2.0 * (math.cos(math.pi / 8.0) + math.cos(3.0 * math.pi / 8.0)) / w
    expected = [0.3 * (2047 * DT - lag), 0.3 / w, 0.0, 0.0]
    np.testing.assert_allclose(states[:, 0], expected, rtol=1e-9, atol=1e-12)


def test_fit_equals_least_squares_over_window() -> None:
    """Reference: numpy.linalg.lstsq over the last rows."""
    cls = registry.load("compensator", "adaptive_time_series")
    bounds = {"lower": [-9.0, -9.0, -9.0], "upper": [9.0, 9.0, 9.0]}
    data = {"delay": 0.1, "window": 20 * 16 * DT, "regularization_ratio": 1e-12, "trigger_amplitude": 1e-9}
    k = constants(from_data(cls.Params, data | bounds, "x"), DT)
    fit, window = k.fit._replace(powers=(1.0, 3.0, 9.0), shares=(18.0, 54.0, 162.0)), empty(k.rows)
    rng = np.random.default_rng(8)
    rows, sent = rng.normal(size=(50, 3)), rng.normal(size=50)
    for measured, command in zip(rows.tolist(), sent.tolist(), strict=True):
        window = with_row(fit, without_oldest(fit, window), *measured, command)
    coefficients = fitted(fit, window, (1.0, 0.1, 0.01))
    expected = np.linalg.lstsq(rows[-20:] * 3.0 ** np.arange(3), sent[-20:], rcond=None)[0]
    np.testing.assert_allclose(coefficients, expected, rtol=1e-6)


def test_sums_forget_rows_outside_window() -> None:
    """An earlier motion, a million times larger, leaves no rounding errors in the sums."""
    fit, window = Fit((0.0,) * 3, (1.0,) * 3, (1.0,) * 3, (1.0,) * 3, 1e-3, 1e-3), empty(20)
    rows = np.random.default_rng(9).normal(size=(75, 4)) * np.where(np.arange(75) < 25, 1e3, 1e-3)[:, None]
    for row in rows.tolist():
        window = with_row(fit, without_oldest(fit, window), *row)
    x, y, z, u = rows[-20:].T
    pairs = [(x, x), (x, y), (x, z), (y, y), (y, z), (z, z), (x, u), (y, u), (z, u)]
    sums, large = window[2]
    np.testing.assert_allclose(sums, [p @ q for p, q in pairs], rtol=1e-10)
    assert large == np.sum(np.abs(x) > 1e-3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"delay": 0.0}, ("compensator.delay", "0 s", "> 0 s")),
        ({"window": 0.05}, ("compensator.window", "0.05 s", ">= 0.09375 s")),
        ({"cutoff_frequency": 512.0}, ("compensator.cutoff_frequency", "512 Hz", "< 512 Hz")),
        ({"initial": [1.0, 0.01]}, ("compensator.initial", "2", "numbers", "3")),
        ({"initial": [1.5, 0.01, 1e-5]}, ("compensator.initial[0]", "1.5", "0.7")),
        ({"upper": [1.3, 0.001, 1e-4]}, ("compensator.initial[1]", "0.008")),
        ({"rate": [-1.0, 0.1, 0.1]}, ("compensator.rate",)),
    ],
)
def test_invalid_parameters_are_refused(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        series(**data)


def test_state_has_names_units_and_spans() -> None:
    law = series(window=2.0)
    assert law.state_names == ("a0[0]", "a1[0]", "a2[0]")
    assert law.state_units == {"a0": "1", "a1": "s", "a2": "s^2"}
    assert law.Params(delay=DELAY, window=2.0).spans() == {"window": 2.0, "delay": DELAY}
