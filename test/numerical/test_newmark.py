# SPDX-License-Identifier: Apache-2.0
"""Tests of the implicit Newmark method with massless degrees of freedom; test_integrators.py tests its order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.structure import combined, first_order, transition

DT = 1e-3
FRAME = {
    "mass": [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]],
    "stiffness": [[900.0, -200.0, -300.0], [-200.0, 500.0, -100.0], [-300.0, -100.0, 700.0]],
    "influence": [1.0, 0.0, 1.0],
}
RAYLEIGH = {"type": "rayleigh", "ratios": [0.05, 0.05], "frequencies": [2.0, 4.0]}
TESTED = {"experimental_stiffness": [[10.0, -2.0], [-2.0, 20.0]]}
UNDAMPED = {"type": "modal", "ratios": [0.0]}


def exact(structure: Any, load: np.ndarray) -> np.ndarray:
    system, inputs, displacement = first_order(*combined(structure))
    phi, before, now = transition(system, inputs, DT)
    z = [np.zeros(len(system))]
    for p, q in pairwise(load):
        z.append(phi @ z[-1] + before @ p + now @ q)
    return np.array(z) @ displacement.T


@pytest.mark.parametrize("damping", [RAYLEIGH, UNDAMPED], ids=["rayleigh", "undamped"])
def test_massless_response_matches_exact_solution(damping: Any) -> None:
    structure = make("structure", "matrices", **FRAME, damping=damping)
    t = DT * np.arange(3001)
    load = np.outer(50.0 * np.sin(9.0 * t) * np.minimum(t, 1.0), [1.0, 0.0, 1.0])
    solver = make("integrator", "newmark", structure, load, DT)
    motion = []
    for _ in range(3000):
        solver.step(np.zeros(3))
        motion.append((solver.displacement.copy(), solver.velocity.copy(), solver.acceleration.copy()))
    x, v, a = (np.array(part) for part in zip(*motion, strict=True))
    true = exact(structure, load)[1:]
    assert np.abs(x - true).max() < 3e-4 * np.abs(true).max()  # period error (w dt)^2 / 12
    # no ringing: rates agree with the slopes
    for rate, values in ((v, x), (a, v)):
        slope = np.gradient(values, DT, axis=0)[200:-1]
        np.testing.assert_allclose(rate[200:-1], slope, atol=0.02 * np.abs(slope).max())


def test_force_on_massless_degree_of_freedom_gives_static_displacement() -> None:
    structure = make("structure", "matrices", **FRAME, damping=RAYLEIGH)
    solver = make("integrator", "newmark", structure, np.zeros((20001, 3)), DT)
    force = np.array([0.0, -7.0, 0.0])
    for _ in range(20000):
        solver.step(force)
    np.testing.assert_allclose(solver.displacement, -np.linalg.solve(FRAME["stiffness"], force), rtol=1e-5)


def test_other_integrators_refuse_massless_degrees_of_freedom() -> None:
    structure = make("structure", "matrices", **FRAME, damping=RAYLEIGH)
    for name in ("explicit_newmark", "cr", "exact", "hht_alpha"):
        with pytest.raises(ConfigError, match=naming("must have mass", "2", "newmark")):
            make("integrator", name, structure, np.zeros((9, 3)), DT)


def test_heavier_experimental_mass_is_refused() -> None:
    """The measured inertia force is a step late."""
    heavy = {"experimental_at": [1], "experimental_mass": [[2.0]]}
    structure = make("structure", "matrices", **FRAME, **heavy, damping=RAYLEIGH)
    with pytest.raises(ConfigError, match=naming("newmark", "stability")):
        make("integrator", "newmark", structure, np.zeros((9, 3)), DT)


def test_experimental_matrices_are_placed_at_stated_degrees() -> None:
    structure = make("structure", "matrices", **FRAME, **TESTED, damping=RAYLEIGH, experimental_at=[3, 1])
    expected = [[20.0, 0.0, -2.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 10.0]]
    np.testing.assert_array_equal(structure.experimental_stiffness, expected)
    np.testing.assert_array_equal(structure.stiffness, np.subtract(FRAME["stiffness"], expected))


@pytest.mark.parametrize(
    ("at", "parts"),
    [
        ([1, 4], ("experimental_at", "numbers", "1", "3")),
        ([1, 1], ("experimental_at", "numbers", "1", "3")),
        ([1], ("experimental_stiffness", "symmetric", "1", "experimental_at")),
    ],
)
def test_invalid_experimental_places_are_refused(at: list[int], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        make("structure", "matrices", **FRAME, **TESTED, experimental_at=at)
