# SPDX-License-Identifier: Apache-2.0
"""Tests of integrator kernels for several degrees of freedom: plain and compiled results agree bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from driven_kernels import BY_MATRICES, LAW, SAMPLES, agree, functions_of, numbers, of_integrator, same, wrong_in
from minimal_components import data_of

from rths_nodes.core import registry
from rths_nodes.core.kernels import Kernel, copied
from rths_nodes.core.validation import from_data
from rths_nodes.numerical.observation import energies
from rths_nodes.numerical.vectors import SEVERAL

Make = Callable[..., Any]
FRAME = {"masses": [1e3, 9e2, 8e2], "stiffnesses": [1e6, 9e5, 8e5]}
LAWS = {"story_1": LAW, "story_3": {"type": "bilinear", "yield_force": 4e3, "post_yield_ratio": 0.1}}
YIELDING = ("central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha", "runge_kutta")


def of_frame(make: Make, name: str, **more: Any) -> tuple[Kernel, Any, Any]:
    cls = registry.load("integrator", name)
    params = from_data(cls.Params, data_of("integrator", name), "integrator")
    frame = make("structure", "shear_frame", **FRAME, **more)
    return of_integrator(cls, params, np.random.default_rng(5), True, frame)


@pytest.mark.parametrize("name", YIELDING)
def test_plain_and_compiled_yielding_frames_agree(make: Make, name: str) -> None:
    agree(*of_frame(make, name, restoring_forces=LAWS))


@pytest.mark.parametrize("name", BY_MATRICES)
def test_plain_and_compiled_linear_frames_agree(make: Make, name: str) -> None:
    kernel, constants, rows = of_frame(make, name)
    if name != "newmark":  # the other kernels take scalars for few degrees of freedom
        rows = [(tuple(measured.tolist()), *rest) for measured, *rest in rows]
    agree(kernel, constants, rows)


@pytest.mark.parametrize("name", [*YIELDING, *BY_MATRICES])
def test_copied_state_is_independent(make: Make, name: str) -> None:
    kernel, constants, rows = of_frame(make, name, restoring_forces=LAWS if name in YIELDING else {})
    state = copied(kernel.rest(constants))
    twin, before = copied(state), copied(state)
    with np.errstate(all="ignore"):
        for inputs in rows[:20]:
            twin, _ = kernel.step(constants, twin, *inputs)
    assert same(state, before)
    assert not same(twin, before)


def test_plain_and_compiled_energies_agree(make: Make) -> None:
    structure, rng = make("structure", "shear_frame", **FRAME), np.random.default_rng(2)
    values = numbers(rng, 1.0, True)
    rows = [
        (*(np.array([next(values) for _ in range(3)]) for _ in range(4)), sample == 0) for sample in range(SAMPLES)
    ]
    constants = SEVERAL.operand(structure.mass), SEVERAL.operand(structure.damping)
    step = energies(SEVERAL.product)
    agree(Kernel(lambda: None, lambda k: (np.zeros((3, 3)), np.zeros(3), 0.0, 0.0, 0.0), step), constants, rows)
    assert {name: fault for name in functions_of(step, {}).values() if (fault := wrong_in(name))} == {}
