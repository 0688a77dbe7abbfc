# SPDX-License-Identifier: Apache-2.0
"""Specimens: closed forms, identities between them, and what the papers state of the real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from messages import naming
from scipy.integrate import trapezoid

from rths_nodes.core.decay import Decay
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.specimen import Specimen
from rths_nodes.laboratory.actuators.unloaded import SpecimenPath

LOWEST, HIGHEST = 0.5, 1.0
"""Hz: the frequencies in which a frame of 0.77 Hz moves."""
SAMPLES = 2000
"""Per period."""


def follow(specimen: Any, path: np.ndarray, dt: float) -> np.ndarray:
    """Forces on the way along ``path``, which starts where the first step ends; velocities by difference."""
    mover = SpecimenPath(specimen, dt)
    velocity = np.diff(path, prepend=0.0) / dt
    return np.array([mover.move(*state) for state in zip(path.tolist(), velocity.tolist(), strict=True)])


def third_loop(specimen: Any, amplitude: float, frequency: float) -> tuple[np.ndarray, np.ndarray]:
    """Displacement and force of the third period of a sine, from zero."""
    time = np.arange(3 * SAMPLES + 1) / (SAMPLES * frequency)
    omega = 2.0 * math.pi * frequency
    x = amplitude * np.sin(omega * time)
    v = omega * amplitude * np.cos(omega * time)
    path = SpecimenPath(specimen, 1.0 / (SAMPLES * frequency))
    force = np.array([path.move(*state) for state in zip(x.tolist(), v.tolist(), strict=True)])
    return x[2 * SAMPLES :], force[2 * SAMPLES :]


def properties(specimen: Any, amplitude: float, frequency: float) -> tuple[float, float]:
    """Secant stiffness and loss factor of the third loop.

    Force at the largest displacement over that displacement; energy over 2 pi times the elastic energy there.
    """
    x, force = third_loop(specimen, amplitude, frequency)
    secant = force[SAMPLES // 4] / amplitude
    return float(secant), float(trapezoid(force, x) / (math.pi * secant * amplitude**2))


def secant_stiffness(specimen: Any, amplitude: float, frequency: float) -> float:
    return properties(specimen, amplitude, frequency)[0]


def loss_factor(specimen: Any, amplitude: float, frequency: float) -> float:
    return properties(specimen, amplitude, frequency)[1]


@pytest.mark.parametrize(
    ("name", "amplitude", "low", "high"),
    [
        ("kelvin_voigt", 0.001, 0.26, 0.53),
        ("kelvin_voigt", 0.030, 0.26, 0.53),
        ("softening_elastomeric", 0.001, 0.1, 0.2),
        ("softening_elastomeric", 0.030, 0.5, 0.7),
    ],
)
@pytest.mark.parametrize("frequency", [LOWEST, HIGHEST])
def test_loss_factor(
    make: Callable[..., Any], name: str, amplitude: float, low: float, high: float, frequency: float
) -> None:
    assert low <= loss_factor(make("specimen", name), amplitude, frequency) <= high


def test_the_loss_factor_of_a_spring_and_dashpot_is_c_omega_over_k(make: Callable[..., Any]) -> None:
    expected = 0.64e6 * 2.0 * math.pi * 0.77 / 7.6e6
    assert loss_factor(make("specimen", "kelvin_voigt"), 0.01, 0.77) == pytest.approx(expected, rel=1e-5)


def test_specimen_h_softens_with_amplitude(make: Callable[..., Any]) -> None:
    path = SpecimenPath(make("specimen", "softening_elastomeric"), 1.0)
    forces = [path.move(x, 0.0) for x in np.linspace(0.0, 0.06, 61).tolist()]
    assert forces[1] / 0.001 == pytest.approx(7.6e6, rel=0.05)
    assert forces[60] - forces[59] == pytest.approx(2.0e6 * 0.001, rel=0.05)


def virgin(x: float) -> float:
    """Specimen H, loaded slowly for the first time: exponent 1 makes z = 1 - exp(-x / x_f)."""
    return 2.0e6 * x + 60e3 * (1.0 - math.exp(-x * 5.6 / 60e-3))


def test_the_path_converges_with_the_fourth_order(make: Callable[..., Any]) -> None:
    end, errors = 0.06, []
    for parts in (1, 2, 4):
        path = SpecimenPath(make("specimen", "softening_elastomeric"), 1.0)
        force = [path.move(end * (part + 1) / parts, 0.0) for part in range(parts)][-1]
        errors.append(abs(force - virgin(end)))
    assert errors[0] / errors[1] > 12.0
    assert errors[1] / errors[2] > 12.0
    assert errors[2] < 1e-5 * virgin(end)


def test_inner_states_see_the_displacement_on_the_way() -> None:
    class Integral(Specimen):
        """A specimen that adds up its displacement over time."""

        initial_state = (0.0,)
        decay = Decay()

        def __init__(self) -> None:
            """Nothing to set."""

        def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
            return state[0]

        def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
            return (displacement,)

    path = SpecimenPath(Integral(), 0.5)
    assert path.move(2.0, 0.0) == pytest.approx(0.5 * 0.5 * 2.0)
    assert path.move(2.0, 0.0) == pytest.approx(0.5 + 0.5 * 2.0)


def test_the_velocity_adds_the_dashpot_only(make: Callable[..., Any]) -> None:
    slow, fast = (SpecimenPath(make("specimen", "softening_elastomeric"), dt) for dt in (1.0, 0.01))
    assert fast.move(0.002, 0.2) - slow.move(0.002, 0.0) == pytest.approx(0.20e6 * 0.2, rel=1e-9)


# Dashpots


def test_the_power_law_dashpot_dissipates_its_closed_form(make: Callable[..., Any]) -> None:
    amplitude, frequency, exponent = 0.02, 1.5, 0.3
    damper = make("specimen", "kelvin_voigt", stiffness=1e6, damping=2e5, exponent=exponent)
    x, force = third_loop(damper, amplitude, frequency)
    shape = 2.0 ** (2.0 + exponent) * math.gamma(1.0 + exponent / 2.0) ** 2 / math.gamma(2.0 + exponent)
    largest = 2e5 * (2.0 * math.pi * frequency * amplitude) ** exponent
    assert trapezoid(force, x) == pytest.approx(shape * largest * amplitude, rel=1e-4)


@pytest.mark.parametrize("exponent", [0.3, 1.0, 2.0])
def test_the_damping_holds_at_the_reference_velocity(make: Callable[..., Any], exponent: float) -> None:
    data = {"stiffness": 0.0, "damping": 3.0, "exponent": exponent, "reference_velocity": 0.2}
    damper = make("specimen", "kelvin_voigt", **data)
    assert damper.force((), 0.0, -0.2) == pytest.approx(-0.6)
    assert damper.force((), 0.0, 0.1) == pytest.approx(0.6 * 0.5**exponent)
    assert damper.force((), 0.0, 0.0) == 0.0


def test_the_force_at_a_velocity_beyond_all_numbers_is_not_finite(make: Callable[..., Any]) -> None:
    assert not math.isfinite(make("specimen", "kelvin_voigt", exponent=2.0).force((), 0.0, 1e300))


def test_maxwell_approaches_its_dashpot_exponentially(make: Callable[..., Any]) -> None:
    damping, stiffness, velocity, dt = 2e5, 2e7, 0.1, 1.0 / 1024.0
    damper = make("specimen", "maxwell_damper", damping=damping, series_stiffness=stiffness)
    time = dt * np.arange(1, 101)
    expected = damping * velocity * (1.0 - np.exp(-time * stiffness / damping))
    np.testing.assert_allclose(follow(damper, velocity * time, dt), expected, rtol=1e-8)


def test_maxwell_in_steady_vibration_has_its_complex_stiffness(make: Callable[..., Any]) -> None:
    damper = make("specimen", "maxwell_damper", parallel_stiffness=1e6)
    stiffness = 1e6 + 20e6 * 1j * 2.0 * math.pi * 5.0 * 0.01 / (1.0 + 1j * 2.0 * math.pi * 5.0 * 0.01)
    assert secant_stiffness(damper, 0.01, 5.0) == pytest.approx(stiffness.real, rel=1e-4)
    assert loss_factor(damper, 0.01, 5.0) == pytest.approx(stiffness.imag / stiffness.real, rel=1e-4)


def test_the_relief_valve_opens_at_its_force(make: Callable[..., Any]) -> None:
    damper = make("specimen", "relief_valve_damper", damping=4e6, relief_force=2e5, relief_damping=3e5)
    velocity = np.array([0.02, 0.05, 0.06, 0.15])
    forces = np.array([damper.force((), 0.0, v) for v in velocity.tolist()])
    np.testing.assert_allclose(forces, [0.8e5, 2e5, 2e5 + 3e5 * 0.01, 2e5 + 3e5 * 0.1])
    np.testing.assert_allclose([damper.force((), 0.0, -v) for v in velocity.tolist()], -forces)


def test_behind_a_spring_the_valve_settles_at_the_same_force(make: Callable[..., Any]) -> None:
    rigid, elastic = (make("specimen", "relief_valve_damper", **data) for data in ({}, {"series_stiffness": 5e7}))
    dt = 1.0 / 1024.0
    for velocity in (0.03, -0.2):
        shown = follow(elastic, velocity * dt * np.arange(1, 1025), dt)
        assert shown[-1] == pytest.approx(rigid.force((), 0.0, velocity), rel=1e-5)


def test_with_the_valve_shut_it_is_a_maxwell_damper(make: Callable[..., Any]) -> None:
    oil = make("specimen", "relief_valve_damper", damping=2e5, relief_damping=1e5, series_stiffness=2e7)
    maxwell = make("specimen", "maxwell_damper", damping=2e5, series_stiffness=2e7)
    shown = third_loop(oil, 0.01, 2.0)[1]
    assert np.abs(shown).max() < 200e3
    np.testing.assert_array_equal(shown, third_loop(maxwell, 0.01, 2.0)[1])


def test_refuses_a_valve_that_closes_or_holds_nothing(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("specimen.relief_damping", "9e+06 N s/m", "<= damping", "4e+06")):
        make("specimen", "relief_valve_damper", relief_damping=9e6)
    with pytest.raises(ConfigError, match=naming("relief_damping", "0 N s/m", "> 0", "series_stiffness")):
        make("specimen", "relief_valve_damper", relief_damping=0.0, series_stiffness=1e8)
    assert make("specimen", "relief_valve_damper", relief_damping=0.0).force((), 0.0, 1.0) == 200e3


# Steel


def test_the_absorber_is_bouc_wen_with_elastic_unloading(make: Callable[..., Any]) -> None:
    data = {"stiffness": 2e6, "post_yield_ratio": 0.05, "exponent": 2.0}
    absorber = make("specimen", "elastoplastic_absorber", yield_force=10e3, **data)
    other = make("restoring_force", "bouc_wen", 1, yield_displacement=0.005, beta=0.5, gamma=0.5, **data)
    x = 0.02 * np.sin(0.02 * np.arange(1, 700))
    expected = np.array([other.force(np.array([value]))[0] for value in x])
    np.testing.assert_allclose(follow(absorber, x, 0.01), expected, atol=1e-4 * 10e3)


def test_the_absorber_yields_like_a_hyperbolic_tangent(make: Callable[..., Any]) -> None:
    absorber = make("specimen", "elastoplastic_absorber", post_yield_ratio=0.0)
    x = np.linspace(0.0, 0.03, 301)
    np.testing.assert_allclose(follow(absorber, x, 0.01), 10e3 * np.tanh(x / 0.005), atol=0.01)


def test_a_sharp_absorber_dissipates_the_bilinear_loop(make: Callable[..., Any]) -> None:
    absorber = make("specimen", "elastoplastic_absorber", exponent=50.0)
    x, force = third_loop(absorber, 0.02, 1.0)
    assert trapezoid(force, x) == pytest.approx(4.0 * 0.95 * 10e3 * (0.02 - 0.005), rel=0.01)
    quarter = SAMPLES // 4
    slope = (force[quarter] - force[quarter + 100]) / (x[quarter] - x[quarter + 100])
    assert slope == pytest.approx(2e6, rel=1e-6)


# Damage

LEVEL, SOUND, BEYOND = 0.020, 1.0e6, 0.3


def envelope(x: float) -> float:
    return SOUND * x if x <= LEVEL else SOUND * (LEVEL + BEYOND * (x - LEVEL))


def test_the_column_is_sound_below_the_level(make: Callable[..., Any]) -> None:
    x = 0.999 * LEVEL * np.sin(0.01 * np.arange(1, 2000))
    np.testing.assert_allclose(follow(make("specimen", "degrading_column"), x, 0.001), SOUND * x, rtol=1e-12)


def test_the_column_keeps_the_secant_of_its_largest_excursion(make: Callable[..., Any]) -> None:
    way = [np.linspace(0.0, 0.05, 500), np.linspace(0.05, -0.05, 1000), np.linspace(-0.05, 0.08, 1300)]
    x = np.concatenate(way)
    force = follow(make("specimen", "degrading_column"), x, 0.001)
    np.testing.assert_allclose(force[:500], [envelope(value) for value in way[0]], rtol=1e-12)
    secant = envelope(0.05) / 0.05
    np.testing.assert_allclose(force[500:1500], secant * way[1], rtol=1e-4, atol=1e-9)
    inside = way[2] <= 0.05
    np.testing.assert_allclose(force[1500:][inside], secant * way[2][inside], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(force[1500:][~inside], [envelope(x) for x in way[2][~inside]], rtol=1e-12)


@pytest.mark.parametrize("rate", [128.0, 1024.0, 4096.0])
def test_the_memory_of_the_column_does_not_depend_on_the_steps(make: Callable[..., Any], rate: float) -> None:
    column = make("specimen", "degrading_column")
    path = SpecimenPath(column, 1.0 / rate)
    time = np.arange(1, int(rate) + 1) / rate
    peak = 0.05
    for x in (peak * np.sin(2.0 * np.pi * 2.0 * time)).tolist():
        path.move(x, 0.0)
    assert path.move(0.01, 0.0) == pytest.approx(0.01 * envelope(peak) / peak, rel=1e-4)


def test_one_cycle_of_damage_dissipates_what_the_triangle_holds(make: Callable[..., Any]) -> None:
    column = make("specimen", "degrading_column")
    x = np.concatenate([np.linspace(0.0, 0.05, 2000), np.linspace(0.05, 0.0, 2000)])
    energy = trapezoid(follow(column, x, 0.001), x)
    loading = 0.5 * SOUND * LEVEL**2 + 0.5 * (SOUND * LEVEL + envelope(0.05)) * (0.05 - LEVEL)
    assert energy == pytest.approx(loading - 0.5 * envelope(0.05) * 0.05, rel=1e-3)


# The damper of Chen & Ricles (2010), Fig. 6: what the paper states of it

FRAME_STIFFNESS, FRAME_MASS = 11.76e6, 503.4e3
SMALL, LARGE = 0.0003, 0.030


@pytest.fixture(scope="module")
def damper(make: Callable[..., Any]) -> Any:
    return make("specimen", "slipping_elastomeric")


@pytest.mark.parametrize("frequency", [0.7, 1.0, 1.4, 2.0])
def test_the_loss_factor_is_0_4_to_0_5_at_small_amplitudes_and_1_2_at_large_ones(
    damper: Any, frequency: float
) -> None:
    assert 0.4 <= loss_factor(damper, SMALL, frequency) <= 0.5
    assert loss_factor(damper, LARGE, frequency) == pytest.approx(1.2, abs=0.06)


def test_the_loss_factor_rises_and_the_stiffness_falls_with_amplitude(damper: Any) -> None:
    amplitudes = (0.0003, 0.003, 0.010, 0.030)
    stiffnesses, losses = zip(*[properties(damper, amplitude, 1.0) for amplitude in amplitudes], strict=True)
    assert np.all(np.diff(losses) > 0.0)
    assert np.all(np.diff(stiffnesses) < 0.0)
    # the identified k_eq of the paper, 7.6 kN/mm, is the secant stiffness of a little more than yielding
    assert secant_stiffness(damper, 0.012, 1.0) == pytest.approx(7.6e6, rel=0.03)


def test_the_stiffness_depends_on_frequency_at_small_amplitudes_more_than_at_large_ones(damper: Any) -> None:
    small, large = (
        secant_stiffness(damper, amplitude, 2.0) / secant_stiffness(damper, amplitude, 0.7)
        for amplitude in (SMALL, LARGE)
    )
    assert small > 1.4
    assert 0.9 < large < 1.1


def test_at_small_amplitudes_it_is_a_standard_linear_solid(damper: Any) -> None:
    turn = 1j * 2.0 * math.pi * 1.0 * 0.085
    stiffness = 17e6 + 27e6 * turn / (1.0 + turn)
    assert secant_stiffness(damper, 1e-6, 1.0) == pytest.approx(stiffness.real, rel=1e-3)
    assert loss_factor(damper, 1e-6, 1.0) == pytest.approx(stiffness.imag / stiffness.real, rel=1e-3)


def test_frame_and_damper_have_an_equivalent_damping_of_0_18(damper: Any) -> None:
    frequency = 1.3
    for _ in range(3):  # the damper's stiffness depends on the frequency that it makes
        stiffness, loss = properties(damper, SMALL, frequency)
        frequency = math.sqrt((FRAME_STIFFNESS + stiffness) / FRAME_MASS) / (2.0 * math.pi)
    share = stiffness / (FRAME_STIFFNESS + stiffness)
    inherent = 0.02 * 0.77 / frequency
    assert inherent + 0.5 * share * loss == pytest.approx(0.18, abs=0.005)


def reference_run(make: Callable[..., Any], damper: Any, motion: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Displacement and both restoring forces of the reference set-up with a perfect actuator."""
    dt = 10.0 / 1024.0
    plastic = {"stiffness": FRAME_STIFFNESS, "yield_displacement": 0.010, "post_yield_ratio": 0.01}
    force = {"type": "bouc_wen", "beta": 0.55, "gamma": 0.45, **plastic}
    structure = make("structure", "sdof", mass=FRAME_MASS, frequency=0.77, restoring_force=force)
    external = -FRAME_MASS * motion.sample(np.arange(0.0, 12.0, dt))[:, None]
    equivalent = {"equivalent_stiffness": 7.6e6, "equivalent_damping": 0.64e6}
    solver, path = make("integrator", "cr", structure, external, dt, **equivalent), SpecimenPath(damper, dt)
    rows = []
    for _ in range(len(external) - 1):
        x = float(solver.displacement[0])
        measured = path.move(x, float(solver.velocity[0]))
        solver.step(np.array([measured]))
        rows.append((x, float(solver.restoring_force[0]), measured))
    x, frame, shown = np.array(rows).T
    return x, frame, shown


def check_the_share(x: np.ndarray, frame: np.ndarray, shown: np.ndarray) -> None:
    for peak in (int(np.argmax(x)), int(np.argmin(x))):
        assert abs(x[peak]) > 0.010
        assert 0.44 <= shown[peak] / (shown[peak] + frame[peak]) <= 0.55
    assert 0.44 <= np.abs(shown).max() / (np.abs(shown).max() + np.abs(frame).max()) <= 0.55


def test_the_damper_carries_its_share_of_the_story_shear(make: Callable[..., Any], damper: Any) -> None:
    motion = make("ground_motion", "record", 1, record="elcentro_1940_ns", scale=0.52)
    check_the_share(*reference_run(make, damper, motion))


def test_the_share_with_the_papers_record(
    make: Callable[..., Any], damper: Any, shared_data: Callable[[str], Any]
) -> None:
    path = str(shared_data("ground_motions/northridge_1994_canoga_park_196_dt0.01_g.txt"))
    motion = make("ground_motion", "record", 1, file=path, step=0.01, unit="g", scale=0.322)
    x, frame, shown = reference_run(make, damper, motion)
    assert 0.025 < np.abs(x).max() < 0.040
    check_the_share(x, frame, shown)


def test_a_long_step_does_not_turn_the_rubber_round(damper: Any) -> None:
    force = follow(damper, np.array([0.05, 0.1, 0.05, -0.1]), 0.001)
    assert np.isfinite(force).all()
    assert damper.rate((1.0, 0.0), 0.0, 1.0)[0] == 0.0
