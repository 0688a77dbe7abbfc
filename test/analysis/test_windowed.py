# SPDX-License-Identifier: Apache-2.0
"""Delay and amplitude over time: known ones are found, and a change of them where it happens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rths_nodes
from rths_nodes.analysis.histories import Evaluation, windowed_evaluation
from rths_nodes.recording.run import Run

LATE = 7


@pytest.fixture(scope="module")
def run() -> Run:
    return rths_nodes.run("chen_ricles_2010", ["duration=10"])


def test_a_rig_that_becomes_late_and_small_is_seen_when_it_does(run: Run) -> None:
    half = len(run.time) // 2
    moved = run.target.copy()
    moved[half:] = 0.9 * run.target[half - LATE : len(run.target) - LATE]
    found = windowed_evaluation(Evaluation(dataclasses.replace(run, displacement=moved)))
    assert found is not None
    dt, middle = run.scenario.dt, run.time[half]
    before, after = found.time < middle - 0.5 * found.length, found.time > middle + 0.5 * found.length
    for chosen, delay, amplitude in ((before, 0.0, 1.0), (after, LATE * dt, 0.9)):
        seen = chosen & np.isfinite(found.delay[:, 0])
        assert seen.any()
        np.testing.assert_allclose(found.delay[seen, 0], delay, atol=0.05 * LATE * dt)
        np.testing.assert_allclose(found.amplitude[seen, 0], amplitude, rtol=0.01)


def test_a_test_that_is_too_short_or_still_tells_nothing(run: Run) -> None:
    short = {name: values[:200] for name, values in run.arrays().items() if len(values) == len(run.time)}
    assert windowed_evaluation(Evaluation(dataclasses.replace(run, **short))) is None
    still = dataclasses.replace(run, target=0.0 * run.target, displacement=0.0 * run.target)
    assert windowed_evaluation(Evaluation(still)) is None


def test_the_range_of_a_parameter_leaves_out_what_is_no_number(run: Run) -> None:
    name = "axes.story_1.alpha"
    assert name in run.compensator_names
    histories = run.compensator.copy()
    column = run.compensator_names.index(name)
    histories[10:13, column] = np.inf, -np.inf, np.nan
    finite = histories[1:, column][np.isfinite(histories[1:, column])]
    found = Evaluation(dataclasses.replace(run, compensator=histories)).parameter_ranges()
    assert found["alpha"]["story_1"] == (finite.min(), finite.max())
    nothing = Evaluation(dataclasses.replace(run, compensator=np.full_like(histories, np.nan)))
    assert nothing.parameter_ranges() == {}
