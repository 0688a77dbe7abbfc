# SPDX-License-Identifier: Apache-2.0
"""The rig of a recording: known actuators and specimens come back; what cannot be told is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import naming

import rths_nodes
from rths_nodes.analysis.identification.from_recording import axis_models, polynomials, simulated, usable
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.recording.run import Run

DT = 1.0 / 1024.0
NOISE = ["axes.story_1.sensors.displacement_noise_rms=2e-5", "axes.story_1.sensors.force_noise_rms=500"]
THIRD = [1.0 / 60.0, 2.0 * 0.6 / 90.0, 1.0 / 90.0**2]
"""tau, 2 zeta / w, 1 / w^2 of an actuator of third order."""


def recorded(*overrides: str, **sections: Any) -> Run:
    scenario = load("chen_ricles_2010", ["duration=6", *overrides])
    return rths_nodes.run(
        replace(scenario, [(["axes", "story_1", key], value) for key, value in sections.items()])
    )


def third_order() -> dict[str, Any]:
    denominator = np.convolve([THIRD[0], 1.0], [THIRD[2], THIRD[1], 1.0])
    return {"type": "transfer_function", "numerator": [1.01], "denominator": denominator.tolist()}


@pytest.mark.parametrize("parameters", [[0.98, -3.5], [1.0, 4.2, -0.5], [1.02, -4.5, 4.7, -0.3]])
def test_the_simulation_of_the_fit_is_the_actuator_itself(parameters: list[float]) -> None:
    numerator, denominator = polynomials(np.array(parameters))
    cls = registry.load("actuator", "transfer_function")
    specimen = registry.load("specimen", "kelvin_voigt")
    actuator = cls(
        from_data(cls.Params, {"numerator": numerator, "denominator": denominator}, "actuator"),
        DT,
        specimen(from_data(specimen.Params, {}, "specimen")),
    )
    command = np.cumsum(np.random.default_rng(1).normal(size=500)) * 1e-3
    moved = []
    for value in command:
        actuator.step(float(value))
        moved.append(actuator.displacement)
    np.testing.assert_allclose(simulated(np.array(parameters), command, DT), moved, atol=1e-9)


def test_an_actuator_of_third_order_and_its_specimen_come_back() -> None:
    """Behind noise, within a few percent; the transport is that of the port."""
    run = recorded("port.transport_samples=3", "compensator.type=none", *NOISE, actuator=third_order())
    (model,) = axis_models(run).values()
    found = np.array(model.actuator["denominator"])
    wanted = np.array(third_order()["denominator"])
    assert model.actuator["numerator"][0] == pytest.approx(1.01, rel=0.005)
    assert found[-2] == pytest.approx(wanted[-2], rel=0.02)
    assert found[-3] == pytest.approx(wanted[-3], rel=0.1)
    assert model.specimen["stiffness"] == pytest.approx(7.6e6, rel=0.01)
    assert model.specimen["damping"] == pytest.approx(0.64e6, rel=0.02)
    assert model.displacement_fit > 99.0
    assert model.force_fit > 99.0
    assert model.residual == pytest.approx(2e-5, rel=0.1)


def test_a_fit_says_what_it_does_not_explain() -> None:
    """No spring with a dashpot is a specimen that slips."""
    (model,) = axis_models(recorded(specimen={"type": "slipping_elastomeric"})).values()
    assert model.displacement_fit > 95.0
    assert model.force_fit < 95.0


def test_what_was_bridged_ends_what_is_used() -> None:
    run = recorded("compensator.type=none")
    assert usable(run) == len(run.time)
    run.flags[700] |= 1
    assert usable(run) == 700
    run.displacement[300] = np.nan
    assert usable(run) == 300
    with pytest.raises(ConfigError, match=naming("300", ">= 500")):
        axis_models(run)


def test_a_rig_that_couples_its_axes_and_one_that_stands_still_are_refused() -> None:
    with pytest.raises(ConfigError, match=naming("rig", "coupled")):
        axis_models(rths_nodes.run("phillips_spencer_2012", ["duration=0.1"]))
    with pytest.raises(ConfigError, match=naming("story_1", "recording")):
        axis_models(recorded("ground_motion={type: none}"))
