# SPDX-License-Identifier: Apache-2.0
"""Tests of model-based compensation (Phillips & Spencer 2012) and of its LQG feedback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coupled_rigs import transfer_matrix
from loop_parts import make
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.control.compensators.model_based import (
    Controller,
    FeedbackParams,
    deviation_controller,
    feedback_matrix,
    feedback_step,
    loop_radius,
    observer_at_rest,
)
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.files import from_text, override
from rths_nodes.mechanics.coupled_rig import coupled_model, feedforward, state_space
from rths_nodes.mechanics.loading_model import LoadingModel, StateSpace, diagonal, save
from rths_nodes.mechanics.loading_model import state_space as inverse_state_space
from rths_nodes.mechanics.structure import transition

DT = 1.0 / 2000.0
SPECIMEN = {
    "mass": (98.3 * np.eye(3)).tolist(),
    "damping": [[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]],
    "stiffness": [[12.0e5, -6.84e5, 0.0], [-6.84e5, 13.7e5, -6.84e5], [0.0, -6.84e5, 6.84e5]],
}
EQUAL = SPECIMEN | {"area": [1e-3], "servo_gain": [0.1], "actuator_pole": [-200.0], "actuator_gain": [1.26e11]}
UNEQUAL = SPECIMEN | {
    "area": [1e-3, 2e-3, 0.7e-3],
    "servo_gain": [0.1, 0.15, 0.06],
    "actuator_pole": [-200.0, -150.0, -260.0],
    "actuator_gain": [1.26e11, 0.8e11, 2e11],
}
MODES = 2.0 * np.pi * np.array([1.726, 5.0, 7.475])
AMPLITUDES = 1e-3 * np.array([[8.0, 1.0, 0.3], [13.0, 0.5, -0.4], [16.0, -1.0, 0.2]])


def target(time: float) -> Motion:
    """Three modes at once, with their derivatives, starting from rest."""
    phase = np.exp(1j * MODES * time)
    rise = 1.0 - np.exp(-((time / 0.3) ** 4))
    x, v, a = (AMPLITUDES @ ((1j * MODES) ** order * phase).imag for order in range(3))
    h = 1e-5
    rate = (np.exp(-(((time - h) / 0.3) ** 4)) - np.exp(-(((time + h) / 0.3) ** 4))) / (2 * h)
    turn = (2 * np.exp(-((time / 0.3) ** 4)) - np.exp(-(((time - h) / 0.3) ** 4))) / h**2
    turn -= np.exp(-(((time + h) / 0.3) ** 4)) / h**2
    return Motion(rise * x, rise * v + rate * x, rise * a + 2 * rate * v + turn * x)


def tracked(compensator: Any, rig: dict[str, Any], seconds: float = 1.5, late: int = 0) -> np.ndarray:
    """Tracking errors in % (RMS) of each axis after a second, on the exactly solved ``rig``."""
    system, inputs, _ = state_space(coupled_model(**rig))
    phi, before, now = transition(system, inputs, DT)
    state, line = np.zeros(9), [np.zeros(3)] * (late + 1)
    targets, moved = [], []
    for sample in range(1, round(seconds / DT)):
        motion = target(sample * DT)
        line.append(compensator.step(motion, state[:3].copy()).copy())
        state = phi @ state + before @ line[-2 - late] + now @ line[-1 - late]
        targets.append(motion.displacement)
        moved.append(state[:3])
    w, f = np.array(targets)[2000:], np.array(moved)[2000:]
    return 100.0 * np.sqrt(((f - w) ** 2).sum(0) / (w**2).sum(0))


@pytest.mark.parametrize("rig", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_coupled_feedforward_tracks_on_known_rig(rig: dict[str, Any]) -> None:
    assert tracked(make("compensator", "model_based", DT, 3, known=rig), rig).max() < 0.005


def test_printed_columns_fail_for_unequal_actuators(tmp_path: Path) -> None:
    """Eq. (2.8) as printed scales columns with (s - p_aj) / (k_aj k_sj)."""
    right = feedforward(coupled_model(**UNEQUAL))
    column = right.transpose(0, 2, 1)  # symmetric specimen: scaling of columns is the transpose
    save(LoadingModel(("a", "b", "c"), column, None, 2000.0), tmp_path / "printed.yaml")
    printed = make("compensator", "model_based", DT, 3, model=str(tmp_path / "printed.yaml"))
    assert tracked(printed, UNEQUAL).max() > 0.2


def test_uncoupled_error_equals_transfer_matrix() -> None:
    """For a single sine: x / x_target = G_xu diag(G_FF)."""
    compensator = make("compensator", "model_based", DT, 3, known=EQUAL, coupled=False)
    model = coupled_model(**EQUAL)
    omega = 2.0 * np.pi * 4.0
    response = compensator.frequency_response(np.array([omega]))[0]
    np.testing.assert_array_equal(response, np.diag(np.diag(response)))
    shape = np.array([1e-3, -2e-3, 1.5e-3])
    expected = transfer_matrix(model, 1j * omega) @ response @ shape
    system, inputs, _ = state_space(model)
    phi, before, now = transition(system, inputs, DT)
    state, command, moved = np.zeros(9), np.zeros(3), []
    for sample in range(1, 3001):
        phase = np.exp(1j * omega * sample * DT)
        motion = Motion(*[((1j * omega) ** order * phase).imag * shape for order in range(3)])
        last, command = command, compensator.step(motion, state[:3]).copy()
        state = phi @ state + before @ last + now @ command
        moved.append(state[:3])
    times = DT * np.arange(2001, 3001)
    fitted = 2.0 * np.mean(np.array(moved)[2000:] * (1j * np.exp(-1j * omega * times))[:, None], axis=0)
    np.testing.assert_allclose(fitted, expected, rtol=2e-4)
    assert np.abs(expected / shape - 1.0).max() > 0.02


def test_feedback_reduces_tracking_error() -> None:
    """At low frequencies by 1 + k = sqrt(1 + q / r): 3.9 times for the default weights."""
    alone = make("compensator", "model_based", DT, 3, known=EQUAL, coupled=False)
    with_feedback = make("compensator", "model_based", DT, 3, known=EQUAL, coupled=False, feedback={})
    ratio = tracked(alone, EQUAL) / tracked(with_feedback, EQUAL)
    np.testing.assert_allclose(ratio, 3.5, rtol=0.15)


def test_feedback_vanishes_on_known_rig() -> None:
    compensator = make("compensator", "model_based", DT, 3, known=EQUAL, feedback={})
    assert tracked(compensator, EQUAL).max() < 0.005
    u_ff, u_fb = np.array(compensator.state()).reshape(3, 2).T
    assert np.abs(u_fb).max() < 1e-3 * np.abs(u_ff).max()


@pytest.mark.parametrize("feedback", [None, {}], ids=["without", "with"])
def test_lead_compensates_transport(feedback: dict[str, Any] | None) -> None:
    def build(lead: float) -> Any:
        return make("compensator", "model_based", DT, 3, known=EQUAL, lead=lead, feedback=feedback)

    assert tracked(build(2 * DT), EQUAL, late=2).max() < 0.02
    assert tracked(build(0.0), EQUAL, late=2).max() > 0.2


def test_reset_restores_state() -> None:
    compensator = make("compensator", "model_based", DT, 3, known=EQUAL, feedback={})
    assert compensator.state_names == ("u_ff[0]", "u_fb[0]", "u_ff[1]", "u_fb[1]", "u_ff[2]", "u_fb[2]")
    assert compensator.state_units == {"u_ff": "m", "u_fb": "m"}

    def drive() -> np.ndarray:
        compensator.reset()
        return np.array([compensator.step(target(k * DT), np.full(3, 1e-4 * k)).copy() for k in range(50)])

    first = drive()
    np.testing.assert_array_equal(drive(), first)
    state = np.array(compensator.state()).reshape(3, 2)
    np.testing.assert_array_equal(state.sum(axis=1), first[-1])
    assert state[:, 1].all()


LOOP = f"""
version: 1
name: three_actuators
servo_rate: 2000.0
substeps: 1
duration: 2.0
ground_motion: {{type: record, record: elcentro_1940_ns, scale: 0.5}}
structure:
  type: matrices
  mass: {(983.0 * np.eye(3)).tolist()}
  stiffness: {SPECIMEN["stiffness"]}
  damping: {{type: modal, ratios: [0.01, 0.01, 0.0157]}}
  experimental_mass: {SPECIMEN["mass"]}
  experimental_damping: {SPECIMEN["damping"]}
  experimental_stiffness: {SPECIMEN["stiffness"]}
integrator: {{type: runge_kutta}}
ramp: {{type: hermite}}
compensator: {{type: model_based, known: {SPECIMEN}}}
rig: {{type: coupled_servo_hydraulic, mass: {SPECIMEN["mass"]}, damping: {SPECIMEN["damping"]},
       stiffness: {SPECIMEN["stiffness"]}}}
axes:
  floor_1: &axis {{limits: {{stroke: 0.1, velocity: 2.0, force: 1.0e+5}}}}
  floor_2: *axis
  floor_3: *axis
"""
UNCOUPLED = "compensator.coupled=false"
FEEDBACK = "compensator.feedback.displacement_weight=14"


def in_the_loop(*overrides: str) -> tuple[str, np.ndarray]:
    """Outcome and tracking errors in % of the true displacements."""
    report = hosts.run(override(from_text(LOOP, "this test"), overrides))
    run = report.read()
    error = run.true_displacement - run.target
    return report.outcome, 100.0 * np.sqrt((error**2).sum(0) / (run.target**2).sum(0))


def test_loop_without_compensation_is_unstable() -> None:
    """Case (b) of Table 3.1."""
    outcome, _ = in_the_loop("compensator.type=none")
    assert outcome == "tripped"


@pytest.mark.parametrize(
    ("overrides", "expected"), [([UNCOUPLED], [1.7, 2.0, 0.9]), ([UNCOUPLED, FEEDBACK], [0.49, 0.57, 0.26])]
)
def test_feedforward_in_loop_has_published_errors(overrides: list[str], expected: list[float]) -> None:
    """Cases (c) and (e): 1.71, 1.99, 0.910 % and 0.470, 0.547, 0.248 % with the damper."""
    outcome, errors = in_the_loop(*overrides)
    assert outcome == "finished"
    np.testing.assert_allclose(errors, expected, rtol=0.15)


def test_coupled_feedforward_tracks_in_loop() -> None:
    """Case (d) without the damper, which the model does not know: 0.133, 0.009, 0.009 % with it."""
    outcome, errors = in_the_loop()
    assert outcome == "finished"
    assert errors.max() < 0.002


def test_exactly_one_model_source_is_required() -> None:
    with pytest.raises(ConfigError, match=naming("model", "known")):
        make("compensator", "model_based", DT, 3)
    with pytest.raises(ConfigError, match=naming("both are given")):
        make("compensator", "model_based", DT, 3, model="x.yaml", known=EQUAL)


def test_model_of_other_rig_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("compensator.known", "3", "test", "2")):
        make("compensator", "model_based", DT, 2, known=EQUAL)
    path = tmp_path / "model.yaml"
    save(LoadingModel(("a", "b", "c"), feedforward(coupled_model(**EQUAL)), None, 2000.0), path)
    with pytest.raises(ConfigError, match=naming("model", "3", "(a, b, c)", "2")):
        make("compensator", "model_based", DT, 2, model=str(path))
    loaded = override(from_text(LOOP, "test"), [f"compensator={{type: model_based, model: {path}}}"])
    with pytest.raises(ConfigError, match=naming("axes", "a, b, c", "floor_1", "floor_2", "floor_3")):
        loaded.compensator.fits(loaded.context())
    (caution,) = loaded.compensator.cautions(loaded.context())
    assert mentions(caution, "a, b, c")


def test_caution_names_linear_ramp() -> None:
    loaded = override(from_text(LOOP, "test"), ["ramp.type=linear"])
    (caution,) = loaded.compensator.cautions(loaded.context())
    assert mentions(caution, "acceleration", "linear ramp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": np.diag([1.0, 1.0, 0.0]).tolist()}, ("known.mass", "positive", "definite")),
        ({"area": [1e-3, 1e-3]}, ("known.area", "1", "3", "numbers")),
        ({"servo_gain": [1e4]}, ("known", "pole")),
    ],
)
def test_inconsistent_constants_are_refused(change: dict[str, Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        make("compensator", "model_based", DT, 3, known=EQUAL | change)


INVERSE = feedforward(coupled_model(**EQUAL))
LAG = np.array([1.0, 0.02, 0.0, 0.0]).reshape(4, 1, 1)


def controller(inverse: np.ndarray, coupled: bool = True, lead: float = 0.0, **data: Any) -> Controller:
    return deviation_controller(
        inverse_state_space(inverse), from_data(FeedbackParams, data), coupled, DT, lead, "feedback"
    )


@pytest.mark.parametrize("q", [0.5, 14.0])
def test_lqg_gain_of_lag_has_closed_form(q: float) -> None:
    """T x' = u - x: the minimum of the integral of q x^2 + u^2 has u = -(sqrt(1 + q) - 1) x, whatever T."""
    plant = inverse_state_space(LAG)
    gain = controller(LAG, displacement_weight=q)[2][0]
    assert gain[0] / plant.outputs[0, 0] == pytest.approx(np.sqrt(1.0 + q) - 1.0, rel=1e-9)
    # the estimated disturbance is not fed back
    np.testing.assert_array_equal(gain[1:], 0.0)


def test_lqg_depends_only_on_ratios_of_weights_and_noises() -> None:
    phi, _, gain = controller(INVERSE)
    scaled = controller(
        INVERSE, displacement_weight=140.0, command_weight=10.0, process_noise=1.0, measurement_noise=1e-3
    )
    np.testing.assert_allclose(scaled[0], phi, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled[2], gain, rtol=1e-6, atol=1e-9)


def responses(part: Controller, omega: float) -> np.ndarray:
    """Minus feedback over the deviation one sample before."""
    (phi, gamma, gain), z = part, np.exp(1j * omega * DT)
    return gain @ np.linalg.solve(np.eye(len(phi)) - phi / z, gamma.astype(complex))


def test_lqg_of_independent_axes_equals_separate_feedback() -> None:
    together, apart = (controller(diagonal(INVERSE), coupled=coupled) for coupled in (True, False))
    for omega in (5.0, 60.0, 400.0):
        np.testing.assert_allclose(responses(together, omega), responses(apart, omega), rtol=1e-5, atol=1e-7)


def test_lqg_without_coupling_is_diagonal() -> None:
    matrix = responses(controller(INVERSE, coupled=False), 30.0)
    np.testing.assert_array_equal(matrix, np.diag(np.diag(matrix)))
    assert np.abs(responses(controller(INVERSE), 30.0))[0, 1] > 0.0


def test_lqg_deviations_decay_with_loop_radius() -> None:
    plant, part = inverse_state_space(INVERSE), controller(INVERSE, lead=2 * DT)
    radius = loop_radius(plant, part, DT, 2)
    state, line = np.random.default_rng(1).standard_normal(9), [np.zeros(3)] * 3
    feedback, norms, late = np.zeros(3), [], np.zeros(3)
    phi, before, now = transition(plant.system, plant.inputs, DT)
    matrix = feedback_matrix(part)
    observer = observer_at_rest(matrix)
    for _ in range(3000):
        feedback_step(matrix, observer, plant.outputs @ state, feedback)
        line = [*line[1:], feedback.copy()]  # two samples of transport
        state = phi @ state + before @ late + now @ line[0]
        late = line[0]
        norms.append(float(np.linalg.norm(state)))
    slope = np.log(max(norms[2500:3000]) / max(norms[1500:2000])) / 1000.0
    assert np.exp(slope) == pytest.approx(radius, abs=1e-3)
    assert radius < 1.0


def test_lqg_loop_radius_converges_to_continuous_loop() -> None:
    plant = inverse_state_space(INVERSE)
    dt = 1e-6
    part = phi, gamma, gain = deviation_controller(plant, FeedbackParams(), True, dt, 0.0, "feedback")
    system = (phi - np.eye(len(phi))) / dt
    inputs = gamma / dt
    loop = np.block([[plant.system, -plant.inputs @ gain], [inputs @ plant.outputs, system]])
    slowest = np.linalg.eigvals(loop).real.max()
    assert np.log(loop_radius(plant, part, dt, 0)) / dt == pytest.approx(slowest, rel=0.02)


def test_unstable_feedback_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("feedback", "0.05 s")):
        controller(INVERSE, lead=0.05, displacement_weight=200.0)


def test_uncontrollable_plant_is_refused() -> None:
    uncontrollable = StateSpace(
        np.array([[0.1, 0.0], [0.0, -1.0]]), np.array([[0.0], [1.0]]), np.array([[1.0, 1.0]])
    )
    with pytest.raises(ConfigError, match=naming("feedback", "feedback", "model")):
        deviation_controller(uncontrollable, FeedbackParams(), True, DT, 0.0, "feedback")
