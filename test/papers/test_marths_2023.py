# SPDX-License-Identifier: Apache-2.0
"""Tests of the multi-axial benchmark (Condori Uribe et al. 2023): frame, rig, coupled law, indices."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.published_indices import (
    MARTHS_2023,
    Published,
    numbers,
    published_indices,
    reference_displacement,
)
from rths_nodes.app import hosts
from rths_nodes.app.studies.study import plants
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SATURATED
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

NAME = "marths_2023"
WHOLE = "structure.ground_load=whole"
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PAGE = (BENCHMARKS / "identified_inverse.md").read_text(encoding="utf-8")
STRONG = ("duration=12",)
"""Strong part of the record."""
LENGTHS = [STRONG, pytest.param((), marks=pytest.mark.soak, id="whole record")]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Program that makes the table of single runs."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module("marths")
    sys.modules.pop("marths")


@cache
def result_of(*overrides: str, number: int = 0) -> tuple[Evaluation, Published]:
    scenario = files.load(NAME, overrides)
    report = hosts.run(plants(scenario, number, 1)[-1].of(scenario))
    assert report.outcome == "finished", report.reason
    evaluation = Evaluation(report.read())
    return evaluation, published_indices(evaluation)


def test_rig_gains_match_published_code() -> None:
    """Gain of the zero-pole form in rad/s: k = g prod(-p) / prod(-z)."""
    rig = files.load(NAME).rig
    pair = 2.0 * np.pi * np.array([complex(-50.0, 63.0), complex(-50.0, -63.0)])
    gains = {"actuator_1": [2165.2, 349.95], "actuator_2": [4.5394e6, 1.9238e7]}
    omega, zeta = 2.0 * np.pi * rig.common_poles.frequency, rig.common_poles.damping_ratio
    assert omega * complex(-zeta, np.sqrt(1.0 - zeta**2)) == pytest.approx(pair[0], rel=1e-12)
    for name, published in gains.items():
        response = rig.responses[name]
        poles = np.concatenate([2.0 * np.pi * np.array(response.poles), pair])
        for axis, gain in enumerate(published):
            zeros = 2.0 * np.pi * np.array(response.zeros[axis if len(response.zeros) > 1 else 0])
            assert response.static_gains[axis] * np.prod(-poles) / np.prod(-zeros) == pytest.approx(gain, rel=1e-9)


def test_undriven_degrees_of_freedom_carry_no_static_load() -> None:
    """The frame has free ends, so that condensation omits inertia and damping only."""
    frame = files.load(NAME).rig.frame
    stiffness = np.array(frame.stiffness)
    shape = np.vstack([np.eye(2), -np.linalg.solve(stiffness[2:, 2:], stiffness[2:, :2])])
    np.testing.assert_allclose(stiffness[2:] @ shape, 0.0, atol=1e-9 * stiffness.max())
    np.testing.assert_allclose(shape.T @ stiffness @ shape, frame.condensed()[2], rtol=1e-12)
    np.testing.assert_allclose(frame.condensed()[2], [[2324116.67, 861232.49], [861232.49, 1085953.95]], rtol=1e-8)


def test_reference_matches_newmark_stepping() -> None:
    """The published code steps the reference by Newmark's method; this package uses exact steps."""
    scenario = files.load(NAME, ["duration=12"])
    assembly = Assembly(scenario)
    exact = reference_displacement(assembly)
    data = {name: getattr(scenario.structure, name) for name in ("mass", "stiffness", "damping", "influence")}
    undivided = registry.class_of("structure", scenario.structure)(type(scenario.structure)(**data))
    solver = registry.build("integrator", scenario.integrator, undivided, assembly.force_on_whole, scenario.step)
    stepped = [solver.displacement]
    for _ in range(scenario.steps):
        solver.step(np.zeros(29))
        stepped.append(solver.displacement)
    assert np.abs(np.array(stepped) - exact)[:, 26].max() < 1e-3 * np.abs(exact[:, 26]).max()


def test_ground_loads_numerical_mass_only() -> None:
    """``fcn_num.m`` has ``- F - MNrt Ag``; the reference of the indices is loaded with the whole mass."""
    numerical, reference = (Assembly(files.load(NAME, ["duration=2", *overrides])) for overrides in ((), (WHOLE,)))
    acceleration = numerical.ground_acceleration
    assert numerical.structure is not None
    np.testing.assert_array_equal(
        numerical.external_force, -np.outer(acceleration, numerical.structure.mass @ numerical.structure.influence)
    )
    missing = np.zeros((len(acceleration), 29))
    missing[:, 26] = -902.5273820384 * acceleration
    np.testing.assert_allclose(reference.external_force - numerical.external_force, missing, atol=1e-9)
    np.testing.assert_array_equal(numerical.force_on_whole, reference.external_force)
    np.testing.assert_array_equal(reference_displacement(numerical), reference_displacement(reference))


def test_page_rows_match_command(program: Any) -> None:
    assert re.findall(r"(?m)^\| ([^|]+) \| \d.* mm \|$", PAGE) == list(program.ROWS)


@pytest.mark.parametrize("row", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 6))])
def test_page_figures_match_command(program: Any, row: int) -> None:
    """Tolerances: one unit of the last printed digit."""
    name = list(program.ROWS)[row]
    (line,) = re.findall(rf"(?m)^\| {re.escape(name)} \|.* mm \|$", PAGE)
    printed, computed = (np.array(re.findall(r"\d+\.\d+", text), float) for text in (line, program.row(name)))
    np.testing.assert_allclose(computed[:-2], printed[:-2], atol=0.011)
    np.testing.assert_allclose(computed[-2:], printed[-2:], atol=0.11)


@pytest.mark.parametrize("length", LENGTHS)
def test_coupled_law_tracks_within_rig_range(length: tuple[str, ...]) -> None:
    evaluation, (measured, true) = result_of(*length)
    assert measured["tracking_rms_1_percent"] <= 3.1
    assert measured["tracking_rms_2_percent"] <= 1.9
    assert true["tracking_rms_1_percent"] < 0.8
    assert true["tracking_rms_2_percent"] < 1.1
    assert not (evaluation.run.flags & FLAG_SATURATED).any()
    assert np.abs(evaluation.run.command).max() < 0.028
    for axis in "12":
        # sensor noise and tracking error are independent
        together = np.hypot(measured[f"noise_floor_{axis}_percent"], true[f"tracking_rms_{axis}_percent"])
        assert measured[f"tracking_rms_{axis}_percent"] == pytest.approx(together, rel=0.01)


@pytest.mark.parametrize("length", LENGTHS)
def test_perfect_actuators_leave_noise_and_partition_error(program: Any, length: tuple[str, ...]) -> None:
    """J2 is the noise floor. J8 is not zero because the ideal sub-frame differs from the frame of the rig."""
    _, (perfect, true) = result_of(*program.PERFECT, *length)
    _, (law, _) = result_of(*length)
    for axis in "12":
        name = f"tracking_rms_{axis}_percent"
        assert true[name] < 0.01
        assert perfect[name] == pytest.approx(perfect[f"noise_floor_{axis}_percent"], rel=1e-3)
        assert perfect[name] < law[name]
    for name in MARTHS_2023["J8"]:
        assert 5.5 < perfect[name] < 8.0
        assert law[name] == pytest.approx(perfect[name], abs=0.5)


def test_indices_have_numbers_of_published_code() -> None:
    _, (measured, _) = result_of(*STRONG)
    assert numbers(NAME, "tracking_rms_2_percent") == {"code": "J2,2"}
    assert numbers(NAME, "peak_theta_3_percent") == {"code": "J10,4"}
    assert numbers(NAME, "noise_floor_1_percent") == {}
    published = [name for names in MARTHS_2023.values() for name in names]
    assert [name for name in measured if name in published] == published


def test_indices_of_another_frame_are_refused() -> None:
    report = hosts.run(files.load("rths_benchmark_2020", ["duration=1", f"indices={NAME}"]))
    with pytest.raises(ConfigError, match=naming("29", "2", "degrees")):
        published_indices(Evaluation(report.read()))


def test_perturbed_plant_keeps_static_gains() -> None:
    scenario = files.load(NAME)
    perturbed = plants(scenario, 3, 1)[-1].of(scenario).rig
    for name, response in scenario.rig.responses.items():
        assert perturbed.responses[name].static_gains == response.static_gains
        assert perturbed.responses[name].poles != response.poles
    assert perturbed.common_poles.damping_ratio == scenario.rig.common_poles.damping_ratio


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 21))
def test_perturbed_plants_are_tracked(number: int) -> None:
    _, (measured, _) = result_of(number=number)
    assert measured["tracking_rms_1_percent"] <= 3.1
    assert measured["tracking_rms_2_percent"] <= 1.9
