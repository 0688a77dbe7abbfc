# SPDX-License-Identifier: Apache-2.0
"""Sensors: noise that belongs to the axis, resolution, range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from faulty_sensors import FaultySensors

from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.sensing import SensorPair
from rths_nodes.laboratory.sensors import Output, Sensors, converted

DT = 1.0 / 1024.0


def pair(seed: int = 1, axis: str = "story_1", **data: float) -> SensorPair:
    return SensorPair(from_data(Sensors, data), seed, axis, DT)


def readings(sensors: SensorPair, count: int, displacement: float = 0.0, force: float = 0.0) -> np.ndarray:
    return np.array([sensors.measure(displacement, force) for _ in range(count)])


NOISY: dict[str, Any] = {"displacement_noise_rms": 2e-5, "force_noise_rms": 300.0}


def test_by_default_the_measurement_is_perfect() -> None:
    assert pair().measure(0.123456789, -4.2) == (0.123456789, -4.2)


def test_noise_has_its_rms_and_no_mean() -> None:
    noise = readings(pair(**NOISY), 20_000, 0.01, 5.0) - [0.01, 5.0]
    np.testing.assert_allclose(noise.std(axis=0), [2e-5, 300.0], rtol=0.02)
    np.testing.assert_allclose(noise.mean(axis=0) / [2e-5, 300.0], 0.0, atol=0.03)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03


def test_noise_belongs_to_seed_and_axis() -> None:
    first = readings(pair(**NOISY), 600)
    np.testing.assert_array_equal(readings(pair(**NOISY), 600), first)
    assert not np.array_equal(readings(pair(seed=2, **NOISY), 600), first)
    assert not np.array_equal(readings(pair(axis="story_2", **NOISY), 600), first)


def test_a_channel_without_noise_does_not_change_that_of_the_other() -> None:
    both, one = readings(pair(**NOISY), 300), readings(pair(force_noise_rms=300.0), 300)
    np.testing.assert_array_equal(one[:, 1], both[:, 1])
    assert not one[:, 0].any()


def test_reset_begins_the_noise_again() -> None:
    sensors = pair(**NOISY)
    first = readings(sensors, 300)
    sensors.reset()
    np.testing.assert_array_equal(readings(sensors, 300), first)


def test_resolution_rounds_to_the_nearest_step() -> None:
    sensors = pair(displacement_resolution=0.5, force_resolution=10.0)
    assert sensors.measure(1.3, -26.0) == (1.5, -30.0)
    assert sensors.measure(1.2, -24.0) == (1.0, -20.0)


@pytest.mark.parametrize(("value", "seen"), [(0.29, 0.29), (0.31, 0.3), (-0.31, -0.3), (0.3, 0.3)])
def test_beyond_its_range_a_channel_saturates_and_says_so(value: float, seen: float) -> None:
    sensors = pair(displacement_range=0.3)
    assert sensors.measure(value, 1e9) == (seen, 1e9)
    assert sensors.saturated == (abs(value) >= 0.3)
    sensors.measure(0.0, 0.0)
    assert not sensors.saturated


def test_what_is_not_a_number_passes_so_that_the_limits_see_it() -> None:
    sensors = pair(displacement_resolution=1e-6, force_resolution=1.0, displacement_range=0.3)
    displacement, force = sensors.measure(math.nan, math.inf)
    assert math.isnan(displacement)
    assert force == math.inf


def test_a_late_force_is_that_of_so_many_samples_before() -> None:
    forces = [1.0, -2.0, 3.0, 4.0, 5.0]
    late = pair(force_delay=2)
    seen = [late.measure(0.1, force) for force in forces]
    assert seen == [(0.1, force) for force in [0.0, 0.0, *forces[:-2]]]
    late.reset()
    assert late.measure(0.1, 7.0) == (0.1, 0.0)


def test_the_delay_takes_the_noise_along() -> None:
    prompt, late = readings(pair(**NOISY), 100, force=5.0), readings(pair(**NOISY, force_delay=3), 100, force=5.0)
    np.testing.assert_array_equal(late[3:, 1], prompt[:-3, 1])
    np.testing.assert_array_equal(late[:, 0], prompt[:, 0])


def test_the_converter_of_the_command_rounds_and_saturates() -> None:
    output = from_data(Output, {"resolution": 1e-3, "range": 0.0105})
    assert [converted(value, *output.converter) for value in (0.00049, 0.0026, -0.0026, 0.02, -1.0)] == [
        0.0,
        pytest.approx(0.003),
        pytest.approx(-0.003),
        0.0105,
        -0.0105,
    ]
    assert converted(0.123456789, *from_data(Output, {}).converter) == 0.123456789


@pytest.mark.parametrize(
    ("how", "shown"),
    [
        ("frozen", [1.0, 1.0, 1.0, 1.0]),
        ("flickers", [1.25, 1.0, 1.25, 1.0]),
        ("flipped", [1.0, 0.0, -1.0, -2.0]),
        ("drifts", [1.5, 3.0, 4.5, 6.0]),
    ],
)
def test_a_channel_goes_wrong_while_it_measures_and_is_right_again(how, shown) -> None:
    pair = FaultySensors.of(SensorPair(Sensors(displacement_resolution=0.25), 1, "a", 0.5))
    assert pair.measure(0.0, 7.0) == (0.0, 7.0)
    pair.goes_wrong("displacement", how, 0.5)
    assert [pair.measure(value, 7.0) for value in (1.0, 2.0, 3.0, 4.0)] == [(each, 7.0) for each in shown]
    pair.goes_wrong("displacement", "right")
    assert pair.measure(5.0, 7.0) == (5.0, 7.0)
