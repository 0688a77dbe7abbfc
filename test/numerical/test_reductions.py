# SPDX-License-Identifier: Apache-2.0
"""Tests of model reductions against the full model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loop_parts import simulate
from messages import mentions, naming

from rths_nodes.analysis.histories import Evaluation, energies
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load
from rths_nodes.numerical.reductions import Recovery, Reduced, compliance, differences, units
from rths_nodes.numerical.structures.matrices import Matrices
from rths_nodes.recording.run import Run

KINDS = ("modal", "craig_bampton")
INTERFACE = [0, 6]


def frame(storage: str = "dense", ground_load: str = "whole") -> Matrices:
    """Twelve masses on unequal springs; parts of two masses are experimental."""
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


def reduction(kind: str, modes: int, model: Matrices) -> Any:
    params = from_data(registry.load("reduction", kind).Params, {"modes": modes}, "reduction")
    return Reduced(registry.build("reduction", params), model, INTERFACE)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize(("kind", "modes"), [("modal", 12), ("craig_bampton", 10)])
def test_reduction_with_all_modes_matches_full_model(kind: str, modes: int, storage: str) -> None:
    full = frame(storage)
    model = reduction(kind, modes, full)
    assert len(model.names) == 12
    omega = 2.0 * np.pi * np.linspace(0.0, 30.0, 50)
    expected = compliance(full, units(12, list(range(12))), omega)
    difference = compliance(model, model.shapes.T, omega) - expected
    assert np.abs(difference).max() < 1e-10 * np.abs(expected).max()
    assert max(differences(model, INTERFACE, 30.0)) < 1e-9


@pytest.mark.parametrize("ground_load", ["whole", "numerical"])
def test_recovery_with_all_modes_matches_full_model(ground_load: str) -> None:
    full = frame(ground_load=ground_load)
    model = reduction("craig_bampton", 10, full)
    recovery, q = Recovery(model, INTERFACE, [*INTERFACE, 11]), np.random.default_rng(1).normal(size=12)
    x = model.shapes @ q
    np.testing.assert_allclose(recovery.motion(q), x[[0, 6, 11]])
    np.testing.assert_allclose(recovery.interface(q), x[INTERFACE])
    np.testing.assert_allclose(recovery.restoring(model.stiffness @ q, q), (full.stiffness @ x)[[0, 6, 11]])
    np.testing.assert_allclose(recovery.external(-3.0 * model.ground_load), -3.0 * full.ground_load[[0, 6, 11]])
    np.testing.assert_allclose(model.influence @ model.shapes.T, full.influence)
    forces = np.array([2.0, -5.0])
    assert recovery.spread(forces) @ q == pytest.approx(forces @ x[INTERFACE])  # virtual work


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("modes", [1, 3, 7])
def test_static_interface_compliance_is_exact(kind: str, modes: int) -> None:
    """Checked for the whole structure and for the numerical part."""
    full = frame()
    model = reduction(kind, modes, full)
    at, shapes = units(12, INTERFACE), model.shapes[INTERFACE].T
    for stiffness, reduced_stiffness in (
        (full.stiffness, model.stiffness),
        (full.stiffness + full.experimental_stiffness, model.stiffness + model.experimental_stiffness),
    ):
        exact = at.T @ np.linalg.solve(stiffness, at)
        np.testing.assert_allclose(shapes.T @ np.linalg.solve(reduced_stiffness, shapes), exact, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_error_decreases_with_number_of_modes(kind: str) -> None:
    errors = [differences(reduction(kind, modes, frame()), INTERFACE, 8.0)[2] for modes in (2, 4, 6, 8)]
    assert errors[0] > errors[-1]
    assert errors[-1] < 0.02


def test_lowest_frequencies_of_modal_reduction_are_exact() -> None:
    assert differences(reduction("modal", 10, frame()), INTERFACE, 8.0)[0] < 1e-9


@pytest.mark.parametrize(("kind", "most"), [("modal", 12), ("craig_bampton", 10)])
def test_too_many_modes_are_refused(kind: str, most: int) -> None:
    with pytest.raises(ConfigError, match=rf"reduction.modes = 13: must be <= {most}"):
        reduction(kind, 13, frame())


def run_of(case: str = "") -> Run:
    outcome, run = simulate(load("tall_frame", ["duration=4"], case))
    assert not outcome.reason
    return replace(run, information={"outcome": "finished"})


@pytest.fixture(scope="module")
def full_run() -> Run:
    return run_of()


@pytest.mark.parametrize("kind", KINDS)
def test_reduced_tall_frame_matches_full_frame(kind: str, full_run: Run) -> None:
    reduced_run = run_of(kind)
    assert reduced_run.dof_names == full_run.dof_names
    for name, share in (("dof_displacement", 5e-3), ("force", 1e-2), ("external_force", 1e-9)):
        full, reduced = getattr(full_run, name), getattr(reduced_run, name)
        assert np.abs(reduced - full).max() < share * np.abs(full).max(), name


def test_energies_of_large_frame_balance(full_run: Run) -> None:
    parts = energies(Evaluation(full_run))
    residual = parts["input"] - sum(history for name, history in parts.items() if name != "input")
    assert np.abs(residual).max() < 0.05 * np.abs(parts["input"]).max()
    assert parts["input"][-1] > 1e3


def test_response_errors_of_large_frame_are_small(full_run: Run) -> None:
    """The axes lag by three samples without compensation."""
    errors = response_errors(Evaluation(full_run))
    assert list(errors) == ["node_5_x", "node_167_x", "node_329_x"]
    assert all(row["displacement"] < 2.0 for row in errors.values())


def test_stability_analysis_requires_reduction_of_large_frame(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=naming("999", "judge")):
        sampled_loop(load("tall_frame"))
    small = load("tall_frame", ["reduction={type: craig_bampton, modes: 6}"])
    assert np.isfinite(sampled_loop(small).characteristic(np.array([2j, 20j]))).all()
    assert main(["check", "tall_frame", "--set", "reduction={type: modal, modes: 20}"]) == 0
    assert mentions(capsys.readouterr().out, "999", "> 21")


def test_reduction_requires_interface_and_linear_structure() -> None:
    with pytest.raises(ConfigError, match=naming("reduction", "structure", "interface")):
        _ = Assembly(load("rths_benchmark_2020", ["reduction={type: modal, modes: 2}"])).structure
    yielding = "structure.restoring_force={type: bouc_wen, stiffness: 1.0e6, yield_displacement: 0.01}"
    overrides = ["reduction={type: modal, modes: 1}", "interface=[x]", yielding]
    with pytest.raises(ConfigError, match=naming("linear", "restoring")):
        _ = Assembly(load("chen_ricles_2010", overrides)).structure
