# SPDX-License-Identifier: Apache-2.0
"""Verdict and simulation: the loop as it is stepped, of every integrator, ramp and compensator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.stability.crossings import growing_motions, settle
from rths_nodes.analysis.stability.impulses import Way
from rths_nodes.analysis.stability.judgement import judge, judge_loop
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Integrator
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.structure import transition
from rths_nodes.recording.run import Collector, Run

# The steps of an integrator

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
def test_the_steps_of_an_integrator_are_those_that_it_takes(name: str, make: Callable[..., Any]) -> None:
    stiffnesses, tested = [1e5, 3e5], [4e4, 0.0]
    damping = {"type": "modal", "ratios": [0.02, 0.03]}
    frame = make(
        *("structure", "shear_frame"),
        **{
            "masses": [1e3, 8e2],
            "stiffnesses": stiffnesses,
            "experimental_stiffnesses": tested,
            "damping": damping,
        },
    )
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
        wanted, memory = target @ memory + through @ force, onward @ memory + of_force @ force
        integrator.step(force)
        found = np.concatenate([integrator.displacement, integrator.velocity, integrator.acceleration])
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12 * np.abs(wanted).max())


def test_every_integrator_says_how_it_steps() -> None:
    assert {kind(name) for name in INTEGRATORS} == set(registry.names("integrator")) - WITHOUT_A_LOOP


# One degree of freedom

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
"""Integration steps in a second, Hz; at least 100 samples in it."""
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
    words = [f"{key}={value!r}".replace("'", "").replace("True", "true") for key, value in parts.items()]
    return override(files.from_text(text, "one_story"), [*words, *overrides])


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
"""Where they learn, they have nothing to learn from: what is judged is where they begin."""
COUPLED = {"model_based"}


def test_every_part_with_a_response_is_compared() -> None:
    assert set(RAMPS) == set(registry.names("ramp"))
    known = {
        name
        for name in registry.names("compensator")
        if hasattr(registry.load("compensator", name), "frequency_response")
    }
    assert known - COUPLED == set(COMPENSATORS)


def simulated(test: Scenario) -> Run:
    loop = Loop(Assembly(test))
    collector = Collector(loop.scenario, loop.assembly.names)
    loop.run([collector])
    return collector.run()


def motion_of(history: Array, step: float, about: complex, period: int = 1) -> complex:
    """The motion (rad/s) in the last half of a history that has become one: x_{k+m} = a x_k - b x_{k-m}.

    Of every ``period``-th step: in between, an integrator of such a period makes a motion of its own.
    """
    history, step = history[::period], step * period
    m = max(1, round(math.pi / 2.0 / abs(about.imag) / step))
    x = history[len(history) // 2 :]
    a, b = np.linalg.lstsq(np.column_stack([x[m:-m], -x[: -2 * m]]), x[2 * m :], rcond=None)[0]
    roots = np.log(np.roots([1.0, -a, b]).astype(complex)) / (m * step)
    return complex(roots[np.argmax(roots.imag)])


def growth(motion: complex) -> float:
    """Factor in a cycle."""
    return math.exp(HZ * motion.real / motion.imag)


TOLERANCE = 2e-4
"""Of the growth in a cycle."""


def compare_beside_the_limit(test: Scenario) -> None:
    """At 0.95 and 1.05 of the critical delay verdict, growth in a cycle and simulation are the same."""
    found = judge_loop(sampled_loop(test))
    critical, limit = found.critical_delay, found.further_delay
    assert found.stable
    assert critical is not None
    assert limit is not None
    transport = test.transport_samples * test.dt
    for factor in (0.95, 1.05):
        beside = override(test, [f"axes.story.actuator.delay={critical * factor - transport!r}"])
        loop = sampled_loop(beside)
        assert growing_motions(loop, [HZ * limit.frequency]) == (0 if factor < 1.0 else 2)
        motion = settle(loop, complex(0.0, HZ * limit.frequency))
        assert growth(motion) == pytest.approx(1.0, abs=0.2)
        assert (growth(motion) > 1.0) == (factor > 1.0)
        history = simulated(beside).dof_displacement[:, 0]
        stepped = motion_of(history, test.step, motion, loop.period)
        assert growth(stepped) == pytest.approx(growth(motion), abs=TOLERANCE), (factor, motion, stepped)
        assert stepped.imag == pytest.approx(motion.imag, rel=TOLERANCE)


# What was judged wrongly, or not at all

HELD = """
version: 1
name: held
servo_rate: 400.0
substeps: 1
duration: 40.0
ground_motion: {type: harmonic, amplitude: 1.0e-3, frequency: 2.5, periods: 1}
structure:
  type: shear_frame
  masses: [1.0e3]
  stiffnesses: [243360.0]
  experimental_stiffnesses: [30420.0]
  damping: {type: modal, ratios: [0.02]}
integrator: {type: exact}
compensator: {type: none}
axes:
  story:
    actuator: {type: pure_delay, delay: 0.02}
    specimen: {type: computed_spring, stiffness: 30420.0}
    limits: {stroke: 10.0, velocity: 100.0, force: 1.0e9}
"""


def test_the_hold_of_the_force_is_half_a_step_of_delay() -> None:
    """In continuous time 0.99492 a cycle; simulated 1.00215. An eighth of the spring is under test."""
    test = files.from_text(HELD, "held")
    found = judge(test)
    assert not found.stable
    assert growth(found.motions[0]) == pytest.approx(1.00215, abs=1e-5)
    (mode,) = judge_loop(continuous_loop(test)).modes
    assert growth(mode.motion) == pytest.approx(0.99492, abs=1e-5)
    assert growth(motion_of(simulated(test).dof_displacement[:, 0], test.step, found.motions[0])) == pytest.approx(
        growth(found.motions[0]), abs=1e-9
    )
    assert found.continuous_delay is not None
    assert found.critical_delay is not None
    assert found.continuous_delay > 0.02 > found.critical_delay
    assert found.continuous_delay - found.critical_delay == pytest.approx(0.5 * test.step, rel=0.05)
    others = override(test, ["integrator={type: exact, measured_force: extrapolated}"])
    assert judge(others).stable


@pytest.mark.parametrize("late", [0, 3, 8])
def test_a_state_matrix_has_the_same_motions(late: int) -> None:
    """Held force, whole samples of delay: the loop as one matrix with a delay line, by formulas."""
    test = override(files.from_text(HELD, "held"), [f"axes.story.actuator.delay={late / 400.0}"])
    mass, damping, own, tested = 1e3, 2.0 * 0.02 * 15.6 * 1e3, 212940.0, 30420.0
    phi, before, now = transition(
        np.array([[0.0, 1.0], [-own / mass, -damping / mass]]), np.array([[0.0], [1.0 / mass]]), test.step
    )
    line = np.eye(3 + late, k=-1)
    line[2] = 0.0
    line[:2, :] = 0.0
    line[:2, :2] = phi
    line[2, 0] = 1.0  # the displacement of the step before
    line[:2, [0] if late == 0 else [1 + late]] -= tested * (before + now)
    factors = np.linalg.eigvals(line).astype(complex)
    motions = np.log(factors[np.abs(factors) > 1e-6]) / test.step
    wanted = motions[np.argmin(abs(motions - 15.6j))]
    (mode,) = judge(test).modes
    assert mode.motion == pytest.approx(wanted, abs=1e-6)


def test_degrees_of_freedom_that_move_no_axis_are_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three floors is on the rig."""
    simulated, response = set(), Way._response

    def noted(way: Way, n_dof: int, kind: int, dof: int, *given: float) -> Array:
        simulated.add(dof)
        return response(way, n_dof, kind, dof, *given)

    monkeypatch.setattr(Way, "_response", noted)
    assembly = Assembly(files.load("rths_benchmark_2020", ["compensator={type: none}"]))
    found = Way(assembly).impulses(assembly.observation)
    assert simulated == {0}
    assert np.flatnonzero(found.forces.any(axis=(0, 1))).tolist() == [0]  # its displacement, which is handed on


def test_a_response_is_simulated_until_it_has_faded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter longer, three times; the larger one, which is compared only, until it is small."""
    simulated, follow = [0], SeparateAxes.follow

    def counted(rig: SeparateAxes, *given: Any) -> Any:
        simulated[0] += 1
        return follow(rig, *given)

    monkeypatch.setattr(SeparateAxes, "follow", counted)
    assembly = Assembly(files.load("rths_benchmark_2020"))
    found = Way(assembly).impulses(assembly.observation)
    assert len(found.forces) > 10_000
    assert simulated[0] < (3 * 1.25 + 0.6) * len(found.forces)


def test_more_sub_steps_are_more_delay() -> None:
    """`tadc_sine` with 40 sub-steps, a step of 39 ms, was judged like with one."""
    few, many = (judge(override(files.load("tadc_sine"), [f"substeps={n}"])) for n in (1, 10))
    assert few.critical_delay is not None
    assert many.critical_delay is not None
    assert many.critical_delay < 0.9 * few.critical_delay


@pytest.mark.parametrize("name", ["horiuchi_1996_verification", "tadc_sine"])
def test_an_undamped_structure_can_be_judged(name: str) -> None:
    """An eigenfrequency of the numerical substructure lay on the sweep."""
    found = judge(
        override(files.load(name), ["structure.damping={type: rayleigh, ratios: [0.0, 0.0], modes: [1, 2]}"])
    )
    assert len(found.modes) == len(found.loop.whole.mass)


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_reason_are_refused_at_once() -> None:
    test = override(files.load("tadc_sine"), ["setup.matrix=[[-1.0e+30, 0.0, 0.0]]"])
    with pytest.raises(ConfigError, match=naming("highest", "natural")):
        judge(test)


@pytest.mark.parametrize(("unknown", "reason"), [("linearised", "does"), ("period", "repeats")])
def test_an_integrator_that_does_not_say_how_it_steps_is_refused(
    unknown: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = registry.load("integrator", "cr")
    monkeypatch.setattr(cls, unknown, 1000 if unknown == "period" else Integrator.linearised)
    with pytest.raises(ConfigError, match=rf"integrator\.type = 'cr': {reason}"):
        judge(one_story(1))


# Coupled axes


@pytest.mark.parametrize("kinematics", ["linear", pytest.param("exact", marks=pytest.mark.soak)])
def test_coupled_axes_grow_as_judged(kinematics: str) -> None:
    """A setup that couples its axes, a tenth beyond their critical delay; until only what grows is left."""
    calm = ["ground_motion={type: harmonic, amplitude: 1.0e-6, frequency: 2.0, periods: 1}", "duration=25"]
    free = {"stroke": 10.0, "velocity": 100.0, "force": 1e9, "tracking_error": 10.0}
    still = override(files.load("two_actuator_coupler"), [f"setup.kinematics={kinematics}"])
    calm += [f"axes.{axis}.limits.{key}={value}" for axis in still.axes for key, value in free.items()]
    limit = judge_loop(sampled_loop(still)).further_delay
    assert limit is not None
    samples = still.port.transport_samples + math.ceil(1.1 * limit.value / still.dt)
    late = override(still, [*calm, f"port.transport_samples={samples}"])
    found = judge_loop(sampled_loop(late))
    assert not found.stable
    worst = found.motions[0]
    history = simulated(late).dof_displacement
    column = int(np.argmax(np.abs(history[-1])))
    stepped = motion_of(history[:, column], late.step, worst)
    assert growth(stepped) == pytest.approx(growth(worst), abs=1e-3)


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
    compare_beside_the_limit(one_story(substeps, integrator, ramp, compensator))


@pytest.mark.soak
@pytest.mark.parametrize("substeps", [1, 10, 40])
@pytest.mark.parametrize(("integrator", "ramp", "compensator"), combinations())
def test_verdict_and_simulation_agree_for_all(substeps: int, integrator: str, ramp: str, compensator: str) -> None:
    compare_beside_the_limit(one_story(substeps, integrator, ramp, compensator))


# With hops: p samples of transport more


DEPTHS = (1, 3, 8)


def over_hops(substeps: int, integrator: str, depth: int) -> Scenario:
    """At 100 Hz 8 samples would be more than is critical: the rate is 400 Hz at least."""
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
    compare_beside_the_limit(test)


@pytest.mark.soak
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("substeps", [1, 10])
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_verdict_and_simulation_agree_over_hops_for_all(substeps: int, integrator: str, depth: int) -> None:
    """Every integrator; depth 0 are the tests above."""
    compare_beside_the_limit(over_hops(substeps, integrator, depth))
