# SPDX-License-Identifier: Apache-2.0
"""Tests of analyses of a yielding frame: energies, reference response, stability, report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report import document
from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import files

NAME = "yielding_five_story"
LINEAR = "structure.restoring_forces={}"
STORIES = tuple(f"story_{story}" for story in range(1, 6))


@pytest.fixture(scope="module")
def shaken(simulate: Callable[..., Any]) -> Evaluation:
    """The shipped test for the duration of the strong motion."""
    _, run = simulate(NAME, "duration=12")
    return Evaluation(run)


def drifts(evaluation: Evaluation) -> Array:
    return np.diff(evaluation.run.dof_displacement, axis=1, prepend=0.0)


def test_every_story_and_brace_yield(shaken: Evaluation) -> None:
    structure = shaken.scenario.structure
    left = np.subtract(structure.stiffnesses, structure.experimental_stiffnesses)
    yields = [structure.restoring_forces[name].yield_force for name in STORIES] / left
    assert (np.abs(drifts(shaken)).max(axis=0) > 2.0 * yields).all()
    brace = shaken.scenario.axes["brace"].specimen
    assert np.abs(shaken.run.displacement).max() > 2.0 * brace.yield_force / brace.stiffness


def test_energies_balance_input(shaken: Evaluation) -> None:
    """Input = kinetic + damping + numerical (strain, hysteretic, minus gravity) + specimen."""
    parts = energies(shaken)
    total = parts.pop("input")
    scale = total.max()
    np.testing.assert_allclose(sum(parts.values()), total, atol=0.01 * scale)
    assert min(parts["viscous damping"][-1], parts["experimental substructure"][-1]) > 0.05 * scale


def test_numerical_energy_equals_work_of_stories(shaken: Evaluation) -> None:
    """Work of the restoring force = strain energy + hysteretic energy - P / 2 h drift^2, story by story."""
    structure = shaken.scenario.structure
    history = drifts(shaken)
    hysteretic = strain = gravity = 0.0
    left = np.subtract(structure.stiffnesses, structure.experimental_stiffnesses)
    for story, name in enumerate(STORIES):
        law = structure.restoring_forces[name]
        stiffness, eta = left[story], law.post_yield_ratio
        limit, s, plastic = (1.0 - eta) * law.yield_force, 0.0, 0.0
        for move in np.diff(history[:, story]).tolist():
            trial = s + (1.0 - eta) * stiffness * move
            s = min(max(trial, -limit), limit)
            plastic += abs(trial - s) / ((1.0 - eta) * stiffness) * limit
        hysteretic += plastic
        strain += 0.5 * eta * stiffness * history[-1, story] ** 2 + 0.5 * s**2 / ((1.0 - eta) * stiffness)
        gravity += 0.5 * structure.gravity_loads[story] / structure.story_heights[story] * history[-1, story] ** 2
    numerical = energies(shaken)["numerical substructure"][-1]
    assert hysteretic > 0.5 * numerical
    assert numerical == pytest.approx(hysteretic + strain - gravity, rel=0.02)


def test_response_errors_are_small(shaken: Evaluation) -> None:
    """The rig's errors are small: a model with the brace gives the same floor motions."""
    errors = response_errors(shaken)
    assert set(errors) == {f"floor_{floor}" for floor in range(1, 6)}
    assert max(row["displacement"] for row in errors.values()) < 3.0


def test_critical_delay_equals_linear_frame() -> None:
    """For small motions both loops are identical, so the critical delays are equal bitwise."""
    yielding, linear = (judge(files.load(NAME, overrides)) for overrides in ([], [LINEAR]))
    assert yielding.critical_delay == linear.critical_delay
    assert not any("another one" in words for words in yielding.assumptions)  # stiffness as declared
    assert 0.03 < yielding.critical_delay < 0.1


def test_report_lists_restoring_force_of_each_story() -> None:
    tables = {section.title: section.table for section in document.sections(files.load(NAME))}
    rows = {row.title: row.values for row in tables["Structure"].rows}
    assert rows["restoring_forces.story_1"] == ["bilinear"]
    assert rows["restoring_forces.story_3.yield_force"] == ["720000"]


def test_report_with_all_figures_is_rendered(simulate: Callable[..., Any]) -> None:
    _, run = simulate(NAME, "duration=3")
    page = render(run).replace("<wbr>", "")
    assert "restoring_forces.story_5.post_yield_ratio" in page
    assert mentions(page, "strain", "yield")
