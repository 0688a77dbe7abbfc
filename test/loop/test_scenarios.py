# SPDX-License-Identifier: Apache-2.0
"""Every shipped scenario: builds, says what it is, runs to its end, stays finite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Run

SHIPPED = files.shipped()
AFTER_REST = {"rths_benchmark_2020": "duration=7"}
"""Those whose record begins with seconds of rest."""
every_scenario = pytest.mark.parametrize("name", SHIPPED)


@every_scenario
def test_its_name_is_that_of_its_file_and_it_says_what_it_shows(name: str) -> None:
    loaded = files.load(name)
    assert loaded.name == name
    assert loaded.description


@every_scenario
def test_it_says_where_its_numbers_come_from(name: str) -> None:
    assert SHIPPED[name].read_text().startswith("#")


@every_scenario
def test_it_runs_to_its_end_with_finite_numbers(name: str, simulate: Callable[..., tuple[Outcome, Run]]) -> None:
    outcome, run = simulate(name, AFTER_REST.get(name, "duration=3"))
    assert (outcome.state, outcome.reason) == (State.FINISHED, "")
    assert outcome.samples == run.scenario.samples
    for histories in (run.target, run.command, run.displacement, run.force, run.dof_displacement, run.compensator):
        assert np.isfinite(histories).all()
    assert np.abs(run.displacement).max() > 0.0
    for row in outcome.metrics["axes"].values():
        assert np.isfinite(list(row.values())).all()


def test_the_demo_moves_about_as_far_as_in_the_paper(simulate: Callable[..., tuple[Outcome, Run]]) -> None:
    """El Centro takes the place of the paper's record, scaled to about 30 mm."""
    outcome, _ = simulate("chen_ricles_2010")
    farthest = max(abs(outcome.metrics[f"{side}_displacement_m"]) for side in ("max", "min"))
    assert farthest == pytest.approx(0.030, abs=0.002)
    assert outcome.metrics["axes"]["story_1"]["max_error_percent"] < 10.0
