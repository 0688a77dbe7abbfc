# SPDX-License-Identifier: Apache-2.0
"""Tests of the judgement of sampled loops against simulation, and of the count of close roots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from loop_parts import make, simulate, spring_specimen
from messages import naming

from rths_nodes.analysis.stability.crossings import PER_DECADE, growing_motions, ratio_limit, settle
from rths_nodes.analysis.stability.impulses import Way
from rths_nodes.analysis.stability.judgement import judge, judge_loop
from rths_nodes.analysis.stability.loops import CHANGED, HZ, MARGINAL, ContinuousLoop, Lines, SampledLoop
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import taps
from rths_nodes.core.protocols import Integrator
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.structure import transition

INTEGRATORS: dict[str, dict[str, Any]] = {
    "central_difference": {},
    "explicit_newmark": {},
    "cr": {},
    "kr_alpha": {"rho_infinity": 0.5},
    "exact": {"measured_force": "held"},
    "exact, extrapolated": {"measured_force": "extrapolated"},
    "runge_kutta": {},
    "newmark": {},
    "hht_alpha": {"iterations": 1},
    "hht_alpha, 4 iterations": {"iterations": 4},
}
WITHOUT_A_LOOP = {"predefined", "prescribed", "remote", "opensees", "fmu"}


def kind(name: str) -> str:
    return name.partition(",")[0]


@pytest.mark.parametrize("name", INTEGRATORS)
def test_linearised_steps_equal_steps_of_integrator(name: str) -> None:
    stiffnesses, tested = [1e5, 3e5], [4e4, 0.0]
    damping = {"type": "modal", "ratios": [0.02, 0.03]}
    springs = {"stiffnesses": stiffnesses, "experimental_stiffnesses": tested}
    frame = make("structure", "shear_frame", masses=[1e3, 8e2], damping=damping, **springs)
    integrator = make("integrator", kind(name), frame, np.zeros((60, 2)), 0.01, **INTEGRATORS[name])
    steps, period = integrator.linearised(), integrator.period
    forces = 1e3 * np.random.default_rng(1).standard_normal((50, 2))
    integrator.reset()
    for force in forces[: 2 * period]:
        integrator.step(force)
    memory = integrator.remembered(integrator.state)
    assert len(memory) == 2 * len(integrator.memory)
    for index, force in enumerate(forces[2 * period :]):
        onward, of_force, target, through = steps[index % period]
        expected, memory = target @ memory + through @ force, onward @ memory + of_force @ force
        integrator.step(force)
        result = np.concatenate([integrator.displacement, integrator.velocity, integrator.acceleration])
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


def test_every_integrator_is_linearised() -> None:
    assert {kind(name) for name in INTEGRATORS} == set(registry.names("integrator")) - WITHOUT_A_LOOP


ONE = """
version: 1
name: one_story
servo_rate: {rate}
substeps: {substeps}
duration: {duration}
ground_motion: {{type: harmonic, amplitude: 1.0e-3, frequency: 1.0, periods: 1}}
structure:
  type: shear_frame
  masses: [1.0e3]
  stiffnesses: [{stiffness}]
  experimental_stiffnesses: [{tested}]
  damping: {{type: modal, ratios: [{damping_ratio}]}}
integrator: {{type: cr}}
compensator: {{type: none}}
axes:
  story:
    actuator: {{type: pure_delay, delay: {delay}}}
    specimen: {{type: computed_spring, stiffness: {tested}}}
    limits: {{stroke: 10.0, velocity: 100.0, force: 1.0e9}}
"""
RATE = 25.0
"""Integration steps per second; the servo rate is at least 100 Hz."""
DELAY = 0.02


def one_story(
    substeps: int, integrator: str = "cr", ramp: str = "linear", compensator: str = "none", *overrides: str
) -> Scenario:
    """1 Hz, 15 % of damping, half of the spring under test."""
    stiffness = 1e3 * HZ**2
    values = {"stiffness": repr(stiffness), "tested": repr(0.5 * stiffness), "damping_ratio": 0.15, "delay": DELAY}
    text = ONE.format(rate=max(100.0, RATE * substeps), substeps=substeps, duration=12.0, **values)
    parts = {
        "integrator": {"type": kind(integrator)} | INTEGRATORS[integrator],
        "ramp": {"type": ramp},
        "compensator": {"type": compensator} | COMPENSATORS[compensator],
    }
    assignments = [f"{key}={value!r}".replace("'", "").replace("True", "true") for key, value in parts.items()]
    return override(files.from_text(text, "one_story"), [*assignments, *overrides])


RAMPS = ("linear", "quadratic", "hermite", "predictor_corrector")
COMPENSATORS: dict[str, dict[str, Any]] = {
    "none": {},
    "inverse": {"alpha": 3.0},
    "adaptive_inverse": {"alpha_es": 3.0, "k_p_per_mm2": 0.0},
    "adaptive": {"compensator": {"type": "derivative_feedforward", "delay": DELAY}, "k_p_per_mm2": 0.0},
    "polynomial": {"delay": DELAY, "order": 3},
    "linear_acceleration": {"delay": DELAY, "spacing": 3},
    "derivative_feedforward": {"delay": DELAY, "order": 2},
    "discrete_model": {"initial": [2.5, -2.1, 0.6], "spacing": 2, "update_after": 100.0},
    "adaptive_time_series": {"delay": DELAY, "cutoff_frequency": 20.0, "trigger_amplitude": 100.0},
    "chain": {
        "first": {"type": "derivative_feedforward", "delay": 0.01, "order": 1},
        "second": {"type": "derivative_feedforward", "delay": 0.01, "order": 2},
    },
    "linear": {
        "law": {"A": [[-400.0]], "B": [[400.0, 0.0]], "C": [[1.0 - DELAY / 0.0025]], "D": [[DELAY / 0.0025, 0.0]]},
        "inputs": ["target", "velocity"],
    },
    "identified_inverse": {
        "inverse": {
            "displacement": [[1.0]],
            "velocity": [[DELAY]],
            "acceleration": [[0.5 * DELAY**2]],
            "jerk": [[0.0]],
        },
        "learning": False,
    },
}
"""Adaptive compensators keep their initial parameters, which are judged."""
COUPLED = {"model_based"}


def test_every_component_with_response_is_compared() -> None:
    assert set(RAMPS) == set(registry.names("ramp"))
    with_response = {
        name
        for name in registry.names("compensator")
        if hasattr(registry.load("compensator", name), "frequency_response")
    }
    assert with_response - COUPLED == set(COMPENSATORS)


def motion_of(history: Array, step: float, about: complex, period: int = 1) -> complex:
    """The motion (rad/s) in the last half of a history of one motion: x_{k+m} = a x_k - b x_{k-m}.

    Uses every ``period``-th step, as an integrator with a period moves differently in between.
    """
    history, step = history[::period], step * period
    m = max(1, round(math.pi / 2.0 / abs(about.imag) / step))
    x = history[len(history) // 2 :]
    a, b = np.linalg.lstsq(np.column_stack([x[m:-m], -x[: -2 * m]]), x[2 * m :], rcond=None)[0]
    roots = np.log(np.roots([1.0, -a, b]).astype(complex)) / (m * step)
    return complex(roots[np.argmax(roots.imag)])


def growth(motion: complex) -> float:
    """Growth factor per cycle."""
    return math.exp(HZ * motion.real / motion.imag)


TOLERANCE = 2e-4
"""Tolerance of the growth per cycle."""


def compare_near_limit(test: Scenario) -> None:
    """Verdict, growth per cycle and simulation agree at 0.95 and 1.05 of the critical delay."""
    result = judge_loop(sampled_loop(test))
    critical, limit = result.critical_delay, result.further_delay
    assert result.stable
    assert critical is not None
    assert limit is not None
    transport = test.transport_samples * test.dt
    for factor in (0.95, 1.05):
        shifted = override(test, [f"axes.story.actuator.delay={critical * factor - transport!r}"])
        loop = sampled_loop(shifted)
        assert growing_motions(loop, [HZ * limit.frequency]) == (0 if factor < 1.0 else 2)
        motion = settle(loop, complex(0.0, HZ * limit.frequency))
        assert growth(motion) == pytest.approx(1.0, abs=0.2)
        assert (growth(motion) > 1.0) == (factor > 1.0)
        history = simulate(shifted)[1].dof_displacement[:, 0]
        stepped = motion_of(history, test.step, motion, loop.period)
        assert growth(stepped) == pytest.approx(growth(motion), abs=TOLERANCE), (factor, motion, stepped)
        assert stepped.imag == pytest.approx(motion.imag, rel=TOLERANCE)


def held(delay: float = 0.02) -> Scenario:
    """2.48 Hz, 2 % of damping, an eighth of the spring under test, held force."""
    values = {"stiffness": 243360.0, "tested": 30420.0, "damping_ratio": 0.02, "delay": delay}
    text = ONE.format(rate=400.0, substeps=1, duration=40.0, **values)
    return override(files.from_text(text, "held"), ["integrator={type: exact}", "ground_motion.frequency=2.5"])


def test_held_force_adds_half_step_of_delay() -> None:
    """Growth 0.99492 per cycle in continuous time, 1.00215 simulated."""
    test = held()
    result = judge(test)
    assert not result.stable
    assert growth(result.motions[0]) == pytest.approx(1.00215, abs=1e-5)
    (mode,) = judge_loop(continuous_loop(test)).modes
    assert growth(mode.motion) == pytest.approx(0.99492, abs=1e-5)
    stepped = motion_of(simulate(test)[1].dof_displacement[:, 0], test.step, result.motions[0])
    assert growth(stepped) == pytest.approx(growth(result.motions[0]), abs=1e-9)
    assert result.continuous_delay is not None
    assert result.critical_delay is not None
    assert result.continuous_delay > 0.02 > result.critical_delay
    assert result.continuous_delay - result.critical_delay == pytest.approx(0.5 * test.step, rel=0.05)
    assert judge(override(test, ["integrator={type: exact, measured_force: extrapolated}"])).stable


@pytest.mark.parametrize("late", [0, 3, 8])
def test_motions_equal_eigenvalues_of_state_matrix(late: int) -> None:
    """Held force, whole samples of delay: the loop as one matrix with a delay line, by formulas."""
    test = held(late / 400.0)
    mass, damping, numerical, tested = 1e3, 2.0 * 0.02 * 15.6 * 1e3, 212940.0, 30420.0
    phi, before, now = transition(
        np.array([[0.0, 1.0], [-numerical / mass, -damping / mass]]), np.array([[0.0], [1.0 / mass]]), test.step
    )
    line = np.eye(3 + late, k=-1)
    line[2] = 0.0
    line[:2, :] = 0.0
    line[:2, :2] = phi
    line[2, 0] = 1.0  # the displacement of the step before
    line[:2, [0] if late == 0 else [1 + late]] -= tested * (before + now)
    factors = np.linalg.eigvals(line).astype(complex)
    motions = np.log(factors[np.abs(factors) > 1e-6]) / test.step
    expected = motions[np.argmin(abs(motions - 15.6j))]
    (mode,) = judge(test).modes
    assert mode.motion == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("late", [0, 3])
def test_fed_back_force_belongs_to_the_loop(late: int) -> None:
    """The force follows the command after 8 + ``late`` samples, so that an open law has the same response."""
    test, share = override(held(), [f"axes.story.sensors.force_delay={late}"]), 0.2
    recursion = [1.0, *([0.0] * (8 + late)), -share]
    numerator = [1.0, *([0.0] * (9 + late))]
    laws = (
        f"inputs: [target, force], law: {{D: [[1.0, {share / 30420.0!r}]]}}",
        f"law: {{numerator: {numerator}, denominator: {recursion}, Ts: {test.dt!r}}}",
    )
    closed, open_law = (judge(override(test, [f"compensator={{type: linear, {law}}}"])) for law in laws)
    assert closed.modes[0].motion == pytest.approx(open_law.modes[0].motion, rel=1e-9)
    assert abs(closed.modes[0].motion - judge(test).modes[0].motion) > 1e-3
    assert closed.continuous_delay is None


def test_only_degrees_of_freedom_on_axes_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of three floors is on the rig."""
    simulated, response = set(), Way._response

    def recorded(way: Way, n_dof: int, kind: int, dof: int, *args: float) -> Array:
        simulated.add(dof)
        return response(way, n_dof, kind, dof, *args)

    monkeypatch.setattr(Way, "_response", recorded)
    assembly = Assembly(files.load("rths_benchmark_2020", ["compensator={type: none}"]))
    result = Way(assembly).impulses(assembly.observation)
    assert simulated == {0}
    assert np.flatnonzero(result.forces.any(axis=(0, 1))).tolist() == [0]  # only displacement is passed on


def test_response_is_simulated_until_it_decays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three responses, each a quarter longer; the larger one, only compared, until it is small."""
    simulated, follow = [0], SeparateAxes.follow

    def counted(rig: SeparateAxes, *args: Any) -> Any:
        simulated[0] += 1
        return follow(rig, *args)

    monkeypatch.setattr(SeparateAxes, "follow", counted)
    assembly = Assembly(files.load("rths_benchmark_2020"))
    result = Way(assembly).impulses(assembly.observation)
    assert len(result.forces) > 10_000
    assert simulated[0] < (3 * 1.25 + 0.6) * len(result.forces)


def test_more_substeps_reduce_critical_delay() -> None:
    """Regression: `tadc_sine` with 40 substeps, a step of 39 ms, was judged like with one."""
    few, many = (judge(override(files.load("tadc_sine"), [f"substeps={n}"])) for n in (1, 10))
    assert few.critical_delay is not None
    assert many.critical_delay is not None
    assert many.critical_delay < 0.9 * few.critical_delay


@pytest.mark.parametrize("name", ["horiuchi_1996_verification", "tadc_sine"])
def test_undamped_structure_is_judged(name: str) -> None:
    """Regression: an eigenfrequency of the numerical substructure was on the sweep."""
    result = judge(
        override(files.load(name), ["structure.damping={type: rayleigh, ratios: [0.0, 0.0], modes: [1, 2]}"])
    )
    assert len(result.modes) == len(result.loop.whole.mass)


@pytest.mark.filterwarnings("error")
def test_extreme_values_are_refused() -> None:
    test = override(files.load("tadc_sine"), ["setup.matrix=[[-1.0e+30, 0.0, 0.0]]"])
    with pytest.raises(ConfigError, match=naming("highest", "natural")):
        judge(test)


@pytest.mark.parametrize(("unknown", "reason"), [("linearised", "does"), ("period", "repeats")])
def test_integrator_without_linearised_steps_is_refused(
    unknown: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = registry.load("integrator", "cr")
    monkeypatch.setattr(cls, unknown, 1000 if unknown == "period" else Integrator.linearised)
    with pytest.raises(ConfigError, match=rf"integrator\.type = 'cr': {reason}"):
        judge(one_story(1))


@pytest.mark.parametrize("kinematics", ["linear", pytest.param("exact", marks=pytest.mark.soak)])
def test_coupled_axes_grow_as_judged(kinematics: str) -> None:
    """Coupled axes a tenth beyond their critical delay, simulated until only the growing motion remains."""
    overrides = ["ground_motion={type: harmonic, amplitude: 1.0e-6, frequency: 2.0, periods: 1}", "duration=25"]
    free = {"stroke": 10.0, "velocity": 100.0, "force": 1e9, "tracking_error": 10.0}
    stable = override(files.load("two_actuator_coupler"), [f"setup.kinematics={kinematics}"])
    overrides += [f"axes.{axis}.limits.{key}={value}" for axis in stable.axes for key, value in free.items()]
    limit = judge_loop(sampled_loop(stable)).further_delay
    assert limit is not None
    samples = stable.port.transport_samples + math.ceil(1.1 * limit.value / stable.dt)
    delayed = override(stable, [*overrides, f"port.transport_samples={samples}"])
    result = judge_loop(sampled_loop(delayed))
    assert not result.stable
    motion = result.motions[0]
    history = simulate(delayed)[1].dof_displacement
    column = int(np.argmax(np.abs(history[-1])))
    stepped = motion_of(history[:, column], delayed.step, motion)
    assert growth(stepped) == pytest.approx(growth(motion), abs=1e-3)


def combinations() -> Iterator[tuple[str, str, str]]:
    yield from ((integrator, ramp, "none") for integrator in INTEGRATORS for ramp in RAMPS)
    yield from (
        ("cr", ramp, compensator) for ramp in RAMPS for compensator in COMPENSATORS if compensator != "none"
    )


SAMPLE = [
    (1, "exact", "linear", "none"),
    (10, "exact", "linear", "none"),
    (40, "exact, extrapolated", "quadratic", "polynomial"),
    (40, "cr", "linear", "inverse"),
    (10, "cr", "hermite", "derivative_feedforward"),
    (10, "kr_alpha", "hermite", "derivative_feedforward"),
    (1, "central_difference", "predictor_corrector", "linear_acceleration"),
    (10, "hht_alpha, 4 iterations", "linear", "none"),
    (40, "explicit_newmark", "predictor_corrector", "none"),
]


@pytest.mark.parametrize(("substeps", "integrator", "ramp", "compensator"), SAMPLE)
def test_verdict_and_simulation_agree(substeps: int, integrator: str, ramp: str, compensator: str) -> None:
    compare_near_limit(one_story(substeps, integrator, ramp, compensator))


@pytest.mark.soak
@pytest.mark.parametrize("substeps", [1, 10, 40])
@pytest.mark.parametrize(("integrator", "ramp", "compensator"), combinations())
def test_verdict_and_simulation_agree_for_all(substeps: int, integrator: str, ramp: str, compensator: str) -> None:
    compare_near_limit(one_story(substeps, integrator, ramp, compensator))


DEPTHS = (1, 3, 8)


def over_hops(substeps: int, integrator: str, depth: int) -> Scenario:
    """At least 400 Hz, as 8 samples at 100 Hz exceed the critical delay."""
    rate = max(400.0, RATE * substeps)
    return one_story(
        substeps, integrator, "linear", "none", f"servo_rate={rate}", f"hops.depth={depth}", "duration=12"
    )


@pytest.mark.parametrize(
    ("substeps", "integrator", "depth"), [(1, "cr", 8), (10, "hht_alpha", 3), (10, "exact", 1)]
)
def test_verdict_and_simulation_agree_over_hops(substeps: int, integrator: str, depth: int) -> None:
    test = over_hops(substeps, integrator, depth)
    assert test.transport_samples == depth
    compare_near_limit(test)


@pytest.mark.soak
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("substeps", [1, 10])
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_verdict_and_simulation_agree_over_hops_for_all(substeps: int, integrator: str, depth: int) -> None:
    """Depth 0 is tested by ``test_verdict_and_simulation_agree_for_all``."""
    compare_near_limit(over_hops(substeps, integrator, depth))


OMEGA = 10.0
OFFSETS = np.linspace(0.0, 1.0, 11)
"""Offsets of a root from a frequency of the sweep, over the distance of two frequencies."""


def oscillators(omega: Array, growth: Array) -> ContinuousLoop:
    """Independent unit masses on springs under test with roots ``growth`` +- j ``omega``, rig without delay."""
    one = np.eye(len(omega))
    springs = tuple(spring_specimen(float(stiffness)) for stiffness in omega**2 + growth**2)

    def undelayed(w: Array) -> Array:
        return taps(w, [1.0], [0.0])

    rig = (undelayed,) * len(omega)
    return ContinuousLoop(one, np.diag(-2.0 * growth), 0.0 * one, one, one, springs, undelayed, rig, dt=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("growth", [1e-3, 1e-5])
@pytest.mark.parametrize("apart", [0.0, 0.1, 1.0])
def test_close_roots_are_counted_at_any_offset(count: int, growth: float, apart: float) -> None:
    """``growth`` over frequency; ``apart``: distance of two roots over that of two frequencies of a sweep."""
    step = 10.0 ** (1.0 / PER_DECADE)
    for offset in OFFSETS:
        omega = OMEGA * step ** (offset + apart * np.arange(count))
        for sign in (1.0, -1.0):
            loop = oscillators(omega, sign * growth * omega)
            assert growing_motions(loop) == (2 * count if sign > 0.0 else 0), (offset, sign)


def test_close_growing_and_decaying_roots_are_counted() -> None:
    omega = OMEGA * (1.0 + 1e-4 * np.arange(4))
    for signs in ([1, 1, -1, -1], [1, -1, -1, -1], [1, 1, 1, -1], [-1, 1, -1, 1]):
        loop = oscillators(omega, 1e-5 * omega * np.array(signs))
        assert growing_motions(loop) == 2 * signs.count(1), signs


def test_marginal_root_is_refused() -> None:
    scale = oscillators(np.array([OMEGA]), np.zeros(1)).scale
    loop = oscillators(np.array([OMEGA]), np.array([MARGINAL * scale]))
    assert loop.scale == pytest.approx(scale, rel=1e-12)
    with pytest.raises(ConfigError, match=naming("resolve", f"{OMEGA / HZ:.4g}")):
        growing_motions(loop)


@pytest.fixture(scope="module")
def three_axes() -> SampledLoop:
    return sampled_loop(files.load("phillips_spencer_2012"))


def motions_near(loop: SampledLoop, about: float, ratio: float) -> list[complex]:
    """The roots (rad/s) within 1 % of ``about``, by Newton's iteration from many starting points."""
    roots: list[complex] = []
    for omega in np.linspace(0.98 * about, 1.02 * about, 15):
        for growth in (-5.0, 0.0, 5.0):
            root = settle(loop, complex(growth, omega), ratio=ratio)
            if abs(root.imag / about - 1.0) < 0.01 and all(abs(root - other) > 1e-4 for other in roots):
                roots.append(root)
    return roots


@pytest.mark.parametrize("ratio", [2.5652 * 1.0002, 2.5703, 2.5747, 2.5749, 2.5753, 2.5759])
def test_close_roots_of_three_axes_are_counted(three_axes: SampledLoop, ratio: float) -> None:
    """Their roots lie within 0.15 rad/s of each other at 1770 rad/s: the count is that of Newton's iteration."""
    roots = motions_near(three_axes, 1770.0 * 2.57 / ratio, ratio)
    assert len(roots) == 3
    expected = 2 * sum(root.real > 0.0 for root in roots)
    for offset in OFFSETS:  # the count does not depend on the frequencies
        frequencies = 1760.0 + 30.0 * (offset + np.arange(-3, 4))
        assert growing_motions(three_axes, frequencies.tolist(), ratio=ratio) == expected


def test_ratio_limit_is_where_first_axis_grows(three_axes: SampledLoop) -> None:
    (limit,) = ratio_limit(three_axes, [], 0)
    roots = motions_near(three_axes, HZ * limit.frequency, limit.value)
    assert len(roots) == 3
    assert max(root.real for root in roots) == pytest.approx(0.0, abs=1e-3)


def test_grid_is_dense_at_resonances() -> None:
    """A delay of 20 powers and two resonances with 1e-3 of damping that fade to 1e-10."""
    powers = np.arange(23_000)
    lines = sum(np.exp(-1e-3 * powers) * np.cos(angle * powers) for angle in (0.3, 2.0))
    response = Lines.of(20.0, np.asarray(lines)[:, None])
    grid = response.grid()
    assert 20.0 * math.pi / CHANGED < len(grid) < 60.0 * math.pi / CHANGED
    values = response.at(1j * grid)[:, 0]
    assert np.max(np.abs(np.diff(values)) / np.maximum(np.abs(values[1:]), np.abs(values[:-1]))) < 3.0 * CHANGED
    for angle in (0.3, 2.0):
        assert np.sum(np.abs(grid - angle) < 1e-3) > 5
