# SPDX-License-Identifier: Apache-2.0
"""``lead``: every compensator reads its target ahead, and nothing else is added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.control.compensators.taylor_lead import with_lead
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.samples import Motion
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

DT, LEAD = 1.0 / 1024.0, 3.5 / 1024.0
TIMES = DT * np.arange(400)
READING = {
    "none": {},
    "inverse": {"alpha": 12.0},
    "adaptive_inverse": {"alpha_es": 12.0},
    "adaptive": {"compensator": {"type": "derivative_feedforward", "delay": 0.01}},
    "polynomial": {"delay": 0.01},
    "linear_acceleration": {"delay": 0.01},
    "derivative_feedforward": {"delay": 0.01, "order": 2},
    "adaptive_time_series": {"delay": 0.01},
    "discrete_model": {},
    "pi_lead": {},
    "chain": {"first": {"type": "inverse", "alpha": 12.0}, "second": {"type": "polynomial", "delay": 0.01}},
}
"""Compensators that read the whole target ahead before they do anything else."""


def cubic(times: np.ndarray) -> list[Motion]:
    t = times[:, None] * np.ones(2)
    x, v, a = 0.1 * t**3 + 0.02 * t**2, 0.3 * t**2 + 0.04 * t, 0.6 * t + 0.04
    return [Motion(*row) for row in zip(x, v, a, strict=True)]


SHOWING = Kernel(lambda params, dt: (), no_state, lambda k, s, x, v, a, *others: (s, (x, v, a)))
"""Its command is the target that it sees."""


def read_ahead(motions: list[Motion]) -> list[Motion]:
    """``motions`` as a compensator behind the lead sees them."""
    kernel, found = with_lead(SHOWING, LEAD), []
    k = kernel.constants(None, DT)
    states = [kernel.rest(k) for _ in range(2)]
    for motion in motions:
        seen = []
        for axis, target in enumerate(zip(motion.displacement, motion.velocity, motion.acceleration, strict=True)):
            states[axis], target = kernel.step(k, states[axis], *map(float, target), 0.0, 0.0, False, False)
            seen.append(target)
        found.append(Motion(*np.transpose(seen)))
    return found


def test_it_is_exact_on_cubics() -> None:
    found = read_ahead(cubic(TIMES))[1:]
    for motion, expected in zip(found, cubic(TIMES + LEAD)[1:], strict=True):
        np.testing.assert_allclose(motion.displacement, expected.displacement, rtol=1e-12)
        np.testing.assert_allclose(motion.velocity, expected.velocity, rtol=1e-9)
        np.testing.assert_allclose(motion.acceleration, expected.acceleration, rtol=1e-9)


def test_without_a_lead_there_is_nothing_in_front_of_the_kernel() -> None:
    assert with_lead(SHOWING, 0.0) is SHOWING


@pytest.mark.parametrize("name", READING)
def test_with_a_lead_it_answers_to_the_later_target(make: Callable[..., Any], name: str) -> None:
    """On a motion of third degree, from the second sample on; the first has no jerk yet."""
    plain, led = (make("compensator", name, DT, 2, **READING[name], lead=lead) for lead in (0.0, LEAD))
    for motion, later in zip(cubic(TIMES), read_ahead(cubic(TIMES)), strict=True):
        measured = 0.9 * motion.displacement
        motion.force = later.force = 1e3 * measured
        np.testing.assert_array_equal(led.step(motion, measured), plain.step(later, measured))


@pytest.mark.parametrize("name", [name for name in READING if name != "pi_lead"])
def test_its_response_is_turned_by_the_lead(make: Callable[..., Any], name: str) -> None:
    omega = 2.0 * np.pi * np.array([0.5, 2.0, 5.0])
    plain, led = (
        make("compensator", name, DT, 1, **READING[name], lead=lead).frequency_response(omega)
        for lead in (0.0, LEAD)
    )
    np.testing.assert_allclose(led / plain, np.exp(1j * omega * LEAD), atol=1e-5)


def test_all_that_could_read_ahead_do() -> None:
    """What adapts another one leaves it to that; commands that were computed before the test need none."""
    without = {
        name
        for name in registry.built_in("compensator")
        if "lead" not in set(registry.load("compensator", name).Params.__slots__)
    }
    assert without <= {"adaptive_inverse", "adaptive", "predefined"}


def test_only_a_model_that_leaves_the_transport_out_gets_it_added() -> None:
    """0.01 s of transport: a lead of zero reads nothing ahead."""
    changes = ["compensator.type=none", "port.transport_samples=10"]
    scenario = files.load("chen_ricles_2010", changes)
    compensator = Assembly(scenario).compensator
    motion = Motion(np.ones(1), np.ones(1), np.ones(1))
    np.testing.assert_array_equal(compensator.step(motion, np.zeros(1)), [1.0])
    led = files.load("phillips_spencer_2012", ["port.transport_samples=10"])
    assert Assembly(led).compensator.lead == pytest.approx(10 * led.dt)


def test_a_lead_within_an_adaptive_law_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("compensator.lead", "0.01 s")):
        make("compensator", "adaptive", DT, 1, compensator={"type": "inverse", "lead": 0.01})
