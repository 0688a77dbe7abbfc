# SPDX-License-Identifier: Apache-2.0
"""Tests of models of coupled actuators and of their inverses: state spaces, transfer matrices and poles agree."""

from __future__ import annotations

import numpy as np
import pytest
from coupled_rigs import poles, transfer_matrix
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.coupled_rig import CoupledModel, coupled_model, feedforward, force_input, state_space
from rths_nodes.mechanics.loading_model import (
    StateSpace,
    ahead,
    balanced,
    check,
    degrees,
    diagonal,
    inverse_response,
    is_singular,
)
from rths_nodes.mechanics.loading_model import state_space as inverse_state_space

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
S = np.array(POINTS[:4])
MIXED = np.zeros((4, 2, 2))
"""Coupled axes of third and first order."""
MIXED[:, 0, 0] = 1.0, 0.01, 1e-5, 1e-8
MIXED[:2, 0, 1] = 0.05, 1e-4
MIXED[0] += [[0.0, 0.0], [0.1, 1.0]]
MIXED[1] += [[0.0, 0.0], [2e-4, 0.02]]


@both
@pytest.mark.parametrize("s", POINTS)
def test_state_space_matches_block_transfer_matrix(model: CoupledModel, s: complex) -> None:
    system, inputs, outputs = state_space(model)
    response = outputs @ np.linalg.solve(s * np.eye(9) - system, inputs.astype(complex))
    displacement = transfer_matrix(model, s)
    force = (MASS * s**2 + DAMPING * s + STIFFNESS) @ displacement
    expected = [displacement, s * displacement, s**2 * displacement, force]
    for block, reference in zip(np.split(response, 4), expected, strict=True):
        assert np.abs(block - reference).max() < 1e-6 * np.abs(reference).max()


@both
@pytest.mark.parametrize("s", POINTS)
def test_feedforward_inverts_actuators(model: CoupledModel, s: complex) -> None:
    inverted = sum(coefficient * s**power for power, coefficient in enumerate(feedforward(model)))
    np.testing.assert_allclose(inverted @ transfer_matrix(model, s), np.eye(3), atol=1e-6)


def test_feedforward_rows_scale_with_their_actuator() -> None:
    """Eq. (2.8) as printed scales columns, which is wrong if actuators differ."""
    jerk = feedforward(UNEQUAL)[3]
    np.testing.assert_allclose(np.diag(jerk), 98.3 / (UNEQUAL.actuator_gain * UNEQUAL.servo_gain))
    stiffness = np.eye(3) - feedforward(UNEQUAL)[0]
    gains = -200.0 / (1.26e11 * 0.1), -150.0 / (0.8e11 * 0.15)
    assert stiffness[0, 1] / stiffness[1, 0] == pytest.approx(gains[0] / gains[1])
    equal = feedforward(EQUAL)
    np.testing.assert_allclose(equal, equal.transpose(0, 2, 1))


@both
def test_poles_close_the_loop_of_blocks(model: CoupledModel) -> None:
    assert poles(model).shape == (9,)
    assert (poles(model).real < 0.0).all()
    for pole in poles(model):
        specimen = np.linalg.inv(MASS * pole**2 + DAMPING * pole + STIFFNESS)
        forward = specimen @ np.diag(model.actuator_gain / (pole - model.actuator_pole))
        loop = np.eye(3) + forward @ np.diag(model.servo_gain + model.area * pole)
        smallest, largest = np.linalg.svd(loop, compute_uv=False)[[-1, 0]]
        assert smallest < 1e-6 * largest


@both
def test_feedforward_determinant_is_characteristic_polynomial(model: CoupledModel) -> None:
    """det G_FF is zero at the poles: second route by the companion form of the matrix polynomial."""
    c = feedforward(model)
    last = np.hstack([-np.linalg.solve(c[3], c[power]) for power in (0, 1, 2)])
    roots = np.linalg.eigvals(np.vstack([np.eye(6, 9, 3), last]))
    for pole in poles(model):
        assert np.abs(roots - pole).min() < 1e-6 * abs(pole)


def test_single_actuator_is_third_order_system() -> None:
    model = coupled_model([[98.3]], [[175.0]], [[12e5]], [1e-3], [0.1], [-200.0], [1.26e11])
    s = 2j * np.pi * 7.0
    polynomial = (98.3 * s**2 + 175.0 * s + 12e5) * (s + 200.0) + 1.26e11 * (0.1 + 1e-3 * s)
    assert transfer_matrix(model, s)[0, 0] == pytest.approx(1.26e11 * 0.1 / polynomial)


def test_actuators_couple_only_through_specimen() -> None:
    loose = coupled_model(MASS, np.diag(np.diag(DAMPING)), np.diag(np.diag(STIFFNESS)), *EQUAL[3:])
    g = transfer_matrix(loose, 30j)
    np.testing.assert_array_equal(g, np.diag(np.diag(g)))
    coupled = np.abs(transfer_matrix(EQUAL, 2j * np.pi * 20.0))
    assert coupled[0, 1] > 0.003 * coupled[0, 0]


def test_static_gain_includes_loop_stiffness() -> None:
    """Equilibrium at rest: f = K x and p f = k_a k_s (x - u), p due to leakage."""
    at_rest = np.linalg.inv(np.eye(3) + 200.0 / (1.26e11 * 0.1) * STIFFNESS)
    np.testing.assert_allclose(transfer_matrix(EQUAL, 0.0).real, at_rest, rtol=1e-9)


def test_device_force_opposes_specimen() -> None:
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
def test_inconsistent_constants_are_refused(change: dict[str, object], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        coupled_model(**(EQUAL._asdict() | change))  # type: ignore[arg-type]


@both
def test_inverse_of_feedforward_is_the_rig(model: CoupledModel) -> None:
    """Step 4 of section 3.1: nine states, as in the physical realization of Eq. (2.9)."""
    rig = inverse_state_space(feedforward(model))
    assert rig.system.shape == (9, 9)
    expected = [transfer_matrix(model, s) for s in S]
    np.testing.assert_allclose(rig.response(S), expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(rig.poles(), poles(model), rtol=1e-6)


def test_rows_may_differ_in_degree() -> None:
    np.testing.assert_array_equal(degrees(MIXED), [3, 1])
    model = inverse_state_space(MIXED)
    assert len(model.system) == 4
    identity = model.response(S) @ inverse_response(MIXED, S)
    np.testing.assert_allclose(identity, np.broadcast_to(np.eye(2), identity.shape), atol=1e-9)


def test_first_order_axis_is_a_lag() -> None:
    lag = inverse_state_space(np.array([1.0, 0.02, 0.0, 0.0]).reshape(4, 1, 1))
    assert lag.poles() == pytest.approx([-50.0])
    assert lag.response(np.array([50j]))[0, 0, 0] == pytest.approx(1.0 / (1.0 + 1j))


def test_balancing_preserves_response() -> None:
    model = StateSpace(np.array([[0.0, 1e9], [-1e-3, -2e2]]), np.array([[0.0], [1e-4]]), np.array([[3e-8, 0.0]]))
    result = balanced(model)
    np.testing.assert_allclose(result.response(S), model.response(S), rtol=1e-9)
    assert np.linalg.norm(result.system) < 1e-3 * np.linalg.norm(model.system)


def test_ahead_is_exact_for_cubic_motion() -> None:
    """Command for a later motion from the present derivatives."""
    rng = np.random.default_rng(3)
    coefficients = rng.standard_normal((4, 2, 2))
    motion = [np.polynomial.Polynomial(rng.standard_normal(4)) for _ in range(2)]

    def command(matrices: np.ndarray, time: float) -> np.ndarray:
        derivatives = [[axis.deriv(order)(time) for axis in motion] for order in range(4)]
        return np.einsum("pij,pj->i", matrices, derivatives)

    np.testing.assert_allclose(command(ahead(coefficients, 0.7), 0.2), command(coefficients, 0.9), rtol=1e-12)
    np.testing.assert_array_equal(ahead(coefficients, 0.0), coefficients)


def test_diagonal_drops_coupling_terms() -> None:
    uncoupled = diagonal(feedforward(UNEQUAL))
    assert np.count_nonzero(uncoupled) == 12
    np.testing.assert_array_equal(np.einsum("pii->pi", uncoupled), np.einsum("pii->pi", feedforward(UNEQUAL)))


def test_singularity_is_independent_of_row_units() -> None:
    assert not is_singular(np.array([[1.0, 0.5], [1e-15, 2e-15]]))
    assert is_singular(np.array([[1.0, 0.5], [2.0, 1.0]]))
    assert is_singular(np.zeros((1, 1)))


def changed(power: int, matrix: object) -> np.ndarray:
    coefficients = feedforward(EQUAL)
    coefficients[power] = matrix
    return coefficients


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        (changed(3, np.ones((3, 3))), ("x.jerk", "singular")),
        (changed(0, np.ones((3, 3))), ("x.displacement", "singular", "rest")),
        (changed(1, -feedforward(EQUAL)[1]), ("x", "pole", "negative")),
        (np.zeros((4, 2, 2)), ("x.displacement", "singular")),
    ],
)
def test_unusable_models_are_refused(coefficients: np.ndarray, message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        check(coefficients, "x")


def test_usable_models_are_accepted() -> None:
    for coefficients in (feedforward(EQUAL), feedforward(UNEQUAL), MIXED, np.eye(2)[None].repeat(1, axis=0)):
        check(coefficients, "x")
