# SPDX-License-Identifier: Apache-2.0
"""Tests of estimates: of sines and models in closed form, of recordings, and over time windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification import from_recording
from rths_nodes.analysis.identification.from_recording import delay_of_sine, discrete_model, estimate
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.run import Run

DT = 1.0 / 1024.0
ALPHA = 29.0
RESPONSE = 1.0 / (1.0 + (ALPHA - 1.0) * (1.0 - np.exp(-2j * math.pi * DT)))
"""Response of the first-order actuator to a sine of 1 Hz, Chen & Ricles 2010, Eq. (3)."""


@cache
def sine_test() -> Run:
    """The predefined sine, 1 Hz, without compensation."""
    return rths_nodes.run("predefined_sine", ["duration=6", "compensator.type=none"])


@cache
def earthquake() -> Run:
    return rths_nodes.run("chen_ricles_2010", ["duration=8", "compensator.type=none"])


def test_sine_gives_response_of_plant() -> None:
    result = estimate(sine_test(), start=1.0)["axis_1"]
    delay = -np.angle(RESPONSE) / (2.0 * math.pi)
    assert result.sine == pytest.approx(1.0, rel=1e-3)
    assert result.loading.sine_delay == pytest.approx(delay, rel=1e-3)
    assert result.loading.sine_amplitude == pytest.approx(abs(RESPONSE), rel=1e-3)
    assert result.loading.delay == pytest.approx(delay, rel=1e-2)
    assert result.tracking == result.loading  # no compensation
    assert (result.start, result.samples) == (1.0, 5 * 1024 + 1)


@pytest.mark.parametrize("duration", [4.5, 8.0])
def test_start_up_of_sine_is_excluded(duration: float) -> None:
    """It changed the delay of 8 s by 0.7 %. An explicit begin has priority."""
    run = rths_nodes.run("predefined_sine", [f"duration={duration}", "compensator.type=none"])
    result = estimate(run)["axis_1"]
    assert result.start == pytest.approx(1.0, abs=2.0 * DT)
    assert result.loading.sine_delay == pytest.approx(-np.angle(RESPONSE) / (2.0 * math.pi), rel=1e-4)
    assert estimate(run, start=0.0)["axis_1"].start == 0.0
    assert estimate(run, start=1.5)["axis_1"].start == 1.5


def test_short_sine_includes_start_up_with_note() -> None:
    result = estimate(rths_nodes.run("predefined_sine", ["duration=3.5", "compensator.type=none"]))["axis_1"]
    assert result.start == 0.0
    assert mentions(result.notes[-1], "sine", "short")


def test_sine_suggests_parameters_of_plant() -> None:
    """alpha is approximate, as 1 Hz is not slow; one sine cannot determine three parameters."""
    result = estimate(sine_test(), start=1.0)["axis_1"]
    assert result.suggested["inverse"]["alpha"] == pytest.approx(ALPHA, rel=0.02)
    assert result.suggested["adaptive_inverse"]["alpha_es"] == result.suggested["inverse"]["alpha"]
    assert result.suggested["polynomial"]["delay"] == pytest.approx(28.0 * DT, rel=0.02)
    assert "discrete_model" not in result.suggested
    assert "one sine" in result.notes[0]


def test_gain_and_lag_are_estimated_from_earthquake() -> None:
    run = earthquake()
    late = np.vstack((np.zeros((10, run.command.shape[1])), run.command[: len(run.command) - 10]))
    result = estimate(dataclasses.replace(run, displacement=0.9 * late))["story_1"]
    assert result.sine is None
    assert result.loading.sine_delay is None
    assert result.loading.delay == pytest.approx(10.0 * DT, rel=1e-2)
    assert result.loading.fei_delay == pytest.approx(10.0 * DT, rel=0.05)  # the record ends in motion
    assert result.loading.fei_amplitude == pytest.approx(0.9, rel=5e-3)
    assert result.suggested["inverse"]["alpha"] == pytest.approx(11.0, rel=1e-2)
    assert result.suggested["discrete_model"]["spacing"] == 5
    theta = result.suggested["discrete_model"]["initial"]
    assert len(theta) == 3
    assert sum(theta) == pytest.approx(1.0 / 0.9, rel=0.02)  # gain at low frequency


@pytest.mark.parametrize(("rate", "samples"), [(1024.0, 5), (4096.0, 20), (10.0, 1)])
def test_discrete_model_spacing_is_constant_time(rate: float, samples: int) -> None:
    assert from_recording.discrete_model_spacing(1.0 / rate) == samples


def test_tracking_delay_is_zero_after_compensation() -> None:
    run = rths_nodes.run("chen_ricles_2010", ["duration=8", "compensator.type=inverse", "compensator.alpha=29"])
    result = estimate(run)["story_1"]
    assert result.tracking.delay == pytest.approx(0.0, abs=1e-6)
    assert result.tracking.fei_amplitude == pytest.approx(1.0)
    assert result.loading.delay == pytest.approx(28.0 * DT, rel=0.05)


def test_windows_have_separate_delays() -> None:
    run = earthquake()
    command, half = run.command, len(run.command) // 2
    measured = np.vstack((np.zeros((10, 1)), command[:-10]))
    measured[half:] = np.vstack((np.zeros((20, 1)), command[:-20]))[half:]
    both = dataclasses.replace(run, displacement=measured)
    first, second = estimate(both, end=float(run.time[half - 1])), estimate(both, start=float(run.time[half]))
    assert first["story_1"].loading.delay == pytest.approx(10.0 * DT, rel=0.01)
    assert second["story_1"].loading.delay == pytest.approx(20.0 * DT, rel=0.01)


def test_lead_suggests_no_compensation() -> None:
    run = earthquake()
    early = np.vstack((run.command[7:], np.zeros((7, 1))))
    result = estimate(dataclasses.replace(run, displacement=early), end=7.0)["story_1"]
    assert result.loading.delay == pytest.approx(-7.0 * DT, rel=0.02)
    assert "inverse" not in result.suggested
    assert mentions(result.notes[0], "leads", "command")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"axis": "axis_2"}, ("--axis", "unknown", "axis_2", "axis_1")),
        ({"start": 3.0, "end": 2.0}, ("--begin", "3 s", "--end", "2 s", "0", ">= 209")),
        ({"start": 5.9}, ("--begin", "5.9 s", "--end", "6 s", "103")),
    ],
)
def test_invalid_arguments_are_refused(words: dict[str, object], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        estimate(sine_test(), **words)  # type: ignore[arg-type]


def test_recording_without_motion_is_refused() -> None:
    run = sine_test()
    with pytest.raises(ConfigError, match=naming("axis_1", "no motion")):
        estimate(dataclasses.replace(run, displacement=np.zeros_like(run.displacement)))


@pytest.mark.parametrize("frequency", [0.7, 1.0, 3.3])
def test_sine_frequency_is_interpolated_in_spectrum(frequency: float) -> None:
    time = DT * np.arange(6000)
    assert from_recording.sine_frequency(2.0 + np.sin(2.0 * math.pi * frequency * time), DT) == pytest.approx(
        frequency, rel=1e-4
    )


def test_other_motions_have_no_sine_frequency() -> None:
    time = DT * np.arange(6000)
    two = np.sin(2.0 * math.pi * time) + np.sin(2.0 * math.pi * 3.0 * time)
    sweep = np.sin(2.0 * math.pi * (0.1 + 0.5 * time) * time)
    for history in (two, sweep, np.random.default_rng(1).normal(size=6000), time):
        assert from_recording.sine_frequency(history, DT) is None


def test_soft_start_is_used_on_request() -> None:
    """It is excluded by default, and evaluated as a sine test for explicit times."""
    soft_start = "soft_start={amplitude: 0.005, frequency: 2.0, rise_time: 0.5}"
    run = rths_nodes.run("chen_ricles_2010", [soft_start, "duration=4", "compensator.type=none"])
    assert estimate(run)["story_1"].start > 6.5
    result = estimate(run, start=1.0, end=5.0)["story_1"]
    assert result.sine == pytest.approx(2.0, rel=1e-3)
    assert result.suggested["polynomial"]["delay"] == pytest.approx(0.0265, rel=0.05)


TIMES = DT * np.arange(3000)


def sine(frequency: float, amplitude: float = 1.0, delay: float = 0.0) -> np.ndarray:
    return amplitude * np.sin(2.0 * np.pi * frequency * (TIMES - delay))


@pytest.mark.parametrize("delay", [0.0137, 0.0, -0.004, 0.1])
def test_delay_and_amplitude_of_sine_are_exact(delay: float) -> None:
    """No integer number of periods, and the measurement has an offset."""
    late, ratio = delay_of_sine(sine(2.0), 0.97 * sine(2.0, delay=delay) + 0.3, DT, 2.0)
    assert late == pytest.approx(delay, abs=1e-12)
    assert ratio == pytest.approx(0.97, rel=1e-9)


def test_sine_amplitude_is_complex_cosine_minus_sine() -> None:
    history = 3.0 * np.cos(2.0 * np.pi * 1.7 * TIMES) - 4.0 * np.sin(2.0 * np.pi * 1.7 * TIMES)
    assert from_recording.sine_of(history, DT, 1.7) == pytest.approx(3.0 + 4.0j)


def test_sine_fit_averages_noise() -> None:
    noise = np.random.default_rng(1).normal(size=len(TIMES))
    late, _ = delay_of_sine(sine(2.0), sine(2.0, delay=0.0137) + 0.05 * noise, DT, 2.0)
    assert late == pytest.approx(0.0137, abs=4.0 * 0.05 / (2.0 * np.pi * 2.0) * math.sqrt(2.0 / len(TIMES)))


def test_first_order_actuator_has_published_response() -> None:
    """1 / (alpha - (alpha - 1) / z) at z = exp(j w dt): Chen & Ricles 2010, Eq. (4)."""
    actuator = make("actuator", "first_order", DT, make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0))
    measured = []
    for value in sine(3.0).tolist():
        actuator.step(value)
        measured.append(actuator.displacement)
    late, ratio = delay_of_sine(sine(3.0)[1000:], np.array(measured)[1000:], DT, 3.0)
    response = 1.0 / (29.0 - 28.0 * np.exp(-2j * np.pi * 3.0 * DT))
    assert ratio == pytest.approx(abs(response))
    assert late == pytest.approx(-np.angle(response) / (2.0 * np.pi * 3.0))


def test_alpha_is_delay_plus_one_sample() -> None:
    assert from_recording.first_order_alpha(0.0, DT) == 1.0
    assert from_recording.first_order_alpha(28.0 * DT, DT) == 29.0
    with pytest.raises(ValueError, match=r"delay = -0\.001 s"):
        from_recording.first_order_alpha(-0.001, DT)


@pytest.mark.parametrize("spacing", [1, 5])
def test_discrete_model_is_identified_exactly(spacing: int) -> None:
    measured, theta = np.random.default_rng(1).normal(size=500), [3.187, 0.428, -2.660]
    command = sum(t * np.roll(measured, tap * spacing) for tap, t in enumerate(theta))
    command[: 2 * spacing] = 1e9  # unused: their earlier samples are unknown
    np.testing.assert_allclose(discrete_model(command, measured, spacing), theta, rtol=1e-9)


def test_discrete_model_of_delayed_sweep_predicts() -> None:
    """Three taps at 5 samples undo a delay of 10 samples below 4 Hz to a per cent, where [1, 0, 0] fails."""
    sweep = np.sin(2.0 * np.pi * (0.1 * TIMES + 0.65 * TIMES**2))
    command, measured = sweep[10:], sweep[:-10]
    theta = discrete_model(command, measured, 5)
    predicted = sum(t * measured[10 - 5 * tap :][: len(measured) - 10] for tap, t in enumerate(theta))
    assert np.abs(predicted - command[10:]).max() < 0.01
    assert np.abs(measured - command).max() > 0.2
    assert theta.sum() == pytest.approx(1.0, abs=1e-3)  # exact for a constant position


ONES = np.ones(100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delay_of_sine(ONES, ONES[1:], DT, 1.0), ("must be equal",)),
        (lambda: delay_of_sine(ONES, ONES, DT, 1.0), ("sine", "1 Hz")),
        (lambda: delay_of_sine(0.0 * ONES, ONES, DT, 1.0), ("sine", "1 Hz")),
        (lambda: delay_of_sine(ONES, ONES, DT, 0.0), ("frequency", "0 Hz")),
        (lambda: from_recording.sine_of(ONES[:2], DT, 1.0), ("three", "samples")),
        (lambda: discrete_model(ONES, ONES[1:], 5), ("must be equal",)),
        (lambda: discrete_model(ONES, ONES, 0), ("spacing", "0")),
        (lambda: discrete_model(ONES[:12], ONES[:12], 5), ("12", ">= 13")),
        (lambda: discrete_model(ONES, ONES, 5), ("determine", "three")),
        (lambda: discrete_model(sine(2.0), sine(2.0), 5), ("determine", "three")),
    ],
)
def test_unidentifiable_data_are_refused(call: Callable[[], Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*message)):
        call()


LATE = 7


@pytest.fixture(scope="module")
def run() -> Run:
    return rths_nodes.run("chen_ricles_2010", ["duration=10"])


def test_windowed_evaluation_locates_change_of_delay_and_amplitude(run: Run) -> None:
    half = len(run.time) // 2
    moved = run.target.copy()
    moved[half:] = 0.9 * run.target[half - LATE : len(run.target) - LATE]
    result = Evaluation(dataclasses.replace(run, displacement=moved)).windowed
    assert result is not None
    dt, middle = run.scenario.dt, run.time[half]
    before, after = result.time < middle - 0.5 * result.length, result.time > middle + 0.5 * result.length
    for chosen, delay, amplitude in ((before, 0.0, 1.0), (after, LATE * dt, 0.9)):
        valid = chosen & np.isfinite(result.delay[:, 0])
        assert valid.any()
        np.testing.assert_allclose(result.delay[valid, 0], delay, atol=0.05 * LATE * dt)
        np.testing.assert_allclose(result.amplitude[valid, 0], amplitude, rtol=0.01)


def test_windowed_evaluation_needs_long_motion(run: Run) -> None:
    short = {name: values[:200] for name, values in run.arrays().items() if len(values) == len(run.time)}
    assert Evaluation(dataclasses.replace(run, **short)).windowed is None
    still = dataclasses.replace(run, target=0.0 * run.target, displacement=0.0 * run.target)
    assert Evaluation(still).windowed is None


def test_parameter_range_ignores_non_finite_values(run: Run) -> None:
    name = "axes.story_1.alpha"
    assert name in run.compensator_names
    histories = run.compensator.copy()
    column = run.compensator_names.index(name)
    histories[10:13, column] = np.inf, -np.inf, np.nan
    finite = histories[1:, column][np.isfinite(histories[1:, column])]
    result = Evaluation(dataclasses.replace(run, compensator=histories)).parameter_ranges()
    assert result["alpha"]["story_1"] == (finite.min(), finite.max())
    undefined = Evaluation(dataclasses.replace(run, compensator=np.full_like(histories, np.nan)))
    assert undefined.parameter_ranges() == {}
