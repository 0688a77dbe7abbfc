# SPDX-License-Identifier: Apache-2.0
"""Tests of loading protocols and sweeps: figures of the documents, closed forms, derivatives, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import mentions
from scipy.signal import chirp

import rths_nodes
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

FEMA_461 = (0.048, 0.068, 0.095, 0.133, 0.186, 0.260, 0.364, 0.510, 0.714, 1.000)
"""Relative amplitudes of FEMA 461, section 2.9.1, two cycles each."""
AISC_341 = {0.00375: 6, 0.005: 6, 0.0075: 6, 0.01: 4, 0.015: 2, 0.02: 2, 0.03: 2, 0.04: 2}
"""Cycles by story drift angle (rad) of AISC 341, K2.4b."""


def make(name: str, **data: Any) -> Any:
    cls = registry.load("ground_motion", name)
    return cls(from_data(cls.Params, data), 0)


def half_cycle_peaks(motion: Any, duration: float) -> list[float]:
    """Return the largest displacement of each half cycle, m, from 2000 points a second."""
    x = motion.sample(np.arange(0.0, duration, 0.0005))
    halves = np.split(x, np.flatnonzero(np.diff(np.sign(x[1:]))) + 2)
    return [float(half[np.abs(half).argmax()]) for half in halves if np.abs(half).max() > 1e-9]


def test_fema_461_has_two_cycles_of_each_amplitude() -> None:
    motion = make("fema_461", amplitude=0.1, velocity=0.4)
    peaks = half_cycle_peaks(motion, 12.0)
    np.testing.assert_allclose(np.abs(peaks), 0.1 * np.repeat(FEMA_461, 4), atol=0.1 * 0.0006)
    assert (np.sign(peaks) == np.tile([1.0, -1.0], 20)).all()
    length = 2.0 * 2.0 * np.pi * 0.1 / 0.4 * sum(1.4**-step for step in range(10)) + 0.5
    assert not motion.sample(np.array([length, length + 5.0])).any()
    assert np.abs(motion.sample(np.array([length - 0.3]))) > 1e-3


def test_fema_461_grows_by_30_percent_beyond_target() -> None:
    motion = make("fema_461", amplitude=0.1, velocity=1.0, steps=1, further_steps=2)
    np.testing.assert_allclose(np.abs(half_cycle_peaks(motion, 7.0)), np.repeat([0.1, 0.13, 0.16], 4), rtol=1e-4)


def test_aisc_341_has_angles_and_cycles_of_k2_4b() -> None:
    motion = make("aisc_341", length=3.0, velocity=0.3, largest_angle=0.06)
    angles = np.abs(half_cycle_peaks(motion, 75.0)) / 3.0
    expected = {**AISC_341, 0.05: 2, 0.06: 2}
    np.testing.assert_allclose(angles, np.repeat(list(expected), 2 * np.array(list(expected.values()))), rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "data", "velocity"),
    [
        ("fema_461", {"amplitude": 0.05, "velocity": 0.2}, 0.2),
        ("aisc_341", {"length": 2.0, "velocity": 0.25, "ease": 1.0}, 0.25),
        ("sweep", {"amplitude": 0.01, "duration": 30.0, "spacing": "logarithmic", "crossover": 2.0}, 0.04 * np.pi),
        ("sweep", {"amplitude": 0.01, "duration": 30.0, "crossover": 3.0}, 0.06 * np.pi),
    ],
)
def test_derivatives_are_exact_and_velocity_is_bounded(name: str, data: Any, velocity: float) -> None:
    motion, h = make(name, **data), 1e-5
    times = np.linspace(0.001, 29.99, 3001)
    first, second = motion.derivatives(times)
    np.testing.assert_allclose(first, (motion.sample(times + h) - motion.sample(times - h)) / (2 * h), atol=2e-6)
    slopes = [motion.derivatives(times + side)[0] for side in (h, -h)]
    near = np.abs(second - (slopes[0] - slopes[1]) / (2 * h)) < 1e-4 + 1e-4 * np.abs(second)
    assert near.mean() > 0.999  # the acceleration has a corner at the crossover frequency
    if name != "sweep":
        assert not any(float(part[0]) for part in motion.derivatives(np.zeros(1)))
    assert 0.98 * velocity < np.abs(first).max() <= 1.001 * velocity


def test_logarithmic_sweep_has_equal_times_per_octave() -> None:
    times = np.linspace(0.0, 12.0, 1001)
    data = {"amplitude": 1.0, "start_frequency": 0.2, "end_frequency": 8.0, "duration": 12.0}
    sweep = make("sweep", **data, spacing="logarithmic")
    expected = chirp(times, 0.2, 12.0, 8.0, "logarithmic", phi=-90)
    np.testing.assert_allclose(sweep.sample(times), expected, atol=1e-10)


STROKE, VELOCITY = "axes.axis_1.limits.stroke = 0.25 m", "axes.axis_1.limits.velocity = 10 m/s"
PEAK = {"type": "sine", "amplitude": 0.1, "frequency": 1.0, "phase": 1.5708}
MOTIONS = {
    "fast cycles": ({"type": "fema_461", "amplitude": 0.1, "velocity": 20.0, "ease": 0.05}, (VELOCITY,)),
    "large cycles": ({"type": "fema_461", "amplitude": 0.3, "velocity": 0.2}, (STROKE,)),
    "fast sweep": ({"type": "sweep", "amplitude": 0.2, "end_frequency": 50.0}, (VELOCITY,)),
    "sine": ({"type": "sine", "amplitude": 0.26, "frequency": 1.0}, ("0.26 m", STROKE)),
    "fast sine": ({"type": "sine", "amplitude": 0.1, "frequency": 16.0}, ("10.05 m/s", VELOCITY)),
    "harmonic": ({"type": "harmonic", "amplitude": -0.3, "frequency": 1.0}, ("-0.3 m", STROKE)),
    "noise": ({"type": "band_limited_noise", "rms": 0.2, "upper_frequency": 2.0, "duration": 10.0}, (STROKE,)),
    "scaled after a rest": (
        {"type": "delayed", "delay": 1.0, "scale": 3.0, "motion": PEAK | {"phase": 0.0}},
        ("0.3 m", STROKE),
    ),
    "a jump after a rest": ({"type": "delayed", "delay": 1.0, "motion": PEAK}, ("102.4 m/s at 1 s", VELOCITY)),
}
"""Displacements that exceed the limits of the axis, and parts of the messages."""


@pytest.mark.parametrize("integrator", ["prescribed", "predefined"])
@pytest.mark.parametrize(("displacement", "parts"), MOTIONS.values(), ids=MOTIONS)
def test_motion_beyond_a_limit_is_refused(integrator: str, displacement: Any, parts: tuple[str, ...]) -> None:
    motion = {"type": integrator, "displacement": displacement}
    with pytest.raises(ConfigError) as refused:
        rths_nodes.run("predefined_sine", integrator=motion, duration=80.0)
    assert mentions(str(refused.value), "integrator.displacement", *parts)


@pytest.mark.parametrize(
    ("displacement", "parts"),
    [
        (
            {"type": "aisc_341", "length": 3.0, "velocity": 0.2, "largest_angle": 0.025},
            ("largest_angle", "0.02 rad"),
        ),
        ({"type": "sweep", "start_frequency": 0.0, "spacing": "logarithmic"}, ("start_frequency = 0", "> 0")),
    ],
)
def test_invalid_protocols_are_refused(displacement: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        rths_nodes.run("predefined_sine", integrator={"type": "predefined", "displacement": displacement})
    assert mentions(str(refused.value), *parts)


def test_limits_consider_only_motion_during_test() -> None:
    """The first cycles of a protocol are small; a slower rig has smaller velocities."""
    large = {"type": "predefined", "displacement": {"type": "fema_461", "amplitude": 0.3, "velocity": 0.2}}
    rths_nodes.load("predefined_sine", integrator=large).check_fit("integrator")
    fast = {"type": "prescribed", "displacement": {"type": "sine", "amplitude": 0.1, "frequency": 16.0}}
    rths_nodes.load("predefined_sine", integrator=fast, time_ratio=2.0).check_fit("integrator")


@pytest.mark.parametrize(("factor", "position"), [(2.0, "to 0.4 m"), (-2.0, "to -0.4 m")])
def test_limits_apply_to_the_axis_after_the_setup(factor: float, position: str) -> None:
    sine = {"type": "prescribed", "displacement": PEAK | {"amplitude": 0.2, "phase": 0.0}}
    scenario = rths_nodes.load("predefined_sine", integrator=sine, setup={"type": "matrix", "matrix": [[factor]]})
    with pytest.raises(ConfigError) as refused:
        scenario.check_fit("integrator")
    assert mentions(str(refused.value), position, STROKE)
    sine["displacement"]["amplitude"] = 0.4
    setup = {"type": "matrix", "matrix": [[0.5]]}
    rths_nodes.load("predefined_sine", integrator=sine, setup=setup).check_fit("integrator")


def test_protocol_is_refused_as_ground_acceleration() -> None:
    protocol = {"type": "fema_461", "amplitude": 0.1, "velocity": 0.2}
    with pytest.raises(ConfigError, match=r"ground_motion\.type"):
        rths_nodes.run("chen_ricles_2010", ground_motion=protocol)


def test_actuator_follows_protocol() -> None:
    protocol = {"type": "aisc_341", "length": 1.0, "velocity": 0.4, "largest_angle": 0.005}
    motion = {"type": "predefined", "displacement": protocol}
    run = rths_nodes.run("predefined_sine", integrator=motion, duration=1.5)
    assert run.outcome == "finished"
    assert 0.0049 < np.abs(run.displacement).max() < 0.0052
