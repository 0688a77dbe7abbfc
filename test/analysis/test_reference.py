# SPDX-License-Identifier: Apache-2.0
"""The response of the whole structure: closed forms, and the loop with a perfect actuator as its step shrinks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis import response_errors
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Collector

MASS, FREQUENCY, ZETA = 2e4, 1.5, 0.03
OMEGA = 2.0 * math.pi * FREQUENCY
STIFFNESS = MASS * OMEGA**2
LIMITS = {"stroke": 1.0, "velocity": 10.0, "force": 1e9}


def axis(specimen: dict[str, Any]) -> dict[str, Any]:
    return {"actuator": {"type": "pure_delay"}, "specimen": specimen, "limits": LIMITS}


def scene(**changes: Any) -> Scenario:
    """A mass of which part of the spring and all damping stand in the laboratory, under a sine."""
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


def test_a_linear_structure_in_closed_form() -> None:
    """Steady and free part of a damped mass; the excitation runs straight between steps, hence 1e-4."""
    response = response_errors.response(scene(servo_rate=400.0))
    load = 2.0 * math.pi * 0.9
    damped = OMEGA * math.sqrt(1.0 - ZETA**2)
    steady = -2.0 / (OMEGA**2 - load**2 + 2j * ZETA * OMEGA * load)
    a = -steady.imag
    b = (ZETA * OMEGA * a - load * steady.real) / damped
    time = response.times
    fading = np.exp(-ZETA * OMEGA * time) * (a * np.cos(damped * time) + b * np.sin(damped * time))
    exact = (steady * np.exp(1j * load * time)).imag + fading
    np.testing.assert_allclose(response.displacement[:, 0], exact, atol=1e-4 * np.abs(exact).max())
    np.testing.assert_allclose(
        np.gradient(response.displacement[:, 0], time)[1:-1],
        response.velocity[1:-1, 0],
        atol=1e-3 * np.abs(response.velocity).max(),
    )
    force = 0.4 * STIFFNESS * response.displacement + 2.0 * ZETA * MASS * OMEGA * response.velocity
    np.testing.assert_allclose(response.force, force, rtol=1e-12)


def test_equilibrium_holds_at_every_step() -> None:
    model = scene()
    response = response_errors.response(model)
    load = Assembly(model).external_force
    inner = 0.6 * STIFFNESS * response.displacement + response.force
    np.testing.assert_allclose(MASS * response.acceleration + inner, load, atol=1e-9 * np.abs(load).max())


def test_it_says_how_fine_it_was() -> None:
    coarse, fine = (response_errors.response(scene(), tolerance) for tolerance in (1e-2, 1e-9))
    assert coarse.error < 1e-2
    assert fine.error < 1e-9
    assert fine.substeps > coarse.substeps
    np.testing.assert_allclose(coarse.displacement, fine.displacement, atol=1e-2 * np.abs(fine.displacement).max())


def test_the_partition_does_not_matter() -> None:
    """Three floors: all of the frame computed, against its springs as three specimens that a matrix ties to it."""
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
    one, other = (
        response_errors.response(numerical),
        response_errors.response(scene(structure=tested, setup=drifts, axes=springs)),
    )
    size = np.abs(one.displacement).max()
    assert size > 1e-3
    np.testing.assert_allclose(one.displacement, other.displacement, atol=1e-12)
    drift = np.diff(other.displacement, axis=1, prepend=0.0)
    np.testing.assert_allclose(other.force, drift * frame["stiffnesses"], rtol=1e-9, atol=1e-6)


def test_a_mass_under_test_moves_with_its_floor() -> None:
    data = {
        "type": "shear_frame",
        "masses": [MASS],
        "stiffnesses": [STIFFNESS],
        "experimental_stiffnesses": [0.4 * STIFFNESS],
    }
    one, other = (
        response_errors.response(scene(structure=data)),
        response_errors.response(scene(structure=data | {"experimental_masses": [5e3]})),
    )
    np.testing.assert_allclose(one.displacement, other.displacement, atol=1e-12)


@pytest.mark.parametrize("integrator", ["central_difference", "runge_kutta", "explicit_newmark"])
def test_the_loop_with_a_perfect_actuator_tends_to_it(integrator: str) -> None:
    """The rig moves in straight lines and its force is late by half a sample: an error of first order."""
    errors = []
    for rate in (200.0, 400.0, 800.0):
        changed = scene(servo_rate=rate, duration=1.5, integrator={"type": integrator})
        run = run_of(changed)
        exact = response_errors.response(changed).displacement
        errors.append(np.abs(run.dof_displacement[: len(exact)] - exact).max() / np.abs(exact).max())
    assert errors[2] < 0.01
    assert errors[0] > 1.7 * errors[1] > 2.9 * errors[2]


def run_of(changed: Scenario) -> Any:
    loop = Loop(Assembly(changed))
    collector = Collector(loop.scenario, loop.assembly.names)
    return collector.run(metrics=loop.run([collector]).metrics)


def test_hysteresis_on_both_sides(simulate: Callable[..., Any]) -> None:
    """Bouc-Wen frame and softening damper of Chen & Ricles: the loop with a perfect actuator comes close."""
    specimen = ["axes.story_1.specimen.type=softening_elastomeric", "duration=6"]
    actuator = ["axes.story_1.actuator.type=pure_delay", "compensator.type=none"]
    names = [*specimen, *actuator, "ramp.type=quadratic"]
    _, run = simulate("chen_ricles_2010", *names)
    response = response_errors.response(files.load("chen_ricles_2010", names), 1e-3)
    peak = np.abs(response.displacement).max()
    assert peak > 0.02  # it yields
    np.testing.assert_allclose(
        run.dof_displacement[: len(response.times)], response.displacement, atol=0.05 * peak
    )


def test_at_rest_without_an_excitation() -> None:
    response = response_errors.response(scene(ground_motion={"type": "none"}))
    assert not response.displacement.any()
    assert response.error == 0.0


def test_without_a_structure_there_is_nothing_to_compute() -> None:
    with pytest.raises(ConfigError, match=naming("structure", "missing", "response")):
        response_errors.response(files.load("predefined_sine"))


def test_what_does_not_settle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rths_nodes.analysis.response_errors.FINEST", 2)
    with pytest.raises(ArithmeticError, match=naming("converge", "2", "steps")):
        response_errors.response(scene(servo_rate=50.0), 1e-12)


def test_a_coupled_rig_is_computed_elsewhere() -> None:
    three = (np.eye(1).tolist(), np.eye(1).tolist(), np.eye(1).tolist())
    rig = dict(zip(("mass", "damping", "stiffness"), three, strict=True)) | {"type": "coupled_servo_hydraulic"}
    with pytest.raises(ConfigError, match=naming("rig", "coupled")):
        response_errors.response(scene(rig=rig, axes={"story": {"limits": LIMITS}}))
