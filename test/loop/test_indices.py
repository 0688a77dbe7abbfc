# SPDX-License-Identifier: Apache-2.0
"""Indices: closed forms of error, tracking indicator, delay and energy; the limits on them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions

from rths_nodes.core.samples import FLAG_SOFT_START, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.indices.delay import CHUNK, delay_notes, delay_samples
from rths_nodes.loop.indices.energy_monitor import EnergyMonitor
from rths_nodes.loop.indices.tracking import PUBLISHED, Tracking, frequency_evaluation
from rths_nodes.loop.supervision.monitor import SPAN, Monitor, MonitorParams

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
    tracking = Tracking(2, 1)
    tracking.over(target[:2], measured[:2])
    tracking.over(target[2:], measured[2:])
    np.testing.assert_allclose(tracking.maximum, [0.4, 0.4])
    np.testing.assert_allclose(tracking.percent, [10.0, 10.0])
    np.testing.assert_allclose(tracking.norm_percent, [10.0, 10.0])


def test_error_norm_sums_squares() -> None:
    tracking = Tracking(1, 1)
    tracking.over(np.array([[3.0], [4.0]]), np.array([[3.0], [3.0]]))
    assert tracking.norm_percent[0] == pytest.approx(100.0 * math.sqrt(1.0 / 25.0))


def test_without_motion_relative_errors_are_not_a_number() -> None:
    tracking = Tracking(1, 1)
    tracking.over(np.zeros((3, 1)), np.zeros((3, 1)))
    assert math.isnan(tracking.percent[0])
    assert math.isnan(tracking.norm_percent[0])


def test_a_target_that_has_hardly_moved_gives_no_relative_errors() -> None:
    """Noise of a sensor before an earthquake was 13 933 % of the target."""
    tracking = Tracking(2, 1)
    target = np.array([[1e-7, 1e-6], [-1e-7, 1e-6]])
    tracking.over(target, target + [5e-6, 5e-6])
    found = tracking.indices(("quiet", "moved"), 0.001)
    assert math.isnan(found["quiet"]["error_norm_percent"])
    assert math.isnan(found["quiet"]["max_error_percent"])
    assert found["quiet"]["max_error_m"] == pytest.approx(5e-6)
    assert found["moved"]["error_norm_percent"] == pytest.approx(500.0)
    assert each_mentions(delay_notes({"quiet": found["quiet"]}, 0.1), ("quiet", "target"))


def test_the_largest_error_is_one_of_the_errors_to_the_bit() -> None:
    """Its square is kept."""
    rng = np.random.default_rng(5)
    target, measured = rng.normal(0.0, 0.01, (2, 300, 3))
    tracking = Tracking(3, 1)
    tracking.over(target, measured)
    assert tracking.maximum == np.abs(target - measured).max(axis=0).tolist()
    assert tracking.reach == np.abs(target).max(axis=0).tolist()


# Tracking indicator


@pytest.mark.parametrize("phi", [0.3, 0.01, -0.2])
def test_the_indicator_of_a_lagging_sine_grows_by_pi_x2_sin_phi_a_period(phi: float) -> None:
    indicator, _ = Tracking(1, 1).over(sine(0.0, amplitude=0.02), sine(-phi, amplitude=0.02))
    growth = np.diff(indicator[::PERIOD, 0])
    expected = math.pi * 0.02**2 * math.sin(phi)
    np.testing.assert_allclose(growth, expected, rtol=1e-4)  # of the circle: the polygon is smaller
    np.testing.assert_allclose(
        growth, expected * math.sin(2 * math.pi / PERIOD) / (2 * math.pi / PERIOD), rtol=1e-9
    )


def test_the_indicator_does_not_mind_an_offset() -> None:
    """1 mm of motion on 100 mm, which is there from the start: no digit of the area is lost to it."""
    c, m, offset = sine(0.0, amplitude=1e-3), sine(-0.3, amplitude=1e-3), 0.1
    found = []
    for shift in (0.0, offset):
        tracking = Tracking(1, 1)
        tracking.start([float(c[0, 0]) + shift], [float(m[0, 0]) + shift], [0.0])
        found.append(tracking.over(c + shift, m + shift)[0])
    closed = slice(PERIOD, None, PERIOD)  # between them the offset times the error comes and goes
    np.testing.assert_allclose(found[1][closed], found[0][closed], rtol=1e-9)


# Delay


def wave(time: np.ndarray) -> np.ndarray:
    """Something like the displacement in an earthquake, time in samples."""
    return sum(np.sin(2.0 * np.pi * f * DT * time + p) / f for f, p in ((0.7, 0.1), (1.9, 2.0), (4.3, 4.0)))


@pytest.mark.parametrize("lag", [0.0, 0.25, 0.5, 1.0, 12.6, 28.0, 90.9, -0.4, -7.3, -90.1])
def test_delay_finds_a_known_lag_of_either_sign(lag: float) -> None:
    time = np.arange(8000.0)[:, None]
    assert delay_samples(wave(time), wave(time - lag), 100)[0] == pytest.approx(lag, abs=0.02)


@pytest.mark.parametrize("lag", [150.0, -150.0, 101.0])
def test_a_delay_beyond_the_longest_lag_is_not_known(lag: float) -> None:
    """At 1000 Hz 150 ms was reported as 100 ms: the end of the lags is no peak."""
    time = np.arange(8000.0)[:, None]
    target, measured = wave(time), wave(time - lag)
    assert math.isnan(delay_samples(target, measured, 100)[0])
    assert delay_samples(target, measured, 200)[0] == pytest.approx(lag, abs=0.02)
    tracking = Tracking(1, 100)
    tracking.over(target, measured)
    (note,) = delay_notes(tracking.indices(["story"], DT), 100 * DT)
    assert mentions(note, "story", "delay")
    assert "monitor.longest_delay" in note


def test_an_offset_or_another_scale_does_not_pull_the_delay() -> None:
    time = np.arange(8000.0)[:, None]
    found = delay_samples(wave(time) + 5.0, 0.5 * wave(time - 12.6) - 3.0, 100)
    assert found[0] == pytest.approx(12.6, abs=0.02)


def test_each_axis_has_its_own_delay() -> None:
    time = np.arange(4000.0)[:, None]
    found = delay_samples(np.hstack((wave(time), wave(time))), np.hstack((wave(time - 3.0), wave(time + 5.0))), 50)
    np.testing.assert_allclose(found, [3.0, -5.0], atol=0.02)


def test_without_motion_or_in_a_short_test_there_is_no_delay() -> None:
    assert math.isnan(delay_samples(np.zeros((100, 1)), np.zeros((100, 1)), 10)[0])
    assert math.isnan(delay_samples(np.ones((100, 1)), np.ones((100, 1)), 100)[0])


# Energy


def target(step: int, x: float, external: float, flags: int = 0) -> Target:
    """Target i brings the external force of step i - 1."""
    nothing = np.zeros(1)
    return Target(step, np.array([x]), nothing, nothing, nothing, np.array([external]), nothing, flags=flags)


def energy_of(phi: float, elastic: float = 0.0) -> tuple[EnergyMonitor, float]:
    """Three periods of 2 m: specimen k = 5 N/m, external force 7 N at right angles to x; with the energy error."""
    monitor, tracking = EnergyMonitor(1, elastic), Tracking(1, 1)
    c, m = sine(0.0, amplitude=2.0), sine(-phi, amplitude=2.0)
    external = sine(0.5 * math.pi, amplitude=7.0)[:, 0]
    for step in range(len(c) + 1):
        now = min(step, len(c) - 1)
        monitor.target(target(step, float(c[now, 0]), float(external[step - 1]) if step else 0.0), step - 1)
    monitor.take(len(c) + 1)
    tracking.start([float(c[0, 0])], [float(m[0, 0])], [5.0 * float(m[0, 0])])  # as if it had always been so
    tracking.over(c, m, 5.0 * m)
    return monitor, tracking.energy_error


@pytest.mark.parametrize("phi", [0.1, -0.3])
def test_hsem_of_a_spring_behind_a_lagging_actuator(phi: float) -> None:
    """Energy error k pi X^2 sin(phi), input energy pi F X a period; lag feeds energy in."""
    monitor, error = energy_of(phi)
    assert error == pytest.approx(3 * 5.0 * math.pi * 2.0**2 * math.sin(phi), rel=1e-4)
    assert monitor.input == pytest.approx(3 * math.pi * 7.0 * 2.0, rel=1e-4)
    assert monitor.percent(error) == pytest.approx(100.0 * 5.0 * 2.0 * math.sin(phi) / 7.0, rel=1e-4)


def test_the_running_form_adds_the_strain_energy_at_yield() -> None:
    monitor, error = energy_of(0.1, elastic=50.0)
    assert monitor.running_percent(error) == pytest.approx(100.0 * error / (monitor.input + 50.0))
    given = np.array([monitor.input, -monitor.input])
    history = monitor.running_percents(np.array([error, error]), given)
    assert history.tolist() == [monitor.running_percent(error)] * 2


def test_perfect_tracking_has_no_energy_error() -> None:
    monitor, error = energy_of(0.0)
    assert monitor.percent(error) == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(EnergyMonitor(1, 0.0).percent(0.0))


def test_an_ideal_lag_of_a_spring_feeds_in_its_stiffness_times_the_indicator() -> None:
    """Over whole periods; a specimen to scale has the energy of the structure."""
    c, m = sine(0.0, amplitude=0.02), sine(-0.2, amplitude=0.02)
    for scale in (1.0, 8.0):
        tracking = Tracking(1, 1, np.array([scale]))
        indicator, error = tracking.over(c, m, 3e6 * m)
        growth = scale * 3e6 * np.diff(indicator[::PERIOD, 0])
        np.testing.assert_allclose(np.diff(error[::PERIOD]), growth, rtol=1e-9)


# The monitor


@pytest.fixture
def monitor() -> Callable[..., Monitor]:
    def monitor(elastic: float = 1.0, **data: float) -> Monitor:
        return Monitor(from_data(MonitorParams, data, "monitor"), ("a",), 1, DT, elastic)

    return monitor


def feed(monitor: Monitor, c: np.ndarray, m: np.ndarray, force: np.ndarray) -> None:
    for k, sample in enumerate(zip(c.tolist(), m.tolist(), force.tolist(), strict=True)):
        monitor.step(k, *sample)


def test_metrics_have_their_names(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    for step, x in enumerate((0.0, 0.3, -0.4, 0.1)):
        watching.energy.target(target(step, x, 0.0), step - 1)
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
    for count in (32, 37):
        watching = monitor()
        feed(watching, c[:count], m[:count], c[:count])
        status = watching.status()
        assert status["sample"] == count - 1
        assert status["control_error"] == [c[count - 1, 0] - m[count - 1, 0]]


def test_what_the_monitor_keeps_does_not_grow_with_the_test(monitor: Callable[..., Monitor]) -> None:
    watching, sizes = monitor(), []
    for k in range(5 * CHUNK):
        watching.energy.target(target(k, math.sin(k), math.cos(k)), k - 1)
        watching.step(k, [math.sin(0.01 * k)], [math.sin(0.01 * k - 0.1)], [1.0])
        if k % CHUNK == CHUNK // 2:
            sizes.append(len(pickle.dumps(watching)))
    assert sizes[-1] < 1.02 * sizes[1]


def test_arrays_that_are_used_again_do_no_harm(monitor: Callable[..., Monitor]) -> None:
    """A returned array is valid until the next step only: who keeps it copies it."""
    fresh, reused = monitor(), monitor()
    shared = target(0, 0.0, 0.0)
    for step, x in enumerate(np.sin(np.arange(20.0)).tolist()):
        fresh.energy.target(target(step, x, float(step)), step - 1)
        shared.step, shared.displacement[0], shared.external_force[0] = step, x, float(step)
        reused.energy.target(shared, step - 1)
    shared.displacement[0] = 99.0
    for watching in (fresh, reused):
        watching.skip(20)
    assert reused.metrics()["end_displacement_m"] == fresh.metrics()["end_displacement_m"] == math.sin(19.0)
    assert reused.energy.input == fresh.energy.input != 0.0


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
    assert watching.breach is not None
    assert watching.breach[0] == 50
    assert mentions(watching.breach[1], "monitor.energy_error_percent", "25 %", "10 %")


@pytest.mark.parametrize("reference", [0.0, 2.0])
def test_the_energy_limit_finds_the_sample_that_each_sample_judged_alone_would(
    monitor: Callable[..., Monitor], reference: float
) -> None:
    """Input energy that grows and falls lets more error pass, and less: Target i counts from sample i on."""
    rng = np.random.default_rng(3)
    c, m, force = (np.cumsum(rng.normal(0.0, 0.02, (400, 1)), axis=0) for _ in range(3))
    external = 20.0 * np.sin(0.05 * np.arange(400.0))
    for limit in (0.5, 2.0, 5.0, 20.0, 50.0):
        watching = monitor(elastic=reference, energy_error_percent=limit)
        for k in range(400):
            watching.energy.target(target(k, float(c[k, 0]), float(external[k])), k - 1)
            watching.step(k, c[k].tolist(), m[k].tolist(), force[k].tolist())
        _, error = Tracking(1, 1).over(c, m, force)
        energy = EnergyMonitor(1, reference)
        given = energy.over(c, external[:, None], np.full((400, 1), np.nan))
        beyond = np.flatnonzero(np.abs(energy.running_percents(error, given)) > limit)
        assert (None if watching.breach is None else watching.breach[0]) == (beyond[0] if len(beyond) else None)


def test_the_rate_of_the_indicator_is_limited(monitor: Callable[..., Monitor]) -> None:
    rate = 0.5 * math.sin(2 * math.pi / PERIOD) * math.sin(0.3) / DT
    for limit, breached in ((1.001 * rate, False), (0.999 * rate, True)):
        watching = monitor(tracking_indicator_rate=limit)
        feed(watching, sine(0.0), sine(-0.3), sine(0.0))
        assert (watching.breach is not None) == breached


@pytest.mark.parametrize("start", [5, 40, 55])
def test_a_slope_that_is_too_steep_is_found_at_its_own_sample(monitor: Callable[..., Monitor], start: int) -> None:
    """From rest a sine begins that is late: ten of its samples within the last 32 are too many."""
    angle = 2.0 * np.pi * np.arange(80) / PERIOD
    still = np.zeros(start)
    c, m = (np.concatenate((still, values))[:, None] for values in (np.cos(angle), np.cos(angle - 0.3)))
    area = 0.5 * math.sin(2.0 * math.pi / PERIOD) * math.sin(0.3)
    watching = monitor(tracking_indicator_rate=9.5 * area / (SPAN * DT))
    feed(watching, c, m, c)
    assert watching.breach is not None
    assert watching.breach[0] == max(SPAN - 1, start + 10)
    assert watching.breach[1].startswith("monitor.tracking_indicator_rate: ")


def test_what_is_not_a_number_is_a_breach(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    m = sine(0.0).copy()
    m[40] = math.nan
    feed(watching, sine(0.0), m, sine(0.0))
    assert watching.breach is not None
    assert watching.breach[0] == 40
    assert mentions(watching.breach[1], "monitor.tracking_indicator", "nan m^2")


def test_samples_of_the_safe_stop_do_not_count(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    feed(watching, sine(0.0), sine(-0.1), sine(0.0))
    before = watching.metrics()
    watching.skip(99_999)
    assert watching.metrics() == before
    assert watching.sample == 99_999


# The delay of a window, the frequency evaluation index


def test_delay_of_a_window_is_that_of_its_samples() -> None:
    """Late by 12.6 samples in the first half, early by 7.3 in the second."""
    time = np.arange(8000.0)[:, None]
    measured = np.where(time < 4000, wave(time - 12.6), wave(time + 7.3))
    assert delay_samples(wave(time)[:4000], measured[:4000], 100)[0] == pytest.approx(12.6, abs=0.02)
    assert delay_samples(wave(time)[4000:], measured[4000:], 100)[0] == pytest.approx(-7.3, abs=0.02)
    assert math.isnan(delay_samples(wave(time)[4000:4101], measured[4000:4101], 100)[0])


def test_delay_of_the_whole_is_that_of_the_monitor(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    feed(watching, sine(0.0), sine(-0.1), sine(0.0))
    whole = delay_samples(sine(0.0), sine(-0.1), watching.longest)[0]
    assert watching.metrics()["axes"]["a"]["delay_s"] == pytest.approx(whole * DT, rel=1e-9)


def chirp(time: np.ndarray, lowest: float, highest: float, duration: float) -> np.ndarray:
    """A sweep, time in s; it begins and ends smoothly, as the spectrum of a test does."""
    phase = 2.0 * np.pi * (lowest * time + 0.5 * (highest - lowest) / duration * time**2)
    return np.sin(phase) * np.sin(np.pi * np.clip(time / duration, 0.0, 1.0)) ** 2


@pytest.mark.parametrize("delay", [0.010, -0.004, 0.0])
def test_fei_of_a_sine_with_gain_and_delay(delay: float) -> None:
    """A 0.9 times smaller sine, 10 ms late: A = 0.9, d = 10 ms, at its own frequency."""
    time = np.arange(10_240) * DT
    x, y = (a * np.sin(2.0 * np.pi * 2.0 * (time - d))[:, None] for a, d in ((0.02, 0.0), (0.018, delay)))
    found = frequency_evaluation(x, y, DT)
    assert found.amplitude[0] == pytest.approx(0.9, rel=1e-9)
    assert found.delay[0] == pytest.approx(delay, abs=1e-9)
    assert found.frequency[0] == pytest.approx(2.0, rel=1e-9)


def test_fei_of_a_sweep_with_gain_and_delay() -> None:
    """The phase of a delay grows with frequency, so the mean over a band comes out a little below the gain."""
    time = np.arange(-1024, 21 * 1024) * DT
    x, y = chirp(time, 0.5, 4.5, 20.0)[:, None], 0.9 * chirp(time - 0.010, 0.5, 4.5, 20.0)[:, None]
    found = frequency_evaluation(x, y, DT)
    assert found.amplitude[0] == pytest.approx(0.9, rel=2e-3)
    assert found.amplitude[0] < 0.9
    assert found.delay[0] == pytest.approx(0.010, rel=2e-3)
    assert found.frequency[0] == pytest.approx(2.5, rel=0.02)


def test_fei_does_not_mind_an_offset_and_a_still_axis() -> None:
    x = np.hstack((sine(0.0)[:-1], np.zeros((3 * PERIOD, 1))))
    found = frequency_evaluation(x, 0.8 * x + 5.0, DT)
    assert (found.amplitude[0], found.delay[0]) == (pytest.approx(0.8), pytest.approx(0.0, abs=1e-12))
    assert all(math.isnan(values[1]) for values in found)


@pytest.mark.parametrize(("samples", "counted"), [(1031, 1029), (30721, 30720), (20480, 20480)])
def test_fei_counts_samples_up_to_a_length_of_small_factors(samples: int, counted: int) -> None:
    """A transform of 30721 = 31 * 991 values takes three times as long as one of 30720."""
    x, y = np.cumsum(np.random.default_rng(3).normal(size=(2, samples, 1)), axis=1)
    x[counted:] = y[counted:] = 1e3
    found, cut = (frequency_evaluation(x[rows], y[rows], DT) for rows in (slice(None), slice(counted)))
    wanted, moved = (np.fft.rfft(values[:counted, 0])[1:] for values in (x, y))
    expected = np.vdot(wanted, moved) / np.vdot(wanted, wanted)
    assert found == cut
    assert found.amplitude[0] == pytest.approx(abs(expected), rel=1e-9)
    assert -2.0 * np.pi * found.frequency[0] * found.delay[0] == pytest.approx(np.angle(expected), rel=1e-9)


def test_fei_with_another_power_weighs_another_way() -> None:
    """Two sines of amplitudes 2 and 1; only the smaller one is halved: the weights are 2^l and 1."""
    time = np.arange(4096) / 4096.0
    large, small = 2.0 * np.sin(2.0 * np.pi * 8.0 * time)[:, None], np.sin(2.0 * np.pi * 32.0 * time)[:, None]
    for power in (1.0, 2.0, 3.0):
        found = frequency_evaluation(large + small, large + 0.5 * small, 1.0 / 4096.0, power)
        weight = 2.0**power
        assert found.amplitude[0] == pytest.approx((weight + 0.5) / (weight + 1.0), rel=1e-6)
        assert found.frequency[0] == pytest.approx((8.0 * weight + 32.0) / (weight + 1.0), rel=1e-3)


def test_published_names_are_those_of_known_indices(monitor: Callable[..., Monitor]) -> None:
    """J2 and J3 of Wang et al. by their own formulas."""
    watching = monitor()
    c, m = sine(0.0, amplitude=0.02), 0.95 * sine(-0.1, amplitude=0.02)
    feed(watching, c, m, c)
    index = watching.metrics()["axes"]["a"]
    j2 = 100.0 * math.sqrt(float(np.square(m - c).sum() / np.square(c).sum()))
    j3 = 100.0 * float(np.abs(m - c).max() / np.abs(c).max())
    assert [index[PUBLISHED[name]] for name in ("J2", "J3")] == pytest.approx([j2, j3])
    assert index[PUBLISHED["J1"]] == pytest.approx(0.1 / (2.0 * math.pi) * PERIOD * DT, rel=0.01)


# The soft start


def prepare(monitor: Monitor, samples: int, c: np.ndarray, m: np.ndarray) -> int:
    """A soft start of as many samples, one Target for each; the number of the first sample of the test."""
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
def test_a_soft_start_does_not_count(monitor: Callable[..., Monitor], samples: int) -> None:
    """Whatever moved before, the indices are those of the test, to the bit."""
    c, m = sine(0.0, amplitude=0.02)[1:], sine(-0.1, amplitude=0.02)[1:]
    wild = 100.0 * sine(0.4)[: samples + 1]
    rest = np.zeros((samples + 1, 1))
    found = []
    for before, behind in ((wild, -3.0 * wild), (rest, rest)):
        watching = monitor(energy_error_percent=1e3, tracking_indicator_rate=1.0)
        before[-1] = behind[-1] = 0.0  # the soft start ends at rest
        first = prepare(watching, samples, before, behind)
        found.append(metrics_of(watching, first, c, m))
        assert watching.breach is None
    assert found[0] == found[1]
    assert found[0]["max_displacement_m"] == pytest.approx(0.02)
    assert found[0]["axes"]["a"]["max_error_m"] == pytest.approx(float(np.abs(c - m).max()))


def test_the_test_begins_where_the_soft_start_has_ended(monitor: Callable[..., Monitor]) -> None:
    """A drift that was there before the test is neither an area nor an energy of the test."""
    watching = monitor()
    drift = np.full((200, 1), 0.001)
    first = prepare(watching, 50, np.zeros((51, 1)), np.full((51, 1), 0.001))
    metrics = metrics_of(watching, first, np.zeros((200, 1)), drift)
    assert metrics["axes"]["a"]["tracking_indicator_m2"] == 0.0
    assert watching.tracking.energy_error == 0.0
    assert metrics["axes"]["a"]["max_error_m"] == 0.001


def test_during_a_soft_start_the_status_goes_on(monitor: Callable[..., Monitor]) -> None:
    watching = monitor()
    c, m = sine(0.0), sine(-0.1)
    prepare(watching, 40, c, m)
    status = watching.status()
    assert status["sample"] == 40
    assert status["control_error"] == [c[40, 0] - m[40, 0]]
    assert status["max_control_error"] == [0.0]
    assert watching.energy.input == 0.0
