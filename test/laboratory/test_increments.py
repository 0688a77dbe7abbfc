# SPDX-License-Identifier: Apache-2.0
"""Tests of the increments that integrate states of specimens: bounds, references, refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from loop_parts import make, simulate
from messages import mentions, naming
from scipy.integrate import solve_ivp, trapezoid

from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.decay import HARD_LIMIT, LONGEST, MOST, Decay
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.simulators import Specimen
from rths_nodes.laboratory.actuators.unloaded import INCREMENTS, SpecimenPath
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files

DT = 1.0 / 1024.0
SHARP = {"stiffness": 50e6, "yield_force": 5e3, "exponent": 10.0, "post_yield_ratio": 0.0}
"""Yields at 0.1 mm."""
STIFF = {
    "sharp": ("elastoplastic_absorber", SHARP),
    "brittle": ("elastoplastic_absorber", SHARP | {"stiffness": 1e9, "exponent": 3.0}),
    "friction": ("softening_elastomeric", {"slip_displacement": 1e-5}),
    "one sided": (
        "softening_elastomeric",
        {"slip_displacement": 1e-4, "beta": 0.9, "gamma": 1e-4, "exponent": 2.0},
    ),
    "rubber": ("slipping_elastomeric", {"slip_force": 3e3, "exponent": 4.0}),
    "relaxing": ("slipping_elastomeric", {"relaxation_time": 2e-4}),
    "oil": ("maxwell_damper", {"series_stiffness": 5e9}),
    "valve": ("relief_valve_damper", {"series_stiffness": 2e9, "relief_force": 5e3}),
    "fluid": ("magnetorheological_damper", {"voltage": 2.25}),
    "both": (
        "parallel",
        {"first": {"type": "elastoplastic_absorber", **SHARP}, "second": {"type": "maxwell_damper"}},
    ),
}
"""Specimens whose states decay too fast for four increments per sample."""
REQUIRED = {
    "parallel": {"first": {"type": "maxwell_damper"}, "second": {"type": "slipping_elastomeric"}},
    "with_mass": {"mass": 30.0, "specimen": {"type": "slipping_elastomeric"}},
    "with_backlash": {"width": 1e-3},
}
"""Parameters without defaults: specimens with states."""


def wave(samples: int, amplitude: float = 0.02, frequency: float = 3.0, dt: float = DT) -> np.ndarray:
    """Displacements (m), the first at rest."""
    return np.asarray(amplitude * np.sin(2.0 * np.pi * frequency * dt * np.arange(samples)))


def driven(specimen: Any, x: np.ndarray, dt: float = DT) -> tuple[np.ndarray, np.ndarray]:
    """Forces (N) and states at the samples of ``x``, from the second on."""
    path, forces, states = SpecimenPath(specimen, dt), [], []
    for before, after in pairwise(x.tolist()):
        forces.append(path.move(after, (after - before) / dt))
        states.append(path.state[1][0] if specimen.mass else path.state[0])
    return np.array(forces), np.array(states)


def exact(specimen: Any, x: np.ndarray, dt: float = DT) -> np.ndarray:
    """Forces (N) as in :func:`driven`, by an implicit integrator with a tight tolerance."""
    state, forces = np.array(specimen.initial_state), []
    for before, after in pairwise(x.tolist()):
        v = (after - before) / dt

        def rates(t: float, s: np.ndarray, x0: float = before, v: float = v) -> Sequence[float]:
            return specimen.rate(s.tolist(), x0 + v * t, v)  # type: ignore[no-any-return]

        state = solve_ivp(rates, (0.0, dt), state, method="LSODA", rtol=1e-9, atol=1e-9).y[:, -1]
        forces.append(specimen.force(state.tolist(), after, v))
    return np.array(forces)


@pytest.mark.parametrize("name", STIFF)
def test_stiff_specimen_agrees_with_implicit_integrator(name: str) -> None:
    """Largest error over largest force; four increments diverge or have errors of tens of per cent."""
    kind, data = STIFF[name]
    specimen, x = make("specimen", kind, **data), wave(220)
    shown, expected = driven(specimen, x)[0], exact(specimen, x)
    assert np.abs(shown - expected).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("speed", [0.01, 0.3, 3.0, 1e4])
def test_bouc_wen_state_stays_within_its_limit(exponent: float, speed: float) -> None:
    """abs(z) <= (beta + gamma)^(-1/q) for any motion."""
    random = np.random.default_rng(7)
    for yields in (1e-6, 1e-4, 1e-2):
        beta, gamma = random.uniform(0.05, 2.0, 2)
        data = {"slip_displacement": yields, "beta": beta, "gamma": gamma, "exponent": exponent}
        specimen = make("specimen", "softening_elastomeric", **data)
        if specimen.decay.increments(speed, DT, constant=True) > HARD_LIMIT:
            continue  # refused before the test
        _, states = driven(specimen, np.cumsum(random.normal(0.0, speed * DT, 200)))
        assert np.abs(states).max() <= (beta + gamma) ** (-1.0 / exponent) * (1.0 + 1e-12)


def test_friction_loop_dissipates_closed_form() -> None:
    """Exponent 1, beta = gamma: per half loop F (2 X - x_f (1/2 + 1 + 1 - exp(1 - 2 X / x_f)))."""
    slip, amplitude, force = 1e-5, 0.02, 60e3
    data = {"stiffness": 0.0, "damping": 0.0, "slip_displacement": slip}
    x = wave(3 * 1024 + 1, amplitude, 1.0)
    shown = driven(make("specimen", "softening_elastomeric", **data), x)[0]
    energy = trapezoid(shown[1023:2048], x[1024:2049])
    assert energy == pytest.approx(2.0 * force * (2.0 * amplitude - 2.5 * slip), rel=2e-3)


def test_soft_specimens_take_four_increments() -> None:
    """Shipped scenarios: four RK4 steps with four evaluations each."""
    for name in ("softening_elastomeric", "elastoplastic_absorber", "slipping_elastomeric", "degrading_column"):
        assert set(evaluations(make("specimen", name), wave(100, 0.01))) == {4 * INCREMENTS}


def evaluations(specimen: Any, x: np.ndarray, dt: float = DT) -> list[int]:
    """Number of calls of ``rate`` in each sample."""
    calls: list[int] = []

    class Counted(Specimen):
        initial_state, decay = specimen.initial_state, specimen.decay

        def force(self, *arguments: Any) -> float:
            return float(specimen.force(*arguments))

        def rate(self, *arguments: Any) -> Any:
            calls[-1] += 1
            return specimen.rate(*arguments)

    path = SpecimenPath(Counted.__new__(Counted), dt)
    for before, after in pairwise(x.tolist()):
        calls.append(0)
        path.move(after, (after - before) / dt)
    return calls


@pytest.mark.parametrize("speed", [0.1, 1.0, 10.0, 1e6, math.inf])
@pytest.mark.parametrize("name", STIFF)
def test_evaluations_per_sample_are_bounded(name: str, speed: float) -> None:
    kind, data = STIFF[name]
    calls = evaluations(make("specimen", kind, **data), np.array([0.0, speed * DT, 0.0]))
    assert max(calls) <= 4 * HARD_LIMIT


def test_force_beyond_increment_bound_is_nan() -> None:
    """NaN trips the limits; a wrong force would not."""
    specimen = make("specimen", "slipping_elastomeric", slip_force=3e3, exponent=4.0)
    fastest = HARD_LIMIT * LONGEST / (DT * specimen.decay.per_velocity)
    assert math.isnan(SpecimenPath(specimen, DT).move(1.01 * fastest * DT, fastest))
    assert math.isfinite(SpecimenPath(specimen, DT).move(0.9 * fastest * DT, fastest))


@pytest.mark.parametrize("name", ["sharp", "friction", "one sided", "oil"])
def test_settling_state_is_exact_at_high_velocity(name: str) -> None:
    kind, data = STIFF[name]
    specimen = make("specimen", kind, **data)
    assert specimen.decay.settling < math.inf
    for speed in (1e2, 1e4):
        x = np.array([0.0, 1.0, 2.0, 1.0, 0.0, -1.0]) * speed * DT
        shown, expected = driven(specimen, x)[0], exact(specimen, x)
        np.testing.assert_allclose(shown, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", [*STIFF, *registry.names("specimen")])
def test_states_decay_no_faster_than_stated(name: str) -> None:
    """Eigenvalues of the Jacobian of the rates, by differences, along a wave."""
    kind, data = STIFF.get(name, (name, {}))
    data = data or REQUIRED.get(kind, {})
    specimen = make("specimen", kind, **data)
    assert isinstance(specimen.decay, Decay)
    if not specimen.initial_state:
        assert specimen.decay == Decay()
        return
    x = wave(700)
    _, states = driven(specimen, x)
    for state, (before, after) in zip(states[::7].tolist(), list(pairwise(x.tolist()))[::7], strict=False):
        for v in ((after - before) / DT, -(after - before) / DT):
            rates = np.array(specimen.rate(state, after, v))
            columns = []
            for index, value in enumerate(state):
                small = 1e-7 * max(abs(value), 1e-9)
                moved = [*state[:index], value - small, *state[index + 1 :]]
                columns.append((rates - np.array(specimen.rate(moved, after, v))) / small)
            eigenvalues = np.linalg.eigvals(np.column_stack(columns))
            assert -eigenvalues.real.min() <= 1.01 * specimen.decay.times(v, 1.0) + 1e-3


@pytest.mark.parametrize("hold", ["staircase", "ramp"])
def test_servo_hydraulic_actuator_halves_its_steps(hold: str) -> None:
    """Reference: steps that are short enough for any velocity of the piston."""
    shown = []
    for substeps in (4, 128):
        specimen = make("specimen", "elastoplastic_absorber", **(SHARP | {"exponent": 4.0}))
        actuator = make("actuator", "servo_hydraulic", DT, specimen, substeps=substeps, hold=hold)
        forces = []
        for command in wave(200).tolist():
            actuator.step(command)
            forces.append((actuator.force, 1e6 * actuator.displacement))
        shown.append(np.array(forces))
    assert np.abs(shown[0][:, 0]).max() <= 5e3 * (1.0 + 1e-9)
    assert np.abs(shown[0] - shown[1]).max() < 0.01 * 5e3


def test_specimen_too_stiff_for_max_velocity_is_refused() -> None:
    specimen = make("specimen", "elastoplastic_absorber", **(SHARP | {"stiffness": 1e10}))
    with pytest.raises(ConfigError, match=r"actuator\.max_velocity = 0\.76 m/s: .* must be <= 64"):
        make("actuator", "servo_hydraulic", DT, specimen)


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        checked_loop(files.load("predefined_sine", overrides))
    return str(caught.value)


@pytest.mark.parametrize(
    ("specimen", "parts"),
    [
        (
            "{type: slipping_elastomeric, slip_force: 100}",
            ("axes.axis_1.specimen.relaxation_time", "0.085 s", "slip_force", "100 N", "10 m/s")
            + ("5730", "<= 64", "servo_rate", "limits.velocity"),
        ),
        (
            "{type: parallel, first: {type: kelvin_voigt}, second: {type: magnetorheological_damper}}",
            ("axes.axis_1.specimen.second.slope", "301", "10 m/s"),
        ),
        (
            "{type: parallel, first: {type: maxwell_damper, series_stiffness: 1e11}, "
            "second: {type: degrading_column}}",
            ("axes.axis_1.specimen.first", "maxwell_damper", "degrading_column", "326", "<= 64", "servo_rate"),
        ),
    ],
)
def test_specimen_with_too_many_increments_is_refused(specimen: str, parts: tuple[str, ...]) -> None:
    assert mentions(refusal(f"axes.axis_1.specimen={specimen}"), *parts)


def test_lower_velocity_limit_is_accepted() -> None:
    specimen = "axes.axis_1.specimen={type: magnetorheological_damper}"
    assert f"must be <= {MOST}" in refusal(specimen)
    checked_loop(files.load("predefined_sine", [specimen, "axes.axis_1.limits.velocity=0.9"]))


def test_specimen_without_decay_is_refused() -> None:
    class WithoutDecay(Specimen):
        initial_state = (0.0,)

        def __init__(self) -> None: ...

        def force(self, *arguments: Any) -> float:
            return 0.0

        def rate(self, *arguments: Any) -> tuple[float, ...]:
            return (0.0,)

    with pytest.raises(ConfigError, match=naming("attribute", "decay")):
        SpecimenPath(WithoutDecay(), DT)


@pytest.mark.parametrize(
    ("specimen", "limit"),
    [
        (
            "{type: elastoplastic_absorber, stiffness: 50e+6, yield_force: 5e+3, exponent: 10, "
            "post_yield_ratio: 0}",
            5e3,
        ),
        ("{type: softening_elastomeric, stiffness: 0, damping: 0, slip_displacement: 1.0e-5, exponent: 2}", 60e3),
    ],
)
def test_measured_force_stays_within_yield_force(
    specimen: str, limit: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 mm and 3 Hz at 1024 Hz: four increments gave tens of times the force."""
    changes = ["integrator.displacement.frequency=3", f"axes.axis_1.specimen={specimen}", "duration=2"]
    options = [argument for change in changes for argument in ("--set", change)]
    assert main(["check", "predefined_sine", *options]) == 0
    assert "fits together" in capsys.readouterr().out
    outcome, run = simulate("predefined_sine", *changes)
    assert outcome.state.name == "FINISHED"
    assert 0.99 * limit < np.abs(run.force).max() <= limit * (1.0 + 1e-9)
