# SPDX-License-Identifier: Apache-2.0
"""Specimens side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes.laboratory.actuators.unloaded import SpecimenPath

SPRING = {"type": "kelvin_voigt", "stiffness": 3.0e6, "damping": 0.0}
DAMPER = {"type": "maxwell_damper"}
ELASTOMER = {"type": "softening_elastomeric"}
DT = 1.0 / 1024.0


def forces(specimen: Any) -> np.ndarray:
    path = SpecimenPath(specimen, DT)
    times = DT * np.arange(1, 1500)
    x = 0.02 * np.sin(9.0 * times) * np.sin(0.7 * times)
    return np.array([path.move(*pair) for pair in zip(x, np.gradient(x, DT), strict=True)])


@pytest.mark.parametrize(("first", "second"), [(SPRING, ELASTOMER), (ELASTOMER, DAMPER), (DAMPER, SPRING)])
def test_the_force_is_the_sum(make: Callable[..., Any], first: dict[str, Any], second: dict[str, Any]) -> None:
    both = make("specimen", "parallel", first=first, second=second)
    alone = [
        make("specimen", data["type"], **{k: v for k, v in data.items() if k != "type"})
        for data in (first, second)
    ]
    np.testing.assert_allclose(forces(both), forces(alone[0]) + forces(alone[1]), rtol=1e-12, atol=1e-6)


def test_three_stand_side_by_side(make: Callable[..., Any]) -> None:
    inner = {"type": "parallel", "first": ELASTOMER, "second": SPRING}
    three = make("specimen", "parallel", first=SPRING, second=inner)
    two = make("specimen", "parallel", first={**SPRING, "stiffness": 6.0e6}, second=ELASTOMER)
    np.testing.assert_allclose(forces(three), forces(two), rtol=1e-12)
