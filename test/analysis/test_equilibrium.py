# SPDX-License-Identifier: Apache-2.0
"""What is left of the equation of motion, the zooms of the tracking, the limits of a compensator's parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.figures import histories, tracking
from rths_nodes.analysis.figures.histories import residual
from rths_nodes.analysis.figures.sheet import Sheet, View
from rths_nodes.analysis.figures.style import LIMIT
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load

Simulate = Callable[..., tuple[Any, Any]]


def test_an_integrator_that_satisfies_the_equation_leaves_rounding(simulate: Simulate) -> None:
    for overrides in (["duration=2"], ["duration=1", "time_ratio=4"]):
        _, force, scale = residual(Evaluation(simulate("chen_ricles_2010", *overrides)[1]))
        assert np.abs(force).max() < 1e-9 * scale
        assert scale > 1e3


def test_a_force_that_was_changed_on_the_way_is_left_over(simulate: Simulate) -> None:
    run = simulate("chen_ricles_2010", "duration=1")[1]
    changed = dataclasses.replace(run, force=run.force + 100.0)
    assert residual(Evaluation(changed))[1] == pytest.approx(100.0, rel=1e-6)


def test_prescribed_displacements_have_no_equilibrium(simulate: Simulate) -> None:
    with pytest.raises(ConfigError, match=naming("equation", "motion")):
        residual(Evaluation(simulate("predefined_sine", "duration=0.5")[1]))


def test_the_zooms_are_at_the_peak_and_at_the_fastest_crossing_of_zero(simulate: Simulate) -> None:
    of = Evaluation(simulate("predefined_sine", "duration=3")[1])
    found = tracking.places(of, 0)
    assert found
    target = of.run.target[of.counted, 0]
    peak, zero = ((first + last) // 2 for first, last in found)
    assert abs(target[peak]) == np.abs(target).max()
    assert target[zero] * target[zero + 1] <= 0.0
    still = dataclasses.replace(of.run, target=np.zeros_like(of.run.target))
    assert tracking.places(Evaluation(still), 0) is None
    assert tracking.zooms(Sheet(), View.one(Evaluation(still))) is None


@pytest.mark.parametrize(
    ("overrides", "limits"),
    [
        (["compensator.alpha_min=10", "compensator.alpha_max=40"], {"alpha": (10.0, 40.0)}),
        ([], {"alpha": (-math.inf, math.inf)}),
        (["compensator={type: adaptive_time_series, delay: 0.02}"], {"a0": (0.7, 1.3), "a1": (0.0, 0.05)}),
    ],
)
def test_a_compensator_states_the_limits_of_what_it_adapts(
    overrides: list[str], limits: dict[str, tuple[float, float]]
) -> None:
    found: Any = Assembly(load("chen_ricles_2010", overrides)).compensator
    assert {name: found.state_limits[name] for name in limits} == limits


def test_the_limits_of_the_parameters_are_drawn(simulate: Simulate) -> None:
    limited = ["compensator.alpha_min=10", "compensator.alpha_max=40"]
    for overrides, drawn in ((limited, [10.0, 40.0]), ([], [])):
        sheet = Sheet()
        run = simulate("chen_ricles_2010", "duration=1", *overrides)[1]
        words = histories.compensator(sheet, View.one(Evaluation(run)))
        assert words
        lines = [line for panel in sheet.figure.axes for line in panel.lines if line.get_color() == LIMIT]
        assert sorted(float(np.asarray(line.get_ydata())[0]) for line in lines) == drawn
        assert ("Dashed: limits" in words[1]) == bool(drawn)
