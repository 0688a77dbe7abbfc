# SPDX-License-Identifier: Apache-2.0
"""Reductions: all modes are the full model, the interface keeps its static compliance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load
from rths_nodes.numerical.reductions import Recovery, compliance, differences, reduced, units
from rths_nodes.numerical.structures.matrices import Matrices
from rths_nodes.recording.run import Collector, Run

KINDS = ("modal", "craig_bampton")
PLACES = [0, 6]


def frame(storage: str = "dense", ground_load: str = "whole") -> Matrices:
    """Twelve masses on springs of their own strengths, a part of two of them under test."""
    springs = np.linspace(3e6, 1e6, 12)
    drifts = np.eye(12) - np.eye(12, k=-1)
    data = {
        "mass": np.diag(np.linspace(2e3, 1e3, 12)).tolist(),
        "stiffness": (drifts.T @ np.diag(springs) @ drifts).tolist(),
        "damping": {"type": "rayleigh", "ratios": [0.02, 0.02]},
        "experimental_at": [1, 7],
        "experimental_stiffness": [[4e5, 0.0], [0.0, 2e5]],
        "experimental_mass": [[1e2, 0.0], [0.0, 3e2]],
        "ground_load": ground_load,
        "storage": storage,
    }
    return Matrices(from_data(Matrices.Params, data, "structure"))


def by(kind: str, modes: int, model: Matrices) -> Any:
    params = from_data(registry.load("reduction", kind).Params, {"modes": modes}, "reduction")
    return reduced(registry.build("reduction", params), model, PLACES)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize(("kind", "all_of_them"), [("modal", 12), ("craig_bampton", 10)])
def test_with_all_modes_a_reduction_is_the_full_model(kind: str, all_of_them: int, storage: str) -> None:
    full = frame(storage)
    model = by(kind, all_of_them, full)
    assert len(model.names) == 12
    omega = 2.0 * np.pi * np.linspace(0.0, 30.0, 50)
    at = units(12, list(range(12)))
    of_full, of_model = compliance(full, at, omega), compliance(model, model.shapes.T, omega)
    assert np.abs(of_model - of_full).max() < 1e-10 * np.abs(of_full).max()
    assert max(differences(model, PLACES, 30.0)) < 1e-9


@pytest.mark.parametrize("ground_load", ["whole", "numerical"])
def test_what_is_observed_of_a_reduction_with_all_modes_is_that_of_the_full_model(ground_load: str) -> None:
    full = frame(ground_load=ground_load)
    model = by("craig_bampton", 10, full)
    seen, one = Recovery(model, PLACES, [*PLACES, 11]), np.random.default_rng(1).normal(size=12)
    x = model.shapes @ one
    np.testing.assert_allclose(seen.motion(one), x[[0, 6, 11]])
    np.testing.assert_allclose(seen.interface(one), x[PLACES])
    np.testing.assert_allclose(seen.restoring(model.stiffness @ one, one), (full.stiffness @ x)[[0, 6, 11]])
    np.testing.assert_allclose(seen.external(-3.0 * model.ground_load), -3.0 * full.ground_load[[0, 6, 11]])
    np.testing.assert_allclose(model.influence @ model.shapes.T, full.influence)
    forces = np.array([2.0, -5.0])
    assert seen.spread(forces) @ one == pytest.approx(forces @ x[PLACES])  # virtual work


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("modes", [1, 3, 7])
def test_the_static_compliance_of_the_interface_is_exact(kind: str, modes: int) -> None:
    """Of both substructures together, and of the numerical one alone."""
    full = frame()
    model = by(kind, modes, full)
    at, shapes = units(12, PLACES), model.shapes[PLACES].T
    for stiffness, of_model in (
        (full.stiffness, model.stiffness),
        (full.stiffness + full.experimental_stiffness, model.stiffness + model.experimental_stiffness),
    ):
        exact = at.T @ np.linalg.solve(stiffness, at)
        np.testing.assert_allclose(shapes.T @ np.linalg.solve(of_model, shapes), exact, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_more_modes_are_nearer_to_the_full_model(kind: str) -> None:
    errors = [differences(by(kind, modes, frame()), PLACES, 8.0)[2] for modes in (2, 4, 6, 8)]
    assert errors[0] > errors[-1]
    assert errors[-1] < 0.02


def test_the_lowest_frequencies_of_a_modal_reduction_are_exact() -> None:
    assert differences(by("modal", 10, frame()), PLACES, 8.0)[0] < 1e-9


@pytest.mark.parametrize(("kind", "most"), [("modal", 12), ("craig_bampton", 10)])
def test_more_modes_than_there_are_are_refused(kind: str, most: int) -> None:
    with pytest.raises(ConfigError, match=rf"reduction.modes = 13: must be <= {most}"):
        by(kind, 13, frame())


def run_of(*overrides: str, case: str = "") -> Run:
    scenario = load("tall_frame", ["duration=4", *overrides], case)
    loop = Loop(Assembly(scenario))
    collector = Collector(scenario, loop.assembly.names)
    outcome = loop.run([collector])
    assert not outcome.reason
    return collector.run({"outcome": "finished"}, outcome.metrics)


@pytest.fixture(scope="module")
def full_run() -> Run:
    return run_of()


@pytest.mark.parametrize("kind", KINDS)
def test_the_tall_frame_moves_reduced_as_it_moves_whole(kind: str, full_run: Run) -> None:
    part = run_of(case=kind)
    assert part.dof_names == full_run.dof_names
    for name, share in (("dof_displacement", 5e-3), ("force", 1e-2), ("external_force", 1e-9)):
        whole, found = getattr(full_run, name), getattr(part, name)
        assert np.abs(found - whole).max() < share * np.abs(whole).max(), name


def test_the_energies_of_a_thousand_degrees_of_freedom_balance(full_run: Run) -> None:
    parts = energies(Evaluation(full_run))
    left = parts["input"] - sum(history for name, history in parts.items() if name != "input")
    assert np.abs(left).max() < 0.05 * np.abs(parts["input"]).max()
    assert parts["input"][-1] > 1e3


def test_response_errors_of_a_large_frame_are_small(full_run: Run) -> None:
    """Of the displacement; that of an axis with a lag of three samples and nothing to make up for it."""
    errors = response_errors(Evaluation(full_run))
    assert list(errors) == ["node_5_x", "node_167_x", "node_329_x"]
    assert all(row["displacement"] < 2.0 for row in errors.values())


def test_what_needs_the_reduction_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=naming("999", "judge")):
        sampled_loop(load("tall_frame"))
    small = load("tall_frame", ["reduction={type: craig_bampton, modes: 6}"])
    assert np.isfinite(sampled_loop(small).characteristic(np.array([2j, 20j]))).all()
    assert main(["check", "tall_frame", "--set", "reduction={type: modal, modes: 20}"]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "999", "> 21")


def test_a_reduction_needs_an_interface_and_a_linear_structure() -> None:
    with pytest.raises(ConfigError, match=naming("reduction", "structure", "interface")):
        _ = Assembly(load("rths_benchmark_2020", ["reduction={type: modal, modes: 2}"])).structure
    yielding = "structure.restoring_force={type: bouc_wen, stiffness: 1.0e6, yield_displacement: 0.01}"
    given = ["reduction={type: modal, modes: 1}", "interface=[x]", yielding]
    with pytest.raises(ConfigError, match=naming("linear", "restoring")):
        _ = Assembly(load("chen_ricles_2010", given)).structure
