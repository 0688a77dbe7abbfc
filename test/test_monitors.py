"""Indices: closed forms of error, tracking indicator, delay and energy; the limits on them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rths_nodes.components import Command, Measurement, Target
from rths_nodes.monitors import (
    BLOCK,
    ControlError,
    Delay,
    EnergyMonitor,
    Monitor,
    MonitorParams,
    TrackingIndicator,
)
from rths_nodes.params import build

DT = 1.0 / 1024.0
PERIOD = 1000
"""Samples per period of the sines here."""


def sine(phase: float, periods: int = 3, amplitude: float = 1.0) -> np.ndarray:
    angle = 2.0 * np.pi * np.arange(periods * PERIOD + 1) / PERIOD
    return amplitude * np.sin(angle + phase)[:, None]


# Control error


def test_error_norm_is_eq_15_and_errors_are_relative_to_the_largest_target() -> None:
    target = np.array([[1.0, 0.0], [-4.0, 3.0], [2.0, 4.0]])
    measured = 0.9 * target
    error = ControlError(2)
    error.update(target[:2], measured[:2])
    error.update(target[2:], measured[2:])
    np.testing.assert_allclose(error.maximum, [0.4, 0.4])
    np.testing.assert_allclose(error.percent, [10.0, 10.0])
    np.testing.assert_allclose(error.norm_percent, [10.0, 10.0])


def test_error_norm_sums_squares() -> None:
    error = ControlError(1)
    error.update(np.array([[3.0], [4.0]]), np.array([[3.0], [3.0]]))
    assert error.norm_percent[0] == pytest.approx(100.0 * math.sqrt(1.0 / 25.0))


def test_without_motion_relative_errors_are_not_a_number() -> None:
    error = ControlError(1)
    error.update(np.zeros((3, 1)), np.zeros((3, 1)))
    assert math.isnan(error.percent[0])
    assert math.isnan(error.norm_percent[0])


# Tracking indicator


@pytest.mark.parametrize("phi", [0.3, 0.01, -0.2])
def test_the_indicator_of_a_lagging_sine_grows_by_pi_x2_sin_phi_a_period(phi: float) -> None:
    indicator = TrackingIndicator(1)
    indicator.update(sine(0.0, amplitude=0.02), sine(-phi, amplitude=0.02))
    growth = np.diff(indicator.history[::PERIOD, 0])
    expected = math.pi * 0.02**2 * math.sin(phi)
    np.testing.assert_allclose(growth, expected, rtol=1e-4)  # of the circle: the polygon is smaller
    np.testing.assert_allclose(
        growth, expected * math.sin(2 * math.pi / PERIOD) / (2 * math.pi / PERIOD), rtol=1e-9
    )


def test_the_indicator_does_not_depend_on_the_blocks() -> None:
    whole, parts = TrackingIndicator(1), TrackingIndicator(1)
    c, m = sine(0.0), sine(-0.3)
    whole.update(c, m)
    for start in range(0, len(c), 77):
        parts.update(c[start : start + 77], m[start : start + 77])
    np.testing.assert_allclose(parts.value, whole.value, rtol=1e-12)


# Delay


def wave(time: np.ndarray) -> np.ndarray:
    """Something like the displacement in an earthquake, time in samples."""
    return sum(np.sin(2.0 * np.pi * f * DT * time + p) / f for f, p in ((0.7, 0.1), (1.9, 2.0), (4.3, 4.0)))


@pytest.mark.parametrize("lag", [0.0, 0.25, 0.5, 1.0, 12.6, 28.0, 90.9, -0.4, -7.3, -90.1])
def test_delay_finds_a_known_lag_of_either_sign(lag: float) -> None:
    time = np.arange(8000.0)
    delay = Delay(1, 100)
    for start in range(0, 8000, BLOCK):
        part = time[start : start + BLOCK, None]
        delay.update(wave(part), wave(part - lag))
    assert delay.samples()[0] == pytest.approx(lag, abs=0.02)


def test_an_offset_or_another_scale_does_not_pull_the_delay() -> None:
    time = np.arange(8000.0)[:, None]
    delay = Delay(1, 100)
    delay.update(wave(time) + 5.0, 0.5 * wave(time - 12.6) - 3.0)
    assert delay.samples()[0] == pytest.approx(12.6, abs=0.02)


def test_each_axis_has_its_own_delay() -> None:
    time = np.arange(4000.0)[:, None]
    delay = Delay(2, 50)
    delay.update(np.hstack((wave(time), wave(time))), np.hstack((wave(time - 3.0), wave(time + 5.0))))
    np.testing.assert_allclose(delay.samples(), [3.0, -5.0], atol=0.02)


def test_without_motion_or_in_a_short_test_there_is_no_delay() -> None:
    still, short = Delay(1, 10), Delay(1, 100)
    still.update(np.zeros((100, 1)), np.zeros((100, 1)))
    short.update(np.ones((100, 1)), np.ones((100, 1)))
    assert math.isnan(still.samples()[0])
    assert math.isnan(short.samples()[0])


# Energy


def target(step: int, x: float, external: float) -> Target:
    """Target i brings the external force of step i - 1."""
    nothing = np.zeros(1)
    return Target(step, np.array([x]), nothing, nothing, nothing, np.array([external]), nothing)


def energy_of(phi: float, elastic: float = 0.0) -> EnergyMonitor:
    """Three periods: specimen k = 5 N/m, amplitude 2 m, external force 7 N at right angles to x."""
    monitor = EnergyMonitor(1, elastic)
    c, m = sine(0.0, amplitude=2.0), sine(-phi, amplitude=2.0)
    external = sine(0.5 * math.pi, amplitude=7.0)[:, 0]
    for step in range(len(c) + 1):
        now = min(step, len(c) - 1)
        monitor.target(target(step, float(c[now, 0]), float(external[step - 1]) if step else 0.0))
    monitor._difference, monitor._force = m[0] - c[0], 5.0 * m[0]  # as if it had always been so
    monitor.update(c, m, 5.0 * m)
    return monitor


@pytest.mark.parametrize("phi", [0.1, -0.3])
def test_hsem_of_a_spring_behind_a_lagging_actuator(phi: float) -> None:
    """Energy error k pi X^2 sin(phi), input energy pi F X a period; lag feeds energy in."""
    monitor = energy_of(phi)
    assert monitor.error == pytest.approx(3 * 5.0 * math.pi * 2.0**2 * math.sin(phi), rel=1e-4)
    assert monitor.input == pytest.approx(3 * math.pi * 7.0 * 2.0, rel=1e-4)
    assert monitor.percent == pytest.approx(100.0 * 5.0 * 2.0 * math.sin(phi) / 7.0, rel=1e-4)


def test_the_running_form_adds_the_strain_energy_at_yield() -> None:
    monitor = energy_of(0.1, elastic=50.0)
    expected = 100.0 * monitor.error / (monitor.input + 50.0)
    assert monitor.running_percent(monitor.error) == pytest.approx(expected)


def test_perfect_tracking_has_no_energy_error() -> None:
    assert energy_of(0.0).percent == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(EnergyMonitor(1, 0.0).percent)


# The monitor


@pytest.fixture
def monitor() -> Callable[..., Monitor]:
    def monitor(elastic: float = 1.0, **data: float) -> Monitor:
        return Monitor(build(MonitorParams, data, "monitor"), ("a",), 1, DT, elastic)

    return monitor


def feed(monitor: Monitor, c: np.ndarray, m: np.ndarray, force: np.ndarray) -> None:
    for k in range(len(c)):
        command = Command(k, c[k], c[k]) if k else None
        monitor.step(command, Measurement(k, m[k], force[k], c[k]))


def test_metrics_have_their_names(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    for step, x in enumerate((0.0, 0.3, -0.4, 0.1)):
        watching.target(target(step, x, 0.0))
    feed(watching, sine(0.0), sine(-0.1), sine(0.0))
    metrics = watching.metrics()
    assert set(metrics) == {
        "axes",
        "hsem_percent",
        "max_displacement_m",
        "min_displacement_m",
        "end_displacement_m",
    }
    assert set(metrics["axes"]["a"]) == {
        "max_error_m",
        "max_error_percent",
        "error_norm_percent",
        "delay_s",
        "tracking_indicator_m2",
    }
    assert [metrics[f"{name}_displacement_m"] for name in ("max", "min", "end")] == [0.3, -0.4, 0.1]
    assert metrics["axes"]["a"]["delay_s"] == pytest.approx(0.1 / (2 * math.pi) * PERIOD * DT, abs=0.02 * DT)


def test_what_the_status_shows_is_the_sample_of_its_number(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    c, m = sine(0.0), sine(-0.1)
    for count in (BLOCK, BLOCK + 5):
        watching = monitor()
        feed(watching, c[:count], m[:count], c[:count])
        status = watching.status()
        assert status["sample"] == count - 1
        assert status["control_error"] == [c[count - 1, 0] - m[count - 1, 0]]


def test_arrays_that_are_used_again_do_no_harm(monitor: Callable[..., Monitor]) -> None:
    """A returned array is valid until the next step only: who keeps it copies it."""
    fresh, reused = monitor(), monitor()
    shared = target(0, 0.0, 0.0)
    for step, x in enumerate(np.sin(np.arange(20.0)).tolist()):
        fresh.target(target(step, x, float(step)))
        shared.step, shared.displacement[0], shared.external_force[0] = step, x, float(step)
        reused.target(shared)
    shared.displacement[0] = 99.0
    assert reused.energy.input == fresh.energy.input
    assert reused.metrics()["end_displacement_m"] == fresh.metrics()["end_displacement_m"]


def test_limits_are_off_when_left_out(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    feed(watching, sine(0.0), sine(-1.0), 1e9 * sine(0.0))
    assert watching.breach is None


def test_the_energy_limit_names_the_sample_of_the_breach(monitor: Callable[..., Monitor]) -> None:
    watching = monitor(elastic=2.0, energy_error_percent=10.0)
    c = np.zeros((100, 1))
    m = np.zeros((100, 1))
    m[50:] = 1.0  # a step of 1 m against a mean force of 0.5 N: 0.5 J of 2 J
    feed(watching, c, m, m)
    assert watching.breach == (50, "monitor.energy_error_percent: 25 %: must be within +- 10 %")


def test_the_rate_of_the_indicator_is_limited(monitor: Callable[..., Monitor]) -> None:
    rate = 0.5 * math.sin(2 * math.pi / PERIOD) * math.sin(0.3) / DT
    for limit, breached in ((1.001 * rate, False), (0.999 * rate, True)):
        watching = monitor(tracking_indicator_rate=limit)
        feed(watching, sine(0.0), sine(-0.3), sine(0.0))
        assert (watching.breach is not None) == breached


def test_what_is_not_a_number_is_a_breach(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    m = sine(0.0).copy()
    m[40] = math.nan
    feed(watching, sine(0.0), m, sine(0.0))
    assert watching.breach is not None
    assert "tracking_indicator: nan" in watching.breach[1]


def test_samples_of_the_safe_stop_do_not_count(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    feed(watching, sine(0.0), sine(-0.1), sine(0.0))
    before = watching.metrics()
    watching.skip(99_999)
    assert watching.metrics() == before
    assert watching.sample == 99_999
