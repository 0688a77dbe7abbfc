# SPDX-License-Identifier: Apache-2.0
"""Two rungs beside each other: a closed form, and what they have in common."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import rths_nodes
from rths_nodes.app.procedure.ladder import comparison_remarks, differences, peaks_of
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.loop.scenario import files, rehearsal
from rths_nodes.recording.run import Run

NAME = "chen_ricles_2010"


@pytest.fixture(scope="module")
def whole() -> Run:
    return rths_nodes.run(NAME, ["duration=1"])


def test_a_rung_differs_from_itself_by_nothing(whole: Run) -> None:
    assert differences(whole, 1.0, whole, 1.0) == {
        "displacement of story_1": 0.0,
        "force of story_1": 0.0,
    }


def test_a_tenth_more_is_a_tenth(whole: Run) -> None:
    more = replace(whole, displacement=1.1 * whole.displacement, force=-whole.force)
    found = differences(more, 1.0, whole, 1.0)
    assert found["displacement of story_1"] == pytest.approx(0.1)
    assert found["force of story_1"] == pytest.approx(2.0)


def test_a_level_is_divided_out(whole: Run) -> None:
    half = replace(whole, displacement=0.5 * whole.displacement, force=0.5 * whole.force)
    found = differences(half, 0.5, whole, 1.0)
    assert max(found.values()) == pytest.approx(0.0, abs=1e-12)


def test_rungs_of_other_ratios_are_compared_at_the_steps(whole: Run) -> None:
    sets = ["duration=1", "axes.story_1.actuator={type: pure_delay}", "compensator={type: none}"]
    sets.append("axes.story_1.specimen={type: elastoplastic_absorber}")
    fast = files.load(NAME, sets)
    slow = rehearsal.slower(fast, 4)
    found = differences(rths_nodes.run(slow), 1.0, rths_nodes.run(fast), 1.0)
    assert max(found.values()) < 0.01


def test_a_rung_that_was_stopped_is_compared_as_far_as_it_went(whole: Run) -> None:
    n = len(whole.displacement) // 2
    part = replace(whole, displacement=whole.displacement[:n], force=whole.force[:n])
    assert max(differences(part, 1.0, whole, 1.0).values()) == 0.0


def test_where_nothing_moved_before_every_motion_is_new(whole: Run) -> None:
    still = replace(whole, displacement=0.0 * whole.displacement, force=0.0 * whole.force)
    assert math.isnan(differences(whole, 1.0, still, 1.0)["force of story_1"])
    assert differences(still, 1.0, still, 1.0)["force of story_1"] == 0.0


def test_peaks_and_bridged_samples(whole: Run) -> None:
    found = peaks_of(whole)["story_1"]
    assert found["displacement"] == np.abs(whole.displacement).max()
    assert found["force"] == np.abs(whole.force).max()
    assert 0.0 < found["velocity"] < 0.76
    flags = whole.flags.copy()
    flags[3:5] |= FLAG_BRIDGED
    assert replace(whole, flags=flags).bridged == 2


def test_another_level_or_ratio_is_told() -> None:
    assert comparison_remarks(1.0, 1, 1.0, 1) == []
    assert "level 0.2" in comparison_remarks(1.0, 1, 0.2, 1)[0]
    assert "time ratio 10" in comparison_remarks(0.2, 1, 0.2, 10)[0]
