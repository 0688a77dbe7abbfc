# SPDX-License-Identifier: Apache-2.0
"""Corrections of the measured force: closed forms, and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.corrections import Corrections, FeedbackFilter, ForceCorrections, low_pass, shown_forces

DT = 1.0 / 1024.0
OMEGA = 2.0 * math.pi * 3.0
K, MASS, FRICTION = 2e6, 150.0, 800.0
CHANNELS = ("pressure [Pa]", "accelerometer [m/s^2]")
FIXTURE = {"fixture_mass": MASS, "acceleration": "accelerometer"}
RUB = {"friction": FRICTION, "smoothing_velocity": 1e-3}


def corrections(simulated: bool = False, low: dict[str, Any] | None = None, **keys: Any) -> ForceCorrections:
    """Of two axes, of which the second has them."""
    rig = SimpleNamespace(
        corrections=from_data(Corrections, keys) if keys else None,
        feedback_filter=None if low is None else from_data(FeedbackFilter, low),
    )
    none = SimpleNamespace(corrections=None, feedback_filter=None)
    axes = {"a": SimpleNamespace(rig_axis=none), "b": SimpleNamespace(rig_axis=rig)}
    return ForceCorrections(axes, CHANNELS, DT, simulated)


def measured(k: int, x: float, force: float, acceleration: float = 0.0) -> Measurement:
    second = (np.array([0.5, value]) for value in (x, force))
    return Measurement(k, *second, np.zeros(2), np.array([7.0, acceleration]))


def test_a_fixture_under_a_harmonic_gives_back_the_specimen() -> None:
    """x = X sin: the cell shows (k - m omega^2) x, and a is -omega^2 x; the specimen has k x."""
    found = corrections(**FIXTURE)
    assert found.names == ("uncorrected_force_b [N]",)
    for k in range(2000):
        x = 0.01 * math.sin(OMEGA * k * DT)
        shown = measured(k, x, (K - MASS * OMEGA**2) * x, -(OMEGA**2) * x)
        given = found.corrected(shown)
        assert given.force[1] == pytest.approx(K * x, rel=1e-9)
        assert given.force[0] == 0.5
        np.testing.assert_array_equal(given.auxiliary, [*shown.auxiliary, shown.force[1]])


def test_friction_under_a_triangle_gives_back_the_specimen() -> None:
    """Coulomb's force follows the sign of the velocity, which is far above the smoothing one."""
    found = corrections(**RUB)
    way = 0.01 * (2.0 / math.pi) * np.arcsin(np.sin(OMEGA * np.arange(2000) * DT))
    for k, x in enumerate(way.tolist()):
        velocity = x - way[k - 1] if k else 0.0
        if abs(abs(velocity) - 0.01 * (2.0 / math.pi) * OMEGA * DT) > 1e-9:
            found.corrected(measured(k, x, 0.0))  # the samples at the turns, where it changes its sign
            continue
        given = found.corrected(measured(k, x, K * x + math.copysign(FRICTION, velocity)))
        assert given.force[1] == pytest.approx(K * x, rel=1e-9, abs=1e-6)


def test_smoothed_friction_is_the_hyperbolic_tangent_of_the_measured_velocity() -> None:
    found, velocity = corrections(**RUB), 0.7e-3
    found.corrected(measured(0, 0.0, 0.0))
    for k in (1, 2, 5):  # of a rig that has left out samples, too
        given = found.corrected(measured(k, velocity * k * DT, 100.0))
        assert given.force[1] == pytest.approx(100.0 - FRICTION * math.tanh(0.7), rel=1e-9)


def test_filter_comes_behind_the_corrections_and_starts_at_rest() -> None:
    low = {"order": 2, "cutoff": 40.0, "delay": 5.6e-3}
    found, plain = corrections(low=low, **FIXTURE), from_data(FeedbackFilter, low).built(DT)
    plain.start(K * 0.01 * math.sin(1.0))
    for k in range(300):
        x = 0.01 * math.sin(OMEGA * k * DT + 1.0)
        given = found.corrected(measured(k, x, (K - MASS * OMEGA**2) * x, -(OMEGA**2) * x))
        assert given.force[1] == pytest.approx(plain.step(K * x), rel=1e-9)


def test_what_is_not_finite_does_not_stay_in_the_filter() -> None:
    found = corrections(low={"order": 3, "cutoff": 40.0, "delay": 8e-3})
    assert found.corrected(measured(0, 0.0, 5.0)).force[1] == pytest.approx(5.0)
    assert math.isnan(found.corrected(measured(1, 0.0, math.nan)).force[1])
    assert found.corrected(measured(2, 0.0, 6.0)).force[1] == pytest.approx(6.0)


def test_a_simulator_shows_the_force_of_the_specimen_itself() -> None:
    found = corrections(simulated=True, **FIXTURE, **RUB)
    assert found.corrected(measured(1, 0.1, 33.0, 9.0)).force[1] == 33.0
    assert found.names


def test_shown_forces_are_found_by_name() -> None:
    names = (*CHANNELS, *corrections(**FIXTURE).names)
    assert shown_forces(names, ("a", "b")) == [(1, 2)]
    assert shown_forces(CHANNELS, ("a", "b")) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fixture_mass": 5.0}, ("at.fixture_mass", "5", "channel")),
        ({"acceleration": "a"}, ("at.acceleration", "a", "fixture_mass")),
        ({"friction": 5.0}, ("at.friction", "5", "smoothing_velocity")),
        ({"friction": -5.0, "smoothing_velocity": 1.0}, ("at.friction", "-5 N", "> 0")),
        ({}, ("corrects", "nothing")),
    ],
)
def test_half_a_correction_is_refused(keys: dict[str, Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        from_data(Corrections, keys, "at")


def test_a_fixture_without_an_acceleration_is_refused() -> None:
    found = from_data(Corrections, FIXTURE)
    with pytest.raises(ConfigError, match=naming("channels", "pressure")):
        found.check_channels({"pressure": "Pa"}, "at")
    with pytest.raises(ConfigError, match=r"at.acceleration: unknown .*'accelerometer'.* known: other"):
        found.check_channels({"pressure": "Pa", "other": "m/s^2"}, "at")
    with pytest.raises(ConfigError, match=naming("channel", "acceleration")):
        ForceCorrections(
            {"b": SimpleNamespace(rig_axis=SimpleNamespace(corrections=found, feedback_filter=None))},
            ("accelerometer [V]",),
            DT,
            False,
        )


@pytest.mark.parametrize(
    ("delay", "accepted"), [(1.0, True), (1.09, True), (0.91, True), (1.11, False), (0.8, False)]
)
def test_a_declared_delay_must_be_that_of_the_filter(delay: float, accepted: bool) -> None:
    """sqrt(2) / omega_c of second order."""
    own = math.sqrt(2.0) / (2.0 * math.pi * 20.0)
    found = from_data(FeedbackFilter, {"order": 2, "cutoff": 20.0, "delay": delay * own})
    if accepted:
        found.check_rate(1.0 / DT, "at")
        return
    with pytest.raises(ConfigError, match=naming("at.delay", "10%", "0.01124 s")):
        found.check_rate(1.0 / DT, "at")


def test_a_cutoff_beyond_half_the_rate_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("at.cutoff", "600 Hz", "< 512 Hz", "servo_rate")):
        from_data(FeedbackFilter, {"order": 2, "cutoff": 600.0, "delay": 1.0}).check_rate(1.0 / DT, "at")


def test_an_axis_without_a_rig_has_no_filter() -> None:
    assert low_pass(SimpleNamespace(rig_axis=None), DT) is None
