# SPDX-License-Identifier: Apache-2.0
"""Tests of model updating: closed forms, wrong initial values, other model classes, invalid samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from messages import naming

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics import updating
from rths_nodes.mechanics.updating import (
    DEAD,
    FLAGGED,
    LAWS,
    NOT_FINITE,
    SPIKE,
    TOO_FAST,
    UNEXPLAINED,
    Belief,
    Copy,
    Open,
    Sample,
    Settings,
    at_rest,
    corrected,
    linear_answer,
    step,
)

PERIOD, OFF, NOISE, FASTEST = 0.01, 0.3, 0.02, 1.0
WITHIN, IDENTIFIED = 0.05, 1.0 / 12.0
VALUES: dict[str, dict[str, object]] = {
    "bouc_wen": {"stiffness": 11.76e6, "yield_displacement": 0.01, "post_yield_ratio": 0.1},
    "bilinear": {"stiffness": 11.76e6, "yield_force": 117.6e3, "post_yield_ratio": 0.1},
    "kelvin_voigt": {"stiffness": 7.6e6, "damping": 0.64e6},
}
CASES = [("bouc_wen", "ukf"), ("bilinear", "ukf"), ("kelvin_voigt", "ukf"), ("kelvin_voigt", "rls")]


class Shown(NamedTuple):
    """Histories of states and results, ``(n, m)`` and ``(n,)``."""

    estimate: Array
    deviation: Array
    released: Array
    mean_square: Array
    use: Array


def motion(seed: int = 1, peak: float = 0.04, duration: float = 14.0) -> tuple[Array, Array]:
    """Displacement (m) and velocity (m/s) of a story in an earthquake, 0.4 to 1.6 Hz, strong from 4 to 9 s."""
    rng, t = np.random.default_rng(seed), np.arange(0.0, duration, PERIOD)
    x = sum(rng.normal() * np.sin(2 * np.pi * f * t + rng.uniform(0, 2 * np.pi)) for f in np.linspace(0.4, 1.6, 9))
    x = x * np.interp(t, [0.0, 1.0, 4.0, 9.0, duration], [0.0, 0.3, 1.0, 1.0, 0.2])
    x *= peak / np.abs(x).max()
    return x, np.gradient(x, PERIOD)


def answer(copy: Copy, shares: Array, x: Array, v: Array) -> Array:
    """Force of the model with the copy's parameters multiplied by ``shares``."""
    point = [*shares.tolist(), *([0.0] if copy.memory else [])]
    forces, before = [], float(x[0])
    for now, velocity in zip(x.tolist(), v.tolist(), strict=True):
        point, before = copy.moved(point, before, now), now
        forces.append(copy.force(point, now, velocity))
    return np.array(forces)


def noisy(force: Array, seed: int = 1) -> tuple[Array, float]:
    """Noisy force, and the rms of the noise (N)."""
    noise = NOISE * float(np.abs(force).max())
    return force + noise * np.random.default_rng(seed).normal(size=len(force)), noise


def show(copy: Copy, by: str, x: Array, v: Array, f: Array, noise: float, flagged: Array | None = None) -> Shown:
    """Process all samples."""
    m = len(copy.names)
    settings = Settings(PERIOD, noise, np.full(m, OFF), FASTEST)
    estimator = LAWS[by](copy, settings)
    state, rows = at_rest(estimator, copy, float(x[0])), []
    flags = np.zeros(len(x), bool) if flagged is None else flagged
    for row in zip(x.tolist(), v.tolist(), f.tolist(), flags.tolist(), strict=True):
        state, result = step(estimator, copy, settings, state, Sample(*row))
        belief = state.belief
        rows.append((belief.mean[:m], belief.deviation[:m], state.released, state.mean_square, result.use))
    return Shown(*(np.array([row[k] for row in rows]) for k in range(5)))


def plant(model: str, by: str, seed: int) -> tuple[Array, Shown]:
    """True parameters of a specimen, each off by +30 or -30 %, and the histories of its copy."""
    copy, rng = Copy(model, VALUES[model]), np.random.default_rng(seed)
    true = 1.0 + OFF * rng.choice([-1.0, 1.0], len(copy.names))
    x, v = motion(seed)
    f, noise = noisy(answer(copy, true, x, v), seed)
    return true, show(copy, by, x, v, f, noise)


def test_unscented_filter_of_linear_system_is_kalman_filter() -> None:
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
        belief = updating.predicted(belief, lambda point: (a @ point).tolist(), q)
        response = updating.answered(belief, lambda point, c=c: float(c @ point))  # type: ignore[misc]
        belief = corrected(response, belief.mean, y, noise)
        np.testing.assert_allclose(belief.mean, mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(belief.root @ belief.root.T, p, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("forgetting", [math.inf, 0.5])
def test_recursive_least_squares_match_batch_solution(forgetting: float) -> None:
    """Samples are weighted by the forgetting; the initial belief adds one row per parameter."""
    rng = np.random.default_rng(6)
    rows, true, noise = rng.normal(size=(200, 3)), np.array([1.2, 0.7, 1.0]), 0.1
    y = rows @ true + noise * rng.normal(size=200)
    belief = Belief(np.ones(3), 0.3 * np.eye(3))
    for row, measured in zip(rows, y.tolist(), strict=True):
        belief = updating.forgotten(belief, PERIOD, forgetting)
        belief = corrected(linear_answer(belief, row, 0.0), belief.mean, measured, noise)
    age = np.exp(-0.5 * PERIOD / forgetting * np.arange(200, -1, -1))
    weighted = np.vstack((age[0] * np.eye(3) / 0.3, age[1:, None] * rows / noise))
    right = np.concatenate((age[0] * np.ones(3) / 0.3, age[1:] * y / noise))
    np.testing.assert_allclose(belief.mean, np.linalg.lstsq(weighted, right, rcond=None)[0], rtol=1e-9)
    covariance = np.linalg.inv(weighted.T @ weighted)
    np.testing.assert_allclose(belief.root @ belief.root.T, covariance, rtol=1e-9, atol=1e-15)


def test_laws_agree_for_linear_force() -> None:
    """No drift, no forgetting, and the sigma points stay within the bounds of the copy."""
    copy = Copy("kelvin_voigt", VALUES["kelvin_voigt"])
    x, v = motion()
    f, noise = noisy(answer(copy, np.array([0.9, 1.1]), x, v))
    kalman = least_squares = Belief(np.ones(2), 0.1 * np.eye(2))
    for at, speed, measured in zip(x[:300].tolist(), v[:300].tolist(), f[:300].tolist(), strict=True):
        response = updating.answered(kalman, lambda p, x=at, v=speed: copy.force(p, x, v))  # type: ignore[misc]
        kalman = corrected(response, kalman.mean, measured, noise)
        response = linear_answer(least_squares, *copy.row(at, speed))
        least_squares = corrected(response, least_squares.mean, measured, noise)
    np.testing.assert_allclose(kalman.mean, least_squares.mean, rtol=1e-9)
    covariances = [belief.root @ belief.root.T for belief in (kalman, least_squares)]
    np.testing.assert_allclose(*covariances, rtol=1e-9, atol=1e-18)


def test_triangular_root_and_cap() -> None:
    columns = np.random.default_rng(7).normal(size=(3, 8))
    root = updating.triangular(columns)
    np.testing.assert_allclose(root @ root.T, columns @ columns.T, rtol=1e-12)
    np.testing.assert_array_equal(np.triu(root, 1), 0.0)
    narrow = updating.capped(Belief(np.zeros(3), root), np.array([0.1, 1e3, 0.1]))
    assert narrow.deviation.tolist() == pytest.approx([0.1, Belief(np.zeros(3), root).deviation[1], 0.1])


def component_force(model: str, values: dict[str, object], x: Array) -> Array:
    cls = registry.load("restoring_force", model)
    component = cls(from_data(cls.Params, values, "model"), 1)
    return np.array([float(component.force(np.array([value]))[0]) for value in x.tolist()])


@pytest.mark.parametrize("model", ["bouc_wen", "bilinear"])
def test_copy_force_matches_component(model: str) -> None:
    x, v = motion(duration=3.0)
    force = answer(Copy(model, VALUES[model]), np.ones(3), x, v)
    np.testing.assert_allclose(force, component_force(model, VALUES[model], x), rtol=1e-12, atol=1e-6)


def test_regressors_reproduce_model_force() -> None:
    """The model is linear if its exponent is fixed."""
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
def test_invalid_models_values_and_bounds_are_refused(
    model: str, values: dict[str, object], opened: tuple[Open, ...], message: tuple[str, ...]
) -> None:
    """The model must be valid at every bound."""
    parameters = values if "model.stiffness" in message else VALUES.get(model, {}) | values
    with pytest.raises(ConfigError, match=naming(*message)):
        Copy(model, parameters, opened)


def test_copy_parameters_stay_within_bounds() -> None:
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    low, high = copy.parameters([-3.0, 0.0, 0.4]), copy.parameters([9.0, 2.5, 3.0])
    assert [low.stiffness, low.yield_displacement, low.post_yield_ratio] == pytest.approx([5.88e6, 0.005, 0.05])
    assert [high.stiffness, high.yield_displacement, high.post_yield_ratio] == pytest.approx([23.52e6, 0.02, 0.2])


@pytest.mark.parametrize(
    "seed", [*range(1, 6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 21))]
)
@pytest.mark.parametrize(("model", "by"), CASES)
def test_copy_identifies_plant_off_by_30_percent(model: str, by: str, seed: int) -> None:
    """Parameters identified by the motion agree within 5 %: always stiffness and yielding, mostly hardening."""
    true, history = plant(model, by, seed)
    identified = history.deviation.min(axis=0) <= IDENTIFIED * OFF
    assert identified[:2].all()
    assert np.abs(history.estimate[-1] / true - 1.0)[identified].max() <= WITHIN
    assert np.abs(history.released[-1] / true - 1.0)[identified].max() <= WITHIN
    assert history.mean_square.max() < UNEXPLAINED
    assert set(history.use.tolist()) <= {updating.LEARNT, SPIKE}


def test_elastic_motion_identifies_stiffness_only() -> None:
    copy = Copy("bilinear", VALUES["bilinear"])
    x, v = motion(peak=0.003)
    f, noise = noisy(answer(copy, np.array([1.3, 1.0, 1.0]), x, v))
    history = show(copy, "ukf", x, v, f, noise)
    deviation = history.deviation.min(axis=0) / OFF
    assert deviation[0] <= IDENTIFIED
    assert (deviation[1:] > 4.0 * IDENTIFIED).all()
    assert history.estimate[-1, 0] == pytest.approx(1.3, rel=WITHIN)


@pytest.mark.parametrize("specimen", ["pinching", "friction", "degrading", "hardening"])
def test_specimen_of_another_class_is_detected_and_bounded(specimen: str) -> None:
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion()
    base = answer(copy, np.ones(3), x, v)
    losses = {"strength_degradation": 0.3, "stiffness_degradation": 0.1}
    forces = {
        "pinching": base * (0.25 + 0.75 * np.minimum(1.0, (x / 0.015) ** 2)),
        "friction": base + 0.25 * np.abs(base).max() * np.tanh(v / 1e-3),
        "degrading": component_force("degrading_bouc_wen", VALUES["bouc_wen"] | losses, x),
        "hardening": 2e6 * x * (1.0 + (x / 0.01) ** 2),
    }
    f, noise = noisy(forces[specimen])
    history = show(copy, "ukf", x, v, f, noise)
    assert history.mean_square.max() > UNEXPLAINED
    assert updating.STRANGE in history.use
    assert (history.estimate >= copy.lower).all()
    assert (history.estimate <= copy.upper).all()
    assert (np.abs(np.diff(history.released, axis=0)) <= 0.05 * PERIOD + 1e-15).all()
    unexplained = history.mean_square[1:] > UNEXPLAINED
    assert (np.diff(np.abs(history.released - 1.0), axis=0)[unexplained] <= 1e-15).all()


def test_copies_wait_until_every_parameter_is_identified() -> None:
    """A small motion identifies the stiffness only, which may be wrong for large motion."""
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion(peak=0.002)
    f, noise = noisy(answer(copy, np.array([1.3, 1.0, 1.0]), x, v))
    history = show(copy, "ukf", x, v, f, noise)
    assert history.estimate[-1, 0] == pytest.approx(1.3, rel=WITHIN)
    assert not (history.released - 1.0).any()


@pytest.mark.parametrize("freezes", [False, True])
def test_estimate_outside_prior_freezes_copies_on_request(freezes: bool) -> None:
    copy = Copy("kelvin_voigt", VALUES["kelvin_voigt"])
    x, v = motion(duration=6.0)
    f, noise = noisy(answer(copy, np.array([1.8, 1.0]), x, v))
    k = Settings(PERIOD, noise, np.full(2, OFF), FASTEST, leaves=2.0, freezes=freezes)
    estimator = LAWS["ukf"](copy, k)
    state, states = at_rest(estimator, copy, 0.0), []
    for row in zip(x.tolist(), v.tolist(), f.tolist(), strict=True):
        state, _ = step(estimator, copy, k, state, Sample(*row))
        states.append(state)
    left = np.array([state.left for state in states])
    first = int(np.argmax(left))
    assert left[first:].all()
    assert abs(states[first].belief.mean[0] - 1.0) > 2.0 * OFF >= abs(states[first - 1].belief.mean[0] - 1.0)
    moved = np.diff([state.released for state in states[first:]], axis=0)
    assert moved.any() == (not freezes)


# Invalid samples

BEGIN, END = 600, 640
"""Range of the invalid samples, in the strong phase."""


@pytest.mark.parametrize(("model", "by"), CASES)
@pytest.mark.parametrize("fault", ["force nan", "all nan", "flagged", "spikes", "dead", "jump"])
def test_invalid_samples_change_no_parameter(model: str, by: str, fault: str) -> None:
    copy = Copy(model, VALUES[model])
    true = 1.0 + OFF * np.array([1.0, -1.0, 1.0])[: len(copy.names)]
    x, v = motion()
    f, noise = noisy(answer(copy, true, x, v))
    bad, flagged = slice(BEGIN, END), np.zeros(len(x), bool)
    uses = {"force nan": NOT_FINITE, "all nan": NOT_FINITE, "flagged": FLAGGED, "spikes": SPIKE, "jump": TOO_FAST}
    if "nan" in fault:
        f[bad] = math.nan
    if fault == "all nan":
        x[bad] = v[bad] = math.nan
    if fault == "flagged":
        flagged[bad] = True
        x[bad], f[bad] = 5.0, 1e12
    if fault == "spikes":
        f[BEGIN:END:8] = 1e9
    if fault == "jump":
        x[bad] = 5.0
    if fault == "dead":
        f[bad] = f[BEGIN - 1]
    history = show(copy, by, x, v, f, noise, flagged)
    if fault == "dead":
        assert (history.use[bad] == DEAD).sum() >= 30
    elif fault == "spikes":
        assert (history.use[bad][::8] == SPIKE).all()
    else:
        assert (history.use[bad] == uses[fault]).all()
    frozen = np.flatnonzero(np.isin(history.use, [NOT_FINITE, FLAGGED, SPIKE, DEAD, TOO_FAST]))
    assert not (history.released[frozen] - history.released[frozen - 1]).any()
    np.testing.assert_allclose(history.estimate[frozen], history.estimate[frozen - 1], rtol=0, atol=1e-12)
    assert (np.abs(np.diff(history.released, axis=0)) <= 0.05 * PERIOD + 1e-15).all()
    assert np.abs(history.estimate[-1] / true - 1.0).max() <= WITHIN
    assert np.abs(history.released[-1] / true - 1.0).max() <= WITHIN


def test_dead_load_cell_is_detected_without_drift() -> None:
    """A cell that is dead at zero with noise: detected first by the innovation, then by its constant force."""
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion()
    f, noise = noisy(answer(copy, np.ones(3), x, v))
    f[BEGIN:] = 0.2 * noise * np.random.default_rng(2).normal(size=len(f) - BEGIN)
    history = show(copy, "ukf", x, v, f, noise)
    assert (history.use[BEGIN:] == DEAD).sum() > 0.8 * (len(f) - BEGIN)
    assert set(history.use[BEGIN + 100 :]) <= {DEAD, SPIKE}
    np.testing.assert_allclose(history.released[-1], history.released[BEGIN], atol=0.01)


def test_spike_counts_at_most_as_gate() -> None:
    copy = Copy("bouc_wen", VALUES["bouc_wen"])
    x, v = motion()
    f, noise = noisy(answer(copy, np.ones(3), x, v))
    f[BEGIN] = 1e300
    history = show(copy, "ukf", x, v, f, noise)
    assert history.mean_square[BEGIN] - history.mean_square[BEGIN - 1] <= updating.GATE**2 * PERIOD / 2.0
    assert history.mean_square.max() < UNEXPLAINED
