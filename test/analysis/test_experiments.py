# SPDX-License-Identifier: Apache-2.0
"""Tests that identify a rig: one axis moves, the others stand still; the damper is switched at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.analysis.identification.experiments import Noise, driven
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.files import from_text
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario

SPECIMEN = "mass: [[98.3, 0.0], [0.0, 98.3]], damping: [[125.0, -50.0], [-50.0, 50.0]]"
RIG = f"""
version: 1
name: two_actuators
servo_rate: 1000.0
substeps: 4
duration: 30.0
structure: {{type: shear_frame, masses: [900.0, 900.0], stiffnesses: [5.0e+5, 5.0e+5]}}
integrator: {{type: cr}}
compensator: {{type: inverse}}
soft_start: {{duration: 5.0, frequency: 1.0, amplitude: 0.001}}
rig: {{type: coupled_servo_hydraulic, {SPECIMEN}, stiffness: [[12.0e+5, -6.84e+5], [-6.84e+5, 6.84e+5]]}}
axes:
  story_1: &axis {{limits: {{stroke: 0.1, velocity: 0.5, force: 1.0e+5}}}}
  story_2: *axis
"""
DAMPER = ["rig.damper={type: magnetorheological_damper}", "semi_active={type: clipped_optimal, voltage: 1.5}"]


def loaded(*overrides: str) -> Scenario:
    return override(from_text(RIG, "this test"), overrides)


def noise(**data: float) -> Noise:
    return from_data(Noise, {"rms": 1e-3, "duration": 2.0, "lower_frequency": 1.0, "upper_frequency": 30.0} | data)


@pytest.mark.parametrize("axis", [0, 1])
def test_one_axis_moves_and_the_other_stands_still(axis: int) -> None:
    test = driven(loaded(), axis, noise())
    run = hosts.run(test).read()
    assert run.command.shape == (2001, 2)
    np.testing.assert_array_equal(run.command[:, 1 - axis], 0.0)
    moved = run.command[:, axis]
    assert moved.std() == pytest.approx(1e-3, rel=0.15)  # the tapers cost a little
    assert np.abs(moved[[0, -1]]).max() < 1e-12
    power = np.abs(np.fft.rfft(moved)) ** 2
    assert power[62:].sum() < 1e-3 * power.sum()
    # what is not commanded moves through the specimen
    assert 0.0 < np.abs(run.displacement[:, 1 - axis]).max() < 0.05 * np.abs(moved).max()


def test_the_rig_and_its_limits_stay() -> None:
    given = loaded("axes.story_1.limits.stroke=0.002", "port.transport_samples=2")
    test = driven(given, 0, noise())
    assert (test.rig, test.port, test.axes) == (given.rig, given.port, given.axes)
    assert test.name == "two_actuators.identify_story_1"
    with pytest.raises(ConfigError) as refused:
        hosts.run(test)
    assert mentions(str(refused.value), "axes.story_1.limits.stroke = 0.002 m")


def test_a_damper_is_switched_with_the_voltage_of_its_controller() -> None:
    test = driven(loaded(*DAMPER), 1, noise())
    assert type(test.semi_active).type_name == "random_switching"
    assert test.semi_active.voltage == 1.5
    assert driven(loaded(DAMPER[0]), 1, noise()).semi_active.voltage == 2.25
    assert driven(loaded(), 1, noise()).semi_active is None


def test_switching_is_fair_and_repeatable(make: Callable[..., Any]) -> None:
    nothing = np.zeros(1)
    measured = Measurement(0, nothing, nothing, nothing)
    switch = make("semi_active", "random_switching", None, 0.01, (), interval=0.05, voltage=2.0)

    def drive(steps: int) -> np.ndarray:
        switch.reset()
        return np.array([switch.step(measured, 0.0)[0] for _ in range(steps)])

    first = drive(50_000)
    assert set(first) == {0.0, 2.0}
    np.testing.assert_array_equal(np.diff(first.reshape(-1, 5)), 0.0)  # five steps a decision
    assert first.mean() == pytest.approx(1.0, abs=0.05)
    assert np.mean(np.diff(first[::5]) != 0.0) == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(drive(200), first[:200])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"upper_frequency": 500.0}, ("upper_frequency", "500 Hz", "servo_rate")),
        ({"rms": 0.0}, ("rms", "0 m", "> 0 m")),
        ({"lower_frequency": 30.0}, ("lower_frequency", "30 Hz", "< upper_frequency")),
        ({"duration": 4000.0}, ("duration", "4000 s", "> 0", "<= 3600 s")),
    ],
)
def test_noise_that_cannot_be_is_refused(change: dict[str, float], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        driven(loaded(), 0, noise(**change))
