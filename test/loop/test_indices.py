# SPDX-License-Identifier: Apache-2.0
"""Tests of the indices: tracking error and indicator, delay, energy error, their limits, live curves."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from driven_kernels import SAMPLES, functions_of, in_c, numbers, same, wrong_in
from hypothesis import given
from hypothesis import strategies as st
from messages import each_mentions, mentions

from rths_nodes.core.samples import FLAG_SOFT_START, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.indices import energy_monitor
from rths_nodes.loop.indices import tracking as axis
from rths_nodes.loop.indices.energy_monitor import FEW, EnergyMonitor
from rths_nodes.loop.indices.live_columns import (
    FIRST,
    HIGHEST,
    LAST,
    LOWEST,
    OF_AXIS,
    LiveColumns,
    curve_names,
    units,
)
from rths_nodes.loop.indices.tracking import CHUNK, Tracking, delay_notes, delay_samples, frequency_evaluation
from rths_nodes.loop.supervision.monitor import SPAN, Monitor, MonitorParams

DT = 1.0 / 1024.0
PERIOD = 1000
"""Samples per period of a sine."""


def sine(phase: float, periods: int = 3, amplitude: float = 1.0) -> np.ndarray:
    angle = 2.0 * np.pi * np.arange(periods * PERIOD + 1) / PERIOD
    return amplitude * np.sin(angle + phase)[:, None]


def test_errors_are_relative_to_largest_target() -> None:
    """Error norm: Eq. (15)."""
    target = np.array([[1.0, 0.0], [-4.0, 3.0], [2.0, 4.0]])
    measured = 0.9 * target
    tracking = Tracking(2, 1)
    tracking.over(target[:2], measured[:2])
    tracking.over(target[2:], measured[2:])
    np.testing.assert_allclose(tracking.maximum, [0.4, 0.4])
    np.testing.assert_allclose(tracking.percent, [10.0, 10.0])
    np.testing.assert_allclose(tracking.norm_percent, [10.0, 10.0])
    tracking = Tracking(1, 1)
    tracking.over(np.array([[3.0], [4.0]]), np.array([[3.0], [3.0]]))
    assert tracking.norm_percent[0] == pytest.approx(100.0 * math.sqrt(1.0 / 25.0))


def test_relative_errors_are_nan_for_target_at_rest() -> None:
    """Sensor noise before an earthquake was 13 933 % of the target."""
    tracking = Tracking(1, 1)
    tracking.over(np.zeros((3, 1)), np.zeros((3, 1)))
    assert math.isnan(tracking.percent[0])
    assert math.isnan(tracking.norm_percent[0])
    tracking = Tracking(2, 1)
    target = np.array([[1e-7, 1e-6], [-1e-7, 1e-6]])
    tracking.over(target, target + [5e-6, 5e-6])
    indices = tracking.indices(("quiet", "moved"), 0.001)
    assert math.isnan(indices["quiet"]["error_norm_percent"])
    assert math.isnan(indices["quiet"]["max_error_percent"])
    assert indices["quiet"]["max_error_m"] == pytest.approx(5e-6)
    assert indices["moved"]["error_norm_percent"] == pytest.approx(500.0)
    assert each_mentions(delay_notes({"quiet": indices["quiet"]}, 0.1), ("quiet", "target"))


def test_maximum_error_is_exact() -> None:
    """The square of the error is stored."""
    target, measured = np.random.default_rng(5).normal(0.0, 0.01, (2, 300, 3))
    tracking = Tracking(3, 1)
    tracking.over(target, measured)
    assert tracking.maximum == np.abs(target - measured).max(axis=0).tolist()
    assert tracking.reach == np.abs(target).max(axis=0).tolist()


@pytest.mark.parametrize("phi", [0.3, 0.01, -0.2])
def test_indicator_growth_per_period_of_lagging_sine(phi: float) -> None:
    indicator, _ = Tracking(1, 1).over(sine(0.0, amplitude=0.02), sine(-phi, amplitude=0.02))
    growth = np.diff(indicator[::PERIOD, 0])
    expected = math.pi * 0.02**2 * math.sin(phi)
    polygon = math.sin(2 * math.pi / PERIOD) / (2 * math.pi / PERIOD)  # area of the sampled circle over its area
    np.testing.assert_allclose(growth, expected, rtol=1e-4)
    np.testing.assert_allclose(growth, expected * polygon, rtol=1e-9)


def test_indicator_is_independent_of_offset() -> None:
    """Motion of 1 mm about 100 mm from the start: the area loses no digit."""
    c, m = sine(0.0, amplitude=1e-3), sine(-0.3, amplitude=1e-3)
    indicators = []
    for shift in (0.0, 0.1):
        tracking = Tracking(1, 1)
        tracking.start([float(c[0, 0]) + shift], [float(m[0, 0]) + shift], [0.0])
        indicators.append(tracking.over(c + shift, m + shift)[0])
    closed = slice(PERIOD, None, PERIOD)  # within a period the offset times the error is added and removed
    np.testing.assert_allclose(indicators[1][closed], indicators[0][closed], rtol=1e-9)


def wave(time: np.ndarray) -> np.ndarray:
    """Displacement similar to the response to an earthquake; time in samples."""
    return sum(np.sin(2.0 * np.pi * f * DT * time + p) / f for f, p in ((0.7, 0.1), (1.9, 2.0), (4.3, 4.0)))


@pytest.mark.parametrize("lag", [0.0, 0.25, 0.5, 1.0, 12.6, 28.0, 90.9, -0.4, -7.3, -90.1])
def test_delay_equals_known_lag(lag: float) -> None:
    time = np.arange(8000.0)[:, None]
    assert delay_samples(wave(time), wave(time - lag), 100)[0] == pytest.approx(lag, abs=0.02)


@pytest.mark.parametrize("lag", [150.0, -150.0, 101.0])
def test_delay_beyond_longest_lag_is_nan(lag: float) -> None:
    """The end of the range is not a peak: a delay of 150 ms at 1000 Hz was reported as 100 ms."""
    time = np.arange(8000.0)[:, None]
    target, measured = wave(time), wave(time - lag)
    assert math.isnan(delay_samples(target, measured, 100)[0])
    assert delay_samples(target, measured, 200)[0] == pytest.approx(lag, abs=0.02)
    tracking = Tracking(1, 100)
    tracking.over(target, measured)
    (note,) = delay_notes(tracking.indices(["story"], DT), 100 * DT)
    assert mentions(note, "story", "delay", "monitor.longest_delay")


def test_delay_is_independent_of_offset_and_scale() -> None:
    time = np.arange(8000.0)[:, None]
    delay = delay_samples(wave(time) + 5.0, 0.5 * wave(time - 12.6) - 3.0, 100)
    assert delay[0] == pytest.approx(12.6, abs=0.02)


def test_delay_is_computed_per_axis() -> None:
    time = np.arange(4000.0)[:, None]
    measured = np.hstack((wave(time - 3.0), wave(time + 5.0)))
    delays = delay_samples(np.hstack((wave(time), wave(time))), measured, 50)
    np.testing.assert_allclose(delays, [3.0, -5.0], atol=0.02)


def test_delay_is_nan_without_motion_or_samples() -> None:
    assert math.isnan(delay_samples(np.zeros((100, 1)), np.zeros((100, 1)), 10)[0])
    assert math.isnan(delay_samples(np.ones((100, 1)), np.ones((100, 1)), 100)[0])


def target(step: int, x: float, external: float, flags: int = 0) -> Target:
    """Return a Target; Target i has the external force of step i - 1."""
    zero = np.zeros(1)
    return Target(step, np.array([x]), zero, zero, zero, np.array([external]), zero, flags=flags)


def energy_of(phi: float, elastic: float = 0.0) -> tuple[EnergyMonitor, float]:
    """Energy monitor and error after three periods of 2 m: k = 5 N/m, external force 7 N, 90 degrees from x."""
    monitor, tracking = EnergyMonitor(1, elastic), Tracking(1, 1)
    c, m = sine(0.0, amplitude=2.0), sine(-phi, amplitude=2.0)
    external = sine(0.5 * math.pi, amplitude=7.0)[:, 0]
    for step in range(len(c) + 1):
        now = min(step, len(c) - 1)
        monitor.target(target(step, float(c[now, 0]), float(external[step - 1]) if step else 0.0), step - 1)
    monitor.take(len(c) + 1)
    tracking.start([float(c[0, 0])], [float(m[0, 0])], [5.0 * float(m[0, 0])])  # the steady state
    tracking.over(c, m, 5.0 * m)
    return monitor, tracking.energy_error


@pytest.mark.parametrize("phi", [0.1, -0.3])
def test_hsem_of_spring_with_lagging_actuator(phi: float) -> None:
    """Per period: energy error k pi X^2 sin(phi), input energy pi F X; a lag adds energy."""
    monitor, error = energy_of(phi)
    assert error == pytest.approx(3 * 5.0 * math.pi * 2.0**2 * math.sin(phi), rel=1e-4)
    assert monitor.input == pytest.approx(3 * math.pi * 7.0 * 2.0, rel=1e-4)
    assert monitor.percent(error) == pytest.approx(100.0 * 5.0 * 2.0 * math.sin(phi) / 7.0, rel=1e-4)


def test_running_energy_error_includes_strain_energy_at_yield() -> None:
    monitor, error = energy_of(0.1, elastic=50.0)
    assert monitor.running_percent(error) == pytest.approx(100.0 * error / (monitor.input + 50.0))
    history = monitor.running_percents(np.full(2, error), np.array([monitor.input, -monitor.input]))
    assert history.tolist() == [monitor.running_percent(error)] * 2


def test_energy_error_of_perfect_tracking_is_zero() -> None:
    monitor, error = energy_of(0.0)
    assert monitor.percent(error) == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(EnergyMonitor(1, 0.0).percent(0.0))


def test_energy_error_of_spring_is_stiffness_times_indicator() -> None:
    """Holds at ends of periods; the energy of a scaled specimen is scaled to the structure."""
    c, m = sine(0.0, amplitude=0.02), sine(-0.2, amplitude=0.02)
    for scale in (1.0, 8.0):
        indicator, error = Tracking(1, 1, np.array([scale])).over(c, m, 3e6 * m)
        growth = scale * 3e6 * np.diff(indicator[::PERIOD, 0])
        np.testing.assert_allclose(np.diff(error[::PERIOD]), growth, rtol=1e-9)


# Monitor


def make_monitor(elastic: float = 1.0, **data: float) -> Monitor:
    return Monitor(from_data(MonitorParams, data, "monitor"), ("a",), 1, DT, elastic)


def feed(monitor: Monitor, c: np.ndarray, m: np.ndarray, force: np.ndarray) -> None:
    for k, sample in enumerate(zip(c.tolist(), m.tolist(), force.tolist(), strict=True)):
        monitor.step(k, *sample)


def test_monitor_metrics() -> None:
    """J1, J2 and J3 by the formulas of Wang et al."""
    monitor, c, m = make_monitor(), sine(0.0), 0.95 * sine(-0.1)
    for step, x in enumerate((0.0, 0.3, -0.4, 0.1)):
        monitor.energy.target(target(step, x, 0.0), step - 1)
    feed(monitor, c, m, c)
    metrics = monitor.metrics()
    displacements = [f"{name}_displacement_m" for name in ("max", "min", "end")]
    assert set(metrics) == {"axes", "hsem_percent", *displacements}
    axis = metrics["axes"]["a"]
    errors = {"max_error_m", "max_error_percent", "error_norm_percent"}
    assert set(axis) == errors | {"delay_s", "tracking_indicator_m2"}
    assert [metrics[name] for name in displacements] == [0.3, -0.4, 0.1]
    j2 = 100.0 * math.sqrt(float(np.square(m - c).sum() / np.square(c).sum()))
    j3 = 100.0 * float(np.abs(m - c).max() / np.abs(c).max())
    assert [axis["error_norm_percent"], axis["max_error_percent"]] == pytest.approx([j2, j3])
    delay = delay_samples(c, m, monitor.longest)[0]
    assert axis["delay_s"] == pytest.approx(delay * DT, rel=1e-9)
    assert axis["delay_s"] == pytest.approx(0.1 / (2 * math.pi) * PERIOD * DT, abs=0.02 * DT)


def test_status_belongs_to_its_sample() -> None:
    c, m = sine(0.0), sine(-0.1)
    for count in (32, 37):
        monitor = make_monitor()
        feed(monitor, c[:count], m[:count], c[:count])
        status = monitor.status()
        assert (status["sample"], status["control_error"]) == (count - 1, [c[count - 1, 0] - m[count - 1, 0]])


def test_monitor_memory_is_bounded() -> None:
    monitor, sizes = make_monitor(), []
    for k in range(5 * CHUNK):
        monitor.energy.target(target(k, math.sin(k), math.cos(k)), k - 1)
        monitor.step(k, [math.sin(0.01 * k)], [math.sin(0.01 * k - 0.1)], [1.0])
        if k % CHUNK == CHUNK // 2:
            sizes.append(len(pickle.dumps(monitor)))
    assert sizes[-1] < 1.02 * sizes[1]


def test_monitor_copies_reused_arrays() -> None:
    """A returned array is valid only until the next step."""
    fresh, reused = make_monitor(), make_monitor()
    shared = target(0, 0.0, 0.0)
    for step, x in enumerate(np.sin(np.arange(20.0)).tolist()):
        fresh.energy.target(target(step, x, float(step)), step - 1)
        shared.step, shared.displacement[0], shared.external_force[0] = step, x, float(step)
        reused.energy.target(shared, step - 1)
    shared.displacement[0] = 99.0
    fresh.skip(20)
    reused.skip(20)
    assert reused.metrics()["end_displacement_m"] == fresh.metrics()["end_displacement_m"] == math.sin(19.0)
    assert reused.energy.input == fresh.energy.input != 0.0


def test_limits_are_off_by_default() -> None:
    monitor = make_monitor()
    feed(monitor, sine(0.0), sine(-1.0), 1e9 * sine(0.0))
    assert monitor.breach is None


def test_energy_limit_reports_sample_of_breach() -> None:
    monitor = make_monitor(elastic=2.0, energy_error_percent=10.0)
    m = np.zeros((100, 1))
    m[50:] = 1.0  # a step of 1 m against a mean force of 0.5 N: 0.5 J of 2 J
    feed(monitor, np.zeros((100, 1)), m, m)
    assert monitor.breach[0] == 50
    assert mentions(monitor.breach[1], "monitor.energy_error_percent", "25 %", "10 %")


@pytest.mark.parametrize("reference", [0.0, 2.0])
def test_energy_limit_breach_equals_check_of_every_sample(reference: float) -> None:
    """The allowed error follows the input energy; Target i counts from sample i on."""
    rng = np.random.default_rng(3)
    c, m, force = (np.cumsum(rng.normal(0.0, 0.02, (400, 1)), axis=0) for _ in range(3))
    external = 20.0 * np.sin(0.05 * np.arange(400.0))
    for limit in (0.5, 2.0, 5.0, 20.0, 50.0):
        monitor = make_monitor(elastic=reference, energy_error_percent=limit)
        for k in range(400):
            monitor.energy.target(target(k, float(c[k, 0]), float(external[k])), k - 1)
            monitor.step(k, c[k].tolist(), m[k].tolist(), force[k].tolist())
        _, error = Tracking(1, 1).over(c, m, force)
        energy = EnergyMonitor(1, reference)
        supplied = energy.over(c, external[:, None], np.full((400, 1), np.nan))
        beyond = np.flatnonzero(np.abs(energy.running_percents(error, supplied)) > limit)
        assert (None if monitor.breach is None else monitor.breach[0]) == (beyond[0] if len(beyond) else None)


def test_indicator_rate_is_limited() -> None:
    rate = 0.5 * math.sin(2 * math.pi / PERIOD) * math.sin(0.3) / DT
    for limit, breached in ((1.001 * rate, False), (0.999 * rate, True)):
        monitor = make_monitor(tracking_indicator_rate=limit)
        feed(monitor, sine(0.0), sine(-0.3), sine(0.0))
        assert (monitor.breach is not None) == breached


@pytest.mark.parametrize("start", [5, 40, 55])
def test_indicator_rate_breach_is_reported_at_its_sample(start: int) -> None:
    """A late sine begins from rest; ten of its samples within the last 32 exceed the limit."""
    angle = 2.0 * np.pi * np.arange(80) / PERIOD
    c, m = (np.concatenate((np.zeros(start), values))[:, None] for values in (np.cos(angle), np.cos(angle - 0.3)))
    area = 0.5 * math.sin(2.0 * math.pi / PERIOD) * math.sin(0.3)
    monitor = make_monitor(tracking_indicator_rate=9.5 * area / (SPAN * DT))
    feed(monitor, c, m, c)
    assert monitor.breach[0] == max(SPAN - 1, start + 10)
    assert monitor.breach[1].startswith("monitor.tracking_indicator_rate: ")


def test_nan_is_a_breach() -> None:
    monitor = make_monitor()
    m = sine(0.0)
    m[40] = math.nan
    feed(monitor, sine(0.0), m, sine(0.0))
    assert monitor.breach[0] == 40
    assert mentions(monitor.breach[1], "monitor.tracking_indicator", "nan m^2")


def test_energy_error_that_is_no_number_is_a_breach() -> None:
    monitor = make_monitor(elastic=1e6, energy_error_percent=10.0)
    force = sine(0.0)
    force[40] = math.nan
    feed(monitor, sine(0.0), sine(-0.1), force)
    assert monitor.breach[0] == 40
    assert mentions(monitor.breach[1], "monitor.energy_error_percent", "nan %", "10 %")
    assert make_monitor(energy_error_percent=10.0).breaks(np.full(1, math.nan), np.ones(1))


def test_samples_of_safe_stop_are_ignored() -> None:
    monitor = make_monitor()
    feed(monitor, sine(0.0), sine(-0.1), sine(0.0))
    before = monitor.metrics()
    monitor.skip(99_999)
    assert monitor.metrics() == before
    assert monitor.sample == 99_999


# Delay of a window, frequency evaluation index


def test_delay_of_window_uses_only_its_samples() -> None:
    """12.6 samples late in the first half, 7.3 early in the second."""
    time = np.arange(8000.0)[:, None]
    measured = np.where(time < 4000, wave(time - 12.6), wave(time + 7.3))
    assert delay_samples(wave(time)[:4000], measured[:4000], 100)[0] == pytest.approx(12.6, abs=0.02)
    assert delay_samples(wave(time)[4000:], measured[4000:], 100)[0] == pytest.approx(-7.3, abs=0.02)
    assert math.isnan(delay_samples(wave(time)[4000:4101], measured[4000:4101], 100)[0])


def chirp(time: np.ndarray, lowest: float, highest: float, duration: float) -> np.ndarray:
    """Sweep with a smooth beginning and end; time in s."""
    phase = 2.0 * np.pi * (lowest * time + 0.5 * (highest - lowest) / duration * time**2)
    return np.sin(phase) * np.sin(np.pi * np.clip(time / duration, 0.0, 1.0)) ** 2


@pytest.mark.parametrize("delay", [0.010, -0.004, 0.0])
def test_fei_of_sine_with_gain_and_delay(delay: float) -> None:
    """Amplitude 0.9 and the delay, at the frequency of the sine."""
    time = np.arange(10_240) * DT
    x, y = (a * np.sin(2.0 * np.pi * 2.0 * (time - d))[:, None] for a, d in ((0.02, 0.0), (0.018, delay)))
    amplitude, late, frequency = frequency_evaluation(x, y, DT)
    assert amplitude[0] == pytest.approx(0.9, rel=1e-9)
    assert late[0] == pytest.approx(delay, abs=1e-9)
    assert frequency[0] == pytest.approx(2.0, rel=1e-9)


def test_fei_of_sweep_with_gain_and_delay() -> None:
    """The phase of a delay grows with frequency, so the mean over a band is a little below the gain."""
    time = np.arange(-1024, 21 * 1024) * DT
    x, y = chirp(time, 0.5, 4.5, 20.0)[:, None], 0.9 * chirp(time - 0.010, 0.5, 4.5, 20.0)[:, None]
    amplitude, late, frequency = frequency_evaluation(x, y, DT)
    assert amplitude[0] == pytest.approx(0.9, rel=2e-3)
    assert amplitude[0] < 0.9
    assert late[0] == pytest.approx(0.010, rel=2e-3)
    assert frequency[0] == pytest.approx(2.5, rel=0.02)


def test_fei_ignores_offset_and_is_nan_without_motion() -> None:
    x = np.hstack((sine(0.0)[:-1], np.zeros((3 * PERIOD, 1))))
    amplitude, late, frequency = frequency_evaluation(x, 0.8 * x + 5.0, DT)
    assert (amplitude[0], late[0]) == (pytest.approx(0.8), pytest.approx(0.0, abs=1e-12))
    assert all(math.isnan(values[1]) for values in (amplitude, late, frequency))


@pytest.mark.parametrize(("samples", "counted"), [(1031, 1029), (30721, 30720), (20480, 20480)])
def test_fei_uses_length_with_small_prime_factors(samples: int, counted: int) -> None:
    """A transform of 30721 = 31 * 991 values takes three times as long as one of 30720."""
    x, y = np.cumsum(np.random.default_rng(3).normal(size=(2, samples, 1)), axis=1)
    x[counted:] = y[counted:] = 1e3
    result, cut = (frequency_evaluation(x[rows], y[rows], DT) for rows in (slice(None), slice(counted)))
    target, measured = (np.fft.rfft(values[:counted, 0])[1:] for values in (x, y))
    expected = np.vdot(target, measured) / np.vdot(target, target)
    assert result == cut
    amplitude, late, frequency = result
    assert amplitude[0] == pytest.approx(abs(expected), rel=1e-9)
    assert -2.0 * np.pi * frequency[0] * late[0] == pytest.approx(np.angle(expected), rel=1e-9)


def test_fei_weights_follow_power() -> None:
    """Two sines of amplitudes 2 and 1, the smaller one halved: the weights are 4 and 1."""
    time = np.arange(4096) / 4096.0
    large, small = 2.0 * np.sin(2.0 * np.pi * 8.0 * time)[:, None], np.sin(2.0 * np.pi * 32.0 * time)[:, None]
    amplitude, _, frequency = frequency_evaluation(large + small, large + 0.5 * small, 1.0 / 4096.0)
    assert amplitude[0] == pytest.approx(4.5 / 5.0, rel=1e-6)
    assert frequency[0] == pytest.approx((4.0 * 8.0 + 32.0) / 5.0, rel=1e-3)


# Soft start


def prepare(monitor: Monitor, samples: int, c: np.ndarray, m: np.ndarray) -> int:
    """Run a soft start with one Target per sample; return the number of the first sample of the test."""
    for k in range(samples + 1):
        monitor.energy.target(target(k, float(c[k, 0]), 0.0, FLAG_SOFT_START), k - 1)
        monitor.prepare(k, c[k].tolist(), m[k].tolist(), m[k].tolist())
    return samples + 1


def metrics_of(monitor: Monitor, first: int, c: np.ndarray, m: np.ndarray) -> dict[str, Any]:
    for k in range(len(c)):
        monitor.energy.target(target(first + k, float(c[k, 0]), 3.0), first + k - 1)
        monitor.step(first + k, c[k].tolist(), m[k].tolist(), (2.0 * m[k]).tolist())
    return monitor.metrics()


@pytest.mark.parametrize("samples", [1, 31, 32, 101])
def test_soft_start_is_excluded_from_indices(samples: int) -> None:
    """The indices do not depend on the motion during the soft start, to the bit."""
    c, m = sine(0.0, amplitude=0.02)[1:], sine(-0.1, amplitude=0.02)[1:]
    wild = 100.0 * sine(0.4)[: samples + 1]
    rest = np.zeros((samples + 1, 1))
    metrics = []
    for before, measured in ((wild, -3.0 * wild), (rest, rest)):
        monitor = make_monitor(energy_error_percent=1e3, tracking_indicator_rate=1.0)
        before[-1] = measured[-1] = 0.0  # the soft start ends at rest
        first = prepare(monitor, samples, before, measured)
        metrics.append(metrics_of(monitor, first, c, m))
        assert monitor.breach is None
    assert metrics[0] == metrics[1]
    assert metrics[0]["max_displacement_m"] == pytest.approx(0.02)
    assert metrics[0]["axes"]["a"]["max_error_m"] == pytest.approx(float(np.abs(c - m).max()))


def test_drift_before_test_is_excluded() -> None:
    """A drift before the test adds neither area nor energy."""
    monitor = make_monitor()
    drift = np.full((200, 1), 0.001)
    first = prepare(monitor, 50, np.zeros((51, 1)), np.full((51, 1), 0.001))
    metrics = metrics_of(monitor, first, np.zeros((200, 1)), drift)
    assert metrics["axes"]["a"]["tracking_indicator_m2"] == 0.0
    assert monitor.tracking.energy_error == 0.0
    assert metrics["axes"]["a"]["max_error_m"] == 0.001


def test_status_is_updated_during_soft_start() -> None:
    monitor = make_monitor()
    c, m = sine(0.0), sine(-0.1)
    prepare(monitor, 40, c, m)
    status = monitor.status()
    assert (status["sample"], status["control_error"]) == (40, [c[40, 0] - m[40, 0]])
    assert status["max_control_error"] == [0.0]
    assert monitor.energy.input == 0.0


# Live curves

RATE = 1024.0


def add(columns: LiveColumns, samples: range) -> np.ndarray:
    """Add samples of two axes; return their rows ``(n, 12)``."""
    rows = []
    for k in samples:
        values = [[math.sin(0.3 * k + i + 0.5 * n) for n in range(2)] for i in range(5)]
        target, command, measured, force, indicator = values
        columns.add(k, target, command, measured, force, measured, indicator)
        errors = [t - m for t, m in zip(target, measured, strict=True)]
        rows.append([*target, *command, *measured, *force, *errors, *indicator])
    return np.array(rows)


def values_of_columns(rows: np.ndarray, per: int) -> np.ndarray:
    """First, lowest, highest and last number of each column of ``rows``."""
    parts = (rows[start : start + per] for start in range(0, len(rows), per))
    return np.array([np.stack([part[0], part.min(axis=0), part.max(axis=0), part[-1]], axis=1) for part in parts])


@pytest.mark.parametrize(("rate", "samples"), [(1024.0, 10), (4096.0, 41), (256.0, 3), (20.0, 1)])
def test_column_has_10_ms_and_at_least_one_sample(rate: float, samples: int) -> None:
    assert LiveColumns(1, rate).samples_per_column == samples


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 30))
def test_every_column_is_taken_once(lengths: list[int], stopping: int) -> None:
    columns, rows, parts, at = LiveColumns(2, RATE), [], [], 0
    for length in lengths:
        rows.append(add(columns, range(at, at + length)))
        at += length
        parts.append(columns.take())
    if stopping:
        rows.append(add(columns, range(at, at + stopping)))
    parts.append(columns.take(rest=True))
    assert [first for first, _ in parts] == list(np.cumsum([0, *(10 * len(values) for _, values in parts[:-1])]))
    values = np.concatenate([values for _, values in parts])
    np.testing.assert_array_equal(values, values_of_columns(np.concatenate(rows), 10))
    assert len(columns.take(rest=True)[1]) == 0


def test_missing_samples_are_skipped() -> None:
    columns = LiveColumns(2, RATE)
    first, last = add(columns, range(3)), add(columns, range(7, 10))
    _, values = columns.take()
    np.testing.assert_array_equal(values[0, :, FIRST], first[0])
    np.testing.assert_array_equal(values[0, :, LAST], last[-1])
    np.testing.assert_array_equal(values[0, :, HIGHEST], np.concatenate((first, last)).max(axis=0))
    np.testing.assert_array_equal(values[0, :, LOWEST], np.concatenate((first, last)).min(axis=0))


def test_names_and_units_of_curves() -> None:
    names = curve_names(["north", "south"])
    assert names[:3] == ["north/target", "south/target", "north/command"]
    assert len(names) == 2 * len(OF_AXIS) == 2 * len(units(of_force=False))
    assert dict(zip(OF_AXIS, units(of_force=True), strict=True))["error"] == "N"


# Kernels of indices: allowed operations, and equal results for single samples and arrays


def of_axis(metres: Iterator[float], newtons: Iterator[float]) -> tuple[Any, Any, list[Any]]:
    rows = [(next(metres), next(metres), next(newtons)) for _ in range(SAMPLES)]
    return axis.Constants(0.5), axis.anew(0.0, 0.0, 0.0), rows


def of_targets(metres: Iterator[float], newtons: Iterator[float]) -> tuple[Any, Any, list[Any]]:
    energy, *state = energy_monitor.rest(3)
    rows = [tuple(np.array([next(x) for _ in range(3)]) for x in (metres, newtons)) for _ in range(SAMPLES)]
    return (), (energy, *map(np.array, state)), rows


KERNELS = {axis: of_axis, energy_monitor: of_targets}
NAMES = [module.__name__.split(".")[-1] for module in KERNELS]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)


def plain_values(values: Any) -> Any:
    """Return a tuple with lists of floats in place of arrays."""
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value for value in values)


@every_kernel
def test_step_contains_only_arithmetic(kernel: Any) -> None:
    faults = {function.__qualname__: wrong_in(function) for function in functions_of(kernel.step, {}).values()}
    assert "step" in faults
    assert not any(faults.values()), faults


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@every_kernel
def test_plain_and_compiled_have_same_bits(kernel: Any, extreme: bool) -> None:
    rng = np.random.default_rng(9)
    constants, state, rows = KERNELS[kernel](numbers(rng, 0.01, extreme), numbers(rng, 1e5, extreme))
    compiled = tuple(value.copy() if isinstance(value, np.ndarray) else value for value in state)
    plain = plain_values(state) if kernel is energy_monitor else state
    step = in_c(kernel.step, constants, compiled, *rows[0])
    for sample, inputs in enumerate(rows):
        with np.errstate(all="ignore"):
            plain, expected = kernel.step(constants, plain, *plain_values(inputs))
        compiled, result = step(constants, compiled, *inputs)
        assert same(expected, result), (sample, inputs, expected, result)
        assert same(plain, compiled), (sample, inputs, plain, compiled)


@pytest.mark.parametrize("n_dof", [1, 3, 30])
def test_energies_of_arrays_equal_those_of_samples(n_dof: int) -> None:
    rng = np.random.default_rng(n_dof)
    x, f = np.cumsum(rng.normal(0.0, 1.0, (200, n_dof)), axis=0), rng.normal(0.0, 1e6, (200, n_dof))
    state, energies = energy_monitor.start(energy_monitor.rest(n_dof), x[0].tolist()), []
    for row in range(200):
        state, energy = energy_monitor.step((), state, x[row].tolist(), f[row].tolist())
        energies.append(energy)
    at_once, in_parts = EnergyMonitor(n_dof, 0.0), EnergyMonitor(n_dof, 0.0)
    missing = np.full((200, 1), np.nan)
    assert at_once.over(x, f, missing).tolist() == energies
    results = [
        in_parts.over(*(values[start:end] for values in (x, f, missing)))
        for start, end in pairwise([*range(0, 200, FEW + 3), 200, 200])
    ]
    assert np.concatenate(results).tolist() == energies
    for monitor in (at_once, in_parts):
        assert list(monitor.now.highest) == x.max(axis=0).tolist()
        assert list(monitor.now.lowest) == x.min(axis=0).tolist()
        assert list(monitor.now.before) == x[-1].tolist()


def test_given_energies_replace_computed_ones() -> None:
    monitor = EnergyMonitor(2, 0.0)
    measured = np.array([[0.0], [3.0], [math.nan], [5.0], [4.0], [7.0]])
    assert monitor.over(np.zeros((6, 2)), np.ones((6, 2)), measured).tolist() == [0.0, 3.0, 3.0, 5.0, 4.0, 7.0]


def test_nan_stays_in_indices() -> None:
    """A NaN hidden by later samples would look like a test without errors."""
    c, m, f = np.random.default_rng(2).normal(0.0, 1.0, (3, 20, 1))
    for column in (c, m):
        broken = column.copy()
        broken[7] = math.nan
        tracking = Tracking(1, 1)
        indicator, error = tracking.over(broken if column is c else c, broken if column is m else m, f)
        assert np.isnan(indicator[:, 0]).tolist() == np.isnan(error).tolist() == [k >= 7 for k in range(20)]
        assert math.isnan(tracking.maximum[0])
        assert math.isnan(tracking.norm_percent[0])
    x = np.zeros((20, 2))
    x[7, 1] = math.nan
    for size in (20, 1):
        monitor = EnergyMonitor(2, 0.0)
        for start in range(0, 20, size):
            rows = slice(start, start + size)
            monitor.over(x[rows], x[rows], np.full((size, 1), np.nan))
        assert np.isnan([*monitor.now.highest, *monitor.now.lowest]).tolist() == [False, True, False, True]
        assert math.isnan(monitor.input)


def test_step_leaves_previous_state_unchanged() -> None:
    before = axis.State(*axis.anew(0.1, 0.2, 3.0))
    after, (indicator, energy) = axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)
    assert before == axis.State(*axis.anew(0.1, 0.2, 3.0))
    assert (after[4], after[5]) == (indicator, energy)
    assert axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)[0] == after


@pytest.mark.parametrize("n_axes", [1, 3])
def test_indices_of_arrays_equal_those_of_samples(n_axes: int) -> None:
    """Over more than a chunk, split at any sample, with non-finite values near the end."""
    c, m, f = np.cumsum(np.random.default_rng(n_axes).normal(0.0, 1e-3, (3, 6000, n_axes)), axis=1)
    m[-30, 0], f[-40, -1] = math.nan, math.inf
    scale = np.array([1.0, 2.5, 0.3])[:n_axes]
    single, halves, parts = (Tracking(n_axes, 40, scale) for _ in range(3))
    for sample, values in enumerate(zip(c.tolist(), m.tolist(), f.tolist(), strict=True)):
        single.step(sample, *values)
        if sample == 5900:
            before = single.states, [single.energy_error]
    halves.over(c[:5901], m[:5901], f[:5901])
    check_close((halves.states, [halves.energy_error]), before)
    indicators, errors = halves.over(c[5901:], m[5901:], f[5901:])
    for start, end in pairwise((0, 0, 3, 4000, 4004, 6000)):
        result = parts.over(c[start:end], m[start:end], f[start:end])
    for tracking in (halves, parts):
        check_close((tracking.states, [tracking.energy_error]), (single.states, [single.energy_error]))
        rows, expected = (list(t.indices("abc"[:n_axes], 1e-3).values()) for t in (tracking, single))
        check_close([[*row.values()] for row in rows], [[*row.values()] for row in expected])
        assert tracking.sample == single.sample
    check_close((indicators, errors), (result[0][-len(errors) :], result[1][-len(errors) :]))


def check_close(results: Any, expected: Any) -> None:
    """Compare up to the rounding of sums over 6000 samples."""
    for values, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(values, reference, rtol=1e-10, atol=1e-12)
