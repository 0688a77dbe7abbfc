# SPDX-License-Identifier: Apache-2.0
"""PI control behind a phase lead: Tustin's rule, its gains, and nothing at rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import signal

from rths_nodes.core.samples import Motion

DT = 1.0 / 4096.0
LEAD_TIME, LAG_TIME = 50.83163360273612 / 8570.397339444286, 1.0 / 8570.397339444286


def commands(law: Any, target: np.ndarray, measured: np.ndarray) -> np.ndarray:
    found = []
    for y, m in zip(target, measured, strict=True):
        goal = Motion(np.array([y]), np.zeros(1), np.zeros(1))
        found.append(float(law.step(goal, np.array([m]))[0]))
    return np.array(found)


def tustin(numerator: tuple[float, ...], denominator: tuple[float, ...], values: np.ndarray) -> np.ndarray:
    b, a, _ = signal.cont2discrete((numerator, denominator), DT, "bilinear")
    return np.asarray(signal.lfilter(b.ravel(), a, values))


def test_it_is_the_published_controller(make: Callable[..., Any]) -> None:
    """By scipy: lead and PI of the benchmark's code; target and measurement are of one sample, the last."""
    generator = np.random.default_rng(3)
    target, measured = generator.normal(size=(2, 500)) * 1e-3
    led = tustin((50.83163360273612, 8570.397339444286), (1.0, 8570.397339444286), target)
    error = np.append(0.0, led[:-1]) - measured
    expected = tustin((2.0, 95.0), (1.0, 0.0), error)
    found = commands(make("compensator", "pi_lead", DT, 1), target, measured)
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_its_state_is_the_integral_part(make: Callable[..., Any]) -> None:
    law = make("compensator", "pi_lead", DT, 1, proportional=0.0)
    found = commands(law, np.full(100, 1e-3), np.zeros(100))
    assert law.state() == [found[-1]]
    assert found[-1] > 0.0
