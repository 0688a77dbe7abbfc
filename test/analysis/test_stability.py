# SPDX-License-Identifier: Apache-2.0
"""Stability before the test: Horiuchi et al. (1996), closed forms, two routes to one number, stepped in time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.stability.continuous_loop import ContinuousLoop, Response
from rths_nodes.analysis.stability.crossings import growing_motions
from rths_nodes.analysis.stability.impulses import Impulses
from rths_nodes.analysis.stability.judgement import (
    LEAST_MARGIN,
    Judgement,
    delay_margin,
    is_stable,
    judge,
    judge_loop,
)
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.control.compensators.polynomial import weights
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import in_series, taps
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.small_specimen import SmallSpecimen
from rths_nodes.recording.run import Run

DELAY = 0.02
ORDERS = range(5)
CRITICAL = {2: 0.7405, 3: 0.7025}
"""Order -> w0 delay with the whole spring under test and no damping (notes on Horiuchi et al.)."""


def late(delay: float) -> Response:
    return lambda omega: taps(omega, [1.0], [delay])


def prediction(order: int, delay: float = DELAY) -> Response:
    return lambda omega: taps(omega, weights(order, 1.0), delay * np.arange(order + 1))


def apparent_spring(order: int, phase: Array) -> tuple[Array, Array]:
    """Eq. (6): k*/k and c* w/k of a spring behind prediction of ``order``, ``phase`` = w delay (rad)."""
    ages = 1.0 + np.arange(order + 1)
    rig = np.exp(-1j * np.multiply.outer(phase, ages)) @ weights(order, 1.0)
    return rig.real, rig.imag


def spring(
    phase: float, order: int = 0, damping_ratio: float = 0.0, share: float = 1.0, tested: float = 0.0
) -> ContinuousLoop:
    """Unit mass on a spring with w0 delay = ``phase``, of which ``share`` is under test; ``tested`` damping."""
    w0, one = phase / DELAY, np.eye(1)
    return ContinuousLoop(
        one,
        2.0 * damping_ratio * w0 * one,
        (1.0 - share) * w0**2 * one,
        one,
        one,
        (SmallSpecimen.spring(share * w0**2, tested),),
        prediction(order),
        (late(DELAY),),
        dt=1e-3,
    )


def frame(actuators: Sequence[Response], tested: Sequence[SmallSpecimen], axes_of: Array) -> ContinuousLoop:
    """Two masses, coupled by nothing but what is under test."""
    return ContinuousLoop(
        np.eye(2),
        np.diag([0.4, 1.0]),
        np.diag([100.0, 700.0]),
        axes_of,
        axes_of.T,
        tuple(tested),
        prediction(0),
        tuple(actuators),
        dt=1e-3,
    )


# Table 1, Eq. (6), Fig. 5


@pytest.mark.parametrize(
    ("order", "row"), enumerate([[1], [2, -1], [3, -3, 1], [4, -6, 4, -1], [5, -10, 10, -5, 1]])
)
def test_table_1(order: int, row: list[int]) -> None:
    np.testing.assert_array_equal(weights(order, 1.0), row)


@pytest.mark.parametrize("order", ORDERS)
def test_eq_6_has_a_closed_form(order: int) -> None:
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
def test_apparent_damping_changes_its_sign(order: int, changes: list[float]) -> None:
    """n = 0, 1 are negative everywhere; n = 4 slightly negative, then positive, then negative."""
    phase = np.linspace(0.01, math.pi - 0.01, 5000)
    _, damping = apparent_spring(order, phase)
    found = phase[:-1][np.sign(damping[1:]) != np.sign(damping[:-1])]
    np.testing.assert_allclose(found, changes, atol=1e-3)
    assert damping[-1] < 0.0
    if order == 4:
        assert -0.01 < damping[phase < math.pi / 5].min() < 0.0


def test_a_rig_shows_eq_6() -> None:
    """The rig's response in the analysis is the apparent spring of the paper."""
    omega = np.linspace(1.0, 100.0, 50)
    stiffness, damping = apparent_spring(3, omega * DELAY)
    rig = spring(0.5, order=3).rig(omega)[:, 0, 0]
    np.testing.assert_allclose(rig, stiffness + 1j * damping, atol=1e-12)


# Critical natural frequency and critical delay of one spring


@pytest.mark.parametrize("order", CRITICAL)
@pytest.mark.parametrize("phase", [0.4, 0.73, 0.9])
def test_critical_natural_frequency(order: int, phase: float) -> None:
    """The same number from a stable and from an unstable test; 1.571 (n = 3) is the frequency of the response."""
    found = judge_loop(spring(phase, order))
    assert found.stable == (phase < CRITICAL[order])
    assert found.frequency_factor is not None
    assert phase * found.frequency_factor.value == pytest.approx(CRITICAL[order], abs=5e-5)
    response = found.frequency_factor.frequency * found.frequency_factor.value * HZ * DELAY
    assert response == pytest.approx({2: math.pi / 3, 3: math.pi / 2}[order], rel=1e-9)
    assert found.critical_frequency == pytest.approx(CRITICAL[order] / DELAY / HZ, abs=1e-3)


@pytest.mark.parametrize("damping_ratio", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_without_compensation_the_limit_is_twice_the_damping_ratio(damping_ratio: float, factor: float) -> None:
    """w0 delay = 2 zeta to first order, as a delay and as a natural frequency. Eq. (3): c_eq = -k delay."""
    phase = factor * 2.0 * damping_ratio
    found = judge_loop(spring(phase, damping_ratio=damping_ratio))
    assert found.stable == (factor < 1.0)
    assert found.critical_delay == pytest.approx(DELAY / factor, rel=damping_ratio**2)
    assert found.frequency_factor is not None
    assert found.frequency_factor.value == pytest.approx(1.0 / factor, rel=damping_ratio**2)
    (mode,) = found.modes
    assert mode.damping_ratio == pytest.approx(damping_ratio)
    assert mode.loop_damping_ratio == pytest.approx(damping_ratio * (1.0 - factor), abs=2.0 * damping_ratio**2)


@pytest.mark.parametrize("damping_ratio", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("share", [0.3, 0.999, 1.5])
def test_the_margin_of_one_spring_has_a_closed_form(damping_ratio: float, share: float) -> None:
    """At the limit cos(w tau) = r^2 and sin(w tau) = 2 zeta r with r = w / w0 (Wallace, Wagg, Neild 2005)."""
    square = math.sqrt(4.0 * damping_ratio**4 + 1.0) - 2.0 * damping_ratio**2
    critical = math.acos(square) / math.sqrt(square)
    found = judge_loop(spring(share * critical, damping_ratio=damping_ratio)).margin
    assert found.delay == pytest.approx(DELAY)
    assert found.critical == pytest.approx(DELAY / share)
    assert found.value == pytest.approx(1.0 - share, abs=1e-6)
    assert (found.stable, found.small) == (share < 1.0, share > 1.0 - LEAST_MARGIN)


def test_the_margin_alone_is_that_of_the_judgement() -> None:
    scenario = files.load("horiuchi_1996_verification", ["axes.story_1.actuator.delay=0.0125"])
    assert tuple(delay_margin(scenario)) == tuple(judge(scenario).margin)
    (caution,) = cautions(scenario)
    assert caution.name == "delay_margin: stability"
    for words in ("12.5 ms", "13.63 ms", "delay margin 8.27 %", "at least 20 %"):
        assert words in caution.words, words
    assert cautions(override(scenario, ["axes.story_1.actuator.delay=0.010"])) == []


def test_the_limit_of_part_of_a_spring_has_a_closed_form() -> None:
    """-w^2 + 2 j zeta w0 w + (1 - a) w0^2 + a w0^2 e^{-j w tau} = 0: both from real and imaginary part."""
    phase, zeta, share = 0.02, 0.03, 0.6
    found = judge_loop(spring(phase, damping_ratio=zeta, share=share))
    w0 = phase / DELAY
    b = 4.0 * zeta**2 - 2.0 * (1.0 - share)  # of (1 - a - u)^2 + 4 zeta^2 u = a^2, u = (w / w0)^2
    u = 0.5 * (-b + math.sqrt(b**2 - 4.0 * ((1.0 - share) ** 2 - share**2)))
    omega = w0 * math.sqrt(u)
    delay = math.asin(2.0 * zeta * math.sqrt(u) / share) / omega
    assert found.critical_delay == pytest.approx(delay, rel=1e-9)
    assert found.further_delay is not None
    assert found.further_delay.frequency == pytest.approx(omega / HZ, rel=1e-9)


@pytest.mark.parametrize("order", [0, *CRITICAL])
def test_growth_begins_exactly_at_the_limits(order: int) -> None:
    """The argument principle and the sweeps along the imaginary axis agree."""
    loop = spring(0.03 if order == 0 else 0.6, order, damping_ratio=0.02)
    found = judge_loop(loop)
    limits = {"delay": found.further_delay, "ratio": found.frequency_factor, "gain": found.gain}
    for parameter, limit in limits.items():
        assert limit is not None
        assert growing_motions(loop, **{parameter: limit.value * (1.0 - 1e-4)}) == 0, parameter
        assert growing_motions(loop, **{parameter: limit.value * (1.0 + 1e-4)}) == 2, parameter


# Stepped in time


def grown(order: int, phase: float, damping_ratio: float, cycles: float, frequency: float) -> float:
    """Growth (1/s) of a spring under test behind prediction and delay, by central differences."""
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
def test_two_per_cent_beside_the_limit_a_simulation_is_on_the_predicted_side(
    order: int, damping_ratio: float, side: float
) -> None:
    limit = judge_loop(spring(0.03 if order == 0 else 0.5, order, damping_ratio)).frequency_factor
    assert limit is not None
    phase = (0.03 if order == 0 else 0.5) * limit.value * (1.0 + 0.02 * side)
    found = judge_loop(spring(phase, order, damping_ratio))
    assert found.stable == (side < 0.0)
    rate = grown(order, phase, damping_ratio, 40.0 if order else 10.0, limit.frequency * limit.value)
    assert math.copysign(1.0, rate) == side
    if side > 0.0:
        assert rate == pytest.approx(found.motions[0].real, rel=0.05)


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
def test_the_loop_itself_is_on_the_predicted_side(
    side: float, tmp_path: Any, simulate: Callable[..., tuple[Outcome, Run]]
) -> None:
    """Scenario, integrator, polynomial and actuator as they are; 2 % either way of w0 delay = 0.7025."""
    test = one_story(CRITICAL[3] * (1.0 + 0.02 * side), POLYNOMIAL)
    found = judge(test)
    assert found.stable == (side < 0.0)
    path = tmp_path / "one_story.yaml"
    path.write_text(yaml_text.dump(test.data()))
    _, run = simulate(str(path))
    moved = run.true_displacement[:, 0]
    third = len(moved) // 3
    before, after = (float(np.abs(part).max()) for part in (moved[third : 2 * third], moved[2 * third :]))
    assert (after > 1.2 * before) if side > 0.0 else (after < before / 1.2)
    if side > 0.0:
        rate = math.log(after / before) / (third * test.dt)
        assert rate == pytest.approx(found.motions[0].real, rel=0.05)


# From a scenario


def continuous(test: Scenario) -> Judgement:
    """Integrator and ramp exact."""
    return judge_loop(continuous_loop(test))


def test_a_scenario_is_judged_like_its_closed_form() -> None:
    found, same = continuous(one_story(0.6, POLYNOMIAL, 0.01)), judge_loop(spring(0.6, 3, 0.01))
    for name in ("delay", "critical_delay", "critical_frequency"):
        assert getattr(found, name) == pytest.approx(getattr(same, name), rel=1e-6), name
    assert found.modes[0].frequency == pytest.approx(0.6 / DELAY / HZ)
    assert found.modes[0].damping_ratio == pytest.approx(0.01)


def test_it_says_as_far_as_which_frequency_it_has_looked() -> None:
    """The limit is w0 delay = 2 zeta: 50 times the present frequency, where a sampled loop is not looked at."""
    test = one_story(0.002, "{type: none}", 0.05)
    assert continuous(test).frequency_factor.value == pytest.approx(50.0, rel=0.02)  # type: ignore[union-attr]
    found = judge(test)
    assert found.frequency_factor is None
    assert found.farthest == 16.0
    (words,) = (line for line in found.margins() if "natural frequency" in line)
    assert mentions(words, "critical", "16", "times")
    assert found.data()["critical_frequency_factor_sought_to"] == 16.0
    near = judge(one_story(0.01, "{type: none}", 0.05))
    assert near.frequency_factor is not None
    assert not any("looked" in line for line in near.margins())


def test_where_nothing_helps_it_says_as_far_as_which_frequency() -> None:
    found = judge(one_story(0.1, "{type: none}", 0.0))
    assert not found.stable
    assert found.frequency_factor is None
    (words,) = (line for line in found.margins() if "natural frequency" in line)
    assert mentions(words, "critical", "1/16")


def test_the_transport_of_the_port_is_delay() -> None:
    whole = one_story(0.03, "{type: none}", 0.02)
    samples = ("axes.story.actuator.delay=0.015", "port.transport_samples=10")
    split = judge(override(whole, samples))
    assert split.delay == pytest.approx(DELAY)
    assert split.critical_delay == pytest.approx(judge(whole).critical_delay, rel=1e-7)


def test_a_slower_time_axis_forgives_as_much_more_delay() -> None:
    """And a dashpot under test loses its force: it moves so many times slower."""
    fast = one_story(0.03, "{type: none}", 0.02)
    slow = override(fast, ["time_ratio=5"])
    for found, tolerance in ((continuous, 1e-9), (judge, 1e-2)):  # there are samples between the steps now
        assert found(slow).critical_delay == pytest.approx(5.0 * found(fast).critical_delay, rel=tolerance)
    values = {"type": "kelvin_voigt", "stiffness": fast.axes["story"].specimen.stiffness, "damping": 100.0}
    dashpot = [f"axes.story.specimen.{key}={value}" for key, value in values.items()]
    tests = [override(fast, [*dashpot, f"time_ratio={ratio}"]) for ratio in (1, 5)]
    damping = [judge(test).modes[0].damping_ratio for test in tests]
    assert damping[0] - 0.02 > 0.005
    assert (damping[1] - 0.02) * 5.0 == pytest.approx(damping[0] - 0.02, rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["axes.story.specimen.type=kelvin_voigt", "axes.story.specimen.exponent=0.5"],
            ("linear", "small"),
        ),
        (["structure=null", "integrator.type=prescribed", "integrator.displacement.type=none"], ("no loop",)),
        (
            ["structure=null", "integrator={type: remote, experimental_stiffness: [[1.0]]}"],
            ("contains the structure",),
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(overrides: list[str], words: tuple[str, ...]) -> None:
    test = one_story(0.3, POLYNOMIAL, 0.01, *overrides)
    with pytest.raises(ConfigError, match=naming(*words)):
        judge(test)


@pytest.mark.parametrize("place", ["compensator", "compensator.first"])
def test_a_part_without_a_response_is_named(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inverse = "{type: inverse, alpha: 20}"
    chain = f"{{type: chain, first: {inverse}, second: {{type: none}}}}"
    test = one_story(0.3, chain if "." in place else inverse)
    monkeypatch.delattr(registry.load("compensator", "inverse"), "frequency_response")
    with pytest.raises(ConfigError, match=naming(f"{place}.type", "inverse")):
        continuous(test)


def test_what_is_assumed_is_said() -> None:
    adaptive = judge(one_story(0.1, "{type: adaptive_inverse, alpha_es: 81}", 0.02))
    assert any("initial parameters" in words for words in adaptive.assumptions)
    fixed = judge(one_story(0.1, "{type: inverse, alpha: 81}", 0.02))
    assert not any("initial parameters" in words for words in fixed.assumptions)
    assert adaptive.critical_delay == pytest.approx(fixed.critical_delay, rel=1e-9)
    other = judge(one_story(0.1, POLYNOMIAL, 0.02, "axes.story.specimen.stiffness=1e3"))
    assert any("different experimental stiffness" in words for words in other.assumptions)


# More than one spring


def test_two_structures_side_by_side_are_two_structures() -> None:
    """Uncoupled: the modes are both, the critical delay is the smaller one, the growth counts add up."""
    tested = [SmallSpecimen.spring(50.0), SmallSpecimen.spring(300.0)]
    both = frame([late(0.001)] * 2, tested, np.eye(2))
    alone = [
        ContinuousLoop(
            both.mass[i : i + 1, i : i + 1],
            both.damping[i : i + 1, i : i + 1],
            both.stiffness[i : i + 1, i : i + 1],
            np.eye(1),
            np.eye(1),
            (tested[i],),
            both.compensator,
            both.actuators[:1],
            both.dt,
        )
        for i in range(2)
    ]
    found, singles = judge_loop(both), [judge_loop(loop) for loop in alone]
    assert found.stable
    assert [mode.frequency for mode in found.modes] == pytest.approx([one.modes[0].frequency for one in singles])
    assert found.critical_delay == pytest.approx(min(one.critical_delay or math.inf for one in singles), rel=1e-9)
    for delay in (0.002, 0.02, 0.2):
        counts = [growing_motions(loop, delay=delay) for loop in alone]
        assert growing_motions(both, delay=delay) == sum(counts)


def test_a_brace_between_two_masses() -> None:
    """T = [-1, 1]: with a perfect rig the modes are those of M^-1 (K + T' k T)."""
    axes_of = np.array([[-1.0, 1.0]])
    loop = frame([late(0.0)], [SmallSpecimen.spring(80.0)], axes_of)
    whole = np.diag([100.0, 700.0]) + 80.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    omega = np.sqrt(np.linalg.eigvalsh(whole))
    found = judge_loop(loop)
    assert [HZ * mode.frequency for mode in found.modes] == pytest.approx(omega.tolist(), rel=1e-3)
    for mode in found.modes:
        assert mode.loop_damping_ratio == pytest.approx(mode.damping_ratio)
        assert mode.loop_frequency == pytest.approx(mode.frequency, rel=1e-2)


def test_the_delay_of_one_of_two_axes_is_enough() -> None:
    tested = [SmallSpecimen.spring(50.0), SmallSpecimen.spring(300.0)]
    found = judge_loop(frame([late(0.0), late(0.01)], tested, np.eye(2)))
    assert not found.stable
    assert [mode.stable for mode in found.modes] == [True, False]
    assert found.delay == pytest.approx(0.01)


def test_a_conditionally_stable_loop_is_judged_right() -> None:
    """A numerical substructure that feeds energy in, held by a dashpot under test, which may not be too weak.

    Without a delay the damping is c (gain - 0.4): it grows below 0.4.
    """
    w0, one = 10.0, np.eye(1)
    dashpot = SmallSpecimen.spring(0.0, 1.0)
    loop = ContinuousLoop(one, -0.4 * one, w0**2 * one, one, one, (dashpot,), prediction(0), (late(0.0),), dt=1e-3)
    found = judge_loop(loop)
    assert found.stable
    assert found.least_gain is not None
    assert found.least_gain.value == pytest.approx(0.4)
    assert found.least_gain.frequency == pytest.approx(w0 / HZ)
    assert not found.least_gain.growing
    assert found.data()["least_gain"] == pytest.approx(0.4)
    assert any("conditionally" in words for words in found.margins())
    assert growing_motions(loop, gain=0.39) == 2
    assert growing_motions(loop, gain=0.41) == 0


def test_a_motion_that_grows_without_oscillating() -> None:
    """A column beyond its buckling load: one real root."""
    one = np.eye(1)
    column = SmallSpecimen.spring(5.0)
    loop = ContinuousLoop(one, 0.1 * one, -9.0 * one, one, one, (column,), prediction(0), (late(0.0),), dt=1e-3)
    found = judge_loop(loop)
    assert (found.stable, found.growing) == (False, 1)
    root = -0.05 + math.sqrt(0.05**2 + 4.0)
    assert found.motions == pytest.approx((root,))
    assert "without oscillation" in found.verdict()


# Specimens and responses


def test_small_specimens_have_their_closed_forms(make: Callable[..., Any]) -> None:
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


def test_a_specimen_with_memory_moves_its_structure_by_its_dynamic_stiffness(
    make: Callable[..., Any],
) -> None:
    """Two routes to the modes: eigenvalues with the inner state, zeros of the characteristic equation."""
    small = SmallSpecimen.of(make("specimen", "maxwell_damper", series_stiffness=300.0, damping=20.0))
    loop = frame([late(0.0), late(0.0)], [small, SmallSpecimen.spring(10.0)], np.eye(2))
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
        "inverse": {
            "displacement": [[0.99]],
            "velocity": [[0.025]],
            "acceleration": [[1.1e-4]],
            "jerk": [[0.0]],
        },
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
SETTLED = 3000
"""Samples until a transient is forgotten."""


def fitted(values: Array, first: int) -> complex:
    """Amplitude and phase at ``OMEGA``, from sample ``first`` on."""
    wave = np.exp(1j * OMEGA * DT * np.arange(first, len(values)))
    basis = np.column_stack([wave.real, -wave.imag])
    a, b = np.linalg.lstsq(basis, values[first:], rcond=None)[0]
    return complex(a, b)


@pytest.mark.parametrize("name", COMPENSATORS)
def test_a_compensator_answers_a_sine_as_its_response_says(name: str) -> None:
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
def test_an_actuator_answers_a_sine_as_its_response_says(name: str, make: Callable[..., Any]) -> None:
    specimen = make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0)
    if name == "servo_hydraulic_linear":  # moves none without mass
        specimen = make("specimen", "with_mass", mass=30.0)
    cls = registry.load("actuator", name)
    actuator = cls(from_data(cls.Params, ACTUATORS[name], name), DT, specimen)
    moved = []
    for k in range(SETTLED + 600):
        actuator.step(1e-6 * math.cos(OMEGA * DT * k))
        moved.append(1e6 * actuator.displacement)
    response = actuator.frequency_response(np.array([OMEGA]))[0]
    stepped = 1e-4 if name == "servo_hydraulic" else 1e-7  # Runge-Kutta against the exact solution
    assert abs(response - 1.0) > 0.1
    assert fitted(np.array(moved), SETTLED) == pytest.approx(response, rel=stepped)


@pytest.mark.parametrize("family", ["compensator", "actuator"])
def test_every_response_is_tested(family: str) -> None:
    tested = COMPENSATORS if family == "compensator" else ACTUATORS
    known = {name for name in registry.names(family) if hasattr(registry.load(family, name), "frequency_response")}
    assert known - COUPLED == set(tested)


def test_responses_in_series_that_couple_the_axes() -> None:
    """The second one stands on the left, and a response that is the same for all axes is a factor."""
    one, other = np.array([[[1.0, 2.0], [0.0, 1j]]]), np.array([[[0.0, 1.0], [1.0, 3.0]]], complex)
    np.testing.assert_array_equal(in_series(one, other), other @ one)
    both = np.array([2j])
    for found, single in ((in_series(one, both), one), (in_series(both, one), one)):
        np.testing.assert_array_equal(found, 2j * single)
    np.testing.assert_array_equal(in_series(both, both), [-4.0])


def test_a_compensator_may_couple_the_axes() -> None:
    """One that sends each target to the other axis undoes axes that are wired the wrong way round."""
    tested = [SmallSpecimen.spring(50.0), SmallSpecimen.spring(300.0)]
    right = frame([late(0.001)] * 2, tested, np.eye(2))
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    crossed = replace(right, compensator=lambda omega: np.ones((len(omega), 1, 1)) * swap)
    unswapped = replace(crossed, forces_of=swap, specimens=(tested[1], tested[0]))
    s = 1j * np.array([3.0, 20.0])
    wanted, *found = (loop.characteristic(s) * loop.scale**4 for loop in (right, unswapped, crossed))
    np.testing.assert_allclose(found[0], wanted)
    assert not np.allclose(found[1], wanted)


LONG = ("rths_benchmark_2020", "tadc_el_centro", "tadc_sweep")
"""The loop of ``tadc_sine`` again, and one that takes as long as ten others: only ``make soak`` runs them."""
REFUSED = {
    "marths_2023": "have no mass, so the stability cannot be judged",  # the rotations of its frame
    "tall_frame": "too many to judge the stability before the test. Set reduction",
}
SOME = np.array([2j, 30j, 100j, 5.0 + 40j])
"""Frequencies (rad/s) at which two loops are compared."""
BESIDE = 5e-5
"""Relative distance from a limit: the axes of ``phillips_spencer_2012`` begin to grow 8e-5 one after another."""
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
    found = judge(test)
    assert isinstance(found, Judgement)
    assert found.stable, found.verdict()
    assert json.loads(json.dumps(found.data()))["stable"] is True
    loop, places = found.loop, [HZ * mode.frequency for mode in found.modes]
    assert growing_motions(loop, places) == 0
    limits = {"delay": found.further_delay, "ratio": found.frequency_factor, "gain": found.gain}
    for parameter, limit in limits.items():
        if limit:
            beside = [{parameter: limit.value * factor} for factor in (1.0 - BESIDE, 1.0 + BESIDE)]
            assert [growing_motions(loop, places, **state) for state in beside] == [0, limit.roots], parameter


@pytest.mark.parametrize(("transport", "stable"), [(0, True), (40, True), (150, False)])
def test_the_verdict_alone_is_that_of_the_judgement(transport: int, stable: bool) -> None:
    scenario = files.load("chen_ricles_2010", ["compensator.type=none", f"port.transport_samples={transport}"])
    assert is_stable(scenario) == judge(scenario).stable == stable


def test_structures_behind_one_rig_share_its_way_to_the_bit() -> None:
    known: dict[str, Impulses] = {}
    for changes in (["structure.mass=6e5"], ["structure.damping_ratio=0.05"], ["compensator.alpha_es=20"]):
        scenario = files.load("chen_ricles_2010", changes)
        assert sampled_loop(scenario, known).characteristic(SOME) == pytest.approx(
            sampled_loop(scenario).characteristic(SOME), abs=0.0
        )
    assert len(known) == 2
    assert is_stable(files.load("chen_ricles_2010"), known)
