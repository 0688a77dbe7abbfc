# SPDX-License-Identifier: Apache-2.0
"""Tests that repeat, by numbers: filters, the inverse that is learned, what relaxations leave, the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import mentions, naming
from numpy.typing import NDArray

from rths_nodes.analysis.iteration import corrections, learning
from rths_nodes.analysis.iteration.convergence import CONVERGED, DIVERGED, ENDED, EXHAUSTED, SOFTENED, Row, Rule
from rths_nodes.analysis.iteration.corrections import RELAXATIONS, Specimens, Step, Substructure
from rths_nodes.analysis.iteration.learning import Spectra, noise_rms, rms
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files

DT, SAMPLES = 1.0 / 512.0, 512 * 16
TIME = DT * np.arange(SAMPLES)
Array = NDArray[np.float64]


def burst(frequency: float = 2.0, middle: float = 3.0, width: float = 0.5) -> Array:
    """A wave that is at rest at both ends, with its first two derivatives: ``(samples, 3)``."""
    w, t = 2.0 * np.pi * frequency, TIME - middle
    shape = np.exp(-0.5 * (t / width) ** 2 + 1j * w * t)
    rate = 1j * w - t / width**2
    return np.column_stack([part.imag for part in (shape, rate * shape, (rate**2 - width**-2) * shape)])


# Spectra


def test_derivatives_are_those_of_the_closed_form() -> None:
    wave = burst()
    found = Spectra(SAMPLES, DT).motion(wave[:, :1], cutoff=60.0)[:, :, 0]
    for column, size in enumerate(np.abs(wave).max(axis=0)):
        np.testing.assert_allclose(found[:, column], wave[:, column], atol=1e-6 * size)


def test_the_filter_shifts_nothing_and_has_its_gain() -> None:
    spectra = Spectra(SAMPLES, DT)
    wave = burst(frequency=10.0)[:, :1]
    found = spectra.low_passed(wave, cutoff=10.0 / 0.9)
    assert rms(found) / rms(wave) == pytest.approx(0.5, abs=0.1)
    np.testing.assert_allclose(spectra.low_passed(wave, 20.0), wave, atol=1e-6)
    np.testing.assert_allclose(spectra.low_passed(wave, 5.0), 0.0, atol=1e-6)
    assert float((found * wave).sum()) / (rms(found) * rms(wave) * SAMPLES) == pytest.approx(1.0, abs=0.1)


def test_noise_is_told_from_motion() -> None:
    noise = np.random.default_rng(1).normal(0.0, 2e-3, (SAMPLES, 1))
    assert noise_rms(noise + burst()[:, :1])[0] == pytest.approx(2e-3, rel=0.05)


# Learning


def lag(tau: float, delay: float, gain: float = 1.0) -> Any:
    """A rig: first-order lag behind a delay, as a function of commands ``(samples, 1)``."""
    spectra = Spectra(SAMPLES, DT)
    response = gain * np.exp(-spectra.s * delay) / (1.0 + tau * spectra.s)
    return lambda command: spectra.history(response[:, None] * spectra.of(command))


def test_the_inverse_of_a_lag_behind_a_delay_is_found() -> None:
    """1 + s tau behind a delay: to the sample by which the correlation shifts, and the rest in the polynomial."""
    spectra, target = Spectra(SAMPLES, DT), sum(burst(f, 3.0 + f / 2.0)[:, :1] for f in (0.5, 1.0, 2.0, 4.0, 8.0))
    rig, noise = lag(0.01, 0.02), np.random.default_rng(1).normal(0.0, 1e-3, (SAMPLES, 1))
    inverse = learning.fitted(spectra, target, rig(target) + noise, target, ("a",), None)
    w = 2.0 * np.pi * np.array([0.5, 2.0, 6.0])
    places = [int(np.searchsorted(spectra.frequencies, value / (2.0 * np.pi))) for value in w]
    exact = (1.0 + 0.01 * spectra.s[places]) * np.exp(0.02 * spectra.s[places])
    np.testing.assert_allclose(inverse.response(spectra)[places, 0], exact, rtol=5e-3)
    assert 8.0 < inverse.learned_to <= inverse.known_to


def test_what_is_left_of_an_error_is_what_the_inverse_leaves() -> None:
    """L = 0.5 on a rig with the gain 0.8 leaves 1 - 0.4 of an error that Q lets through."""
    spectra, target = Spectra(SAMPLES, DT), burst()[:, :1]
    wrong = learning.Inverse(np.zeros(1), np.array([[0.5]]), np.zeros(0), np.zeros((0, 2)), 60.0, 60.0)
    command, errors = 0.5 * target, []
    first = command
    for _ in range(4):
        moved = 0.8 * command
        errors.append(rms(target - moved))
        command = learning.corrected(spectra, wrong, first, (command, target, moved), target)
    np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.6, rtol=1e-3)


def test_tracking_ends_at_the_noise_within_three_runs() -> None:
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


def test_an_axis_that_does_not_move_teaches_nothing() -> None:
    spectra, target = Spectra(SAMPLES, DT), burst()[:, :1]
    with pytest.raises(ConfigError, match=naming("a", "move")):
        learning.fitted(spectra, target, 0.0 * target, target, ("a",), None)


def test_commands_that_explain_nothing_are_refused() -> None:
    spectra, target = Spectra(SAMPLES, DT), burst()[:, :1]
    noise = np.random.default_rng(3).normal(0.0, 1.0, target.shape)
    with pytest.raises(ConfigError, match=naming("explain", "displacements")):
        learning.fitted(spectra, target, noise, target, ("a",), None)


# Whole histories of an oscillator: Z_n = k_n - m w^2 + i c w, the specimen a spring k_e

MASS, STIFFNESS, DAMPING = 100.0, 1e4, 240.0


def oscillator(tested: float) -> Substructure:
    """An oscillator whose numerical part keeps ``STIFFNESS``, with ``tested`` (N/m) in the laboratory."""
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
    """Residual displacement of each run on a rig that is perfect, from the motion without a specimen on."""
    part, spectra = oscillator(tested), Spectra(SAMPLES, DT)
    rule, target, found = RELAXATIONS[name](omega, part), part.under(np.zeros((SAMPLES, 1))), []
    for _ in range(runs):
        force = tested * target[:, 0]
        computed = part.under(force)
        rest = spectra.motion(computed[:, 0] - target[:, 0], 100.0)
        found.append(rest[:, 0])
        target = rule.next(Step(computed, rest, Specimens(*np.array([[0.0], [0.0], [tested]]))))
    return found, part


def contraction(tested: float, frequency: Array, omega: float = 1.0) -> Array:
    """|1 - omega - omega k_e / Z_n| at ``frequency`` (Hz)."""
    s = 2j * np.pi * frequency
    return np.abs(1.0 - omega - omega * tested / (STIFFNESS + DAMPING * s + MASS * s**2))


@pytest.mark.parametrize("omega", [1.0, 0.5])
def test_plain_iteration_leaves_at_each_frequency_what_the_closed_form_says(omega: float) -> None:
    """k_e / (k_n - m w^2 + i c w), above and below one."""
    found, _ = residuals("constant", 1200.0, 3, omega)
    spectra = Spectra(SAMPLES, DT)
    first, second = (np.abs(spectra.of(each)[:, 0]) for each in found[1:])
    places = [int(np.searchsorted(spectra.frequencies, f)) for f in (0.6, 1.0, 1.3, 1.5, 1.6, 1.8, 2.2)]
    expected = contraction(1200.0, spectra.frequencies[places], omega)
    np.testing.assert_allclose(second[places] / first[places], expected, rtol=2e-3)


def test_plain_iteration_converges_where_the_largest_factor_is_below_one() -> None:
    """At the resonance of the numerical part k_e / (c w), so that c w is the stiffest specimen."""
    bound = DAMPING * np.sqrt(STIFFNESS / MASS)
    frequencies = np.linspace(0.1, 10.0, 2000)
    for tested, converges in ((0.6 * bound, True), (1.7 * bound, False)):
        assert (contraction(tested, frequencies).max() < 1.0) == converges
        found, _ = residuals("constant", tested, 8)
        sizes = [rms(each) for each in found]
        assert (sizes[-1] < 0.1 * sizes[0]) == converges
        assert (sizes[-1] < sizes[-2]) == converges


def test_quasi_newton_converges_where_plain_iteration_does_not() -> None:
    tested = 1.3 * DAMPING * np.sqrt(STIFFNESS / MASS)
    plain, quick = (residuals(name, tested, 10)[0] for name in ("constant", "quasi_newton"))
    assert rms(plain[-1]) > rms(plain[0])
    assert rms(quick[-1]) < 0.05 * rms(quick[0])


def test_aitken_finds_the_factor_of_a_rig_with_one_factor() -> None:
    """A factor of -0.7 at all frequencies, as far below a resonance: the relaxation is 1 / 1.7."""
    part = oscillator(5000.0)
    rule: Any = RELAXATIONS["aitken"](1.0, part)
    target, motion = np.zeros((SAMPLES, 3, 1)), burst()[:, :, None]
    for _ in range(3):
        computed = motion - 0.7 * target
        target = rule.next(Step(computed, computed - target, Specimens(*np.zeros((3, 1)))))
    assert rule.omega == pytest.approx(1.0 / 1.7)
    np.testing.assert_allclose(target, motion / 1.7, atol=1e-9)


@pytest.mark.parametrize("tested", [500.0, 5e3, 5e4])
def test_the_model_of_a_linear_specimen_agrees_after_one_run(tested: float) -> None:
    found, _ = residuals("model", tested, 2)
    assert rms(found[1]) < 2e-3 * rms(found[0])


def test_the_structure_in_one_piece_is_where_the_parts_agree() -> None:
    part = oscillator(5e3)
    computed = part.under(5e3 * part.predicted[:, 0])
    np.testing.assert_allclose(computed, part.predicted, atol=2e-4 * np.abs(part.predicted).max())
    assert part.reference is not None
    np.testing.assert_allclose(part.reference, part.predicted[:, 0], atol=1e-12)


def test_the_distance_is_that_to_the_structure_in_one_piece() -> None:
    """A motion that is nowhere near: what is to go, as its residual and the specimen tell it."""
    part, spectra, tested = oscillator(5e3), Spectra(SAMPLES, DT), 5e3
    moved = 0.3 * np.abs(part.predicted).max() * burst(frequency=1.5)[:, :1]
    rest = spectra.motion(part.under(tested * moved)[:, 0] - moved, 100.0)
    found = part.distance(rest, Specimens(*np.array([[0.0], [0.0], [tested]])))
    exact = part.predicted[:, 0] - moved
    np.testing.assert_allclose(found, exact, atol=2e-3 * np.abs(exact).max())


def test_spring_dashpot_and_mass_of_a_specimen_are_told_by_its_force() -> None:
    spectra = Spectra(SAMPLES, DT)
    x, v, a = (burst(1.0) + burst(3.0, 8.0) + burst(6.0, 12.0)).T[:, :, None]
    force = 2e4 * x + 300.0 * v + 7.0 * a
    mass, damping, stiffness = corrections.fitted(spectra, x, force, 50.0)
    assert (mass[0], damping[0], stiffness[0]) == pytest.approx((7.0, 300.0, 2e4), rel=1e-3)
    found = Specimens(mass, damping, stiffness)
    assert corrections.answer(spectra, found, x, 0.9 * force, 50.0)[0] == pytest.approx(0.9, rel=1e-3)
    damper = Specimens(0.0 * mass, damping, 0.0 * stiffness)
    assert corrections.answer(spectra, damper, x, 270.0 * v, 50.0)[0] == pytest.approx(0.9, rel=1e-3)


# The rule


def rows(*errors: float, answer: float = 1.0) -> list[Row]:
    """Runs with these errors (%), of which the last one has this part of the force of the first."""
    found = [Row(n, "finished", error=e, noise=0.1, answer={"a": 1.0}) for n, e in enumerate(errors, 1)]
    return [*found[:-1], Row(len(errors), "finished", error=errors[-1], noise=0.1, answer={"a": answer})]


def test_verdicts() -> None:
    rule = Rule(runs=4, tolerance=0.5)
    assert rule.verdict(rows(9.0, 4.0)) == ("", "")
    assert rule.verdict(rows(9.0, 0.4))[0] == CONVERGED
    assert Rule(4, 0.01).verdict(rows(9.0, 0.19))[0] == CONVERGED  # the noise
    assert rule.verdict(rows(3.0, 4.0))[0] == ""
    assert rule.verdict(rows(3.0, 4.0, 5.0))[0] == DIVERGED
    assert rule.verdict(rows(9.0, 4.0, 3.0, 2.0))[0] == EXHAUSTED
    assert rule.verdict([*rows(9.0), Row(2, "tripped", "stroke")]) == (ENDED, "run 2 tripped: stroke")
    verdict, words = rule.verdict(rows(9.0, 4.0, answer=0.94))
    assert verdict == SOFTENED
    assert mentions(words, "a", "6 %", "force", "run 1")
    assert rule.verdict(rows(9.0, 4.0, answer=0.96))[0] == ""


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"runs": 51}, {"tolerance": 0.0}, {"tolerance": 101.0}])
def test_a_rule_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        Rule(**wrong)
