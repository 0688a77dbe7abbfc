# SPDX-License-Identifier: Apache-2.0
"""Inverse models: state space, poles and Taylor series by a second route; models of which nothing follows."""

from __future__ import annotations

import numpy as np
import pytest
from coupled_blocks import poles, transfer_matrix
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.models.coupled_rig import CoupledModel, coupled_model, feedforward
from rths_nodes.mechanics.models.inverse import (
    StateSpace,
    ahead,
    balanced,
    check,
    degrees,
    diagonal,
    inverse_response,
    is_singular,
    state_space,
)

MASS = (98.3 * np.eye(3)).tolist()
DAMPING = [[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]]
STIFFNESS = [[12.0e5, -6.84e5, 0.0], [-6.84e5, 13.7e5, -6.84e5], [0.0, -6.84e5, 6.84e5]]
EQUAL = coupled_model(MASS, DAMPING, STIFFNESS, [1e-3], [0.1], [-200.0], [1.26e11])
UNEQUAL = coupled_model(
    *(MASS, DAMPING, STIFFNESS, [1e-3, 2e-3, 0.7e-3]),
    *([0.1, 0.15, 0.06], [-200.0, -150.0, -260.0], [1.26e11, 0.8e11, 2e11]),
)
both = pytest.mark.parametrize("model", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
S = np.array([0.3j, 2j * np.pi * 5.0, 2j * np.pi * 60.0, 40.0 + 900.0j])

MIXED = np.zeros((4, 2, 2))
"""The first axis of third order, the second of first, each feeling the other."""
MIXED[:, 0, 0] = 1.0, 0.01, 1e-5, 1e-8
MIXED[:2, 0, 1] = 0.05, 1e-4
MIXED[0] += [[0.0, 0.0], [0.1, 1.0]]
MIXED[1] += [[0.0, 0.0], [2e-4, 0.02]]


@both
def test_the_inverse_of_the_inverse_is_the_rig(model: CoupledModel) -> None:
    """Step 4 of section 3.1: nine states, as many as the physical realization of Eq. (2.9)."""
    found = state_space(feedforward(model))
    assert found.system.shape == (9, 9)
    wanted = np.array([transfer_matrix(model, s) for s in S])
    np.testing.assert_allclose(found.response(S), wanted, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.poles(), poles(model), rtol=1e-6)


def test_rows_may_have_different_degrees() -> None:
    np.testing.assert_array_equal(degrees(MIXED), [3, 1])
    found = state_space(MIXED)
    assert len(found.system) == 4
    identity = found.response(S) @ inverse_response(MIXED, S)
    np.testing.assert_allclose(identity, np.broadcast_to(np.eye(2), identity.shape), atol=1e-9)


def test_one_axis_of_first_order_is_the_textbook_lag() -> None:
    lag = state_space(np.array([1.0, 0.02, 0.0, 0.0]).reshape(4, 1, 1))
    assert lag.poles() == pytest.approx([-50.0])
    assert lag.response(np.array([50j]))[0, 0, 0] == pytest.approx(1.0 / (1.0 + 1j))


def test_balancing_leaves_the_response_as_it_is() -> None:
    wild = StateSpace(np.array([[0.0, 1e9], [-1e-3, -2e2]]), np.array([[0.0], [1e-4]]), np.array([[3e-8, 0.0]]))
    even = balanced(wild)
    np.testing.assert_allclose(even.response(S), wild.response(S), rtol=1e-9)
    assert np.linalg.norm(even.system) < 1e-3 * np.linalg.norm(wild.system)


def test_ahead_is_exact_on_a_cubic() -> None:
    """Command for the motion of later from the derivatives of now."""
    rng = np.random.default_rng(3)
    coefficients = rng.standard_normal((4, 2, 2))
    motion = [np.polynomial.Polynomial(rng.standard_normal(4)) for _ in range(2)]

    def command(matrices: np.ndarray, time: float) -> np.ndarray:
        derivatives = [[axis.deriv(order)(time) for axis in motion] for order in range(4)]
        return np.einsum("pij,pj->i", matrices, derivatives)

    np.testing.assert_allclose(command(ahead(coefficients, 0.7), 0.2), command(coefficients, 0.9), rtol=1e-12)
    np.testing.assert_array_equal(ahead(coefficients, 0.0), coefficients)


def test_without_coupling_the_diagonal_remains() -> None:
    alone = diagonal(feedforward(UNEQUAL))
    assert np.count_nonzero(alone) == 12
    np.testing.assert_array_equal(np.einsum("pii->pi", alone), np.einsum("pii->pi", feedforward(UNEQUAL)))


def test_units_of_the_rows_do_not_make_a_matrix_singular() -> None:
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
        (
            changed(1, -feedforward(EQUAL)[1]),
            ("x", "pole", "negative"),
        ),
        (np.zeros((4, 2, 2)), ("x.displacement", "singular")),
    ],
)
def test_models_of_which_nothing_follows_are_refused(coefficients: np.ndarray, message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        check(coefficients, "x")


def test_known_models_pass() -> None:
    for coefficients in (feedforward(EQUAL), feedforward(UNEQUAL), MIXED, np.eye(2)[None].repeat(1, axis=0)):
        check(coefficients, "x")
