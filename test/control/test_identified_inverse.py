# SPDX-License-Identifier: Apache-2.0
"""Tests of the identified inverse: commands and learning, for one axis and for coupled axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import mentions, naming

from rths_nodes.control.compensators import coupled_inverse
from rths_nodes.control.compensators.derivative_filter import DerivativeFilter, added, block_of
from rths_nodes.control.compensators.identified_inverse import IdentifiedInverse, constants_in_arrays
from rths_nodes.control.compensators.single_inverse import State
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.loading_model import LoadingModel, save
from rths_nodes.mechanics.structure import transition

DT = 1.0 / 1024.0
ONE = np.array([0.99, 0.025, 1.1e-4, 4e-7])[:, None, None]
TWO = np.array(
    [
        [[1.0, 0.1], [-0.2, 0.95]],
        [[0.020, 0.004], [0.002, 0.028]],
        [[1.2e-4, 2e-5], [0.0, 1.5e-4]],
        [[4e-7, 0.0], [0.0, 6e-7]],
    ]
)
NAMES = ("displacement", "velocity", "acceleration", "jerk")


def law(coefficients: np.ndarray, **data: Any) -> Any:
    inverse = dict(zip(NAMES, coefficients.tolist(), strict=True))
    return make("compensator", "identified_inverse", DT, coefficients.shape[1], inverse=inverse, **data)


class Rig:
    """sum C_i d^i x = u, u linear between samples: the plant whose inverse is the law."""

    def __init__(self, coefficients: np.ndarray) -> None:
        n = coefficients.shape[1]
        top = np.linalg.inv(coefficients[3])
        system = np.zeros((3 * n, 3 * n))
        system[: 2 * n, n:] = np.eye(2 * n)
        system[2 * n :] = -np.hstack([top @ part for part in coefficients[:3]])
        inputs = np.vstack([np.zeros((2 * n, n)), top])
        self._matrices = transition(system, inputs, DT)
        self._state, self._before, self._n = np.zeros(3 * n), np.zeros(n), n

    def step(self, command: np.ndarray) -> np.ndarray:
        phi, before, now = self._matrices
        self._state = phi @ self._state + before @ self._before + now @ command
        self._before = command.copy()
        return self._state[: self._n].copy()


def waves(n: int, samples: int, seed: int = 1) -> list[Motion]:
    """A motion of many frequencies up to 8 Hz for each axis, with its derivatives."""
    generator = np.random.default_rng(seed)
    t = DT * np.arange(samples)
    parts = np.zeros((3, samples, n))
    for axis in range(n):
        for _ in range(12):
            w, phase = 2.0 * np.pi * generator.uniform(0.5, 8.0), generator.uniform(0.0, 6.28)
            size = 1e-3 / w
            rise = np.minimum(t, 1.0)
            parts[0, :, axis] += size * rise * np.sin(w * t + phase)
    parts[1], parts[2] = np.gradient(parts[0], DT, axis=0), 0.0
    parts[2] = np.gradient(parts[1], DT, axis=0)
    return [Motion(*(part[k] for part in parts)) for k in range(samples)]


def drive(law: Any, rig: Rig, motions: list[Motion], noise: float = 0.0) -> np.ndarray:
    """Target minus true displacement at every sample; the law sees the measurement of the sample before."""
    generator = np.random.default_rng(5)
    measured, errors = np.zeros(len(motions[0].displacement)), []
    for motion in motions:
        x = rig.step(law.step(motion, measured))
        errors.append(motion.displacement - x)
        measured = x + noise * generator.normal(size=len(x))
    return np.array(errors)


def learned(law: Any) -> np.ndarray:
    """The coefficients in the order of the state."""
    return np.array([value for name, value in zip(law.state_names, law.state(), strict=True) if name[0] == "c"])


def test_command_is_series_of_extrapolated_target() -> None:
    tau, k = 2.5 * DT, 40
    t = DT * np.arange(k - 1, k + 1)
    x, v, a = 0.3 * t**3 - 0.1 * t, 0.9 * t**2 - 0.1, 1.8 * t
    law_ = law(ONE, learning=False, lead=tau, jerk_window=DT)
    for values in zip(x, v, a, strict=True):
        command = law_.step(Motion(*(np.array([value]) for value in values)), np.zeros(1))
    late = t[-1] + tau
    ahead = [0.3 * late**3 - 0.1 * late, 0.9 * late**2 - 0.1, 1.8 * late, 1.8]
    assert command[0] == pytest.approx(ONE.ravel() @ ahead, rel=1e-9)


one_and_two_axes = pytest.mark.parametrize("coefficients", [ONE, TWO], ids=["one axis", "coupled"])


@one_and_two_axes
def test_exact_inverse_cancels_rig(coefficients: np.ndarray) -> None:
    n = coefficients.shape[1]
    motions = waves(n, 2000)
    errors = drive(law(coefficients, learning=False), Rig(coefficients), motions)
    size = np.std([motion.displacement for motion in motions])
    assert np.abs(errors).max() < 0.02 * size  # a jerk by difference is half a sample late
    worse = drive(law(1.05 * coefficients, learning=False), Rig(coefficients), motions)
    assert np.abs(worse).max() > 5.0 * np.abs(errors).max()


@one_and_two_axes
def test_coefficients_of_changed_rig_are_learned(coefficients: np.ndarray) -> None:
    """Coefficients wrong by 2, 10, 15 and 20 %, with measurement noise."""
    away = np.array([1.02, 0.90, 1.15, 0.8])[:, None, None]
    n = coefficients.shape[1]
    motions = waves(n, 12_000)
    noise = 1e-5 * np.std([motion.displacement for motion in motions]) / 1e-3
    fixed = drive(law(away * coefficients, learning=False), Rig(coefficients), motions, noise)
    following = law(away * coefficients, displacement_noise_rms=noise)
    errors = drive(following, Rig(coefficients), motions, noise)
    late = slice(8000, None)
    assert np.std(errors[late]) < 0.15 * np.std(fixed[late])
    first = learned(following)[: n * n].reshape(n, n)
    np.testing.assert_allclose(first, coefficients[0], atol=4e-3)


def test_noise_leaves_no_bias_in_coefficients() -> None:
    """Noise as large as the motion. Least squares with the measurement as its own instrument underestimate c0."""
    motions = waves(1, 30_000)
    size = float(np.std([motion.displacement for motion in motions]))
    options = {"relative_deviation": [0.2, 0.3, 0.3, 0.6], "deviations": 20.0}
    bias = {}
    for instrument in ("target", "measurement"):
        following = law(ONE, **options)
        values = []
        rig, measured = Rig(ONE), np.zeros(1)
        generator = np.random.default_rng(5)
        for motion in motions:
            if instrument == "measurement":
                following.states[0] = State(*following.states[0])._replace(target=float(measured[0]))
            measured = rig.step(following.step(motion, measured)) + size * generator.normal(size=1)
            values.append(following.state()[0])
        bias[instrument] = np.mean(values[15_000:]) / ONE[0, 0, 0] - 1.0
    assert abs(bias["target"]) < 0.02
    assert bias["measurement"] < -0.04


def test_noise_without_motion_is_not_learned() -> None:
    """Long noise alone: no wind-up, and the deviations stay those of the identification."""
    still = [Motion(np.zeros(1), np.zeros(1), np.zeros(1))] * 20_000
    following = law(ONE)
    drive(following, Rig(ONE), still, noise=5e-5)
    state = dict(zip(following.state_names, following.state(), strict=True))
    assert [state[f"c{power}[0]"] for power in range(4)] == pytest.approx(ONE.ravel().tolist(), rel=1e-12)
    sigma = [state[f"sigma_c{power}[0]"] for power in range(4)]
    assert sigma == pytest.approx((ONE.ravel() * [0.02, 0.1, 0.15, 0.3]).tolist(), rel=1e-12)
    assert state["prior_distance[0]"] == pytest.approx(0.0, abs=1e-9)


def test_motion_reduces_standard_deviations() -> None:
    following = law(ONE, displacement_noise_rms=1e-6)
    drive(following, Rig(ONE), waves(1, 8000))
    state = dict(zip(following.state_names, following.state(), strict=True))
    for power in range(3):
        assert state[f"sigma_c{power}[0]"] < 0.3 * ONE[power, 0, 0] * [0.02, 0.1, 0.15][power]


def test_coefficients_stay_within_three_deviations() -> None:
    following = law(1.3 * ONE)  # the first one is wrong by fifteen standard deviations
    drive(following, Rig(ONE), waves(1, 8000))
    state = dict(zip(following.state_names, following.state(), strict=True))
    assert state["c0[0]"] == pytest.approx(1.3 * 0.99 * (1.0 - 3.0 * 0.02))
    assert state["prior_distance[0]"] == pytest.approx(3.0)
    params = from_data(IdentifiedInverse.Params, {"inverse": dict(zip(NAMES, ONE.tolist(), strict=True))})
    (remark,) = params.remarks({"axes.north.prior_distance": 3.0, "axes.south.prior_distance": 2.9})
    assert mentions(remark, "axes.north", "3", "deviations")


def test_flagged_samples_pause_learning() -> None:
    motions = waves(1, 3000)
    for motion in motions:
        motion.flagged = True
    following = law(1.05 * ONE)
    drive(following, Rig(ONE), motions)
    assert learned(following).tolist() == (1.05 * ONE).ravel().tolist()
    for motion in motions[:500]:
        motion.flagged = False
    drive(following, Rig(ONE), motions[:500])
    assert learned(following).tolist() != (1.05 * ONE).ravel().tolist()


@one_and_two_axes
def test_sensor_offset_has_no_effect(coefficients: np.ndarray) -> None:
    """An offset of half the motion gives the same coefficients at every sample."""
    n = coefficients.shape[1]
    motions = waves(n, 8000)
    offset = 0.5 * float(np.std([motion.displacement for motion in motions]))
    histories = []
    for constant in (0.0, offset):
        following, rig, values = law(1.02 * coefficients), Rig(coefficients), []
        measured = np.full(n, constant)
        for motion in motions:
            measured = rig.step(following.step(motion, measured)) + constant
            values.append(learned(following))
        histories.append(np.array(values))
    scale = np.abs(histories[0]).max(axis=0)
    np.testing.assert_allclose(histories[1] / scale, histories[0] / scale, atol=2e-3)
    begin, end = (values[histories[0][0] != 0.0] for values in (histories[0][0], histories[0][-1]))
    assert np.abs(end / begin - 1.0).max() > 0.01  # learning was active


def test_undeclared_noise_is_estimated() -> None:
    """Noise a hundred times the declared one: the coefficients scatter as with declared noise."""
    motions = waves(1, 12_000)
    noise = 0.05 * float(np.std([motion.displacement for motion in motions]))
    scatter = []
    for declared in (noise, 0.01 * noise):
        following, rig, measured = law(ONE, displacement_noise_rms=declared), Rig(ONE), np.zeros(1)
        generator, values = np.random.default_rng(5), []
        for motion in motions:
            measured = rig.step(following.step(motion, measured)) + noise * generator.normal(size=1)
            values.append(learned(following))
        scatter.append(np.std(values, axis=0))
    np.testing.assert_allclose(scatter[1], scatter[0], rtol=0.2)


def test_short_shock_barely_changes_coefficients() -> None:
    """A measurement error of fifty times the motion for 4 ms moves no coefficient by one deviation."""
    motions = waves(1, 6000)
    size = float(np.std([motion.displacement for motion in motions]))
    following, rig, measured = law(ONE), Rig(ONE), np.zeros(1)
    for k, motion in enumerate(motions):
        measured = rig.step(following.step(motion, measured))
        if 4000 <= k < 4004:
            measured = measured + 50.0 * size
        if k == 3999:
            before = learned(following)
    away = np.abs(learned(following) - before) / (ONE.ravel() * [0.02, 0.1, 0.15, 0.3])
    assert away.max() < 1.0


def test_jerk_window_attenuates_acceleration_noise() -> None:
    """Variance of the slope of a line over n samples: 12 / (n (n + 1) (n + 2)); of a difference: 2."""
    noise = np.random.default_rng(3).normal(size=20_000)
    for n in (1, 8):
        quiet = law(ONE, learning=False, jerk_window=n * DT)
        commands = [quiet.step(Motion(np.zeros(1), np.zeros(1), np.array([a])), np.zeros(1))[0] for a in noise]
        sent = np.std(np.array(commands)[n:] - ONE[2, 0, 0] * noise[n:])
        assert sent == pytest.approx(ONE[3, 0, 0] / DT * np.sqrt(12.0 / (n * (n + 1) * (n + 2))), rel=0.05)


def test_frequency_response_equals_identified_inverse() -> None:
    s = 2j * np.pi * np.array([0.5, 3.0])
    expected = np.array([np.tensordot(value ** np.arange(4), TWO, 1) for value in s])
    np.testing.assert_allclose(law(TWO).frequency_response(s / 1j), expected, rtol=1e-12)
    single = law(ONE).frequency_response(s / 1j)
    np.testing.assert_allclose(single, [ONE.ravel() @ value ** np.arange(4) for value in s], rtol=1e-12)


@pytest.mark.parametrize("samples", [1, 16])
def test_filter_block_equals_single_steps(samples: int) -> None:
    low_pass = DerivativeFilter(20.0, DT)
    block = low_pass.matrix(samples)
    inputs, initial = block_of(block)
    values = np.random.default_rng(2).normal(size=(5 * samples + 1, 2))
    states = low_pass.states(values)
    for first in range(1, len(values), samples):
        before, chunk = states[first - 1], values[first : first + samples]
        state = block @ np.concatenate([before, values[first - 1 : first], chunk])
        np.testing.assert_allclose(state, states[first + samples - 1], atol=1e-12)
        sums = (0.0, 0.0, 0.0, 0.0)
        numbers = [*before[:, 0], values[first - 1, 0], *chunk[:, 0]]
        for column, number in zip([*initial, *inputs], numbers, strict=True):
            sums = added(sums, column, number)
        np.testing.assert_allclose(sums, states[first + samples - 1, :, 0], atol=1e-12)


def test_lower_order_uses_fewer_coefficients() -> None:
    short = law(ONE, order=2, relative_deviation=[0.05, 0.3, 0.5], learning=False)
    motion = Motion(np.array([1e-3]), np.array([0.1]), np.array([3.0]))
    assert short.step(motion, np.zeros(1))[0] == pytest.approx(0.99e-3 + 0.025 * 0.1 + 1.1e-4 * 3.0)
    assert [name for name in short.state_names if name.startswith("c")] == ["c0[0]", "c1[0]", "c2[0]"]


def test_incompatible_settings_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=naming("compensator.model", "compensator.inverse")):
        make("compensator", "identified_inverse", DT, 1)
    with pytest.raises(ConfigError, match=r"relative_deviation = .*: must be 4 numbers"):
        law(ONE, relative_deviation=[0.1, 0.1])
    with pytest.raises(ConfigError, match=naming("compensator.inverse", "2", "test", "1")):
        make("compensator", "identified_inverse", DT, 1, inverse=dict(zip(NAMES, TWO.tolist(), strict=True)))
    with pytest.raises(ConfigError, match=naming("compensator.cutoff_frequency", "1e-05 Hz", ">=", "Hz")):
        law(ONE, cutoff_frequency=1e-5)
    # a model for model_based excludes the transport
    path = tmp_path / "other.yaml"
    save(LoadingModel(("floor_1",), ONE, servo_rate=4096.0), path)
    overrides = [f"compensator.model={path}", "compensator.inverse=null"]
    with pytest.raises(ConfigError, match=naming("compensator.model", "0.0002441 s")):
        checked_loop(files.load("rths_benchmark_2020", overrides))


@pytest.mark.parametrize("decimation", [1, 3, 16])
@pytest.mark.parametrize("lead", [0.0, 2e-3])
def test_float_kernel_equals_array_kernel(decimation: int, lead: float) -> None:
    """One axis, with an offset, a bridged sample and a shock."""
    following = law(1.05 * ONE, decimation=decimation, lead=lead)
    inverse = dict(zip(NAMES, (1.05 * ONE).tolist(), strict=True))
    data = {"inverse": inverse, "decimation": decimation, "lead": lead}
    k = coupled_inverse.constants_of(*constants_in_arrays(from_data(IdentifiedInverse.Params, data), DT))
    state = coupled_inverse.rest(k)
    generator = np.random.default_rng(7)
    for sample, motion in enumerate(waves(1, 1500)):
        measured = 0.9 * motion.displacement + 1e-5 * generator.normal(size=1) + 1e-4
        measured[0] += 5e-3 if sample == 700 else 0.0
        motion.flagged = sample == 400
        inputs = [
            (float(value[0]),) for value in (motion.displacement, motion.velocity, motion.acceleration, measured)
        ]
        state, commands = coupled_inverse.learning(k, state, *inputs, (0.0,), motion.flagged, False)
        np.testing.assert_allclose(following.step(motion, measured), commands, rtol=1e-10)
    np.testing.assert_allclose(learned(following)[:4], state[0][0], rtol=1e-10)
    assert np.abs(learned(following)[:4] / (1.05 * ONE).ravel() - 1.0).max() > 1e-3
