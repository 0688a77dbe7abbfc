# SPDX-License-Identifier: Apache-2.0
"""Coupled actuators: state space, transfer matrix of the blocks and inverse tell the same story."""

from __future__ import annotations

import numpy as np
import pytest
from coupled_blocks import poles, transfer_matrix
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.models.coupled_rig import (
    CoupledModel,
    coupled_model,
    feedforward,
    force_input,
    state_space,
)

MASS = 98.3 * np.eye(3)
DAMPING = np.array([[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]])
STIFFNESS = 1e5 * np.array([[12.0, -6.84, 0.0], [-6.84, 13.7, -6.84], [0.0, -6.84, 6.84]])
SPECIMEN = (MASS, DAMPING, STIFFNESS)

EQUAL = coupled_model(*SPECIMEN, [1e-3], [0.1], [-200.0], [1.26e11])
UNEQUAL = coupled_model(
    *SPECIMEN, [1e-3, 2e-3, 0.7e-3], [0.1, 0.15, 0.06], [-200.0, -150.0, -260.0], [1.26e11, 0.8e11, 2e11]
)
both = pytest.mark.parametrize("model", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
POINTS = [0.3j, 2j * np.pi * 5.0, 2j * np.pi * 60.0, 40.0 + 900.0j, -35.0 + 10.0j]


@both
@pytest.mark.parametrize("s", POINTS)
def test_the_state_space_has_the_transfer_matrix_of_the_blocks(model: CoupledModel, s: complex) -> None:
    system, inputs, outputs = state_space(model)
    response = outputs @ np.linalg.solve(s * np.eye(9) - system, inputs.astype(complex))
    displacement = transfer_matrix(model, s)
    force = (MASS * s**2 + DAMPING * s + STIFFNESS) @ displacement
    expected = [displacement, s * displacement, s**2 * displacement, force]
    for found, wanted in zip(np.split(response, 4), expected, strict=True):
        assert np.abs(found - wanted).max() < 1e-6 * np.abs(wanted).max()


@both
@pytest.mark.parametrize("s", POINTS)
def test_the_feedforward_undoes_the_actuators(model: CoupledModel, s: complex) -> None:
    inverse = sum(coefficient * s**power for power, coefficient in enumerate(feedforward(model)))
    np.testing.assert_allclose(inverse @ transfer_matrix(model, s), np.eye(3), atol=1e-6)


def test_rows_are_scaled_with_the_actuator_that_pushes_there() -> None:
    """Eq. (2.8) as printed scales columns, which is another inverse when actuators differ."""
    jerk = feedforward(UNEQUAL)[3]
    np.testing.assert_allclose(np.diag(jerk), 98.3 / (UNEQUAL.actuator_gain * UNEQUAL.servo_gain))
    stiffness = np.eye(3) - feedforward(UNEQUAL)[0]
    assert stiffness[0, 1] / stiffness[1, 0] == pytest.approx(
        (-200.0 / (1.26e11 * 0.1)) / (-150.0 / (0.8e11 * 0.15))
    )
    equal = feedforward(EQUAL)
    np.testing.assert_allclose(equal, equal.transpose(0, 2, 1))


@both
def test_poles_are_where_the_loop_of_the_blocks_closes(model: CoupledModel) -> None:
    found = poles(model)
    assert found.shape == (9,)
    assert (found.real < 0.0).all()
    for pole in found:
        specimen = np.linalg.inv(MASS * pole**2 + DAMPING * pole + STIFFNESS)
        forward = specimen @ np.diag(model.actuator_gain / (pole - model.actuator_pole))
        loop = np.eye(3) + forward @ np.diag(model.servo_gain + model.area * pole)
        smallest, largest = np.linalg.svd(loop, compute_uv=False)[[-1, 0]]
        assert smallest < 1e-6 * largest


@both
def test_the_characteristic_polynomial_is_that_of_the_feedforward(model: CoupledModel) -> None:
    """det G_FF is zero at the poles: a second route, over the companion form of the matrix polynomial."""
    c = feedforward(model)
    zero, one = np.zeros((3, 3)), np.eye(3)
    last = np.hstack([-np.linalg.solve(c[3], c[power]) for power in (0, 1, 2)])
    companion = np.vstack([np.hstack([zero, one, zero]), np.hstack([zero, zero, one]), last])
    found = np.linalg.eigvals(companion)
    for pole in poles(model):
        assert np.abs(found - pole).min() < 1e-6 * abs(pole)


def test_one_actuator_alone_is_the_textbook_third_order_system() -> None:
    model = coupled_model([[98.3]], [[175.0]], [[12e5]], [1e-3], [0.1], [-200.0], [1.26e11])
    s = 2j * np.pi * 7.0
    polynomial = (98.3 * s**2 + 175.0 * s + 12e5) * (s + 200.0) + 1.26e11 * (0.1 + 1e-3 * s)
    assert transfer_matrix(model, s)[0, 0] == pytest.approx(1.26e11 * 0.1 / polynomial)


def test_the_actuators_are_coupled_through_the_specimen_alone() -> None:
    loose = coupled_model(MASS, np.diag(np.diag(DAMPING)), np.diag(np.diag(STIFFNESS)), *EQUAL[3:])
    g = transfer_matrix(loose, 30j)
    np.testing.assert_array_equal(g, np.diag(np.diag(g)))
    coupled = np.abs(transfer_matrix(EQUAL, 2j * np.pi * 20.0))
    assert coupled[0, 1] > 0.003 * coupled[0, 0]


def test_a_steady_command_is_reached_up_to_the_stiffness_of_the_loop() -> None:
    """At rest f = K x and p f = k_a k_s (x - u): the leakage lets the specimen push back a little."""
    at_rest = np.linalg.inv(np.eye(3) + 200.0 / (1.26e11 * 0.1) * STIFFNESS)
    np.testing.assert_allclose(transfer_matrix(EQUAL, 0.0).real, at_rest, rtol=1e-9)


def test_the_force_of_a_device_pushes_the_specimen_back() -> None:
    column = force_input(EQUAL, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(column, [0, 0, 0, -1.0 / 98.3, 0, 0, 0, 0, 0])
    between_floors = force_input(EQUAL, [-1.0, 1.0, 0.0])
    assert between_floors[3] == -between_floors[4] > 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": np.diag([1.0, 1.0, 0.0])}, ("rig.mass", "positive", "definite")),
        ({"damping": DAMPING[:2, :2]}, ("rig.damping", "symmetric", "3", "rows")),
        ({"stiffness": -STIFFNESS}, ("rig.stiffness", ">= 0")),
        ({"stiffness": np.triu(STIFFNESS)}, ("rig.stiffness", "symmetric")),
        ({"area": [1e-3, 2e-3]}, ("rig.area", "(0.001, 0.002)", "1", "3")),
    ],
)
def test_constants_that_do_not_fit_are_refused(change: dict[str, object], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        coupled_model(**(EQUAL._asdict() | change))  # type: ignore[arg-type]
