# SPDX-License-Identifier: Apache-2.0
"""Tests of the response of the whole structure, its linear recursion and the response errors against it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_parts import simulate
from messages import naming

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.published_indices import axes_of, reference_displacement
from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.response_errors import BLOCK, recursion, response, response_errors, whole_response
from rths_nodes.app import hosts
from rths_nodes.app.commands import studies
from rths_nodes.app.studies.identification import expected_rms, fitted_up_to
from rths_nodes.app.studies.runs import needs_response
from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.structures.damping import some_modes
from rths_nodes.recording.run import Collector

MASS, FREQUENCY, ZETA = 2e4, 1.5, 0.03
OMEGA = 2.0 * math.pi * FREQUENCY
STIFFNESS = MASS * OMEGA**2
LIMITS = {"stroke": 1.0, "velocity": 10.0, "force": 1e9}


def axis(specimen: dict[str, Any]) -> dict[str, Any]:
    return {"actuator": {"type": "pure_delay"}, "specimen": specimen, "limits": LIMITS}


def scene(**changes: Any) -> Scenario:
    """A mass under a sine, with part of the spring and all damping under test."""
    data = {
        "version": 1,
        "name": "whole",
        "servo_rate": 200.0,
        "substeps": 1,
        "duration": 2.0,
        "ground_motion": {"type": "sine", "amplitude": 2.0, "frequency": 0.9},
        "structure": {
            "type": "shear_frame",
            "masses": [MASS],
            "stiffnesses": [STIFFNESS],
            "damping": {"type": "modal", "ratios": [0.0]},
            "experimental_stiffnesses": [0.4 * STIFFNESS],
        },
        "integrator": {"type": "central_difference"},
        "compensator": {"type": "none"},
        "axes": {
            "story": axis(
                {"type": "kelvin_voigt", "stiffness": 0.4 * STIFFNESS, "damping": 2.0 * ZETA * MASS * OMEGA}
            )
        },
    }
    return from_data(Scenario, data | changes)


def test_linear_response_has_closed_form() -> None:
    """Steady and free part of a damped mass; the excitation is linear between steps, hence 1e-4."""
    result = response(scene(servo_rate=400.0))
    load = 2.0 * math.pi * 0.9
    damped = OMEGA * math.sqrt(1.0 - ZETA**2)
    steady = -2.0 / (OMEGA**2 - load**2 + 2j * ZETA * OMEGA * load)
    a = -steady.imag
    b = (ZETA * OMEGA * a - load * steady.real) / damped
    time = result.times
    fading = np.exp(-ZETA * OMEGA * time) * (a * np.cos(damped * time) + b * np.sin(damped * time))
    exact = (steady * np.exp(1j * load * time)).imag + fading
    np.testing.assert_allclose(result.displacement[:, 0], exact, atol=1e-4 * np.abs(exact).max())
    np.testing.assert_allclose(
        np.gradient(result.displacement[:, 0], time)[1:-1],
        result.velocity[1:-1, 0],
        atol=1e-3 * np.abs(result.velocity).max(),
    )
    force = 0.4 * STIFFNESS * result.displacement + 2.0 * ZETA * MASS * OMEGA * result.velocity
    np.testing.assert_allclose(result.force, force, rtol=1e-12)


def test_equilibrium_holds_at_every_step() -> None:
    model = scene()
    result = response(model)
    load = Assembly(model).external_force
    inner = 0.6 * STIFFNESS * result.displacement + result.force
    np.testing.assert_allclose(MASS * result.acceleration + inner, load, atol=1e-9 * np.abs(load).max())


def test_response_meets_and_reports_tolerance() -> None:
    coarse, fine = (response(scene(), tolerance) for tolerance in (1e-2, 1e-9))
    assert coarse.error < 1e-2
    assert fine.error < 1e-9
    assert fine.substeps > coarse.substeps
    np.testing.assert_allclose(coarse.displacement, fine.displacement, atol=1e-2 * np.abs(fine.displacement).max())


def test_response_is_independent_of_partition() -> None:
    """Three floors: the frame fully computed, and with its springs as three specimens."""
    frame = {
        "type": "shear_frame",
        "masses": [2e4, 1.5e4, 1e4],
        "stiffnesses": [4e7, 3e7, 2e7],
        "damping": {"type": "rayleigh"},
    }
    free = {"type": "kelvin_voigt", "stiffness": 0.0, "damping": 0.0}
    drifts = {"type": "matrix", "matrix": [[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]]}
    springs = {
        f"story_{i + 1}": axis({"type": "kelvin_voigt", "stiffness": k, "damping": 0.0})
        for i, k in enumerate(frame["stiffnesses"])
    }
    numerical = scene(structure=frame, setup=drifts, axes={name: axis(free) for name in springs})
    tested = frame | {"experimental_stiffnesses": frame["stiffnesses"]}
    computed, hybrid = response(numerical), response(scene(structure=tested, setup=drifts, axes=springs))
    size = np.abs(computed.displacement).max()
    assert size > 1e-3
    np.testing.assert_allclose(computed.displacement, hybrid.displacement, atol=1e-12)
    drift = np.diff(hybrid.displacement, axis=1, prepend=0.0)
    np.testing.assert_allclose(hybrid.force, drift * frame["stiffnesses"], rtol=1e-9, atol=1e-6)


def test_mass_under_test_moves_with_its_floor() -> None:
    data = {"type": "shear_frame", "masses": [MASS], "stiffnesses": [STIFFNESS]}
    data |= {"experimental_stiffnesses": [0.4 * STIFFNESS]}
    heavy = data | {"experimental_masses": [5e3]}
    without, included = response(scene(structure=data)), response(scene(structure=heavy))
    np.testing.assert_allclose(without.displacement, included.displacement, atol=1e-12)


def test_undeclared_mass_of_specimen_has_inertia_without_ground_load() -> None:
    heavy = scene()
    inner = heavy.data()["axes"]["story"]["specimen"]
    specimen = {"type": "with_mass", "mass": 0.5 * MASS, "specimen": inner}
    structure = heavy.data()["structure"] | {"masses": [1.5 * MASS]}
    slower = {"type": "sine", "amplitude": 2.0 / 1.5, "frequency": 0.9}
    expected = response(scene(structure=structure, ground_motion=slower)).displacement
    scenario = scene(axes={"story": axis(specimen)})
    for computed in (response(scenario).displacement, reference_displacement(Assembly(scenario))):
        np.testing.assert_allclose(computed, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("integrator", ["central_difference", "runge_kutta", "explicit_newmark"])
def test_loop_with_perfect_actuator_converges_to_response(integrator: str) -> None:
    """The rig moves linearly and its force lags by half a sample: an error of first order."""
    errors = []
    for rate in (200.0, 400.0, 800.0):
        changed = scene(servo_rate=rate, duration=1.5, integrator={"type": integrator})
        loop = Loop(Assembly(changed))
        collector = Collector(loop.scenario, loop.assembly.names)
        run = collector.run(metrics=loop.run([collector]).metrics)
        exact = response(changed).displacement
        errors.append(np.abs(run.dof_displacement[: len(exact)] - exact).max() / np.abs(exact).max())
    assert errors[2] < 0.01
    assert errors[0] > 1.7 * errors[1] > 2.9 * errors[2]


def test_loop_follows_response_with_hysteresis_in_both_parts() -> None:
    """Bouc-Wen frame and softening damper of Chen & Ricles: with a perfect actuator."""
    specimen = ["axes.story_1.specimen.type=softening_elastomeric", "duration=6"]
    actuator = ["axes.story_1.actuator.type=pure_delay", "compensator.type=none"]
    overrides = [*specimen, *actuator, "ramp.type=quadratic"]
    _, run = simulate("chen_ricles_2010", *overrides)
    result = response(files.load("chen_ricles_2010", overrides), 1e-3)
    peak = np.abs(result.displacement).max()
    assert peak > 0.02  # it yields
    np.testing.assert_allclose(run.dof_displacement[: len(result.times)], result.displacement, atol=0.05 * peak)


def test_response_without_excitation_is_zero() -> None:
    result = response(scene(ground_motion={"type": "none"}))
    assert not result.displacement.any()
    assert result.error == 0.0


def test_response_without_structure_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("structure", "missing", "response")):
        response(files.load("predefined_sine"))


def test_unconverged_response_is_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rths_nodes.analysis.response_errors.FINEST", 2)
    with pytest.raises(ArithmeticError, match=naming("converge", "2", "steps")):
        response(scene(servo_rate=50.0), 1e-12)


def test_coupled_rig_is_refused() -> None:
    three = (np.eye(1).tolist(), np.eye(1).tolist(), np.eye(1).tolist())
    rig = dict(zip(("mass", "damping", "stiffness"), three, strict=True)) | {"type": "coupled_servo_hydraulic"}
    with pytest.raises(ConfigError, match=naming("rig", "coupled")):
        response(scene(rig=rig, axes={"story": {"limits": LIMITS}}))


PERFECT = ("axes.story_1.actuator.type=pure_delay", "compensator.type=none", "duration=5")


def test_perfect_actuator_leaves_only_integrator_error() -> None:
    errors = response_errors(Evaluation(hosts.run("chen_ricles_2010", PERFECT).read()))["x"]
    assert errors["displacement"] < 1.0
    assert errors["acceleration"] < 5.0
    finer = response_errors(Evaluation(hosts.run("chen_ricles_2010", (*PERFECT, "substeps=2")).read()))["x"]
    assert finer["displacement"] < 0.3 * errors["displacement"]


def test_late_actuator_gives_large_response_error() -> None:
    overrides = ("compensator.type=none", "duration=5", "axes.story_1.actuator.alpha=29")
    errors = response_errors(Evaluation(hosts.run("chen_ricles_2010", overrides).read()))["x"]
    assert errors["displacement"] > 10.0


def test_response_error_is_rms_of_difference() -> None:
    run = hosts.run("chen_ricles_2010", ("duration=3",)).read()
    whole = response(files.load("chen_ricles_2010", ["duration=3"]))
    expected = (
        100.0 * np.linalg.norm(run.dof_displacement - whole.displacement) / np.linalg.norm(whole.displacement)
    )
    assert response_errors(Evaluation(run))["x"]["displacement"] == pytest.approx(expected)
    ground = Assembly(files.load("chen_ricles_2010", ["duration=3"])).ground_acceleration
    np.testing.assert_allclose(whole_response(run.scenario)[1], whole.acceleration + ground[:, None])


@pytest.mark.parametrize("substeps", [1, 2, 10])
def test_response_errors_exclude_soft_start(substeps: int) -> None:
    soft = ("soft_start={amplitude: 0.002, rise_time: 0.1, duration: 0.3, fall_time: 0.1, rest_time: 0.5}",)
    test = (*PERFECT, f"substeps={substeps}")
    plain, started = (hosts.run("chen_ricles_2010", (*test, *changes)).read() for changes in ((), soft))
    assert response_errors(Evaluation(started))["x"]["displacement"] == pytest.approx(
        response_errors(Evaluation(plain))["x"]["displacement"], rel=1e-6
    )


def test_large_structure_has_report_and_reference() -> None:
    """Its matrices are sparse; the reference has its lowest modes, and the displacement of the interface."""
    scenario = files.load("tall_frame", ["duration=0.5"])
    assembly = Assembly(scenario)
    reference = reference_displacement(assembly)
    assert reference.shape[1] == 3
    np.testing.assert_array_equal(axes_of(assembly, reference), reference[:, :1])
    assert expected_rms(scenario) == np.std(reference[:, 0])
    structure = assembly.structure
    assert structure is not None
    mass, _, stiffness = combined(structure)
    lowest = some_modes(mass, stiffness, 1)[0][0] / (2.0 * math.pi)
    assert fitted_up_to(scenario, (0.1, 1e6)) == pytest.approx(2.75 * lowest)
    assert "tall_frame" in render(hosts.run(scenario).read())


def test_response_errors_need_structure() -> None:
    run = hosts.run("predefined_sine", ("duration=1",)).read()
    with pytest.raises(ConfigError, match="structure: missing"):
        response_errors(Evaluation(run))


def test_comparison_includes_published_response_errors() -> None:
    data = files.load("chen_ricles_2010", ["duration=1"]).data()
    data["cases"] = {"paper": {"published": {"response_x": 1.5, "J2_story_1": 0.5}}}
    loaded = files.from_text(yaml_text.dump(data), "test")
    chosen = studies.variants(loaded)
    assert needs_response(name for variant in chosen for name in variant.published)
    (result,) = studies.compare(chosen, response=True)
    assert result.values["response_x"] == result.response["x"]["displacement"]
    assert result.values["J2_story_1"] == result.values["J2"]


def test_report_includes_response_errors_on_request() -> None:
    from rths_nodes.analysis.report.document import render

    run = hosts.run("chen_ricles_2010", (*PERFECT, "duration=2")).read()
    assert "Error of" not in render(run)
    page = render(run, reference=True)
    assert "Absolute acceleration" in page
    assert f"{response_errors(Evaluation(run))['x']['displacement']:.3g}"[:4] in page


@pytest.mark.parametrize("steps", [1, BLOCK - 1, BLOCK, BLOCK + 1, 1000])
def test_recursion_in_blocks_equals_single_steps(steps: int) -> None:
    rng = np.random.default_rng(steps)
    phi, driven = rng.normal(0.0, 1.0, (4, 4)), rng.normal(0.0, 1.0, (steps, 4))
    phi *= 0.999 / np.abs(np.linalg.eigvals(phi)).max()
    expected = np.zeros((steps + 1, 4))
    for step in range(steps):
        expected[step + 1] = phi @ expected[step] + driven[step]
    np.testing.assert_allclose(recursion(phi, driven), expected, atol=1e-12 * np.abs(expected).max())
