# SPDX-License-Identifier: Apache-2.0
"""Tests of the stability judgement: Horiuchi et al. (1996), closed forms, simulations in time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loop_parts import make, simulate, spring_specimen
from messages import mentions, naming

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.stability import judgement
from rths_nodes.analysis.stability.crossings import growing_motions
from rths_nodes.analysis.stability.judgement import Judgement, judge, judge_loop
from rths_nodes.analysis.stability.loops import HZ, ContinuousLoop, Impulses, Response
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.control.compensators.polynomial import weights
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import in_series, taps
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.small_specimen import SmallSpecimen

DELAY = 0.02
ORDERS = range(5)
CRITICAL = {2: 0.7405, 3: 0.7025}
"""Order -> w0 delay with the whole spring under test and no damping (notes on Horiuchi et al.)."""


def late(delay: float) -> Response:
    return lambda omega: taps(omega, [1.0], [delay])


def apparent_spring(order: int, phase: Array) -> tuple[Array, Array]:
    """Eq. (6): k*/k and c* w/k of a spring with prediction of ``order``, ``phase`` = w delay (rad)."""
    ages = 1.0 + np.arange(order + 1)
    rig = np.exp(-1j * np.multiply.outer(phase, ages)) @ weights(order, 1.0)
    return rig.real, rig.imag


def looped(
    mass: Array,
    damping: Array,
    stiffness: Array,
    tested: Sequence[SmallSpecimen],
    actuators: Sequence[Response],
    axes_of: Array,
    order: int = 0,
) -> ContinuousLoop:
    specimens, rig = tuple(tested), tuple(actuators)

    def prediction(omega: Array) -> Array:
        return taps(omega, weights(order, 1.0), DELAY * np.arange(order + 1))

    return ContinuousLoop(mass, damping, stiffness, axes_of, axes_of.T, specimens, prediction, rig, dt=1e-3)


def spring(
    phase: float, order: int = 0, damping_ratio: float = 0.0, share: float = 1.0, tested: float = 0.0
) -> ContinuousLoop:
    """Unit mass on a spring with w0 delay = ``phase``, of which ``share`` is under test; ``tested`` damping."""
    w0, eye = phase / DELAY, np.eye(1)
    damping, stiffness = 2.0 * damping_ratio * w0 * eye, (1.0 - share) * w0**2 * eye
    specimen = spring_specimen(share * w0**2, tested)
    return looped(eye, damping, stiffness, [specimen], [late(DELAY)], eye, order)


def frame(actuators: Sequence[Response], tested: Sequence[SmallSpecimen], axes_of: Array) -> ContinuousLoop:
    """Two masses, coupled only by the specimens."""
    return looped(np.eye(2), np.diag([0.4, 1.0]), np.diag([100.0, 700.0]), tested, actuators, axes_of)


@pytest.mark.parametrize("order", ORDERS)
def test_apparent_spring_of_eq_6_has_closed_form(order: int) -> None:
    phase = np.linspace(0.0, math.pi, 301)
    stiffness, damping = apparent_spring(order, phase)
    ages = np.arange(1, order + 2)
    printed = [f(np.outer(phase, ages)) @ weights(order, 1.0) for f in (np.cos, np.sin)]
    np.testing.assert_allclose(stiffness, printed[0], atol=1e-12)
    np.testing.assert_allclose(damping, -printed[1], atol=1e-12)
    closed = 1.0 - (1.0 - np.exp(-1j * phase)) ** (order + 1)
    np.testing.assert_allclose(stiffness + 1j * damping, closed, atol=1e-12)
    sines = -((2.0 * np.sin(phase / 2.0)) ** (order + 1)) * np.sin((order + 1) * (math.pi - phase) / 2.0)
    np.testing.assert_allclose(damping, sines, atol=1e-12)


@pytest.mark.parametrize(
    ("order", "changes"),
    [(0, []), (1, []), (2, [math.pi / 3]), (3, [math.pi / 2]), (4, [math.pi / 5, 3 * math.pi / 5])],
)
def test_apparent_damping_changes_sign(order: int, changes: list[float]) -> None:
    """Negative everywhere for n = 0, 1; slightly negative, positive, negative for n = 4."""
    phase = np.linspace(0.01, math.pi - 0.01, 5000)
    _, damping = apparent_spring(order, phase)
    result = phase[:-1][np.sign(damping[1:]) != np.sign(damping[:-1])]
    np.testing.assert_allclose(result, changes, atol=1e-3)
    assert damping[-1] < 0.0
    if order == 4:
        assert -0.01 < damping[phase < math.pi / 5].min() < 0.0


def test_rig_response_equals_eq_6() -> None:
    omega = np.linspace(1.0, 100.0, 50)
    stiffness, damping = apparent_spring(3, omega * DELAY)
    rig = spring(0.5, order=3).rig(omega)[:, 0, 0]
    np.testing.assert_allclose(rig, stiffness + 1j * damping, atol=1e-12)


@pytest.mark.parametrize("order", CRITICAL)
@pytest.mark.parametrize("phase", [0.4, 0.73, 0.9])
def test_critical_natural_frequency_equals_published(order: int, phase: float) -> None:
    """Equal from a stable and from an unstable test; 1.571 (n = 3) is the frequency of the response."""
    result = judge_loop(spring(phase, order))
    assert result.stable == (phase < CRITICAL[order])
    assert result.frequency_factor is not None
    assert phase * result.frequency_factor.value == pytest.approx(CRITICAL[order], abs=5e-5)
    response = result.frequency_factor.frequency * result.frequency_factor.value * HZ * DELAY
    assert response == pytest.approx({2: math.pi / 3, 3: math.pi / 2}[order], rel=1e-9)
    assert result.critical_frequency == pytest.approx(CRITICAL[order] / DELAY / HZ, abs=1e-3)


@pytest.mark.parametrize("damping_ratio", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_limit_without_compensation_is_twice_damping_ratio(damping_ratio: float, factor: float) -> None:
    """w0 delay = 2 zeta to first order, as a delay and as a natural frequency. Eq. (3): c_eq = -k delay."""
    phase = factor * 2.0 * damping_ratio
    result = judge_loop(spring(phase, damping_ratio=damping_ratio))
    assert result.stable == (factor < 1.0)
    assert result.critical_delay == pytest.approx(DELAY / factor, rel=damping_ratio**2)
    assert result.frequency_factor is not None
    assert result.frequency_factor.value == pytest.approx(1.0 / factor, rel=damping_ratio**2)
    (mode,) = result.modes
    assert mode.damping_ratio == pytest.approx(damping_ratio)
    assert mode.loop_damping_ratio == pytest.approx(damping_ratio * (1.0 - factor), abs=2.0 * damping_ratio**2)


@pytest.mark.parametrize("damping_ratio", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("share", [0.3, 0.999, 1.5])
def test_delay_margin_of_one_spring_has_closed_form(damping_ratio: float, share: float) -> None:
    """At the limit cos(w tau) = r^2 and sin(w tau) = 2 zeta r with r = w / w0 (Wallace, Wagg, Neild 2005)."""
    square = math.sqrt(4.0 * damping_ratio**4 + 1.0) - 2.0 * damping_ratio**2
    critical = math.acos(square) / math.sqrt(square)
    result = judge_loop(spring(share * critical, damping_ratio=damping_ratio)).margin
    assert result.delay == pytest.approx(DELAY)
    assert result.critical == pytest.approx(DELAY / share)
    assert result.value == pytest.approx(1.0 - share, abs=1e-6)
    assert (result.stable, result.small) == (share < 1.0, share > 1.0 - judgement.LEAST_MARGIN)


def test_delay_margin_equals_judgement() -> None:
    scenario = files.load("horiuchi_1996_verification", ["axes.story_1.actuator.delay=0.0125"])
    assert tuple(judgement.delay_margin(scenario)) == tuple(judge(scenario).margin)
    (caution,) = cautions(scenario)
    assert caution.name == "delay_margin: stability"
    for words in ("12.5 ms", "13.63 ms", "delay margin 8.27 %", "at least 20 %"):
        assert words in caution.words, words
    assert cautions(override(scenario, ["axes.story_1.actuator.delay=0.010"])) == []


def test_limit_of_partial_spring_has_closed_form() -> None:
    """-w^2 + 2 j zeta w0 w + (1 - a) w0^2 + a w0^2 e^{-j w tau} = 0: from its real and imaginary part."""
    phase, zeta, share = 0.02, 0.03, 0.6
    result = judge_loop(spring(phase, damping_ratio=zeta, share=share))
    w0 = phase / DELAY
    b = 4.0 * zeta**2 - 2.0 * (1.0 - share)  # of (1 - a - u)^2 + 4 zeta^2 u = a^2, u = (w / w0)^2
    u = 0.5 * (-b + math.sqrt(b**2 - 4.0 * ((1.0 - share) ** 2 - share**2)))
    omega = w0 * math.sqrt(u)
    delay = math.asin(2.0 * zeta * math.sqrt(u) / share) / omega
    assert result.critical_delay == pytest.approx(delay, rel=1e-9)
    assert result.further_delay is not None
    assert result.further_delay.frequency == pytest.approx(omega / HZ, rel=1e-9)


@pytest.mark.parametrize("order", [0, *CRITICAL])
def test_growth_starts_at_limits(order: int) -> None:
    """The argument principle and the sweeps along the imaginary axis agree."""
    loop = spring(0.03 if order == 0 else 0.6, order, damping_ratio=0.02)
    result = judge_loop(loop)
    limits = {"delay": result.further_delay, "ratio": result.frequency_factor, "gain": result.gain}
    for parameter, limit in limits.items():
        assert limit is not None
        assert growing_motions(loop, **{parameter: limit.value * (1.0 - 1e-4)}) == 0, parameter
        assert growing_motions(loop, **{parameter: limit.value * (1.0 + 1e-4)}) == 2, parameter


def grown(order: int, phase: float, damping_ratio: float, cycles: float, frequency: float) -> float:
    """Growth (1/s) of a spring under test with prediction and delay, by central differences."""
    ages, w0 = 80, phase / DELAY
    dt, steps = DELAY / ages, int(cycles / frequency / DELAY * ages)
    a = [float(weight) for weight in weights(order, 1.0)]
    past = [0.0] * (ages * (order + 1) + 2)
    x = [*past, 1e-3]
    left, right = 1.0 / dt**2 + damping_ratio * w0 / dt, 1.0 / dt**2 - damping_ratio * w0 / dt
    for _ in range(steps):
        force = w0**2 * sum([weight * x[-1 - ages * (i + 1)] for i, weight in enumerate(a)])
        x.append((2.0 / dt**2 * x[-1] - right * x[-2] - force) / left)
    moved = np.array(x[len(past) :])
    energy = moved[1:-1] ** 2 + (np.gradient(moved, dt)[1:-1] / (HZ * frequency)) ** 2
    parts = np.array_split(energy[steps // 2 :], 2)
    first, last = (float(np.mean(part)) for part in parts)
    return 0.5 * math.log(last / first) / (len(parts[0]) * dt)


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize(("order", "damping_ratio"), [(0, 0.02), (2, 0.0), (3, 0.0), (3, 0.02)])
def test_simulation_near_limit_agrees_with_judgement(order: int, damping_ratio: float, side: float) -> None:
    limit = judge_loop(spring(0.03 if order == 0 else 0.5, order, damping_ratio)).frequency_factor
    assert limit is not None
    phase = (0.03 if order == 0 else 0.5) * limit.value * (1.0 + 0.02 * side)
    result = judge_loop(spring(phase, order, damping_ratio))
    assert result.stable == (side < 0.0)
    rate = grown(order, phase, damping_ratio, 40.0 if order else 10.0, limit.frequency * limit.value)
    assert math.copysign(1.0, rate) == side
    if side > 0.0:
        assert rate == pytest.approx(result.motions[0].real, rel=0.05)


ONE_STORY = """
version: 1
name: one_story
servo_rate: 2000.0
substeps: 1
duration: 5.0
ground_motion: {{type: harmonic, amplitude: 1.0e-3, frequency: 5.0, periods: 1}}
structure:
  type: shear_frame
  masses: [1.0e3]
  stiffnesses: [{stiffness}]
  experimental_stiffnesses: [{stiffness}]
  damping: {{type: modal, ratios: [{damping_ratio}]}}
integrator: {{type: central_difference}}
compensator: {compensator}
axes:
  story:
    actuator: {{type: pure_delay, delay: 0.02}}
    specimen: {{type: computed_spring, stiffness: {stiffness}}}
    limits: {{stroke: 1.0, velocity: 10.0, force: 1.0e6}}
"""


def one_story(phase: float, compensator: str, damping_ratio: float = 0.0, *overrides: str) -> Scenario:
    """The whole spring of 1000 kg under test, w0 delay = ``phase`` at a delay of 20 ms."""
    stiffness = repr(1e3 * (phase / DELAY) ** 2)
    text = ONE_STORY.format(stiffness=stiffness, compensator=compensator, damping_ratio=damping_ratio)
    return override(files.from_text(text, "one_story"), overrides)


POLYNOMIAL = "{type: polynomial, order: 3, delay: 0.02}"


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_loop_near_limit_agrees_with_judgement(side: float, tmp_path: Any) -> None:
    """Scenario, integrator, polynomial and actuator at 2 % below and above w0 delay = 0.7025."""
    test = one_story(CRITICAL[3] * (1.0 + 0.02 * side), POLYNOMIAL)
    result = judge(test)
    assert result.stable == (side < 0.0)
    path = tmp_path / "one_story.yaml"
    path.write_text(yaml_text.dump(test.data()))
    _, run = simulate(str(path))
    moved = run.true_displacement[:, 0]
    third = len(moved) // 3
    before, after = (float(np.abs(part).max()) for part in (moved[third : 2 * third], moved[2 * third :]))
    assert (after > 1.2 * before) if side > 0.0 else (after < before / 1.2)
    if side > 0.0:
        rate = math.log(after / before) / (third * test.dt)
        assert rate == pytest.approx(result.motions[0].real, rel=0.05)


def continuous(test: Scenario) -> Judgement:
    """Judgement with exact integrator and ramp."""
    return judge_loop(continuous_loop(test))


def test_scenario_is_judged_like_closed_form() -> None:
    result, exact = continuous(one_story(0.6, POLYNOMIAL, 0.01)), judge_loop(spring(0.6, 3, 0.01))
    for name in ("delay", "critical_delay", "critical_frequency"):
        assert getattr(result, name) == pytest.approx(getattr(exact, name), rel=1e-6), name
    assert result.modes[0].frequency == pytest.approx(0.6 / DELAY / HZ)
    assert result.modes[0].damping_ratio == pytest.approx(0.01)


def test_margins_state_searched_frequency_range() -> None:
    """The limit is w0 delay = 2 zeta: 50 times the present frequency, beyond the search of a sampled loop."""
    test = one_story(0.002, "{type: none}", 0.05)
    assert continuous(test).frequency_factor.value == pytest.approx(50.0, rel=0.02)  # type: ignore[union-attr]
    result = judge(test)
    assert result.frequency_factor is None
    assert result.farthest == 16.0
    (text,) = (line for line in result.margins() if "natural frequency" in line)
    assert mentions(text, "critical", "16", "times")
    assert result.data()["critical_frequency_factor_sought_to"] == 16.0
    near = judge(one_story(0.01, "{type: none}", 0.05))
    assert near.frequency_factor is not None
    assert not any("looked" in line for line in near.margins())
    unstable = judge(one_story(0.1, "{type: none}", 0.0))
    assert not unstable.stable
    assert unstable.frequency_factor is None
    (text,) = (line for line in unstable.margins() if "natural frequency" in line)
    assert mentions(text, "critical", "1/16")


def test_transport_of_port_is_delay() -> None:
    scenario = one_story(0.03, "{type: none}", 0.02)
    split = judge(override(scenario, ("axes.story.actuator.delay=0.015", "port.transport_samples=10")))
    assert split.delay == pytest.approx(DELAY)
    assert split.critical_delay == pytest.approx(judge(scenario).critical_delay, rel=1e-7)


def test_slower_time_scales_critical_delay() -> None:
    """The damping of a dashpot under test decreases by the time ratio."""
    fast = one_story(0.03, "{type: none}", 0.02)
    slow = override(fast, ["time_ratio=5"])
    for result, tolerance in ((continuous, 1e-9), (judge, 1e-2)):  # the slow test has samples between steps
        assert result(slow).critical_delay == pytest.approx(5.0 * result(fast).critical_delay, rel=tolerance)
    values = {"type": "kelvin_voigt", "stiffness": fast.axes["story"].specimen.stiffness, "damping": 100.0}
    dashpot = [f"axes.story.specimen.{key}={value}" for key, value in values.items()]
    tests = [override(fast, [*dashpot, f"time_ratio={ratio}"]) for ratio in (1, 5)]
    damping = [judge(test).modes[0].damping_ratio for test in tests]
    assert damping[0] - 0.02 > 0.005
    assert (damping[1] - 0.02) * 5.0 == pytest.approx(damping[0] - 0.02, rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["axes.story.specimen.type=kelvin_voigt", "axes.story.specimen.exponent=0.5"], ("linear", "small")),
        (["structure=null", "integrator.type=prescribed", "integrator.displacement.type=none"], ("no loop",)),
        (
            ["structure=null", "integrator={type: remote, experimental_stiffness: [[1.0]]}"],
            ("contains the structure",),
        ),
    ],
)
def test_unsupported_scenarios_are_refused(overrides: list[str], words: tuple[str, ...]) -> None:
    test = one_story(0.3, POLYNOMIAL, 0.01, *overrides)
    with pytest.raises(ConfigError, match=naming(*words)):
        judge(test)


@pytest.mark.parametrize("path", ["compensator", "compensator.first"])
def test_component_without_response_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inverse = "{type: inverse, alpha: 20}"
    chain = f"{{type: chain, first: {inverse}, second: {{type: none}}}}"
    test = one_story(0.3, chain if "." in path else inverse)
    monkeypatch.delattr(registry.load("compensator", "inverse"), "frequency_response")
    with pytest.raises(ConfigError, match=naming(f"{path}.type", "inverse")):
        continuous(test)


def test_assumptions_are_stated() -> None:
    adaptive = judge(one_story(0.1, "{type: adaptive_inverse, alpha_es: 81}", 0.02))
    assert any("initial parameters" in words for words in adaptive.assumptions)
    fixed = judge(one_story(0.1, "{type: inverse, alpha: 81}", 0.02))
    assert not any("initial parameters" in words for words in fixed.assumptions)
    assert adaptive.critical_delay == pytest.approx(fixed.critical_delay, rel=1e-9)
    other = judge(one_story(0.1, POLYNOMIAL, 0.02, "axes.story.specimen.stiffness=1e3"))
    assert any("different experimental stiffness" in words for words in other.assumptions)
    fed_back = judge(one_story(0.1, "{type: pi_lead, proportional: 0.5, integral: 5.0}", 0.02))
    with_feedback = ["back" in " ".join(judged.assumptions) for judged in (fed_back, adaptive, fixed, other)]
    assert with_feedback == [True, False, False, False]
    assert "shorter" in str(judgement.delay_margin(files.load("rths_benchmark_2020", case="pi_1")))
    assert "shorter" not in str(adaptive.margin)


def test_uncoupled_structures_are_judged_separately() -> None:
    """All modes occur, the critical delay is the smaller, the numbers of growing motions add up."""
    tested = [spring_specimen(50.0), spring_specimen(300.0)]
    both = frame([late(0.001)] * 2, tested, np.eye(2))
    alone = [
        looped(
            both.mass[i : i + 1, i : i + 1],
            both.damping[i : i + 1, i : i + 1],
            both.stiffness[i : i + 1, i : i + 1],
            [tested[i]],
            both.actuators[:1],
            np.eye(1),
        )
        for i in range(2)
    ]
    result, singles = judge_loop(both), [judge_loop(loop) for loop in alone]
    assert result.stable
    assert [mode.frequency for mode in result.modes] == pytest.approx(
        [part.modes[0].frequency for part in singles]
    )
    assert result.critical_delay == pytest.approx(
        min(part.critical_delay or math.inf for part in singles), rel=1e-9
    )
    for delay in (0.002, 0.02, 0.2):
        assert growing_motions(both, delay=delay) == sum(growing_motions(loop, delay=delay) for loop in alone)


def test_brace_between_masses_has_exact_modes() -> None:
    """T = [-1, 1]: with a perfect rig the modes are those of M^-1 (K + T' k T)."""
    loop = frame([late(0.0)], [spring_specimen(80.0)], np.array([[-1.0, 1.0]]))
    whole = np.diag([100.0, 700.0]) + 80.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    omega = np.sqrt(np.linalg.eigvalsh(whole))
    result = judge_loop(loop)
    assert [HZ * mode.frequency for mode in result.modes] == pytest.approx(omega.tolist(), rel=1e-3)
    for mode in result.modes:
        assert mode.loop_damping_ratio == pytest.approx(mode.damping_ratio)
        assert mode.loop_frequency == pytest.approx(mode.frequency, rel=1e-2)


def test_delay_of_one_axis_destabilises_its_mode() -> None:
    tested = [spring_specimen(50.0), spring_specimen(300.0)]
    result = judge_loop(frame([late(0.0), late(0.01)], tested, np.eye(2)))
    assert not result.stable
    assert [mode.stable for mode in result.modes] == [True, False]
    assert result.delay == pytest.approx(0.01)


def test_conditionally_stable_loop_has_least_gain() -> None:
    """A numerical substructure that feeds energy in, stabilised by a dashpot under test with a minimum damping.

    Without a delay the damping is c (gain - 0.4): unstable below 0.4.
    """
    w0, eye = 10.0, np.eye(1)
    dashpot = spring_specimen(0.0, 1.0)
    loop = looped(eye, -0.4 * eye, w0**2 * eye, [dashpot], [late(0.0)], eye)
    result = judge_loop(loop)
    assert result.stable
    assert result.least_gain is not None
    assert result.least_gain.value == pytest.approx(0.4)
    assert result.least_gain.frequency == pytest.approx(w0 / HZ)
    assert not result.least_gain.growing
    assert result.data()["least_gain"] == pytest.approx(0.4)
    assert any("conditionally" in words for words in result.margins())
    assert growing_motions(loop, gain=0.39) == 2
    assert growing_motions(loop, gain=0.41) == 0


def test_growth_without_oscillation_is_detected() -> None:
    """A column beyond its buckling load: one real root."""
    eye = np.eye(1)
    column = spring_specimen(5.0)
    result = judge_loop(looped(eye, 0.1 * eye, -9.0 * eye, [column], [late(0.0)], eye))
    assert (result.stable, result.growing) == (False, 1)
    root = -0.05 + math.sqrt(0.05**2 + 4.0)
    assert result.motions == pytest.approx((root,))
    assert "without oscillation" in result.verdict()


def test_small_specimens_have_closed_forms() -> None:
    s = 1j * np.array([3.0, 30.0, 300.0])
    k, c = 4e6, 2e5
    series = k * c * s / (k + c * s)
    maxwell = make("specimen", "maxwell_damper", series_stiffness=k, damping=c, parallel_stiffness=0.0)
    np.testing.assert_allclose(SmallSpecimen.of(maxwell).at(s), series, rtol=1e-6)
    voigt = make("specimen", "kelvin_voigt", stiffness=k, damping=c)
    np.testing.assert_allclose(SmallSpecimen.of(voigt).at(s), k + c * s, rtol=1e-9)
    slips = {"stiffness": 1e6, "damping": 0.0, "friction_force": 5e4, "slip_displacement": 0.01}
    soft = make("specimen", "softening_elastomeric", **slips)
    np.testing.assert_allclose(SmallSpecimen.of(soft).at(s), 6e6, rtol=1e-5)


def test_modes_with_inner_state_solve_characteristic_equation() -> None:
    """Eigenvalues with the inner state against zeros of the characteristic equation."""
    small = SmallSpecimen.of(make("specimen", "maxwell_damper", series_stiffness=300.0, damping=20.0))
    loop = frame([late(0.0), late(0.0)], [small, spring_specimen(10.0)], np.eye(2))
    motions = loop.states(np.eye(2)[None])[0]
    assert len(motions) == 5
    np.testing.assert_allclose(loop.characteristic(motions), 0.0, atol=1e-9)


COMPENSATORS = {
    "none": {},
    "inverse": {"alpha": 12.0},
    "adaptive_inverse": {"alpha_es": 12.0},
    "adaptive": {"compensator": {"type": "derivative_feedforward", "delay": 0.011, "order": 2}},
    "polynomial": {"delay": 0.013, "order": 3},
    "linear_acceleration": {"delay": 0.011, "spacing": 3},
    "derivative_feedforward": {"delay": 0.011, "order": 2},
    "discrete_model": {"initial": [2.5, -2.1, 0.5]},
    "adaptive_time_series": {"delay": 0.011},
    "chain": {
        "first": {"type": "inverse", "alpha": 3.0},
        "second": {"type": "polynomial", "delay": 0.007, "order": 2},
    },
    "linear": {"law": {"numerator": [0.02, 1.0], "denominator": [0.002, 1.0]}},
    "identified_inverse": {
        "inverse": {"displacement": [[0.99]], "velocity": [[0.025]], "acceleration": [[1.1e-4]], "jerk": [[0.0]]},
        "learning": False,
    },
}
ACTUATORS = {
    "pure_delay": {"delay": 0.0123},
    "first_order": {"alpha": 9.0},
    "second_order": {"natural_frequency": 12.0, "damping_ratio": 0.5},
    "transfer_function": {"numerator": [20.0, 9e3], "denominator": [1.0, 130.0, 9e3], "hold": "ramp"},
    "servo_hydraulic": {},
    "amplitude_dependent": {"hold": "ramp"},
    "servo_hydraulic_linear": {"hold": "ramp"},
}
DT, OMEGA = 1e-3, 2.0 * math.pi * 7.0
COUPLED = {"model_based"}
"""Compensators that couple their axes: tested with their models."""
SETTLING = 3000
"""Samples until a transient has decayed."""


def fitted(values: Array, first: int) -> complex:
    """Amplitude and phase at ``OMEGA``, from sample ``first`` on."""
    wave = np.exp(1j * OMEGA * DT * np.arange(first, len(values)))
    basis = np.column_stack([wave.real, -wave.imag])
    a, b = np.linalg.lstsq(basis, values[first:], rcond=None)[0]
    return complex(a, b)


@pytest.mark.parametrize("name", COMPENSATORS)
def test_compensator_response_equals_response_to_sine(name: str) -> None:
    cls = registry.load("compensator", name)
    compensator = cls(from_data(cls.Params, COMPENSATORS[name], name), DT, 1)
    waves = np.exp(1j * OMEGA * DT * np.arange(400))
    commands = []
    for wave in waves:
        x, v, a = (np.array([(factor * wave).real]) for factor in (1.0, 1j * OMEGA, -(OMEGA**2)))
        motion = Motion(x, v, a, flagged=True, force=np.zeros(1))
        commands.append(compensator.step(motion, np.zeros(1))[0])
    response = compensator.frequency_response(np.array([OMEGA]))[0]
    assert fitted(np.array(commands), 200) == pytest.approx(response, rel=1e-9)
    np.testing.assert_allclose(compensator.frequency_response(np.array([-OMEGA]))[0], np.conj(response))


@pytest.mark.parametrize("name", ACTUATORS)
def test_actuator_response_equals_response_to_sine(name: str) -> None:
    specimen = make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0)
    if name == "servo_hydraulic_linear":  # needs a mass
        specimen = make("specimen", "with_mass", mass=30.0)
    cls = registry.load("actuator", name)
    actuator = cls(from_data(cls.Params, ACTUATORS[name], name), DT, specimen)
    moved = []
    for k in range(SETTLING + 600):
        actuator.step(1e-6 * math.cos(OMEGA * DT * k))
        moved.append(1e6 * actuator.displacement)
    response = actuator.frequency_response(np.array([OMEGA]))[0]
    stepped = 1e-4 if name == "servo_hydraulic" else 1e-7  # Runge-Kutta against the exact solution
    assert abs(response - 1.0) > 0.1
    assert fitted(np.array(moved), SETTLING) == pytest.approx(response, rel=stepped)


@pytest.mark.parametrize("family", ["compensator", "actuator"])
def test_every_response_is_tested(family: str) -> None:
    tested = COMPENSATORS if family == "compensator" else ACTUATORS
    with_response = {
        name for name in registry.names(family) if hasattr(registry.load(family, name), "frequency_response")
    }
    assert with_response - COUPLED == set(tested)


def test_coupled_responses_in_series_are_multiplied() -> None:
    """The second is the left factor; a response common to all axes is a scalar factor."""
    first, second = np.array([[[1.0, 2.0], [0.0, 1j]]]), np.array([[[0.0, 1.0], [1.0, 3.0]]], complex)
    np.testing.assert_array_equal(in_series(first, second), second @ first)
    scalar = np.array([2j])
    for product in (in_series(first, scalar), in_series(scalar, first)):
        np.testing.assert_array_equal(product, 2j * first)
    np.testing.assert_array_equal(in_series(scalar, scalar), [-4.0])


def test_compensator_may_couple_axes() -> None:
    """Exchanging the targets of two axes compensates exchanged axes."""
    tested = [spring_specimen(50.0), spring_specimen(300.0)]
    correct = frame([late(0.001)] * 2, tested, np.eye(2))
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    crossed = replace(correct, compensator=lambda omega: np.ones((len(omega), 1, 1)) * swap)
    unswapped = replace(crossed, forces_of=swap, specimens=(tested[1], tested[0]))
    s = 1j * np.array([3.0, 20.0])
    expected, *results = (loop.characteristic(s) * loop.scale**4 for loop in (correct, unswapped, crossed))
    np.testing.assert_allclose(results[0], expected)
    assert not np.allclose(results[1], expected)


LONG = ("rths_benchmark_2020", "tadc_el_centro", "tadc_sweep")
"""One has the loop of ``tadc_sine``, the others are slow: only ``make soak`` runs them."""
REFUSED = {
    "marths_2023": "have no mass, so the stability cannot be judged",  # the rotations of its frame
    "tall_frame": "too many to judge the stability before the test. Set reduction",
}
COMPARED = np.array([2j, 30j, 100j, 5.0 + 40j])
"""Frequencies (rad/s) at which two loops are compared."""
NEAR = 5e-5
"""Relative distance from a limit: the axes of ``phillips_spencer_2012`` start to grow at distances of 8e-5."""
SHIPPED = [pytest.param(name, marks=[pytest.mark.soak] if name in LONG else []) for name in files.shipped()]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_scenario_is_judged_or_refused(name: str) -> None:
    test = files.load(name)
    if test.structure is None:
        with pytest.raises(ConfigError, match="structure"):
            judge(test)
        return
    if name in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[name]):
            judge(test)
        return
    result = judge(test)
    assert isinstance(result, Judgement)
    assert result.stable, result.verdict()
    assert json.loads(json.dumps(result.data()))["stable"] is True
    loop, frequencies = result.loop, [HZ * mode.frequency for mode in result.modes]
    assert growing_motions(loop, frequencies) == 0
    limits = {"delay": result.further_delay, "ratio": result.frequency_factor, "gain": result.gain}
    for parameter, limit in limits.items():
        if limit:
            states = [{parameter: limit.value * factor} for factor in (1.0 - NEAR, 1.0 + NEAR)]
            assert [growing_motions(loop, frequencies, **state) for state in states] == [0, limit.roots], parameter


@pytest.mark.parametrize(("transport", "stable"), [(0, True), (40, True), (150, False)])
def test_is_stable_equals_judgement(transport: int, stable: bool) -> None:
    scenario = files.load("chen_ricles_2010", ["compensator.type=none", f"port.transport_samples={transport}"])
    assert judgement.is_stable(scenario) == judge(scenario).stable == stable


def test_structures_on_one_rig_share_impulses_bitwise() -> None:
    shared: dict[str, Impulses] = {}
    for changes in (["structure.mass=6e5"], ["structure.damping_ratio=0.05"], ["compensator.alpha_es=20"]):
        scenario = files.load("chen_ricles_2010", changes)
        assert sampled_loop(scenario, shared).characteristic(COMPARED) == pytest.approx(
            sampled_loop(scenario).characteristic(COMPARED), abs=0.0
        )
    assert len(shared) == 2
    assert judgement.is_stable(files.load("chen_ricles_2010"), shared)
