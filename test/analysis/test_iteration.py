# SPDX-License-Identifier: Apache-2.0
"""Tests of iterated tests: spectra, learning of the inverse, relaxation, stopping rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import mentions, naming
from numpy.typing import NDArray

from rths_nodes.analysis.iteration import corrections, learning
from rths_nodes.analysis.iteration.corrections import Relaxation, Row, Settings, Step, Substructure
from rths_nodes.analysis.iteration.learning import Spectra, noise_rms, rms
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files

DT, SAMPLES = 1.0 / 512.0, 512 * 16
TIME = DT * np.arange(SAMPLES)
Array = NDArray[np.float64]


def burst(frequency: float = 2.0, middle: float = 3.0, width: float = 0.5) -> Array:
    """A wave at rest at both ends, with its first two derivatives: ``(samples, 3)``."""
    w, t = 2.0 * np.pi * frequency, TIME - middle
    shape = np.exp(-0.5 * (t / width) ** 2 + 1j * w * t)
    rate = 1j * w - t / width**2
    return np.column_stack([part.imag for part in (shape, rate * shape, (rate**2 - width**-2) * shape)])


def test_spectral_derivatives_have_closed_form() -> None:
    wave = burst()
    motion = Spectra(SAMPLES, DT).motion(wave[:, :1], cutoff=60.0)[:, :, 0]
    for column, size in enumerate(np.abs(wave).max(axis=0)):
        np.testing.assert_allclose(motion[:, column], wave[:, column], atol=1e-6 * size)


def test_low_pass_has_its_gain_and_no_phase() -> None:
    spectra = Spectra(SAMPLES, DT)
    wave = burst(frequency=10.0)[:, :1]
    filtered = spectra.low_passed(wave, cutoff=10.0 / 0.9)
    assert rms(filtered) / rms(wave) == pytest.approx(0.5, abs=0.1)
    np.testing.assert_allclose(spectra.low_passed(wave, 20.0), wave, atol=1e-6)
    np.testing.assert_allclose(spectra.low_passed(wave, 5.0), 0.0, atol=1e-6)
    assert float((filtered * wave).sum()) / (rms(filtered) * rms(wave) * SAMPLES) == pytest.approx(1.0, abs=0.1)


def test_noise_rms_excludes_motion() -> None:
    noise = np.random.default_rng(1).normal(0.0, 2e-3, (SAMPLES, 1))
    assert noise_rms(noise + burst()[:, :1])[0] == pytest.approx(2e-3, rel=0.05)


def lag(tau: float, delay: float, gain: float = 1.0) -> Any:
    """A rig: first-order lag and delay, as a function of commands ``(samples, 1)``."""
    spectra = Spectra(SAMPLES, DT)
    response = gain * np.exp(-spectra.s * delay) / (1.0 + tau * spectra.s)
    return lambda command: spectra.history(response[:, None] * spectra.of(command))


def test_inverse_of_delayed_lag_is_learned() -> None:
    """1 + s tau and a delay: whole samples from the correlation, the rest in the polynomial."""
    spectra, target = Spectra(SAMPLES, DT), sum(burst(f, 3.0 + f / 2.0)[:, :1] for f in (0.5, 1.0, 2.0, 4.0, 8.0))
    rig, noise = lag(0.01, 0.02), np.random.default_rng(1).normal(0.0, 1e-3, (SAMPLES, 1))
    inverse = learning.fitted(spectra, target, rig(target) + noise, target, ("a",), None)
    w = 2.0 * np.pi * np.array([0.5, 2.0, 6.0])
    bins = [int(np.searchsorted(spectra.frequencies, value / (2.0 * np.pi))) for value in w]
    exact = (1.0 + 0.01 * spectra.s[bins]) * np.exp(0.02 * spectra.s[bins])
    np.testing.assert_allclose(inverse.response(spectra)[bins, 0], exact, rtol=5e-3)
    assert 8.0 < inverse.learned_to <= inverse.known_to


def test_error_decreases_by_factor_of_inverse() -> None:
    """L = 0.5 on a rig with the gain 0.8 leaves 1 - 0.4 of an error in the passband of Q."""
    spectra, target = Spectra(SAMPLES, DT), burst()[:, :1]
    inverse = learning.Inverse(np.zeros(1), np.array([[0.5]]), np.zeros(0), np.zeros((0, 2)), 60.0, 60.0)
    command, errors = 0.5 * target, []
    first = command
    for _ in range(4):
        moved = 0.8 * command
        errors.append(rms(target - moved))
        command = learning.corrected(spectra, inverse, first, (command, target, moved), target)
    np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.6, rtol=1e-3)


def test_tracking_reaches_noise_in_three_runs() -> None:
    spectra, rig = Spectra(SAMPLES, DT), lag(0.01, 0.03)
    target, rng, floor = sum(burst(f, 4.0)[:, :1] for f in (1.0, 3.0)), np.random.default_rng(2), 1e-3
    command = target
    moved = rig(command) + rng.normal(0.0, floor, target.shape)
    inverse = learning.fitted(spectra, command, moved, target, ("a",), None)
    first = command
    for _ in range(2):
        command = learning.corrected(spectra, inverse, first, (command, target, moved), target)
        moved = rig(command) + rng.normal(0.0, floor, target.shape)
    assert rms(target - moved) == pytest.approx(floor, rel=0.1)


def test_unsuitable_motions_are_refused() -> None:
    spectra, target = Spectra(SAMPLES, DT), burst()[:, :1]
    with pytest.raises(ConfigError, match=naming("a", "move")):
        learning.fitted(spectra, target, 0.0 * target, target, ("a",), None)

    noise = np.random.default_rng(3).normal(0.0, 1.0, target.shape)
    with pytest.raises(ConfigError, match=naming("explain", "displacements")):
        learning.fitted(spectra, target, noise, target, ("a",), None)


# Histories of an oscillator: Z_n = k_n - m w^2 + i c w, the specimen a spring k_e
MASS, STIFFNESS, DAMPING = 100.0, 1e4, 240.0


def oscillator(tested: float) -> Substructure:
    """An oscillator whose numerical part keeps ``STIFFNESS``, with ``tested`` (N/m) under test."""
    scenario = {
        "version": 1,
        "name": "oscillator",
        "servo_rate": 512.0,
        "substeps": 1,
        "duration": (SAMPLES - 1) * DT,
        "ground_motion": {"type": "harmonic", "amplitude": 1.0, "frequency": 1.3, "periods": 2, "ramp_periods": 1},
        "structure": {
            "type": "matrices",
            "mass": [[MASS]],
            "stiffness": [[STIFFNESS + tested]],
            "damping": {"type": "matrix", "matrix": [[DAMPING]]},
            "experimental_stiffness": [[tested]],
        },
        "integrator": {"type": "exact"},
        "compensator": {"type": "none"},
        "axes": {
            "a": {
                "actuator": {"type": "first_order", "alpha": 5.0},
                "specimen": {"type": "kelvin_voigt", "stiffness": tested, "damping": 0.0},
                "limits": {"stroke": 1.0, "velocity": 10.0, "force": 1e6},
            }
        },
    }
    return Substructure(files.from_data(scenario, "test"))


def residuals(name: str, tested: float, runs: int, omega: float = 1.0) -> tuple[list[Array], Substructure]:
    """Residual displacement of each run on a perfect rig, starting from the motion without specimen."""
    part, spectra = oscillator(tested), Spectra(SAMPLES, DT)
    rule, target, rests = Relaxation(name, omega, part), part.under(np.zeros((SAMPLES, 1))), []
    for _ in range(runs):
        force = tested * target[:, 0]
        computed = part.under(force)
        rest = spectra.motion(computed[:, 0] - target[:, 0], 100.0)
        rests.append(rest[:, 0])
        target = rule.next(Step(computed, rest, np.array([[tested], [0.0], [0.0]])))
    return rests, part


def contraction(tested: float, frequency: Array, omega: float = 1.0) -> Array:
    """|1 - omega - omega k_e / Z_n| at ``frequency`` (Hz)."""
    s = 2j * np.pi * frequency
    return np.abs(1.0 - omega - omega * tested / (STIFFNESS + DAMPING * s + MASS * s**2))


@pytest.mark.parametrize("omega", [1.0, 0.5])
def test_constant_relaxation_has_closed_form_contraction(omega: float) -> None:
    """k_e / (k_n - m w^2 + i c w), values above and below one."""
    rests, _ = residuals("constant", 1200.0, 3, omega)
    spectra = Spectra(SAMPLES, DT)
    first, second = (np.abs(spectra.of(rest)[:, 0]) for rest in rests[1:])
    bins = [int(np.searchsorted(spectra.frequencies, f)) for f in (0.6, 1.0, 1.3, 1.5, 1.6, 1.8, 2.2)]
    expected = contraction(1200.0, spectra.frequencies[bins], omega)
    np.testing.assert_allclose(second[bins] / first[bins], expected, rtol=2e-3)


def test_constant_relaxation_converges_below_stiffness_bound() -> None:
    """At the resonance of the numerical part the factor is k_e / (c w), so c w bounds k_e."""
    bound = DAMPING * np.sqrt(STIFFNESS / MASS)
    frequencies = np.linspace(0.1, 10.0, 2000)
    for tested, converges in ((0.6 * bound, True), (1.7 * bound, False)):
        assert (contraction(tested, frequencies).max() < 1.0) == converges
        rests, _ = residuals("constant", tested, 8)
        sizes = [rms(rest) for rest in rests]
        assert (sizes[-1] < 0.1 * sizes[0]) == converges
        assert (sizes[-1] < sizes[-2]) == converges


def test_quasi_newton_converges_beyond_bound() -> None:
    tested = 1.3 * DAMPING * np.sqrt(STIFFNESS / MASS)
    plain, quick = (residuals(name, tested, 10)[0] for name in ("constant", "quasi_newton"))
    assert rms(plain[-1]) > rms(plain[0])
    assert rms(quick[-1]) < 0.05 * rms(quick[0])


def test_aitken_finds_optimal_relaxation() -> None:
    """A factor of -0.7 at all frequencies: the relaxation is 1 / 1.7."""
    part = oscillator(5000.0)
    rule: Any = Relaxation("aitken", 1.0, part)
    target, motion = np.zeros((SAMPLES, 3, 1)), burst()[:, :, None]
    for _ in range(3):
        computed = motion - 0.7 * target
        target = rule.next(Step(computed, computed - target, np.zeros((3, 1))))
    assert rule.omega == pytest.approx(1.0 / 1.7)
    np.testing.assert_allclose(target, motion / 1.7, atol=1e-9)


@pytest.mark.parametrize("tested", [500.0, 5e3, 5e4])
def test_model_of_linear_specimen_converges_in_one_run(tested: float) -> None:
    rests, _ = residuals("model", tested, 2)
    assert rms(rests[1]) < 2e-3 * rms(rests[0])


def test_prediction_is_fixed_point_of_iteration() -> None:
    part = oscillator(5e3)
    computed = part.under(5e3 * part.predicted[:, 0])
    np.testing.assert_allclose(computed, part.predicted, atol=2e-4 * np.abs(part.predicted).max())
    assert part.reference is not None
    np.testing.assert_allclose(part.reference, part.predicted[:, 0], atol=1e-12)


def test_distance_equals_distance_to_prediction() -> None:
    """The distance of an arbitrary motion, from its residual and the specimen."""
    part, spectra, tested = oscillator(5e3), Spectra(SAMPLES, DT), 5e3
    moved = 0.3 * np.abs(part.predicted).max() * burst(frequency=1.5)[:, :1]
    rest = spectra.motion(part.under(tested * moved)[:, 0] - moved, 100.0)
    distance = part.distance(rest, np.array([[tested], [0.0], [0.0]]))
    exact = part.predicted[:, 0] - moved
    np.testing.assert_allclose(distance, exact, atol=2e-3 * np.abs(exact).max())


def test_specimen_parameters_are_fitted_to_force() -> None:
    spectra = Spectra(SAMPLES, DT)
    x, v, a = (burst(1.0) + burst(3.0, 8.0) + burst(6.0, 12.0)).T[:, :, None]
    force = 2e4 * x + 300.0 * v + 7.0 * a
    specimens = corrections.fitted(spectra, x, force, 50.0)
    assert specimens[:, 0] == pytest.approx((2e4, 300.0, 7.0), rel=1e-3)
    assert corrections.answer(spectra, specimens, x, 0.9 * force, 50.0)[0] == pytest.approx(0.9, rel=1e-3)
    damper = specimens * [[0.0], [1.0], [0.0]]
    assert corrections.answer(spectra, damper, x, 270.0 * v, 50.0)[0] == pytest.approx(0.9, rel=1e-3)


def rows(*errors: float, answer: float = 1.0) -> list[Row]:
    """Runs with these errors (%); the last has the share ``answer`` of the force of the first."""
    runs = [Row(n, "finished", error=e, noise=0.1, answer={"a": 1.0}) for n, e in enumerate(errors, 1)]
    return [*runs[:-1], Row(len(errors), "finished", error=errors[-1], noise=0.1, answer={"a": answer})]


def test_rule_returns_verdicts() -> None:
    rule = Settings(corrections.HISTORY, runs=4, tolerance=0.5)
    assert rule.verdict(rows(9.0, 4.0)) == ("", "")
    assert rule.verdict(rows(9.0, 0.4))[0] == corrections.CONVERGED
    assert Settings(corrections.HISTORY, 4, 0.01).verdict(rows(9.0, 0.19))[0] == corrections.CONVERGED  # the noise
    assert rule.verdict(rows(3.0, 4.0))[0] == ""
    assert rule.verdict(rows(3.0, 4.0, 5.0))[0] == corrections.DIVERGED
    assert rule.verdict(rows(9.0, 4.0, 3.0, 2.0))[0] == corrections.EXHAUSTED
    assert rule.verdict([*rows(9.0), Row(2, "tripped", "stroke")]) == (corrections.ENDED, "run 2 tripped: stroke")
    verdict, reason = rule.verdict(rows(9.0, 4.0, answer=0.94))
    assert verdict == corrections.SOFTENED
    assert mentions(reason, "a", "6 %", "force", "run 1")
    assert rule.verdict(rows(9.0, 4.0, answer=0.96))[0] == ""


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"runs": 51}, {"tolerance": 0.0}, {"tolerance": 101.0}])
def test_rule_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        Settings(corrections.HISTORY, **wrong)
