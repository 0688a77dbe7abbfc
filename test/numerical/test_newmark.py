# SPDX-License-Identifier: Apache-2.0
"""The implicit Newmark method where degrees of freedom have no mass; its order is tested with the others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.structure import combined, first_order, transition

Make = Callable[..., Any]
DT = 1e-3
FRAME = {
    "mass": [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]],
    "stiffness": [[900.0, -200.0, -300.0], [-200.0, 500.0, -100.0], [-300.0, -100.0, 700.0]],
    "influence": [1.0, 0.0, 1.0],
}
RAYLEIGH = {"type": "rayleigh", "ratios": [0.05, 0.05], "frequencies": [2.0, 4.0]}
UNDAMPED = {"type": "modal", "ratios": [0.0]}


def loads(steps: int) -> np.ndarray:
    t = DT * np.arange(steps + 1)
    return np.outer(50.0 * np.sin(9.0 * t) * np.minimum(t, 1.0), [1.0, 0.0, 1.0])


def exact(structure: Any, load: np.ndarray) -> np.ndarray:
    system, inputs, displacement = first_order(*combined(structure))
    phi, before, now = transition(system, inputs, DT)
    z = [np.zeros(len(system))]
    for p, q in pairwise(load):
        z.append(phi @ z[-1] + before @ p + now @ q)
    return np.array(z) @ displacement.T


@pytest.mark.parametrize("damping", [RAYLEIGH, UNDAMPED], ids=["rayleigh", "undamped"])
def test_it_follows_the_exact_response_without_mass(make: Make, damping: Any) -> None:
    structure = make("structure", "matrices", **FRAME, damping=damping)
    load = loads(3000)
    solver = make("integrator", "newmark", structure, load, DT)
    motion = []
    for _ in range(3000):
        solver.step(np.zeros(3))
        motion.append((solver.displacement.copy(), solver.velocity.copy(), solver.acceleration.copy()))
    x, v, a = (np.array(part) for part in zip(*motion, strict=True))
    true = exact(structure, load)[1:]
    assert np.abs(x - true).max() < 3e-4 * np.abs(true).max()  # its periods are longer by (w dt)^2 / 12
    # rates that ring would be far from the slopes of the displacement
    for rate, of in ((v, x), (a, v)):
        slope = np.gradient(of, DT, axis=0)[200:-1]
        np.testing.assert_allclose(rate[200:-1], slope, atol=0.02 * np.abs(slope).max())


def test_a_force_at_a_degree_of_freedom_without_mass_moves_it_as_a_spring(make: Make) -> None:
    structure = make("structure", "matrices", **FRAME, damping=RAYLEIGH)
    solver = make("integrator", "newmark", structure, np.zeros((20001, 3)), DT)
    force = np.array([0.0, -7.0, 0.0])
    for _ in range(20000):
        solver.step(force)
    np.testing.assert_allclose(solver.displacement, -np.linalg.solve(FRAME["stiffness"], force), rtol=1e-5)


def test_other_integrators_refuse_what_has_no_mass(make: Make) -> None:
    structure = make("structure", "matrices", **FRAME, damping=RAYLEIGH)
    for name in ("explicit_newmark", "cr", "exact", "hht_alpha"):
        with pytest.raises(ConfigError, match=naming("must have mass", "2", "newmark")):
            make("integrator", name, structure, np.zeros((9, 3)), DT)


def test_a_part_under_test_that_outweighs_the_rest_is_refused(make: Make) -> None:
    """Its measured inertia is a step late."""
    heavy = {"experimental_at": [1], "experimental_mass": [[2.0]]}
    structure = make("structure", "matrices", **FRAME, **heavy, damping=RAYLEIGH)
    with pytest.raises(ConfigError, match=naming("newmark", "stability")):
        make("integrator", "newmark", structure, np.zeros((9, 3)), DT)


def test_experimental_matrices_stand_at_their_degrees_of_freedom(make: Make) -> None:
    structure = make(
        "structure",
        "matrices",
        **FRAME,
        damping=RAYLEIGH,
        experimental_at=[3, 1],
        experimental_stiffness=[[10.0, -2.0], [-2.0, 20.0]],
    )
    np.testing.assert_array_equal(
        structure.experimental_stiffness, [[20.0, 0.0, -2.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 10.0]]
    )
    np.testing.assert_array_equal(
        structure.stiffness, np.array(FRAME["stiffness"]) - structure.experimental_stiffness
    )


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ([1, 4], ("experimental_at", "numbers", "1", "3")),
        ([1, 1], ("experimental_at", "numbers", "1", "3")),
        ([1], ("experimental_stiffness", "symmetric", "1", "experimental_at")),
    ],
)
def test_places_that_do_not_fit_are_refused(make: Make, at: list[int], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        make(
            "structure",
            "matrices",
            **FRAME,
            experimental_at=at,
            experimental_stiffness=[[10.0, -2.0], [-2.0, 20.0]],
        )
