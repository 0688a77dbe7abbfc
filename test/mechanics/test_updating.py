# SPDX-License-Identifier: Apache-2.0
"""Model updating: closed forms, plants that are off, other classes, samples that are no good."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from messages import mentions

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.updating import unscented
from rths_nodes.mechanics.updating.copies import Copy, Open
from rths_nodes.mechanics.updating.step import (
    DEAD,
    FLAGGED,
    GATE,
    LAWS,
    LEARNT,
    NOT_FINITE,
    SPIKE,
    STRANGE,
    TOO_FAST,
    UNEXPLAINED,
    Sample,
    Settings,
    at_rest,
    forgotten,
    linear_answer,
    step,
)
from rths_nodes.mechanics.updating.unscented import Belief, capped, corrected, triangular

PERIOD, OFF, NOISE, FASTEST = 0.01, 0.3, 0.02, 1.0
WITHIN, IDENTIFIED = 0.05, 1.0 / 12.0
VALUES: dict[str, dict[str, object]] = {
    "bouc_wen": {"stiffness": 11.76e6, "yield_displacement": 0.01, "post_yield_ratio": 0.1},
    "bilinear": {"stiffness": 11.76e6, "yield_force": 117.6e3, "post_yield_ratio": 0.1},
    "kelvin_voigt": {"stiffness": 7.6e6, "damping": 0.64e6},
}
CASES = [("bouc_wen", "ukf"), ("bilinear", "ukf"), ("kelvin_voigt", "ukf"), ("kelvin_voigt", "rls")]


class Shown(NamedTuple):
    """States and results of a test, ``(n, m)`` and ``(n,)``."""

    estimate: Array
    deviation: Array
    released: Array
    mean_square: Array
    told: Array


def motion(seed: int = 1, peak: float = 0.04, duration: float = 14.0) -> tuple[Array, Array]:
    """Displacement (m) and velocity (m/s) of a story in an earthquake: 0.4 to 1.6 Hz, strong from 4 to 9 s."""
    rng, t = np.random.default_rng(seed), np.arange(0.0, duration, PERIOD)
    x = sum(rng.normal() * np.sin(2 * np.pi * f * t + rng.uniform(0, 2 * np.pi)) for f in np.linspace(0.4, 1.6, 9))
    x = x * np.interp(t, [0.0, 1.0, 4.0, 9.0, duration], [0.0, 0.3, 1.0, 1.0, 0.2])
    x *= peak / np.abs(x).max()
    return x, np.gradient(x, PERIOD)


def answer(copy: Copy, shares: Array, x: Array, v: Array) -> Array:
    """Force of the model itself, with parameters of ``shares`` of the copy's."""
    point = [*shares.tolist(), *([0.0] if copy.memory else [])]
    found, before = [], float(x[0])
    for now, velocity in zip(x.tolist(), v.tolist(), strict=True):
        point, before = copy.moved(point, before, now), now
        found.append(copy.force(point, now, velocity))
    return np.array(found)


def noisy(force: Array, seed: int = 1) -> tuple[Array, float]:
    """``force`` with noise, and its rms (N)."""
    noise = NOISE * float(np.abs(force).max())
    return force + noise * np.random.default_rng(seed).normal(size=len(force)), noise


def show(copy: Copy, by: str, x: Array, v: Array, f: Array, noise: float, flagged: Array | None = None) -> Shown:
    """Take all samples."""
    m = len(copy.names)
    settings = Settings(PERIOD, noise, np.full(m, OFF), FASTEST)
    estimator = LAWS[by](copy, settings)
    state, rows = at_rest(estimator, copy, float(x[0])), []
    flags = np.zeros(len(x), bool) if flagged is None else flagged
    for row in zip(x.tolist(), v.tolist(), f.tolist(), flags.tolist(), strict=True):
        state, told = step(estimator, copy, settings, state, Sample(*row))
        belief = state.belief
        rows.append((belief.mean[:m], belief.deviation[:m], state.released, state.mean_square, told.use))
    return Shown(*(np.array([row[k] for row in rows]) for k in range(5)))


def plant(model: str, by: str, seed: int) -> tuple[Array, Shown]:
    """True parameters of a specimen that is off by 30 % in all of them, up or down, and what its copy learns."""
    copy, rng = Copy(model, VALUES[model]), np.random.default_rng(seed)
    true = 1.0 + OFF * rng.choice([-1.0, 1.0], len(copy.names))
    x, v = motion(seed)
    f, noise = noisy(answer(copy, true, x, v), seed)
    return true, show(copy, by, x, v, f, noise)


# Closed forms


def test_the_unscented_filter_of_a_linear_system_is_the_kalman_filter() -> None:
    rng = np.random.default_rng(5)
    n, noise = 4, 0.3
    a, q = np.eye(n) + 0.1 * rng.normal(size=(n, n)), rng.uniform(0.01, 0.1, n)
    mean, p = rng.normal(size=n), np.diag(rng.uniform(0.5, 2.0, n))
    belief = Belief(mean, np.linalg.cholesky(p))
    for _ in range(50):
        c, y = rng.normal(size=n), float(rng.normal())
        mean, p = a @ mean, a @ p @ a.T + np.diag(q**2)
        gain = p @ c / (c @ p @ c + noise**2)
        mean, p = mean + gain * (y - c @ mean), p - np.outer(gain, c @ p)
        belief = unscented.predicted(belief, lambda point: (a @ point).tolist(), q)
        found = unscented.answered(belief, lambda point, c=c: float(c @ point))  # type: ignore[misc]
        belief = corrected(found, belief.mean, y, noise)
        np.testing.assert_allclose(belief.mean, mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(belief.root @ belief.root.T, p, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("forgetting", [math.inf, 0.5])
def test_recursive_least_squares_are_those_of_all_samples(forgetting: float) -> None:
    """Each counts by what is not forgotten of it; the first belief is one more row for each number."""
    rng = np.random.default_rng(6)
    rows, true, noise = rng.normal(size=(200, 3)), np.array([1.2, 0.7, 1.0]), 0.1
    y = rows @ true + noise * rng.normal(size=200)
    first = Belief(np.ones(3), 0.3 * np.eye(3))
    belief = first
    for row, measured in zip(rows, y.tolist(), strict=True):
        belief = forgotten(belief, PERIOD, forgetting)
        belief = corrected(linear_answer(belief, row, 0.0), belief.mean, measured, noise)
    age = np.exp(-0.5 * PERIOD / forgetting * np.arange(200, -1, -1))
    weighted = np.vstack((age[0] * np.eye(3) / 0.3, age[1:, None] * rows / noise))
    wanted = np.concatenate((age[0] * np.ones(3) / 0.3, age[1:] * y / noise))
    best = np.linalg.lstsq(weighted, wanted, rcond=None)[0]
    np.testing.assert_allclose(belief.mean, best, rtol=1e-9)
    covariance = np.linalg.inv(weighted.T @ weighted)
    np.testing.assert_allclose(belief.root @ belief.root.T, covariance, rtol=1e-9, atol=1e-15)


def test_both_laws_are_one_where_the_force_is_linear() -> None:
    """Without drift and forgetting; the points stay within the bounds of the copy."""
    copy = Copy("kelvin_voigt", VALUES["kelvin_voigt"])
    x, v = motion()
    f, noise = noisy(answer(copy, np.array([0.9, 1.1]), x, v))
    one = other = Belief(np.ones(2), 0.1 * np.eye(2))
    for at, speed, measured in zip(x[:300].tolist(), v[:300].tolist(), f[:300].tolist(), strict=True):
        one = corrected(
            unscented.answered(one, lambda p, x=at, v=speed: copy.force(p, x, v)),  # type: ignore[misc]
            one.mean,
            measured,
            noise,
        )
        other = corrected(linear_answer(other, *copy.row(at, speed)), other.mean, measured, noise)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)
    np.testing.assert_allclose(one.root @ one.root.T, other.root @ other.root.T, rtol=1e-9, atol=1e-18)


def test_a_root_is_one_of_the_sum_and_a_cap_holds() -> None:
    columns = np.random.default_rng(7).normal(size=(3, 8))
    root = triangular(columns)
    np.testing.assert_allclose(root @ root.T, columns @ columns.T, rtol=1e-12)
    np.testing.assert_array_equal(np.triu(root, 1), 0.0)
    narrow = capped(Belief(np.zeros(3), root), np.array([0.1, 1e3, 0.1]))
    assert narrow.deviation.tolist() == pytest.approx([0.1, Belief(np.zeros(3), root).deviation[1], 0.1])


# Copies


@pytest.mark.parametrize("model", ["bouc_wen", "bilinear"])
def test_a_copy_has_the_force_of_its_component(model: str) -> None:
    cls = registry.load("restoring_force", model)
    component = cls(from_data(cls.Params, VALUES[model], "model"), 1)
    copy = Copy(model, VALUES[model])
    x, v = motion(duration=3.0)
    wanted = [float(component.force(np.array([each]))[0]) for each in x.tolist()]
    np.testing.assert_allclose(answer(copy, np.ones(3), x, v), wanted, rtol=1e-12, atol=1e-6)


def test_regressors_are_those_of_the_model() -> None:
    """Whatever of it is open; a fixed exponent leaves it linear, an open one does not."""
    values = VALUES["kelvin_voigt"] | {"exponent": 0.5}
    for names in (("stiffness", "damping"), ("damping",)):
        copy = Copy("kelvin_voigt", values, [Open(name) for name in names])
        assert copy.linear
        row, rest = copy.row(0.02, -0.1)
        point = [1.3, 0.8][: len(names)]
        assert float(row @ point) + rest == pytest.approx(copy.force(point, 0.02, -0.1), rel=1e-12)
    assert not Copy("kelvin_voigt", values, [Open("exponent")]).linear
    assert not Copy("bouc_wen", VALUES["bouc_wen"]).linear


@pytest.mark.parametrize(
    ("model", "values", "opened", "message"),
    [
        ("bouc_wenn", {}, (), ("unknown", "bouc_wenn", "bouc_wen")),
        ("bouc_wen", {"yield_displacement": 0.01}, (), ("model.stiffness", "missing", "bouc_wen")),
        ("bouc_wen", {"post_yield_ratio": 0.0}, (), ("model.post_yield_ratio", "0.0", "> 0")),
        ("bouc_wen", {}, (Open("stifness"),), ("unknown", "parameter", "stifness")),
        ("bouc_wen", {}, (Open("stiffness", (2e7, 3e7)),), ("> 0", "1.176e+07")),
        ("bouc_wen", {}, (Open("stiffness"), Open("stiffness")), ("parameter", "once")),
        ("bouc_wen", {}, (Open("post_yield_ratio", (0.05, 1.5)),), ("model.post_yield_ratio", "1.5", ">= 0")),
        ("bouc_wen", {}, (Open("exponent", (0.5, 4.0)),), ("model.exponent", "0.5", ">= 1")),
    ],
)
def test_what_no_copy_may_have_is_refused(
    model: str, values: dict[str, object], opened: tuple[Open, ...], message: tuple[str, ...]
) -> None:
    """Bounds as well: at none of them may the copy be outside of its model."""
    whole = values if "model.stiffness" in message else VALUES.get(model, {}) | values
    with pytest.raises(ConfigError) as refused:
        Copy(model, whole, opened)
    assert mentions(str(refused.value), *message)


def test_no_point_takes_a_copy_outside_of_its_bounds() -> None:
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    low, high = copy.parameters([-3.0, 0.0, 0.4]), copy.parameters([9.0, 2.5, 3.0])
    assert [low.stiffness, low.yield_displacement, low.post_yield_ratio] == pytest.approx([5.88e6, 0.005, 0.05])
    assert [high.stiffness, high.yield_displacement, high.post_yield_ratio] == pytest.approx([23.52e6, 0.02, 0.2])


# Plants that are off


def check_plant(model: str, by: str, seed: int) -> None:
    """All that the motion identifies is found: stiffness and yielding by each of these, hardening by most."""
    true, shown = plant(model, by, seed)
    known = shown.deviation.min(axis=0) <= IDENTIFIED * OFF
    assert known[:2].all()
    assert np.abs(shown.estimate[-1] / true - 1.0)[known].max() <= WITHIN
    assert np.abs(shown.released[-1] / true - 1.0)[known].max() <= WITHIN
    assert shown.mean_square.max() < UNEXPLAINED
    assert set(shown.told.tolist()) <= {LEARNT, SPIKE}


@pytest.mark.parametrize(("model", "by"), CASES)
def test_a_plant_that_is_off_by_30_percent_is_found_within_5(model: str, by: str) -> None:
    check_plant(model, by, 1)


@pytest.mark.parametrize(
    "seed", [*range(2, 6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 21))]
)
@pytest.mark.parametrize(("model", "by"), CASES)
def test_20_plants_are_found(model: str, by: str, seed: int) -> None:
    check_plant(model, by, seed)


def test_a_motion_that_does_not_yield_identifies_the_stiffness_alone() -> None:
    copy = Copy("bilinear", VALUES["bilinear"])
    x, v = motion(peak=0.003)
    f, noise = noisy(answer(copy, np.array([1.3, 1.0, 1.0]), x, v))
    shown = show(copy, "ukf", x, v, f, noise)
    left = shown.deviation.min(axis=0) / OFF
    assert left[0] <= IDENTIFIED
    assert (left[1:] > 4.0 * IDENTIFIED).all()
    assert shown.estimate[-1, 0] == pytest.approx(1.3, rel=WITHIN)


# Specimens of another class


def degrading(x: Array) -> Array:
    cls = registry.load("restoring_force", "degrading_bouc_wen")
    loses = {"strength_degradation": 0.3, "stiffness_degradation": 0.1}
    component = cls(from_data(cls.Params, VALUES["bouc_wen"] | loses, "model"), 1)
    return np.array([float(component.force(np.array([each]))[0]) for each in x.tolist()])


@pytest.mark.parametrize("other", ["pinching", "friction", "degrading", "hardening"])
def test_a_specimen_of_another_class_is_told_and_copies_stay_bounded(other: str) -> None:
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion()
    same = answer(copy, np.ones(3), x, v)
    forces = {
        "pinching": same * (0.25 + 0.75 * np.minimum(1.0, (x / 0.015) ** 2)),
        "friction": same + 0.25 * np.abs(same).max() * np.tanh(v / 1e-3),
        "degrading": degrading(x),
        "hardening": 2e6 * x * (1.0 + (x / 0.01) ** 2),
    }
    f, noise = noisy(forces[other])
    shown = show(copy, "ukf", x, v, f, noise)
    assert shown.mean_square.max() > UNEXPLAINED
    assert STRANGE in shown.told
    assert (shown.estimate >= copy.lower).all()
    assert (shown.estimate <= copy.upper).all()
    assert (np.abs(np.diff(shown.released, axis=0)) <= 0.05 * PERIOD + 1e-15).all()
    going_back = shown.mean_square[1:] > UNEXPLAINED
    assert (np.diff(np.abs(shown.released - 1.0), axis=0)[going_back] <= 1e-15).all()


def test_a_small_motion_moves_no_copy_before_every_parameter_is_told_of() -> None:
    """It tells of the stiffness alone, and that of a specimen of another class is wrong for large motion."""
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion(peak=0.002)
    f, noise = noisy(answer(copy, np.array([1.3, 1.0, 1.0]), x, v))
    shown = show(copy, "ukf", x, v, f, noise)
    assert shown.estimate[-1, 0] == pytest.approx(1.3, rel=WITHIN)
    assert not (shown.released - 1.0).any()


@pytest.mark.parametrize("freezes", [False, True])
def test_an_estimate_that_leaves_its_prior_may_freeze_the_copies(freezes: bool) -> None:
    copy = Copy("kelvin_voigt", VALUES["kelvin_voigt"])
    x, v = motion(duration=6.0)
    f, noise = noisy(answer(copy, np.array([1.8, 1.0]), x, v))
    k = Settings(PERIOD, noise, np.full(2, OFF), FASTEST, leaves=2.0, freezes=freezes)
    estimator = LAWS["ukf"](copy, k)
    state, states = at_rest(estimator, copy, 0.0), []
    for row in zip(x.tolist(), v.tolist(), f.tolist(), strict=True):
        state, _ = step(estimator, copy, k, state, Sample(*row))
        states.append(state)
    left = np.array([each.left for each in states])
    first = int(np.argmax(left))
    assert left[first:].all()
    assert abs(states[first].belief.mean[0] - 1.0) > 2.0 * OFF >= abs(states[first - 1].belief.mean[0] - 1.0)
    moved = np.diff([each.released for each in states[first:]], axis=0)
    assert moved.any() == (not freezes)


# Samples that are no good

BEGIN, END = 600, 640
"""Samples in which something is wrong, in the strong phase."""


@pytest.mark.parametrize(("model", "by"), CASES)
@pytest.mark.parametrize("what", ["force nan", "all nan", "flagged", "spikes", "dead", "jump"])
def test_a_sample_that_is_no_good_changes_no_parameter(model: str, by: str, what: str) -> None:
    copy = Copy(model, VALUES[model])
    true = 1.0 + OFF * np.array([1.0, -1.0, 1.0])[: len(copy.names)]
    x, v = motion()
    f, noise = noisy(answer(copy, true, x, v))
    bad, flagged = slice(BEGIN, END), np.zeros(len(x), bool)
    said = {"force nan": NOT_FINITE, "all nan": NOT_FINITE, "flagged": FLAGGED, "spikes": SPIKE, "jump": TOO_FAST}
    if "nan" in what:
        f[bad] = math.nan
    if what == "all nan":
        x[bad] = v[bad] = math.nan
    if what == "flagged":
        flagged[bad] = True
        x[bad], f[bad] = 5.0, 1e12
    if what == "spikes":
        f[BEGIN:END:8] = 1e9
    if what == "jump":
        x[bad] = 5.0
    if what == "dead":
        f[bad] = f[BEGIN - 1]
    shown = show(copy, by, x, v, f, noise, flagged)
    told = shown.told[bad]
    if what == "dead":
        assert (told == DEAD).sum() >= 30
    elif what == "spikes":
        assert (told[::8] == SPIKE).all()
    else:
        assert (told == said[what]).all()
    frozen = np.flatnonzero(np.isin(shown.told, [NOT_FINITE, FLAGGED, SPIKE, DEAD, TOO_FAST]))
    assert not (shown.released[frozen] - shown.released[frozen - 1]).any()
    np.testing.assert_allclose(shown.estimate[frozen], shown.estimate[frozen - 1], rtol=0, atol=1e-12)
    assert (np.abs(np.diff(shown.released, axis=0)) <= 0.05 * PERIOD + 1e-15).all()
    assert np.abs(shown.estimate[-1] / true - 1.0).max() <= WITHIN
    assert np.abs(shown.released[-1] / true - 1.0).max() <= WITHIN


def test_a_cell_that_is_dead_to_the_end_is_told_and_nothing_drifts() -> None:
    """Dead at zero with its noise: at first the innovation gives it away, then that nothing moves it."""
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion()
    f, noise = noisy(answer(copy, np.ones(3), x, v))
    f[BEGIN:] = 0.2 * noise * np.random.default_rng(2).normal(size=len(f) - BEGIN)
    shown = show(copy, "ukf", x, v, f, noise)
    assert (shown.told[BEGIN:] == DEAD).sum() > 0.8 * (len(f) - BEGIN)
    assert set(shown.told[BEGIN + 100 :]) <= {DEAD, SPIKE}
    np.testing.assert_allclose(shown.released[-1], shown.released[BEGIN], atol=0.01)


def test_a_spike_counts_as_the_gate_and_no_more() -> None:
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion()
    f, noise = noisy(answer(copy, np.ones(3), x, v))
    f[BEGIN] = 1e300
    shown = show(copy, "ukf", x, v, f, noise)
    assert shown.mean_square[BEGIN] - shown.mean_square[BEGIN - 1] <= GATE**2 * PERIOD / 2.0
    assert shown.mean_square.max() < UNEXPLAINED
