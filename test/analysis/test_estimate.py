# SPDX-License-Identifier: Apache-2.0
"""Estimates from a recording: known delays are found again, by each route, and what they suggest."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.identification.estimate import discrete_model_spacing, estimate, sine_frequency
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.run import Run

DT = 1.0 / 1024.0
ALPHA = 29.0
ANSWER = 1.0 / (1.0 + (ALPHA - 1.0) * (1.0 - np.exp(-2j * math.pi * DT)))
"""Of the first-order actuator to a sine of 1 Hz, Chen & Ricles 2010, Eq. (3)."""


@cache
def sine_test() -> Run:
    """The predefined sine, 1 Hz, without compensation."""
    return rths_nodes.run("predefined_sine", ["duration=6", "compensator.type=none"])


@cache
def earthquake() -> Run:
    return rths_nodes.run("chen_ricles_2010", ["duration=8", "compensator.type=none"])


def replayed(run: Run, gain: float, lag: int) -> Run:
    """The same command, but answered with a gain and a lag in samples."""
    late = np.vstack((np.zeros((lag, run.command.shape[1])), run.command[: len(run.command) - lag]))
    return dataclasses.replace(run, displacement=gain * late)


def test_a_sine_gives_the_answer_of_the_plant() -> None:
    found = estimate(sine_test(), start=1.0)["axis_1"]
    delay = -np.angle(ANSWER) / (2.0 * math.pi)
    assert found.sine == pytest.approx(1.0, rel=1e-3)
    assert found.loading.sine_delay == pytest.approx(delay, rel=1e-3)
    assert found.loading.sine_amplitude == pytest.approx(abs(ANSWER), rel=1e-3)
    assert found.loading.delay == pytest.approx(delay, rel=1e-2)
    assert found.tracking == found.loading  # nothing was compensated
    assert (found.start, found.samples) == (1.0, 5 * 1024 + 1)


@pytest.mark.parametrize("duration", [4.5, 8.0])
def test_the_start_up_of_a_sine_does_not_count(duration: float) -> None:
    """Counted in, it took 0.7 % off the delay of 8 s. A record that begins later is left as it is."""
    run = rths_nodes.run("predefined_sine", [f"duration={duration}", "compensator.type=none"])
    found = estimate(run)["axis_1"]
    assert found.start == pytest.approx(1.0, abs=2.0 * DT)
    assert found.loading.sine_delay == pytest.approx(-np.angle(ANSWER) / (2.0 * math.pi), rel=1e-4)
    assert estimate(run, start=0.0)["axis_1"].start == 0.0
    assert estimate(run, start=1.5)["axis_1"].start == 1.5


def test_a_sine_that_is_too_short_says_that_its_start_up_counts() -> None:
    run = rths_nodes.run("predefined_sine", ["duration=3.5", "compensator.type=none"])
    found = estimate(run)["axis_1"]
    assert found.start == 0.0
    assert mentions(found.notes[-1], "sine", "short")


def test_a_sine_suggests_what_the_plant_is() -> None:
    """alpha within what 1 Hz is not slow; one sine is not enough for three parameters."""
    found = estimate(sine_test(), start=1.0)["axis_1"]
    assert found.suggested["inverse"]["alpha"] == pytest.approx(ALPHA, rel=0.02)
    assert found.suggested["adaptive_inverse"]["alpha_es"] == found.suggested["inverse"]["alpha"]
    assert found.suggested["polynomial"]["delay"] == pytest.approx(28.0 * DT, rel=0.02)
    assert "discrete_model" not in found.suggested
    assert "one sine" in found.notes[0]


def test_a_gain_and_a_lag_are_found_in_an_earthquake() -> None:
    found = estimate(replayed(earthquake(), 0.9, 10))["story_1"]
    assert found.sine is None
    assert found.loading.sine_delay is None
    assert found.loading.delay == pytest.approx(10.0 * DT, rel=1e-2)
    assert found.loading.fei_delay == pytest.approx(10.0 * DT, rel=0.05)  # the record is cut off in motion
    assert found.loading.fei_amplitude == pytest.approx(0.9, rel=5e-3)
    assert found.suggested["inverse"]["alpha"] == pytest.approx(11.0, rel=1e-2)
    assert found.suggested["discrete_model"]["spacing"] == 5
    theta = found.suggested["discrete_model"]["initial"]
    assert len(theta) == 3
    assert sum(theta) == pytest.approx(1.0 / 0.9, rel=0.02)  # of a slow motion only the gain is left


@pytest.mark.parametrize(("rate", "samples"), [(1024.0, 5), (4096.0, 20), (10.0, 1)])
def test_the_taps_of_a_discrete_model_are_a_time_apart(rate: float, samples: int) -> None:
    assert discrete_model_spacing(1.0 / rate) == samples


def test_what_is_left_after_compensation_is_the_other_relation() -> None:
    run = rths_nodes.run("chen_ricles_2010", ["duration=8", "compensator.type=inverse", "compensator.alpha=29"])
    found = estimate(run)["story_1"]
    assert found.tracking.delay == pytest.approx(0.0, abs=1e-6)
    assert found.tracking.fei_amplitude == pytest.approx(1.0)
    assert found.loading.delay == pytest.approx(28.0 * DT, rel=0.05)


def test_a_window_has_its_own_delay() -> None:
    run = earthquake()
    command, half = run.command, len(run.command) // 2
    measured = np.vstack((np.zeros((10, 1)), command[:-10]))
    measured[half:] = np.vstack((np.zeros((20, 1)), command[:-20]))[half:]
    both = dataclasses.replace(run, displacement=measured)
    first, second = estimate(both, end=float(run.time[half - 1])), estimate(both, start=float(run.time[half]))
    assert first["story_1"].loading.delay == pytest.approx(10.0 * DT, rel=0.01)
    assert second["story_1"].loading.delay == pytest.approx(20.0 * DT, rel=0.01)


def test_a_lead_suggests_no_compensation() -> None:
    run = earthquake()
    early = np.vstack((run.command[7:], np.zeros((7, 1))))
    found = estimate(dataclasses.replace(run, displacement=early), end=7.0)["story_1"]
    assert found.loading.delay == pytest.approx(-7.0 * DT, rel=0.02)
    assert "inverse" not in found.suggested
    assert mentions(found.notes[0], "leads", "command")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"axis": "axis_2"}, ("--axis", "unknown", "axis_2", "axis_1")),
        ({"start": 3.0, "end": 2.0}, ("--begin", "3 s", "--end", "2 s", "0", ">= 209")),
        ({"start": 5.9}, ("--begin", "5.9 s", "--end", "6 s", "103")),
    ],
)
def test_wrong_words_are_refused(words: dict[str, object], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        estimate(sine_test(), **words)  # type: ignore[arg-type]


def test_rest_is_refused() -> None:
    run = sine_test()
    with pytest.raises(ConfigError, match=naming("axis_1", "no motion")):
        estimate(dataclasses.replace(run, displacement=np.zeros_like(run.displacement)))


@pytest.mark.parametrize("frequency", [0.7, 1.0, 3.3])
def test_the_frequency_of_a_sine_is_found_between_those_of_the_spectrum(frequency: float) -> None:
    time = DT * np.arange(6000)
    assert sine_frequency(2.0 + np.sin(2.0 * math.pi * frequency * time), DT) == pytest.approx(frequency, rel=1e-4)


def test_other_motions_are_no_sines() -> None:
    time = DT * np.arange(6000)
    two = np.sin(2.0 * math.pi * time) + np.sin(2.0 * math.pi * 3.0 * time)
    sweep = np.sin(2.0 * math.pi * (0.1 + 0.5 * time) * time)
    for history in (two, sweep, np.random.default_rng(1).normal(size=6000), time):
        assert sine_frequency(history, DT) is None


def test_the_soft_start_can_be_asked_for() -> None:
    """It is left out by default, and a sine test of its own where its times are given."""
    words = [
        "soft_start={amplitude: 0.005, frequency: 2.0, rise_time: 0.5}",
        "duration=4",
        "compensator.type=none",
    ]
    run = rths_nodes.run("chen_ricles_2010", words)
    assert estimate(run)["story_1"].start > 6.5
    found = estimate(run, start=1.0, end=5.0)["story_1"]
    assert found.sine == pytest.approx(2.0, rel=1e-3)
    assert found.suggested["polynomial"]["delay"] == pytest.approx(0.0265, rel=0.05)
