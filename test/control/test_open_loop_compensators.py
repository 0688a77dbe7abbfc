# SPDX-License-Identifier: Apache-2.0
"""Compensators that use the target's derivatives: exactness, what stands in front of them, identities."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from doubts import doubts
from messages import mentions

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import replace

DT, DELAY = 1.0 / 1024.0, 0.0137
NOTHING = np.zeros(1)


def curve_motions(curve: np.polynomial.Polynomial, times: np.ndarray) -> list[Motion]:
    """Motions along a polynomial of time, with its own derivatives."""
    parts = [curve, curve.deriv(), curve.deriv(2)]
    return [Motion(*(np.array([part(t)]) for part in parts)) for t in times]


def ramp_motions(make: Callable[..., Any], ramp: str, substeps: int, targets: np.ndarray) -> list[Motion]:
    """Motions of a ramp through ``targets``, which begin with the start at rest."""
    generator = make("ramp", ramp, DT, substeps, 1)
    found = []
    for step, x in enumerate(targets.tolist()):
        target = Target(step, np.array([x]), NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)
        if step == 0:
            generator.start(target)
            continue
        generator.follow(target)
        found += [generator.step(substep) for substep in range(1, substeps + 1)]
    return found


def commands(compensator: Any, motions: list[Motion]) -> np.ndarray:
    return np.array([compensator.step(motion, NOTHING)[0] for motion in motions])


CUBIC = np.polynomial.Polynomial([0.01, -0.3, 2.0, 5.0])
QUADRATIC = np.polynomial.Polynomial([0.01, -0.3, 2.0])
LINEAR = np.polynomial.Polynomial([0.01, -0.3])
TIMES = DT * np.arange(1, 101)


# Exactness


@pytest.mark.parametrize("spacing", [1, 2, 10, 40])
def test_linear_acceleration_is_exact_on_cubics(make: Callable[..., Any], spacing: int) -> None:
    compensator = make("compensator", "linear_acceleration", DT, 1, delay=DELAY, spacing=spacing)
    sent = commands(compensator, curve_motions(CUBIC, TIMES))[spacing:]
    np.testing.assert_allclose(sent, CUBIC(TIMES + DELAY)[spacing:], rtol=1e-12)


@pytest.mark.parametrize(("order", "curve"), [(1, LINEAR), (2, QUADRATIC)])
def test_derivative_feedforward_is_exact_to_its_order(
    make: Callable[..., Any], order: int, curve: np.polynomial.Polynomial
) -> None:
    compensator = make("compensator", "derivative_feedforward", DT, 1, delay=DELAY, order=order)
    sent = commands(compensator, curve_motions(curve, TIMES))
    np.testing.assert_allclose(sent, curve(TIMES + DELAY), rtol=1e-13)


def test_one_order_more_leaves_the_next_term_of_the_series(make: Callable[..., Any]) -> None:
    """On a cubic, what is missing is delay^2 a / 2 + delay^3 jerk / 6, and delay^3 jerk / 6."""
    motions = curve_motions(CUBIC, TIMES)
    jerk = 6.0 * CUBIC.coef[3]
    acceleration = CUBIC.deriv(2)(TIMES)
    missing = [
        CUBIC(TIMES + DELAY)
        - commands(make("compensator", "derivative_feedforward", DT, 1, delay=DELAY, order=order), motions)
        for order in (1, 2)
    ]
    np.testing.assert_allclose(missing[0], DELAY**2 * acceleration / 2.0 + DELAY**3 * jerk / 6.0, rtol=1e-9)
    np.testing.assert_allclose(missing[1], DELAY**3 * jerk / 6.0, rtol=1e-8)


def test_order_1_inverts_a_first_order_lag(make: Callable[..., Any]) -> None:
    """1 + j w tau against 1 / (1 + j w tau), as a gain of the compensator on a sine."""
    w = 2.0 * math.pi * 3.0
    compensator = make("compensator", "derivative_feedforward", DT, 2, delay=DELAY, order=1)
    z = np.exp(1j * w * 0.2)
    parts = [np.array([(f * z).real, (f * z).imag]) for f in (1.0, 1j * w, -(w**2))]
    command = compensator.step(Motion(*parts), np.zeros(2))
    late = complex(*command.tolist()) / (1.0 + 1j * w * DELAY)
    assert late == pytest.approx(z, abs=1e-14)


# Behind a ramp


@pytest.mark.parametrize(("ramp", "order"), [("linear", 1), ("quadratic", 2)])
@pytest.mark.parametrize("samples", [0.4, 1.0])
def test_behind_its_ramp_it_is_the_polynomial_of_the_same_order(
    make: Callable[..., Any], ramp: str, order: int, samples: float
) -> None:
    """A step a sample: the ramp's own curve goes through the same points as the extrapolation."""
    targets = np.concatenate(([0.0], np.random.default_rng(3).normal(size=50).cumsum()))
    motions = ramp_motions(make, ramp, 1, targets)
    delay = samples * DT
    series = make("compensator", "derivative_feedforward", DT, 1, delay=delay, order=order)
    polynomial = make("compensator", "polynomial", DT, 1, delay=delay, order=order, spacing=1)
    np.testing.assert_allclose(commands(series, motions), commands(polynomial, motions), rtol=1e-9, atol=1e-12)


def test_the_acceleration_is_differenced_over_a_step_of_the_ramp(make: Callable[..., Any]) -> None:
    """Over one sample the difference is a spike once in a step, and the command jumps three times as far."""
    substeps = 10
    steps = DT * substeps * np.arange(60)
    motions = ramp_motions(make, "quadratic", substeps, 5.0 * steps**3)
    exact = 5.0 * (DT * np.arange(1, len(motions) + 1) + DELAY) ** 3

    def worst(spacing: int) -> float:
        compensator = make("compensator", "linear_acceleration", DT, 1, delay=DELAY, spacing=spacing)
        error = commands(compensator, motions) - exact
        return float(np.abs(np.diff(error[5 * substeps :])).max())

    assert worst(1) > 3.0 * worst(substeps)


def test_the_acceleration_at_the_start_is_no_jump(make: Callable[..., Any]) -> None:
    """A test starts with the acceleration of the first ground motion; it was not zero one sample before."""
    constant = Motion(np.array([0.1]), np.array([0.2]), np.array([3.0]))
    compensator = make("compensator", "linear_acceleration", DT, 1, delay=DELAY, spacing=4)
    expected = 0.1 + 0.2 * DELAY + 1.5 * DELAY**2
    np.testing.assert_allclose(commands(compensator, [constant] * 10), expected, rtol=1e-15)


# The delay may be adapted


@pytest.mark.parametrize("name", ["linear_acceleration", "derivative_feedforward"])
def test_its_kernel_takes_any_delay(name: str) -> None:
    cls = registry.load("compensator", name)
    _, constants, rest, led = cls.ADAPTABLE
    k = constants(cls.Params(delay=DELAY), DT)
    for delay in (DELAY, 2.0 * DELAY):
        assert led(k, rest(k), delay, 0.1, 0.5, 0.0)[1] == pytest.approx(0.1 + 0.5 * delay, rel=1e-15)


# Parameters


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("linear_acceleration", {"delay": -1e-3}),
        ("linear_acceleration", {"spacing": 0}),
        ("derivative_feedforward", {"order": 0}),
        ("derivative_feedforward", {"order": 3}),
    ],
)
def test_parameters_out_of_bounds_are_refused(make: Callable[..., Any], name: str, wrong: dict[str, Any]) -> None:
    key = next(iter(wrong))
    with pytest.raises(ConfigError, match=rf"compensator\.{key} = "):
        make("compensator", name, DT, 1, **({"delay": DELAY} | wrong))


def seen(ramp: str, behind: bool = False) -> Any:
    """As much of a test as warnings look at."""
    return SimpleNamespace(ramp=ramp, samples_per_step=10, behind=behind)


def params(name: str, **data: Any) -> Any:
    return from_data(registry.load("compensator", name).Params, {"delay": DELAY} | data, "compensator")


@pytest.mark.parametrize(
    ("own", "ramp", "words"),
    [
        (params("linear_acceleration", spacing=10), "linear", ("linear", "ramp")),
        (params("linear_acceleration", spacing=10), "quadratic", ()),
        (params("linear_acceleration"), "quadratic", ("changes", "10")),
        (params("derivative_feedforward"), "linear", ()),
        (params("derivative_feedforward", order=2), "linear", ("linear", "ramp")),
        (params("derivative_feedforward", order=2), "quadratic", ()),
        (params("adaptive_time_series"), "linear", ("linear", "ramp")),
    ],
)
def test_it_warns_of_a_ramp_that_does_not_fit(own: Any, ramp: str, words: tuple[str, ...]) -> None:
    cautions = own.cautions(seen(ramp))
    assert bool(cautions) == bool(words)
    assert all(mentions(caution, *words) for caution in cautions)
    assert own.spans()["delay"] == DELAY


def test_behind_another_compensator_the_ramp_does_not_matter() -> None:
    own = params("linear_acceleration")
    assert not own.cautions(seen("linear", behind=True))
    assert not own.cautions(seen("quadratic", behind=True))


OWN, OTHER = {"type": "linear_acceleration", "delay": DELAY}, {"type": "polynomial", "delay": DELAY}


def chain(first: Any, second: Any) -> dict[str, Any]:
    return {"type": "chain", "first": first, "second": second}


@pytest.mark.parametrize(
    ("compensator", "place"),
    [
        (OWN, "compensator"),
        (chain(OWN, OTHER), "compensator.first"),
        (chain(chain(OWN, OTHER), OTHER), "compensator.first.first"),
        ({"type": "adaptive", "compensator": OWN}, "compensator.compensator"),
        (chain(OTHER, OWN), ""),
        (chain(OTHER, chain(OWN, OTHER)), ""),
    ],
)
def test_a_compensator_is_told_whether_it_stands_behind_another(compensator: Any, place: str) -> None:
    loaded = files.load("chen_ricles_2010", ["ramp.type=linear"])
    found = doubts(replace(loaded, [(["compensator"], compensator)]))
    warned = [words.partition(":")[0] for words in found if "linear ramp" in words]
    assert warned == ([place] if place else [])
