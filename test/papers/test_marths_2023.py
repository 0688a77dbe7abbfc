# SPDX-License-Identifier: Apache-2.0
"""The multi-axial benchmark (Condori Uribe et al. 2023): its frame, its rig, the coupled law, its indices."""

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
from rths_nodes.app.studies.ensembles import plant
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SATURATED
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

NAME = "marths_2023"
WHOLE = "structure.ground_load=whole"
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "identified_inverse.md"
STRONG = ("duration=12",)
"""The strong part of the record."""
LENGTHS = [STRONG, pytest.param((), marks=pytest.mark.soak, id="whole record")]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program that makes the table of single runs."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module("marths")
    sys.modules.pop("marths")


@cache
def result_of(*overrides: str, number: int = 0) -> tuple[Scenario, Evaluation, Published]:
    loaded = files.load(NAME, overrides)
    scenario = plant(loaded, number, 1).of(loaded)
    report = hosts.run(scenario)
    assert report.outcome == "finished", report.reason
    evaluation = Evaluation(report.read())
    return scenario, evaluation, published_indices(evaluation)


def test_the_rig_has_the_gains_of_the_code() -> None:
    """Zero-pole-gain in rad/s: k = g prod(-p) / prod(-z)."""
    rig = files.load(NAME).rig
    pair = 2.0 * np.pi * np.array([complex(-50.0, 63.0), complex(-50.0, -63.0)])
    gains = {"actuator_1": [2165.2, 349.95], "actuator_2": [4.5394e6, 1.9238e7]}
    omega, zeta = 2.0 * np.pi * rig.common_poles.frequency, rig.common_poles.damping_ratio
    assert omega * complex(-zeta, np.sqrt(1.0 - zeta**2)) == pytest.approx(pair[0], rel=1e-12)
    for name, wanted in gains.items():
        one = rig.responses[name]
        poles = np.concatenate([2.0 * np.pi * np.array(one.poles), pair])
        for axis, gain in enumerate(wanted):
            zeros = 2.0 * np.pi * np.array(one.zeros[axis if len(one.zeros) > 1 else 0])
            found = one.static_gains[axis] * np.prod(-poles) / np.prod(-zeros)
            assert found == pytest.approx(gain, rel=1e-9)


def test_no_moment_is_left_at_the_node_that_nobody_drives() -> None:
    """So nothing is fed back there: the frame stands free, and condensation leaves inertia and damping only."""
    frame = files.load(NAME).rig.frame
    stiffness = np.array(frame.stiffness)
    shape = np.vstack([np.eye(2), -np.linalg.solve(stiffness[2:, 2:], stiffness[2:, :2])])
    np.testing.assert_allclose(stiffness[2:] @ shape, 0.0, atol=1e-9 * stiffness.max())
    np.testing.assert_allclose(shape.T @ stiffness @ shape, frame.condensed()[2], rtol=1e-12)
    np.testing.assert_allclose(frame.condensed()[2], [[2324116.67, 861232.49], [861232.49, 1085953.95]], rtol=1e-8)


def test_the_reference_is_that_of_its_own_integrator() -> None:
    """The code steps the reference by the same Newmark method: here by exact steps without one."""
    scenario = files.load(NAME, ["duration=12"])
    assembly = Assembly(scenario)
    exact = reference_displacement(assembly)
    data = {name: getattr(scenario.structure, name) for name in ("mass", "stiffness", "damping", "influence")}
    whole = registry.class_of("structure", scenario.structure)(type(scenario.structure)(**data))
    solver = registry.build("integrator", scenario.integrator, whole, assembly.force_on_whole, scenario.step)
    stepped = [solver.displacement]
    for _ in range(scenario.steps):
        solver.step(np.zeros(29))
        stepped.append(solver.displacement)
    assert np.abs(np.array(stepped) - exact)[:, 26].max() < 1e-3 * np.abs(exact[:, 26]).max()


def test_the_numerical_part_is_loaded_with_its_own_mass() -> None:
    """As in ``fcn_num.m`` of the code, ``- F - MNrt Ag``; what the indices refer to feels the whole."""
    kit, whole = (Assembly(files.load(NAME, ["duration=2", *more])) for more in ((), (WHOLE,)))
    acceleration = kit.ground_acceleration
    for structure in (kit.structure, whole.structure):
        assert structure is not None
    np.testing.assert_array_equal(
        kit.external_force, -np.outer(acceleration, kit.structure.mass @ kit.structure.influence)
    )
    missing = np.zeros((len(acceleration), 29))
    missing[:, 26] = -902.5273820384 * acceleration
    np.testing.assert_allclose(whole.external_force - kit.external_force, missing, atol=1e-9)
    np.testing.assert_array_equal(kit.force_on_whole, whole.external_force)
    np.testing.assert_array_equal(reference_displacement(kit), reference_displacement(whole))


ROW = re.compile(r"^\| ([^|]+) \| \d.* mm \|$", re.MULTILINE)


def test_the_page_has_the_rows_of_the_command(program: Any) -> None:
    assert ROW.findall(PAGE.read_text(encoding="utf-8")) == list(program.ROWS)


@pytest.mark.parametrize(
    "place",
    [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 6))],
)
def test_the_figures_of_the_page_are_those_of_the_command(program: Any, place: int) -> None:
    """To a unit of the last digit that is printed."""
    name = list(program.ROWS)[place]
    (line,) = re.findall(rf"^\| {re.escape(name)} \|.* mm \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    printed, found = (np.array(re.findall(r"\d+\.\d+", words), float) for words in (line, program.row(name)))
    np.testing.assert_allclose(found[:-2], printed[:-2], atol=0.011)
    np.testing.assert_allclose(found[-2:], printed[-2:], atol=0.11)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_coupled_law_tracks_within_the_range_of_the_rig(length: tuple[str, ...]) -> None:
    _, evaluation, (measured, true) = result_of(*length)
    assert measured["tracking_rms_1_percent"] <= 3.1
    assert measured["tracking_rms_2_percent"] <= 1.9
    assert true["tracking_rms_1_percent"] < 0.8
    assert true["tracking_rms_2_percent"] < 1.1
    assert not (evaluation.run.flags & FLAG_SATURATED).any()
    assert np.abs(evaluation.run.command).max() < 0.028
    for axis in "12":
        # noise of the sensor and error of tracking have nothing to do with each other
        together = np.hypot(measured[f"noise_floor_{axis}_percent"], true[f"tracking_rms_{axis}_percent"])
        assert measured[f"tracking_rms_{axis}_percent"] == pytest.approx(together, rel=0.01)


@pytest.mark.parametrize("length", LENGTHS)
def test_perfect_actuators_leave_the_noise_of_the_sensor_and_what_the_split_makes(
    program: Any, length: tuple[str, ...]
) -> None:
    """J2 is the floor, so no law lies below; J8 is not zero: the ideal sub-frame is not the frame of the rig."""
    _, _, (perfect, true) = result_of(*program.PERFECT, *length)
    _, _, (law, _) = result_of(*length)
    for axis in "12":
        name = f"tracking_rms_{axis}_percent"
        assert true[name] < 0.01
        assert perfect[name] == pytest.approx(perfect[f"noise_floor_{axis}_percent"], rel=1e-3)
        assert perfect[name] < law[name]
    for name in MARTHS_2023["J8"]:
        assert 5.5 < perfect[name] < 8.0
        assert law[name] == pytest.approx(perfect[name], abs=0.5)


def test_its_indices_have_the_numbers_of_the_code() -> None:
    _, _, (measured, _) = result_of(*STRONG)
    assert numbers(NAME, "tracking_rms_2_percent") == {"code": "J2,2"}
    assert numbers(NAME, "peak_theta_3_percent") == {"code": "J10,4"}
    assert numbers(NAME, "noise_floor_1_percent") == {}
    known = [name for names in MARTHS_2023.values() for name in names]
    assert [name for name in measured if name in known] == known


def test_indices_of_another_frame_are_refused() -> None:
    report = hosts.run(files.load("rths_benchmark_2020", ["duration=1", f"indices={NAME}"]))
    with pytest.raises(ConfigError, match=naming("29", "2", "degrees")):
        published_indices(Evaluation(report.read()))


def test_a_scattered_plant_keeps_its_static_gains() -> None:
    loaded = files.load(NAME)
    other = plant(loaded, 3, 1).of(loaded).rig
    for name, one in loaded.rig.responses.items():
        assert other.responses[name].static_gains == one.static_gains
        assert other.responses[name].poles != one.poles
    assert other.common_poles.damping_ratio == loaded.rig.common_poles.damping_ratio


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 21))
def test_twenty_scattered_plants_are_tracked(number: int) -> None:
    _, _, (measured, _) = result_of(number=number)
    assert measured["tracking_rms_1_percent"] <= 3.1
    assert measured["tracking_rms_2_percent"] <= 1.9
