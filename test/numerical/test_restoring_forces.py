# SPDX-License-Identifier: Apache-2.0
"""Tests of restoring forces against closed forms and integration of high order."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import naming
from scipy.integrate import solve_ivp, trapezoid

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.numerical.structures.restoring_forces import BoucWen

YIELD = 0.010
STIFFNESS = 11.76e6
PAPER = {"stiffness": STIFFNESS, "yield_displacement": YIELD}
PAPER |= {"post_yield_ratio": 0.01, "beta": 0.55, "gamma": 0.45}


def follow(force: Any, path: np.ndarray) -> np.ndarray:
    return np.array([float(force.force(np.array([x]))[0]) for x in path])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_virgin_loading_is_a_hyperbolic_tangent_also_after_a_reset(sign: float) -> None:
    force = make("restoring_force", "bouc_wen", 1, **PAPER)
    x = sign * np.linspace(0.0, 5.0 * YIELD, 51)
    expected = 0.01 * STIFFNESS * x + 0.99 * STIFFNESS * YIELD * np.tanh(x / YIELD)
    first = follow(force, x)
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    force.reset()
    np.testing.assert_array_equal(follow(force, x), first)


def test_virgin_loading_with_exponent_one_is_an_exponential() -> None:
    force = make("restoring_force", "bouc_wen", 1, stiffness=1.0, yield_displacement=1.0, exponent=1.0)
    x = np.linspace(0.0, 4.0, 41)
    np.testing.assert_allclose(follow(force, x), 1.0 - np.exp(-x), rtol=1e-6)


def test_force_is_rate_independent() -> None:
    corners = np.array([0.0, 0.03, -0.02, 0.015, 0.0])
    coarse, fine = (make("restoring_force", "bouc_wen", 1, **PAPER) for _ in range(2))
    paths = [np.concatenate([np.linspace(a, b, n) for a, b in pairwise(corners)]) for n in (40, 400)]
    assert follow(coarse, paths[0])[-1] == pytest.approx(follow(fine, paths[1])[-1], rel=1e-4)


def test_initial_and_post_yield_stiffness() -> None:
    force = make("restoring_force", "bouc_wen", 1, **PAPER)
    assert force.initial_stiffness == STIFFNESS
    assert force.elastic_energy == pytest.approx(0.5 * STIFFNESS * YIELD**2)
    small = 1e-6
    assert follow(force, np.array([small]))[0] == pytest.approx(STIFFNESS * small, rel=1e-6)
    far = follow(force, np.linspace(0.0, 0.2, 200))
    assert (far[-1] - far[-2]) / (0.2 / 199) == pytest.approx(0.01 * STIFFNESS, rel=1e-3)


def test_closed_loop_dissipates_energy() -> None:
    force = make("restoring_force", "bouc_wen", 1, **PAPER)
    x = 0.03 * np.sin(np.linspace(0.0, 6.0 * np.pi, 3000))
    r = follow(force, x)
    loops = [trapezoid(r[a:b], x[a:b]) for a, b in ((1000, 2000), (2000, 3000))]
    assert loops[0] > 0.0
    assert loops[1] == pytest.approx(loops[0], rel=1e-2)


@pytest.mark.parametrize("move", [1.0, 1e3, 1e12])
@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 100.0])
def test_huge_step_reaches_force_limit(exponent: float, move: float) -> None:
    force = make("restoring_force", "bouc_wen", 1, **(PAPER | {"exponent": exponent}))
    for x in (move, -move):
        limit = 0.99 * STIFFNESS * YIELD
        assert force.force(np.array([x]))[0] == pytest.approx(0.01 * STIFFNESS * x + np.sign(x) * limit, rel=1e-9)


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("yields", [1e-6, 1e-5, 1e-3, 0.01])
def test_z_stays_within_its_limit(yields: float, exponent: float) -> None:
    """abs(z) <= (beta + gamma)^(-1/q); ten increments per step gave 1.94 times the limit at 1e-5 m."""
    random = np.random.default_rng(3)
    for beta, gamma in ((0.5, 0.5), (0.9, 0.1), (0.1, 0.9), (1.0, 1e-6), (0.2, 1.5)):
        data = {"stiffness": 1.0, "yield_displacement": yields, "exponent": exponent}
        force = make("restoring_force", "bouc_wen", 1, beta=beta, gamma=gamma, **data)
        largest = (beta + gamma) ** (-1.0 / exponent)
        for x in np.cumsum(random.normal(0.0, 3e-4, 300)):
            force.force(np.array([x]))
            assert abs(force.state[1]) <= largest * (1.0 + 1e-12)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 10.0])
def test_long_steps_agree_with_high_order_integration(exponent: float) -> None:
    yields = 1e-4
    data = {"stiffness": 1.0, "yield_displacement": yields, "beta": 0.55, "gamma": 0.45, "exponent": exponent}
    force = make("restoring_force", "bouc_wen", 1, **data)
    x = 0.003 * np.sin(np.linspace(0.0, 9.0, 120)) + 1e-4 * np.sin(np.linspace(0.0, 200.0, 120))
    z = 0.0
    for before, after in pairwise(x.tolist()):
        direction = after - before

        def slope(s: float, z: np.ndarray, direction: float = direction) -> np.ndarray:
            shape = np.sign(direction * z) * 0.45 + 0.55
            return np.asarray(direction / yields * (1.0 - shape * np.abs(z) ** exponent))

        z = solve_ivp(slope, (0.0, 1.0), [z], rtol=1e-10, atol=1e-12).y[0, -1]
        force.force(np.array([after]))
        assert force.state[1] == pytest.approx(z, abs=0.02)


def test_ideal_plastic_loop_has_closed_form_energy() -> None:
    """The law is bilinear for a large exponent: 4 F_y (X - x_y)."""
    yields, amplitude = 1e-4, 0.03
    data = {"stiffness": 1.0, "yield_displacement": yields, "exponent": 100.0}
    x = amplitude * np.sin(np.linspace(0.0, 4.0 * np.pi, 4001))
    r = follow(make("restoring_force", "bouc_wen", 1, **data), x)
    assert trapezoid(r[2000:], x[2000:]) == pytest.approx(4.0 * yields * (amplitude - yields), rel=2e-3)


def test_invalid_bouc_wen_shapes_are_refused() -> None:
    data = {"stiffness": 1.0, "yield_displacement": 1.0}
    with pytest.raises(ConfigError, match=r"force\.exponent = 101: must be >= 1 and <= 100"):
        from_data(BoucWen.Params, data | {"exponent": 101.0}, "force")
    with pytest.raises(ConfigError, match=r"force\.beta \+ gamma = 0: must be > 0"):
        from_data(BoucWen.Params, data | {"beta": 0.0, "gamma": 0.0}, "force")


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("restoring_force", "bouc_wen"),
        ("specimen", "softening_elastomeric"),
        ("specimen", "magnetorheological_damper"),
    ],
)
def test_zero_gamma_is_refused(family: str, name: str) -> None:
    """Without gamma, z would retrace its loading curve."""
    cls = registry.load(family, name).Params
    data = {"stiffness": 1.0, "yield_displacement": 1.0} if name == "bouc_wen" else {}
    with pytest.raises(ConfigError, match=naming("force.gamma", "unloads")):
        from_data(cls, data | {"beta": 1.0, "gamma": 0.0}, "force")


SHAPES: dict[str, dict[str, Any]] = {
    "bouc_wen": {"yield_displacement": 0.01},
    "bilinear": {"yield_force": 1e4},
    "elastic_plastic": {"yield_force": 1e4},
    "degrading_bouc_wen": {"yield_displacement": 0.01},
}


@pytest.mark.parametrize("name", SHAPES)
def test_laws_with_memory_require_one_degree_of_freedom(name: str) -> None:
    with pytest.raises(ConfigError, match=naming(name, "structure", "2")):
        make("restoring_force", name, 2, stiffness=1e6, **SHAPES[name])


@pytest.mark.parametrize("name", ["linear", *SHAPES])
def test_missing_stiffness_is_refused_without_structure(name: str) -> None:
    with pytest.raises(ConfigError, match=naming("restoring_force", name, "missing")):
        make("restoring_force", name, 1, **SHAPES.get(name, {}))


def test_linear_force() -> None:
    force = make("restoring_force", "linear", 2, stiffness=3.0)
    np.testing.assert_array_equal(force.force(np.array([2.0, -1.0])), [6.0, -3.0])


# Sharp yielding: closed forms hold to rounding, for any length of a step

ETA, FORCE = 0.1, STIFFNESS * YIELD


@pytest.mark.parametrize(("name", "ratio"), [("bilinear", ETA), ("elastic_plastic", 0.0)])
@pytest.mark.parametrize("parts", [1, 7, 400])
def test_sharp_yielding_cycle_has_closed_form_energy(name: str, ratio: float, parts: int) -> None:
    """Parallelogram with sides 2 (1 - eta) F_y and 2 (X - x_y), for one or many steps per branch."""
    extra = {"post_yield_ratio": ratio} if ratio else {}
    force = make("restoring_force", name, 1, stiffness=STIFFNESS, yield_force=FORCE, **extra)
    largest = 3.5 * YIELD
    corners = [0.0, largest, largest - 2.0 * YIELD, -largest, 2.0 * YIELD - largest, largest]
    path = np.concatenate([[0.0], *(np.linspace(a, b, parts + 1)[1:] for a, b in pairwise(corners))])
    loop = slice(parts, None)
    energy = trapezoid(follow(force, path)[loop], path[loop])
    assert energy == pytest.approx(4.0 * (1.0 - ratio) * FORCE * (largest - YIELD), rel=1e-12)


def test_bilinear_law_follows_masing_rule() -> None:
    """The branch after a reversal is the virgin curve at twice the size (Masing): kinematic hardening."""
    data = {"stiffness": STIFFNESS, "yield_force": FORCE, "post_yield_ratio": ETA}
    force = make("restoring_force", "bilinear", 1, **data)
    virgin = np.linspace(0.0, 4.0 * YIELD, 101)
    first = follow(force, virgin)
    bent = FORCE + ETA * STIFFNESS * (virgin - YIELD)
    np.testing.assert_allclose(first, np.where(virgin <= YIELD, STIFFNESS * virgin, bent), rtol=1e-12, atol=1e-6)
    back = follow(force, virgin[-1] - 2.0 * virgin)
    np.testing.assert_allclose(back, first[-1] - 2.0 * first, rtol=1e-12, atol=1e-6)


def test_bilinear_force_is_limit_of_sharp_bouc_wen() -> None:
    data = {"stiffness": STIFFNESS, "post_yield_ratio": ETA}
    sharp = make("restoring_force", "bouc_wen", 1, **data, yield_displacement=YIELD, exponent=100.0)
    bilinear = make("restoring_force", "bilinear", 1, **data, yield_force=FORCE)
    path = 0.04 * np.sin(np.linspace(0.0, 12.0, 3001)) * np.linspace(0.2, 1.0, 3001)
    np.testing.assert_allclose(follow(sharp, path), follow(bilinear, path), atol=0.02 * FORCE)
    assert bilinear.elastic_energy == pytest.approx(sharp.elastic_energy)


# Degradation

LOSSES = {"strength_degradation": 0.05, "stiffness_degradation": 0.08}
LOOPS = 0.03 * np.sin(np.linspace(0.0, 8.0 * np.pi, 2001))


def test_degrading_law_without_losses_is_bouc_wen() -> None:
    degrading, plain = (make("restoring_force", name, 1, **PAPER) for name in ("degrading_bouc_wen", "bouc_wen"))
    np.testing.assert_allclose(follow(degrading, LOOPS), follow(plain, LOOPS), rtol=1e-12, atol=1e-6)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 5.0])
def test_degradation_agrees_with_high_order_integration(exponent: float) -> None:
    """Rates of z and of the energy by Baber & Wen, integrated by ``solve_ivp``."""
    beta, gamma, d_nu, d_h = PAPER["beta"], PAPER["gamma"], *LOSSES.values()
    force = make("restoring_force", "degrading_bouc_wen", 1, **PAPER, **LOSSES, exponent=exponent)
    state = np.zeros(2)
    for before, after in pairwise(LOOPS[:1001:10].tolist()):
        move = (after - before) / YIELD

        def rates(s: float, state: np.ndarray, move: float = move) -> list[float]:
            z, e = state
            shape = np.sign(move * z) * gamma + beta
            return [move * (1.0 - (1.0 + d_nu * e) * shape * abs(z) ** exponent) / (1.0 + d_h * e), move * z]

        state = solve_ivp(rates, (0.0, 1.0), state, rtol=1e-10, atol=1e-12).y[:, -1]
        force.force(np.array([after]))
        assert force.state[1:] == pytest.approx(tuple(state), abs=2e-3)


def test_strength_and_stiffness_degrade_with_energy() -> None:
    """The limit of z is (nu (beta + gamma))^(-1/q); the slope after a reversal is k / h."""
    data = PAPER | {"post_yield_ratio": 0.0, "beta": 0.5, "gamma": 0.5}
    force = make("restoring_force", "degrading_bouc_wen", 1, **data, **LOSSES)
    energy = trapezoid(follow(force, LOOPS), LOOPS) / (STIFFNESS * YIELD**2)
    assert force.state[2] == pytest.approx(energy, rel=1e-3)
    assert energy > 10.0
    nu, h = 1.0 + LOSSES["strength_degradation"] * energy, 1.0 + LOSSES["stiffness_degradation"] * energy
    out = follow(force, np.array([0.05, 0.05 - 1e-6]))
    more = 0.05 / YIELD / math.sqrt(nu)  # bound on the energy of the move to 50 mm
    assert STIFFNESS * YIELD / math.sqrt(nu) > out[0] > STIFFNESS * YIELD / math.sqrt(nu + 0.05 * more)
    assert STIFFNESS / h > (out[0] - out[1]) / 1e-6 > STIFFNESS / (h + 0.08 * more)


@pytest.mark.parametrize("move", [1.0, 1e6, 1e12])
def test_huge_step_of_degrading_law_is_bounded(move: float) -> None:
    force = make("restoring_force", "degrading_bouc_wen", 1, **(PAPER | {"post_yield_ratio": 0.0}), **LOSSES)
    for x in (move, -move):
        assert 0.0 < np.sign(x) * force.force(np.array([x]))[0] < STIFFNESS * YIELD
