# SPDX-License-Identifier: Apache-2.0
"""Tests of reduced Targets: interface and observed degrees of freedom instead of the whole model."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.histories import Evaluation, energies, experimental_force
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import from_text
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Collector, Run

FRAME = """
version: 1
name: five_stories
servo_rate: 1024
substeps: 4
duration: 4
ground_motion: {type: sweep, amplitude: 0.2, start_frequency: 0.3, end_frequency: 3.0, duration: 4}
structure:
  type: shear_frame
  masses: [1000, 1000, 1000, 1000, 1000]
  stiffnesses: [1.0e6, 1.0e6, 1.0e6, 1.0e6, 1.0e6]
  damping: {type: rayleigh, ratios: [0.03, 0.03]}
  experimental_stiffnesses: [0.05e6, 0, 0, 0, 0]
integrator: {type: cr}
ramp: {type: linear}
compensator: {type: none}
axes:
  story_1:
    actuator: {type: first_order, alpha: 3}
    specimen: {type: kelvin_voigt, stiffness: 0.05e6}
    limits: {stroke: 0.2, velocity: 2, force: 1.0e6}
"""
FIRST = "setup: {type: matrix, matrix: [[1, 0, 0, 0, 0]]}\n"
INTERFACE = "interface: [floor_1]\nobserved: [floor_5, floor_3]\n"
with_and_without_soft_start = pytest.mark.parametrize(
    "soft", ["", "soft_start: {amplitude: 0.002, duration: 2.5, rise_time: 1.0}\n"]
)


def scenario(more: str) -> Scenario:
    return from_text(FRAME + more, "test")


@cache
def run_of(more: str) -> tuple[Run, dict[str, object]]:
    loop = Loop(Assembly(scenario(more)))
    collector = Collector(loop.assembly.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    assert not outcome.reason
    return collector.run(information={"outcome": "finished"}, metrics=outcome.metrics), outcome.metrics


@with_and_without_soft_start
def test_reduced_target_drives_rig_to_same_bits(soft: str) -> None:
    (full, full_metrics), (part, metrics) = run_of(FIRST + soft), run_of(INTERFACE + soft)
    assert part.dof_names == ("floor_1", "floor_5", "floor_3")
    columns = [full.dof_names.index(name) for name in part.dof_names]
    for name in ("command", "displacement", "force", "target"):
        assert np.array_equal(getattr(full, name), getattr(part, name)), name
    for name in ("dof_displacement", "dof_velocity", "exact_acceleration", "external_force", "restoring_force"):
        assert np.array_equal(getattr(full, name)[:, columns], getattr(part, name)), name
    assert metrics["axes"] == full_metrics["axes"]
    assert metrics["hsem_percent"] == pytest.approx(full_metrics["hsem_percent"], rel=1e-12)


@with_and_without_soft_start
def test_energies_of_integrator_equal_energies_of_arrays(soft: str) -> None:
    full, part = (energies(Evaluation(run_of(more + soft)[0])) for more in (FIRST, INTERFACE))
    assert run_of(FIRST + soft)[0].energies.shape == (0, 4)  # not sent if the arrays have the whole model
    assert set(full) == set(part)
    for name, history in full.items():
        assert np.abs(history).max() > 1.0, name
        np.testing.assert_allclose(part[name], history, atol=1e-11 * np.abs(history).max(), err_msg=name)


def test_response_errors_and_forces_cover_observed_dofs() -> None:
    full, part = (Evaluation(run_of(more)[0]) for more in (FIRST, INTERFACE))
    expected, errors = response_errors(full), response_errors(part)
    assert list(errors) == ["floor_1", "floor_5", "floor_3"]
    for name, row in errors.items():
        assert row == pytest.approx(expected[name], rel=1e-9), name
    assert np.array_equal(experimental_force(part), experimental_force(full)[:, :1])


def test_stability_is_independent_of_interface() -> None:
    s = 2j * np.pi * np.array([0.4, 1.1, 3.0, 20.0])
    full, part = (sampled_loop(scenario(more)).characteristic(s) for more in (FIRST, INTERFACE))
    np.testing.assert_allclose(part, full, rtol=1e-9)


def test_names_of_interface_observed_and_model() -> None:
    names = Assembly(scenario(INTERFACE)).names
    assert names.interface == ("floor_1",)
    assert names.observed == ("floor_1", "floor_5", "floor_3")
    assert names.model == tuple(f"floor_{n}" for n in range(1, 6))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("interface: [floor_9]\n", ("interface", "unknown", "floor_9")),
        ("interface: [floor_1]\nobserved: [roof]\n", ("observed", "unknown", "roof", "floor_1")),
        ("observed: [floor_2]\n", ("observed", "requires", "interface")),
        ("interface: [floor_1, floor_1]\n", ("interface", "floor_1", "twice")),
        ("interface: [floor_1]\nobserved: [floor_1]\n", ("observed", "floor_1", "interface")),
        ("interface: [floor_2]\n", ("structure.experimental_", "floor_1")),
    ],
)
def test_invalid_interface_names_are_refused(more: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        _ = Assembly(scenario(more)).names


def test_model_larger_than_target_requires_interface() -> None:
    data = scenario("").data()
    story_values = {"masses": [1000.0] * 65, "stiffnesses": [1e8] * 65, "experimental_stiffnesses": None}
    data["structure"] |= story_values
    with pytest.raises(ConfigError, match=naming("interface", "missing", "65", "64")):
        _ = Assembly(from_data(Scenario, data)).names
    loop = Loop(Assembly(from_data(Scenario, data | {"interface": ["floor_1"]})))
    assert len(loop.substructure.first().displacement) == 1
