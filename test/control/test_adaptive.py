# SPDX-License-Identifier: Apache-2.0
"""The adaptive law as a wrapper: AIC is one of its cases; other compensators and the energy indicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
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


@pytest.fixture
def rig(make: Callable[..., Any]) -> Callable[..., Any]:
    """An actuator with a spring, or with what is given."""

    def rig(kind: str = "first_order", stiffness: float = STIFFNESS, damping: float = 0.0, **data: Any) -> Any:
        specimen = make("specimen", "kelvin_voigt", stiffness=stiffness, damping=damping)
        return make("actuator", kind, DT, specimen, **data)

    return rig


def track(compensator: Any, rig: Any, targets: list[Motion]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measured displacement and force ``(n,)`` and inner states ``(n, 3)`` behind ``rig``, at each target."""
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
    wanted = np.array([target.displacement[0] for target in targets[-count:]])
    return float(np.abs(measured[-count:] - wanted).max())


OPTIONS: list[dict[str, float]] = [
    {},
    {"k_p_per_mm2": 0.0},
    {"k_p_per_mm2": 0.7, "k_i_per_mm2_s": 0.3},
    {"alpha_min": 12.0, "alpha_max": 18.0, "alpha_rate": 7.0},
    {"quiet_velocity": 0.02, "quiet_time": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_paper_s_case_is_the_adaptive_inverse_to_the_bit(
    make: Callable[..., Any], options: dict[str, float]
) -> None:
    case = make("compensator", "adaptive_inverse", DT, 2, alpha_es=15.3, **options)
    wrapper = make("compensator", "adaptive", DT, 2, compensator={"type": "inverse", "alpha": 15.3}, **options)
    assert wrapper.state_names == case.state_names
    rng = np.random.default_rng(1)
    targets = 1e-4 * rng.normal(size=(2000, 2)).cumsum(axis=0)
    for target, seen in zip(targets, targets + 1e-4 * rng.normal(size=(2000, 2)), strict=True):
        motion = Motion(target, np.zeros(2), np.zeros(2), flagged=rng.random() < 0.05)
        np.testing.assert_array_equal(wrapper.step(motion, seen), case.step(motion, seen))
        assert wrapper.state() == case.state()


WRAPPED: list[dict[str, Any]] = [
    {"type": "inverse", "alpha": 15.0},
    {"type": "linear_acceleration", "delay": 14.0 * DT},
    {"type": "derivative_feedforward", "delay": 14.0 * DT},
    {"type": "derivative_feedforward", "delay": 14.0 * DT, "order": 2},
]
every_wrapped = pytest.mark.parametrize(
    "wrapped", WRAPPED, ids=lambda data: data["type"] + str(data.get("order", ""))
)


@every_wrapped
def test_without_gains_it_is_what_it_wraps(
    make: Callable[..., Any], rig: Callable[..., Any], wrapped: dict[str, Any]
) -> None:
    plain = make("compensator", wrapped["type"], DT, 1, **{k: v for k, v in wrapped.items() if k != "type"})
    wrapper = make("compensator", "adaptive", DT, 1, compensator=wrapped, k_p_per_mm2=0.0)
    targets = sine(1.0)
    fixed, adapted = (track(part, rig(alpha=29.0), targets)[0] for part in (plain_with_state(plain), wrapper))
    np.testing.assert_array_equal(adapted, fixed)


def plain_with_state(compensator: Any) -> Any:
    assert list(compensator.state()) == []
    return compensator


@every_wrapped
@pytest.mark.parametrize("late", [10, 28])
@pytest.mark.parametrize("indicator", ["tracking", "energy"])
def test_a_wrong_delay_is_found(
    make: Callable[..., Any], rig: Callable[..., Any], wrapped: dict[str, Any], late: int, indicator: str
) -> None:
    """A pure delay of 10 or 28 samples, estimated as 14: within seconds the parameter stands at the true one."""
    gain = {"k_p_per_mm2": 0.4} if indicator == "tracking" else {"k_p_per_joule": 0.4e6 / STIFFNESS}
    wrapper = make("compensator", "adaptive", DT, 1, indicator=indicator, compensator=wrapped, **gain)
    fixed = make("compensator", "adaptive", DT, 1, compensator=wrapped, k_p_per_mm2=0.0)
    targets = sine(10.0)
    before = error(track(fixed, rig("pure_delay", delay=late * DT), targets)[0], targets)
    measured, _, states = track(wrapper, rig("pure_delay", delay=late * DT), targets)
    found = states[-1, 0] - 1.0 if wrapped["type"] == "inverse" else states[-1, 0] / DT
    assert found == pytest.approx(late, abs=1.0)
    assert error(measured, targets) < 0.25 * before


def test_the_parameter_starts_at_the_wrapped_one_s_own(make: Callable[..., Any]) -> None:
    wrapper = make("compensator", "adaptive", DT, 2, compensator=WRAPPED[1])
    assert wrapper.state() == [14.0 * DT, 0.0, 0.0] * 2
    names = ("delay[0]", "delta_delay[0]", "tracking_indicator[0]")
    assert wrapper.state_names[:3] == names
    assert {name.partition("[")[0] for name in wrapper.state_names} <= set(wrapper.state_units)


def test_the_gain_means_the_same_for_alpha_and_for_a_delay(make: Callable[..., Any]) -> None:
    """k_p counts samples: alpha changes by d, the delay by d samples, for the same targets and measurements."""
    inverse, feedforward = (make("compensator", "adaptive", DT, 1, compensator=data) for data in WRAPPED[::2])
    for target in sine(0.5):
        for part in (inverse, feedforward):
            part.step(target, 0.9 * target.displacement - 1e-3)
    assert feedforward.state()[1] == pytest.approx(DT * inverse.state()[1], rel=1e-9)
    assert inverse.state()[1] != 0.0


# Indicators


def test_the_energy_indicator_is_the_monitors(make: Callable[..., Any], rig: Callable[..., Any]) -> None:
    wrapper = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=0.0, compensator=WRAPPED[0])
    targets = sine(1.0)
    measured, force, states = track(wrapper, rig(alpha=29.0), targets)
    goal = np.array([target.displacement for target in targets])
    _, history = Tracking(1, 1).over(goal, measured[:, None], force[:, None])
    np.testing.assert_allclose(states[1:, 2], history[:-1], rtol=1e-9, atol=1e-12)


def test_on_a_spring_the_energy_indicator_is_the_stiffness_times_ti(
    make: Callable[..., Any], rig: Callable[..., Any]
) -> None:
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
def test_the_energy_indicator_drives_alpha_the_right_way(
    make: Callable[..., Any], rig: Callable[..., Any], alpha: float, sign: float
) -> None:
    wrapper = make(
        "compensator",
        "adaptive",
        DT,
        1,
        indicator="energy",
        k_p_per_joule=0.4e6 / STIFFNESS,
        compensator={"type": "inverse", "alpha": alpha},
    )
    targets = sine(10.0)
    measured, _, states = track(wrapper, rig(alpha=29.0), targets)
    assert sign * states[1024, 1] > 0.0
    assert states[-1, 0] == pytest.approx(29.0, abs=1.0)
    assert error(measured, targets) < 1e-4


def test_behind_a_damper_the_energy_indicator_does_not_know_a_lead(
    make: Callable[..., Any], rig: Callable[..., Any]
) -> None:
    """Documented: c w pi X^2 (1 - cos phi) a period, positive for lag and lead alike."""
    for alpha in (15.0, 45.0):
        fixed = make(
            "compensator",
            "adaptive",
            DT,
            1,
            indicator="energy",
            k_p_per_joule=0.0,
            compensator={"type": "inverse", "alpha": alpha},
        )
        _, _, states = track(fixed, rig("pure_delay", 0.0, 1e6, delay=28.0 * DT), sine(4.0))
        assert states[-1, 2] - states[-1 - 1024, 2] > 0.0


def test_flagged_samples_do_not_adapt(make: Callable[..., Any]) -> None:
    wrapper = make("compensator", "adaptive", DT, 1, indicator="energy", k_p_per_joule=1e-2)
    targets = sine(0.1)
    for target in targets:
        target.force = 1e6 * target.displacement
        wrapper.step(target, 0.9 * target.displacement)
    before = wrapper.state()
    targets[-1].flagged = True
    wrapper.step(targets[-1], np.array([0.3]))
    assert wrapper.state() == before


# Limits are in samples, whatever is adapted


def test_the_limits_hold_for_a_delay(make: Callable[..., Any], rig: Callable[..., Any]) -> None:
    wrapper = make("compensator", "adaptive", DT, 1, compensator=WRAPPED[2], alpha_max=20.0, alpha_rate=5.0)
    _, _, states = track(wrapper, rig("pure_delay", delay=28.0 * DT), sine(4.0))
    assert states[:, 0].max() == 19.0 * DT
    assert np.abs(np.diff(states[:, 0])).max() == pytest.approx(5.0 * DT * DT)


def test_reset_brings_back_the_estimate(make: Callable[..., Any], rig: Callable[..., Any]) -> None:
    for data in WRAPPED:
        wrapper, targets = make("compensator", "adaptive", DT, 1, compensator=data), sine(1.0)
        first = track(wrapper, rig("pure_delay", delay=0.02), targets)
        wrapper.reset()
        for now, then in zip(track(wrapper, rig("pure_delay", delay=0.02), targets), first, strict=True):
            np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"compensator": {"type": "none"}}, ("none", "alpha", "delay")),
        ({"compensator": {"type": "polynomial", "delay": 0.01}}, ("polynomial", "alpha")),
        ({"indicator": "energy"}, ("k_p_per_joule", "missing", "indicator")),
        (
            {"indicator": "energy", "k_p_per_joule": 1.0, "k_p_per_mm2": 0.4},
            ("k_p_per_mm2", "0.4"),
        ),
        ({"k_i_per_joule_s": 1.0}, ("k_i_per_joule_s", "1", "indicator")),
        ({"indicator": "phase"}, ("unknown", "value", "phase")),
        ({"alpha_max": 20.0}, ("alpha", "29", "alpha_min", "alpha_max")),
        ({"compensator": WRAPPED[1], "alpha_min": 16.0}, ("alpha", "15")),
        ({"alpha_min": 30.0, "alpha_max": 20.0}, ("alpha_min", "30", "< alpha_max", "20")),
    ],
)
def test_what_does_not_fit_together_is_refused(
    make: Callable[..., Any], data: dict[str, Any], message: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        make("compensator", "adaptive", DT, 1, **data)
