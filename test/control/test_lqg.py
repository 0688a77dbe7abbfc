# SPDX-License-Identifier: Apache-2.0
"""LQG on the deviation: closed forms of the regulator, the loop by two routes, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.control.compensators.model_based import (
    DeviationController,
    FeedbackParams,
    deviation_controller,
    feedback_step,
    loop_radius,
    observer_at_rest,
)
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.models.coupled_rig import coupled_model, feedforward
from rths_nodes.mechanics.models.inverse import StateSpace, diagonal, state_space
from rths_nodes.mechanics.structure import transition

DT = 1.0 / 2000.0
MASS = (98.3 * np.eye(3)).tolist()
DAMPING = [[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]]
STIFFNESS = [[12.0e5, -6.84e5, 0.0], [-6.84e5, 13.7e5, -6.84e5], [0.0, -6.84e5, 6.84e5]]
INVERSE = feedforward(coupled_model(MASS, DAMPING, STIFFNESS, [1e-3], [0.1], [-200.0], [1.26e11]))
LAG = np.array([1.0, 0.02, 0.0, 0.0]).reshape(4, 1, 1)


def controller(inverse: np.ndarray, coupled: bool = True, lead: float = 0.0, **data: Any) -> DeviationController:
    return deviation_controller(
        state_space(inverse), from_data(FeedbackParams, data), coupled, DT, lead, "feedback"
    )


@pytest.mark.parametrize("q", [0.5, 14.0])
def test_the_regulator_of_a_lag_has_its_closed_form(q: float) -> None:
    """T x' = u - x: the least integral of q x^2 + u^2 has u = -(sqrt(1 + q) - 1) x, whatever T."""
    plant = state_space(LAG)
    gain = controller(LAG, displacement_weight=q).gain[0]
    assert gain[0] / plant.outputs[0, 0] == pytest.approx(np.sqrt(1.0 + q) - 1.0, rel=1e-9)
    # the disturbance that the observer finds is not fed back
    np.testing.assert_array_equal(gain[1:], 0.0)


def test_only_the_ratios_of_weights_and_of_noises_matter() -> None:
    one = controller(INVERSE)
    other = controller(
        INVERSE, displacement_weight=140.0, command_weight=10.0, process_noise=1.0, measurement_noise=1e-3
    )
    np.testing.assert_allclose(other.phi, one.phi, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.gain, one.gain, rtol=1e-6, atol=1e-9)


def responses(part: DeviationController, omega: float) -> np.ndarray:
    """Minus feedback over the deviation one sample before."""
    z = np.exp(1j * omega * DT)
    return part.gain @ np.linalg.solve(np.eye(len(part.phi)) - part.phi / z, part.gamma.astype(complex))


def test_axes_that_do_not_feel_each_other_have_the_same_feedback_alone() -> None:
    together, apart = (controller(diagonal(INVERSE), coupled=coupled) for coupled in (True, False))
    for omega in (5.0, 60.0, 400.0):
        np.testing.assert_allclose(responses(together, omega), responses(apart, omega), rtol=1e-5, atol=1e-7)


def test_feedback_without_coupling_acts_on_its_own_axis() -> None:
    found = responses(controller(INVERSE, coupled=False), 30.0)
    np.testing.assert_array_equal(found, np.diag(np.diag(found)))
    assert np.abs(responses(controller(INVERSE), 30.0))[0, 1] > 0.0


def test_deviations_decay_as_the_radius_tells() -> None:
    plant, part = state_space(INVERSE), controller(INVERSE, lead=2 * DT)
    radius = loop_radius(plant, part, DT, 2)
    rng = np.random.default_rng(1)
    state, line = rng.standard_normal(9), [np.zeros(3)] * 3
    feedback, norms, late = np.zeros(3), [], np.zeros(3)
    phi, before, now = transition(plant.system, plant.inputs, DT)
    known = observer_at_rest(part.constants)
    for _ in range(3000):
        feedback_step(part.constants, known, plant.outputs @ state, feedback)
        line = [*line[1:], feedback.copy()]  # what was sent two samples ago arrives now
        state = phi @ state + before @ late + now @ line[0]
        late = line[0]
        norms.append(float(np.linalg.norm(state)))
    slope = np.log(max(norms[2500:3000]) / max(norms[1500:2000])) / 1000.0
    assert np.exp(slope) == pytest.approx(radius, abs=1e-3)
    assert radius < 1.0


def test_the_sampled_loop_is_the_continuous_one_at_a_fast_rate() -> None:
    plant = state_space(INVERSE)
    dt = 1e-6
    part = deviation_controller(plant, FeedbackParams(), True, dt, 0.0, "feedback")
    system = (part.phi - np.eye(len(part.phi))) / dt
    inputs = part.gamma / dt
    loop = np.block([[plant.system, -plant.inputs @ part.gain], [inputs @ plant.outputs, system]])
    slowest = np.linalg.eigvals(loop).real.max()
    assert np.log(loop_radius(plant, part, dt, 0)) / dt == pytest.approx(slowest, rel=0.02)


def test_feedback_that_swings_up_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("feedback", "0.05 s")):
        controller(INVERSE, lead=0.05, displacement_weight=200.0)


def test_a_plant_that_no_command_reaches_has_no_feedback() -> None:
    deaf = StateSpace(np.array([[0.1, 0.0], [0.0, -1.0]]), np.array([[0.0], [1.0]]), np.array([[1.0, 1.0]]))
    with pytest.raises(ConfigError, match=naming("feedback", "feedback", "model")):
        deviation_controller(deaf, FeedbackParams(), True, DT, 0.0, "feedback")
