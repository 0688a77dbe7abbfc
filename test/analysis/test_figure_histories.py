# SPDX-License-Identifier: Apache-2.0
"""Tests of the numbers in the figures of histories: residual, zooms, parameter limits, response spectra."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from loop_parts import simulate
from messages import naming

from rths_nodes.analysis.figures import histories
from rths_nodes.analysis.figures.drawing import LIMIT, Drawing, Recordings
from rths_nodes.analysis.figures.histories import residual, response_spectrum
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load


def test_residual_of_exact_equilibrium_is_rounding() -> None:
    for overrides in (["duration=2"], ["duration=1", "time_ratio=4"]):
        _, force, scale = residual(Evaluation(simulate("chen_ricles_2010", *overrides)[1]))
        assert np.abs(force).max() < 1e-9 * scale
        assert scale > 1e3


def test_residual_shows_changed_force() -> None:
    run = simulate("chen_ricles_2010", "duration=1")[1]
    changed = dataclasses.replace(run, force=run.force + 100.0)
    assert residual(Evaluation(changed))[1] == pytest.approx(100.0, rel=1e-6)


def test_residual_needs_equation_of_motion() -> None:
    with pytest.raises(ConfigError, match=naming("equation", "motion")):
        residual(Evaluation(simulate("predefined_sine", "duration=0.5")[1]))


def test_zooms_are_at_peak_and_zero_crossing() -> None:
    evaluation = Evaluation(simulate("predefined_sine", "duration=3")[1])
    zooms = histories.places(evaluation, 0)
    assert zooms
    target = evaluation.run.target[evaluation.counted, 0]
    peak, zero = ((first + last) // 2 for first, last in zooms)
    assert abs(target[peak]) == np.abs(target).max()
    assert target[zero] * target[zero + 1] <= 0.0
    still = dataclasses.replace(evaluation.run, target=np.zeros_like(evaluation.run.target))
    assert histories.places(Evaluation(still), 0) is None
    assert histories.zooms(Drawing(), Recordings.one(Evaluation(still))) is None


@pytest.mark.filterwarnings("error")
def test_windows_without_delay_are_not_drawn() -> None:
    evaluation = Evaluation(simulate("predefined_sine", "duration=9")[1])
    assert evaluation.windowed
    unknown = np.full_like(evaluation.windowed.delay, math.nan)
    vars(evaluation)["windowed"] = dataclasses.replace(evaluation.windowed, delay=unknown)
    assert histories.delay(Drawing(), Recordings.one(evaluation)) is None


@pytest.mark.parametrize(
    ("overrides", "limits"),
    [
        (["compensator.alpha_min=10", "compensator.alpha_max=40"], {"alpha": (10.0, 40.0)}),
        ([], {"alpha": (-math.inf, math.inf)}),
        (["compensator={type: adaptive_time_series, delay: 0.02}"], {"a0": (0.7, 1.3), "a1": (0.0, 0.05)}),
    ],
)
def test_compensator_reports_limits_of_parameters(
    overrides: list[str], limits: dict[str, tuple[float, float]]
) -> None:
    compensator: Any = Assembly(load("chen_ricles_2010", overrides)).compensator
    assert {name: compensator.state_limits[name] for name in limits} == limits


def test_parameter_limits_are_drawn() -> None:
    limited = ["compensator.alpha_min=10", "compensator.alpha_max=40"]
    for overrides, drawn in ((limited, [10.0, 40.0]), ([], [])):
        figure = Drawing()
        run = simulate("chen_ricles_2010", "duration=1", *overrides)[1]
        caption = histories.compensator(figure, Recordings.one(Evaluation(run)))
        assert caption
        lines = [line for panel in figure.axes for line in panel.lines if line.get_color() == LIMIT]
        assert sorted(float(np.asarray(line.get_ydata())[0]) for line in lines) == drawn
        assert ("Dashed: limits" in caption[1]) == bool(drawn)


STEP = 1.0 / 256.0


def test_spectrum_of_step_has_closed_form_overshoot() -> None:
    """S_d = a / omega^2 (1 + exp(-pi zeta / sqrt(1 - zeta^2))); constant ground acceleration."""
    periods, zeta = np.array([0.5, 1.0, 2.0]), 0.1
    displacement, acceleration = response_spectrum(np.full(4096, 3.0), STEP, periods, zeta)
    omega = 2.0 * math.pi / periods
    overshoot = 1.0 + math.exp(-math.pi * zeta / math.sqrt(1.0 - zeta**2))
    np.testing.assert_allclose(displacement, 3.0 / omega**2 * overshoot, rtol=2e-3)
    np.testing.assert_allclose(acceleration, 3.0 * overshoot, rtol=2e-3)


def test_spectrum_at_resonance_is_half_inverse_damping() -> None:
    time = np.arange(0.0, 60.0, STEP)
    _, acceleration = response_spectrum(np.sin(2.0 * math.pi * time), STEP, np.array([1.0]))
    assert acceleration[0] == pytest.approx(1.0 / (2.0 * 0.05), rel=1e-3)


def test_spectrum_limits_equal_ground_motion() -> None:
    """A stiff oscillator has the acceleration of the ground, a soft one its displacement."""
    time = np.arange(0.0, 8.0, STEP)
    ground = np.sin(2.0 * math.pi * time) * np.sin(math.pi * time / 8.0) ** 2
    moved = np.cumsum(np.cumsum(ground)) * STEP**2
    displacement, acceleration = response_spectrum(ground, STEP, np.array([0.02, 400.0]))
    assert acceleration[0] == pytest.approx(np.abs(ground).max(), rel=2e-3)
    assert displacement[1] == pytest.approx(np.abs(moved).max(), rel=3e-2)
