# SPDX-License-Identifier: Apache-2.0
"""Tests of the inverse and the adaptive inverse (Chen & Ricles), and of the adaptive wrapper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.loop.indices.tracking import Tracking

DT = 1.0 / 1024.0
OMEGA = 2.0 * np.pi
STIFFNESS = 7.6e6


def sine(seconds: float, amplitude: float = 0.02) -> list[Motion]:
    """Targets of 1 Hz with their derivatives."""
    phases = OMEGA * DT * np.arange(1, round(seconds / DT) + 1)
    return [
        Motion(
            np.array([amplitude * np.sin(phase)]),
            np.array([amplitude * OMEGA * np.cos(phase)]),
            np.array([-amplitude * OMEGA**2 * np.sin(phase)]),
        )
        for phase in phases.tolist()
    ]


def rig(kind: str = "first_order", stiffness: float = STIFFNESS, damping: float = 0.0, **data: Any) -> Any:
    """Build an actuator with a spring."""
    specimen = make("specimen", "kelvin_voigt", stiffness=stiffness, damping=damping)
    return make("actuator", kind, DT, specimen, **data)


def track(compensator: Any, rig: Any, targets: list[Motion]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measured displacement and force ``(n,)`` and inner states ``(n, 3)`` of ``rig`` at each target."""
    rows, states = [], []
    for target in targets:
        target.force = np.array([rig.force])
        command = compensator.step(target, np.array([rig.displacement]))
        rig.step(float(command[0]))
        rows.append((rig.displacement, rig.force))
        states.append(list(compensator.state()))
    measured, force = np.array(rows).T
    return measured, force, np.array(states)


def error(measured: np.ndarray, targets: list[Motion], seconds: float = 2.0) -> float:
    """Largest tracking error of the last ``seconds``, m."""
    count = round(seconds / DT)
    expected = np.array([target.displacement[0] for target in targets[-count:]])
    return float(np.abs(measured[-count:] - expected).max())


OPTIONS: list[dict[str, float]] = [
    {},
    {"k_p_per_mm2": 0.0},
    {"k_p_per_mm2": 0.7, "k_i_per_mm2_s": 0.3},
    {"alpha_min": 12.0, "alpha_max": 18.0, "alpha_rate": 7.0},
    {"quiet_velocity": 0.02, "quiet_time": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_wrapped_inverse_equals_adaptive_inverse_bitwise(options: dict[str, float]) -> None:
    case = make("compensator", "adaptive_inverse", DT, 2, alpha_es=15.3, **options)
    wrapper = make("compensator", "adaptive", DT, 2, compensator={"type": "inverse", "alpha": 15.3}, **options)
    assert wrapper.state_names == case.state_names
    rng = np.random.default_rng(1)
    targets = 1e-4 * rng.normal(size=(2000, 2)).cumsum(axis=0)
    for target, measured in zip(targets, targets + 1e-4 * rng.normal(size=(2000, 2)), strict=True):
        motion = Motion(target, np.zeros(2), np.zeros(2), flagged=rng.random() < 0.05)
        np.testing.assert_array_equal(wrapper.step(motion, measured), case.step(motion, measured))
        assert wrapper.state() == case.state()


WRAPPED: list[dict[str, Any]] = [
    {"type": "inverse", "alpha": 15.0},
    {"type": "linear_acceleration", "delay": 14.0 * DT},
    {"type": "derivative_feedforward", "delay": 14.0 * DT},
    {"type": "derivative_feedforward", "delay": 14.0 * DT, "order": 2},
]
all_wrapped = pytest.mark.parametrize(
    "wrapped", WRAPPED, ids=lambda data: data["type"] + str(data.get("order", ""))
)


@all_wrapped
def test_zero_gains_reproduce_wrapped_compensator(wrapped: dict[str, Any]) -> None:
    plain = make("compensator", wrapped["type"], DT, 1, **{k: v for k, v in wrapped.items() if k != "type"})
    assert list(plain.state()) == []
    wrapper = make("compensator", "adaptive", DT, 1, compensator=wrapped, k_p_per_mm2=0.0)
    targets = sine(1.0)
    fixed, adapted = (track(part, rig(alpha=29.0), targets)[0] for part in (plain, wrapper))
    np.testing.assert_array_equal(adapted, fixed)


@all_wrapped
@pytest.mark.parametrize("late", [10, 28])
@pytest.mark.parametrize("indicator", ["tracking", "energy"])
def test_wrong_delay_estimate_is_corrected(wrapped: dict[str, Any], late: int, indicator: str) -> None:
    """A pure delay of 10 or 28 samples, estimated as 14: the parameter reaches the true value within seconds."""
    gain = {"k_p_per_mm2": 0.4} if indicator == "tracking" else {"k_p_per_joule": 0.4e6 / STIFFNESS}
    wrapper = make("compensator", "adaptive", DT, 1, indicator=indicator, compensator=wrapped, **gain)
    fixed = make("compensator", "adaptive", DT, 1, compensator=wrapped, k_p_per_mm2=0.0)
    targets = sine(10.0)
    before = error(track(fixed, rig("pure_delay", delay=late * DT), targets)[0], targets)
    measured, _, states = track(wrapper, rig("pure_delay", delay=late * DT), targets)
    identified = states[-1, 0] - 1.0 if wrapped["type"] == "inverse" else states[-1, 0] / DT
    assert identified == pytest.approx(late, abs=1.0)
    assert error(measured, targets) < 0.25 * before


def test_parameter_starts_at_wrapped_value() -> None:
    wrapper = make("compensator", "adaptive", DT, 2, compensator=WRAPPED[1])
    assert wrapper.state() == [14.0 * DT, 0.0, 0.0] * 2
    assert wrapper.state_names[:3] == ("delay[0]", "delta_delay[0]", "tracking_indicator[0]")
    assert {name.partition("[")[0] for name in wrapper.state_names} <= set(wrapper.state_units)


def test_gain_has_equal_effect_on_alpha_and_delay() -> None:
    """k_p counts samples: alpha changes by d, the delay by d samples, for the same targets and measurements."""
    inverse, feedforward = (make("compensator", "adaptive", DT, 1, compensator=data) for data in WRAPPED[::2])
    for target in sine(0.5):
        for part in (inverse, feedforward):
            part.step(target, 0.9 * target.displacement - 1e-3)
    assert feedforward.state()[1] == pytest.approx(DT * inverse.state()[1], rel=1e-9)
    assert inverse.state()[1] != 0.0


def test_energy_indicator_equals_monitor_index() -> None:
    wrapper = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=0.0, compensator=WRAPPED[0])
    targets = sine(1.0)
    measured, force, states = track(wrapper, rig(alpha=29.0), targets)
    goal = np.array([target.displacement for target in targets])
    _, history = Tracking(1, 1).over(goal, measured[:, None], force[:, None])
    np.testing.assert_allclose(states[1:, 2], history[:-1], rtol=1e-9, atol=1e-12)


def test_energy_indicator_of_spring_is_stiffness_times_tracking_indicator() -> None:
    """Over whole periods both count the area of the synchronisation plot: E = k TI."""
    fixed = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=0.0, compensator=WRAPPED[0])
    targets = sine(4.0 + DT)
    measured, _, states = track(fixed, rig(alpha=29.0), targets)
    goal = np.array([target.displacement for target in targets])
    indicator, _ = Tracking(1, 1).over(goal, measured[:, None])
    period = states[-1, 2] - states[-1 - 1024, 2]
    assert period == pytest.approx(STIFFNESS * float(indicator[-2, 0] - indicator[-2 - 1024, 0]), rel=1e-3)
    assert period > 0.0


@pytest.mark.parametrize(("alpha", "sign"), [(15.0, 1.0), (45.0, -1.0)])
def test_energy_indicator_drives_alpha_to_true_value(alpha: float, sign: float) -> None:
    inverse = {"type": "inverse", "alpha": alpha}
    gain = 0.4e6 / STIFFNESS
    wrapper = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=gain, compensator=inverse)
    targets = sine(10.0)
    measured, _, states = track(wrapper, rig(alpha=29.0), targets)
    assert sign * states[1024, 1] > 0.0
    assert states[-1, 0] == pytest.approx(29.0, abs=1.0)
    assert error(measured, targets) < 1e-4


def test_energy_indicator_of_damper_cannot_detect_lead() -> None:
    """Documented: c w pi X^2 (1 - cos phi) a period, positive for lag and lead alike."""
    for alpha in (15.0, 45.0):
        inverse = {"type": "inverse", "alpha": alpha}
        fixed = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=0.0, compensator=inverse)
        _, _, states = track(fixed, rig("pure_delay", 0.0, 1e6, delay=28.0 * DT), sine(4.0))
        assert states[-1, 2] - states[-1 - 1024, 2] > 0.0


def test_flagged_samples_do_not_adapt_parameter() -> None:
    wrapper = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=1e-2)
    targets = sine(0.1)
    for target in targets:
        target.force = 1e6 * target.displacement
        wrapper.step(target, 0.9 * target.displacement)
    before = wrapper.state()
    targets[-1].flagged = True
    wrapper.step(targets[-1], np.array([0.3]))
    assert wrapper.state() == before


def test_limits_apply_to_delay() -> None:
    wrapper = make("compensator", "adaptive", DT, 1, compensator=WRAPPED[2], alpha_max=20.0, alpha_rate=5.0)
    _, _, states = track(wrapper, rig("pure_delay", delay=28.0 * DT), sine(4.0))
    assert states[:, 0].max() == 19.0 * DT
    assert np.abs(np.diff(states[:, 0])).max() == pytest.approx(5.0 * DT * DT)


def test_reset_restores_initial_estimate() -> None:
    for data in WRAPPED:
        wrapper, targets = make("compensator", "adaptive", DT, 1, compensator=data), sine(1.0)
        first = track(wrapper, rig("pure_delay", delay=0.02), targets)
        wrapper.reset()
        for again, before in zip(track(wrapper, rig("pure_delay", delay=0.02), targets), first, strict=True):
            np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("adaptive", {"compensator": {"type": "none"}}, ("none", "alpha", "delay")),
        ("adaptive", {"compensator": {"type": "polynomial", "delay": 0.01}}, ("polynomial", "alpha")),
        ("adaptive", {"indicator": "energy"}, ("k_p_per_joule", "missing", "indicator")),
        ("adaptive", {"indicator": "energy", "k_p_per_joule": 1.0, "k_p_per_mm2": 0.4}, ("k_p_per_mm2", "0.4")),
        ("adaptive", {"k_i_per_joule_s": 1.0}, ("k_i_per_joule_s", "1", "indicator")),
        ("adaptive", {"indicator": "phase"}, ("unknown", "value", "phase")),
        ("adaptive", {"alpha_max": 20.0}, ("alpha", "29", "alpha_min", "alpha_max")),
        ("adaptive", {"compensator": WRAPPED[1], "alpha_min": 16.0}, ("alpha", "15")),
        ("adaptive", {"alpha_min": 30.0, "alpha_max": 20.0}, ("alpha_min", "30", "< alpha_max", "20")),
        ("adaptive_inverse", {"alpha_min": 30.0, "alpha_max": 20.0}, ("alpha_min", "30", "< alpha_max", "20")),
        ("adaptive_inverse", {"alpha_es": 5.0, "alpha_min": 10.0}, ("alpha_es", "5", "alpha_min", "alpha_max")),
        ("adaptive_inverse", {"alpha_es": 25.0, "alpha_max": 20.0}, ("alpha_es", "25", "alpha_min", "alpha_max")),
    ],
)
def test_incompatible_parameters_are_refused(name: str, data: dict[str, Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        make("compensator", name, DT, 1, **data)


def plant(alpha: float) -> Any:
    """Build the first-order actuator of Eq. (3), without a load."""
    return rig(stiffness=0.0, alpha=alpha)


def paper_law(**data: float) -> Any:
    return make("compensator", "adaptive_inverse", DT, 1, **({"alpha_es": 15.0} | data))


def motion(x: float, flagged: bool = False) -> Motion:
    return Motion(np.array([x]), np.zeros(1), np.zeros(1), flagged)


def follow(compensator: Any, plant: Any, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measured displacements ``(n,)`` and inner states ``(n, 3)`` of ``plant`` at each target."""
    measured, states = [], []
    for target in targets.tolist():
        command = compensator.step(motion(target), np.array([plant.displacement]))
        plant.step(float(command[0]))
        measured.append(plant.displacement)
        states.append(tuple(compensator.state()))
    return np.array(measured), np.array(states)


def displacements(seconds: float, amplitude: float = 0.02) -> np.ndarray:
    return amplitude * np.sin(2.0 * np.pi * DT * np.arange(1, round(seconds / DT) + 1))


def test_none_sends_target() -> None:
    np.testing.assert_array_equal(make("compensator", "none", DT, 1).step(motion(0.3), np.zeros(1)), [0.3])


@pytest.mark.parametrize("alpha", [1.0, 15.0, 29.0, 45.5])
def test_inverse_cancels_first_order_actuator(alpha: float) -> None:
    targets = displacements(2.0)
    measured, _ = follow(make("compensator", "inverse", DT, 1, alpha=alpha), plant(alpha), targets)
    np.testing.assert_allclose(measured, targets, atol=1e-16)


def test_inverse_equals_eq_5b() -> None:
    inverse = make("compensator", "inverse", DT, 2, alpha=15.0)
    first, second = np.array([0.1, -0.2]), np.array([0.3, 0.5])
    inverse.step(Motion(first, first, first), np.zeros(2))
    command = inverse.step(Motion(second, second, second), np.zeros(2))
    np.testing.assert_allclose(command, 15.0 * second - 14.0 * first)


def test_true_alpha_gives_exact_tracking() -> None:
    targets = displacements(5.0)
    measured, states = follow(paper_law(alpha_es=29.0), plant(29.0), targets)
    np.testing.assert_allclose(measured, targets, atol=1e-15)
    np.testing.assert_allclose(states[:, 1], 0.0, atol=1e-9)


def test_adaptive_law_equals_eqs_5b_to_10() -> None:
    """Reference: the equations for the complete history, in millimetres."""
    c, m = np.random.default_rng(1).normal(size=(2, 50)).cumsum(axis=1)
    k_p, k_i, es = 0.4, 0.04, 15.0
    law = make("compensator", "adaptive_inverse", DT, 1, alpha_es=es)
    commands, states = [], []
    for k in range(50):
        last = m[k - 1] if k else 0.0
        commands.append(float(law.step(motion(1e-3 * c[k]), np.array([1e-3 * last]))[0]))
        states.append(tuple(law.state()))
    c0, m0 = np.insert(c, 0, 0.0), np.insert(m, 0, 0.0)
    area = np.cumsum((c0[1:] + c0[:-1]) * np.diff(m0) / 2.0)
    complement = np.cumsum((m0[1:] + m0[:-1]) * np.diff(c0) / 2.0)
    indicator = (area - complement) / 2.0
    integral = np.insert(np.cumsum(DT * indicator), 0, 0.0)[:-1]  # one sample late
    delta = np.insert(k_p * indicator + k_i * integral, 0, 0.0)[:-1]
    np.testing.assert_allclose([state[1] for state in states], delta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([state[2] for state in states[1:]], 1e-6 * indicator[:-1], rtol=1e-9)
    alpha = es + delta
    np.testing.assert_allclose(commands, 1e-3 * (alpha * c - (alpha - 1.0) * c0[:-1]), rtol=1e-9, atol=1e-12)


def test_default_k_i_is_tenth_of_k_p() -> None:
    targets = displacements(3.0)
    default, explicit = (
        follow(paper_law(k_p_per_mm2=0.3, **k_i), plant(29.0), targets)
        for k_i in ({}, {"k_i_per_mm2_s": 0.1 * 0.3})
    )
    np.testing.assert_array_equal(default[1], explicit[1])
    none = paper_law(k_p_per_mm2=0.3, k_i_per_mm2_s=0.0)
    assert follow(none, plant(29.0), targets)[1][-1, 1] < explicit[1][-1, 1]


def test_zero_gains_reproduce_inverse() -> None:
    targets = displacements(1.0)
    fixed, _ = follow(make("compensator", "inverse", DT, 1, alpha=15.0), plant(29.0), targets)
    np.testing.assert_array_equal(follow(paper_law(k_p_per_mm2=0.0), plant(29.0), targets)[0], fixed)


def test_tracking_indicator_equals_monitor_index() -> None:
    targets = displacements(1.0)
    measured, states = follow(paper_law(), plant(29.0), targets)
    indicator, _ = Tracking(1, 1).over(targets[:, None], measured[:, None])
    np.testing.assert_allclose(states[1:, 2], indicator[:-1, 0], rtol=1e-9, atol=1e-18)


def test_axes_adapt_independently() -> None:
    targets = displacements(1.0)
    both = make("compensator", "adaptive_inverse", DT, 2, alpha_es=15.0)
    plants = [plant(29.0), plant(20.0)]
    for target in targets.tolist():
        command = both.step(
            Motion(np.full(2, target), np.zeros(2), np.zeros(2)), np.array([p.displacement for p in plants])
        )
        for p, value in zip(plants, command.tolist(), strict=True):
            p.step(value)
    alone = [paper_law() for _ in plants]
    states = [follow(law, plant(alpha), targets)[1][-1] for law, alpha in zip(alone, (29.0, 20.0), strict=True)]
    np.testing.assert_array_equal(both.state(), np.concatenate(states))


def test_alpha_stays_within_limits() -> None:
    law = paper_law(k_p_per_mm2=4.0, alpha_min=10.0, alpha_max=20.0)
    _, states = follow(law, plant(29.0), displacements(5.0))
    assert states[:, 0].max() == 20.0
    assert states[:, 0].min() >= 10.0


def test_integral_is_frozen_while_alpha_is_limited() -> None:
    """A slow actuator, then a fast one: once TI is negative, no wound-up integral keeps alpha high."""
    law = paper_law(alpha_max=16.0)
    slow, fast = plant(29.0), plant(2.0)
    _, states = follow(law, slow, displacements(10.0))
    assert states[-1, 0] == 16.0
    fast.displacement = slow.displacement
    _, states = follow(law, fast, displacements(20.0))
    led = states[:, 2] < 0.0
    assert led.any()
    assert states[led, 0].max() < 15.5


def test_alpha_rate_is_limited() -> None:
    _, states = follow(paper_law(alpha_rate=5.0), plant(29.0), displacements(4.0))
    assert np.abs(np.diff(states[:, 0])).max() == pytest.approx(5.0 * DT)
    free = follow(paper_law(), plant(29.0), displacements(4.0))[1]
    assert np.abs(np.diff(free[:, 0])).max() > 5.0 * DT


def quiet_drift(law: Any, plant: Any) -> float:
    """Change of alpha from 5 s to 20 s after the motion died."""
    targets = np.concatenate((displacements(3.3), np.full(20 * 1024, displacements(3.3)[-1])))
    states = follow(law, plant, targets)[1]
    return float(states[-1, 0] - states[-15 * 1024, 0])


def test_quiet_velocity_stops_drift_in_quiet_tail() -> None:
    assert abs(quiet_drift(paper_law(), plant(29.0))) > 1.0
    assert abs(quiet_drift(paper_law(quiet_velocity=0.005), plant(29.0))) < 1e-9


def test_quiet_velocity_has_no_effect_on_strong_motion() -> None:
    published, guarded = (
        follow(paper_law(**option), plant(29.0), displacements(5.0)) for option in ({}, {"quiet_velocity": 0.005})
    )
    np.testing.assert_array_equal(published[1], guarded[1])


def test_flagged_samples_do_not_adapt() -> None:
    law = paper_law()
    for x in (1.0, 2.0, 3.0):
        law.step(motion(0.001 * x), np.array([0.0005 * x]))
    before = tuple(law.state())
    law.step(motion(0.5, flagged=True), np.array([0.3]))
    assert tuple(law.state()) == before
