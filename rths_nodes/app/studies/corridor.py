# SPDX-License-Identifier: Apache-2.0
"""Prediction of a corridor: the test on many plants, and the envelope of what their axes do."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.app.studies import runs
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.ensembles import plants
from rths_nodes.app.studies.identification import Stopped
from rths_nodes.app.studies.tasks import Progress
from rths_nodes.core.samples import Array
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.corridor import Corridor, quantities
from rths_nodes.recording.run import Run


def predicted(
    scenario: Scenario, count: int, seed: int, margin: float, where: Where, progress: Progress | None = None
) -> Corridor:
    """The corridor of ``scenario`` from its own plant and ``count`` more, drawn with ``seed``.

    ``margin`` is what it is wider on each side, as a share of the range of the quantity. Raises ConfigError for a
    scenario without scatter, and Stopped where the test does not finish on one of the plants.
    """
    without = replace(scenario, [(["monitor", "corridor"], None), (["monitor", "corridor_action"], "indicate")])
    drawn = [plant.of(without) for plant in plants(without, count, seed, nominal=True)]
    lower = upper = nominal = np.empty(0)
    for number, found in runs.all_of(drawn, where, keep=True, progress=progress):
        if found.outcome != "finished" or found.run is None:
            words = f"{drawn[number].name}: {found.outcome} at sample {found.samples}: {found.reason}"
            raise Stopped(f"no corridor: the test must finish on every plant: {words}", ExitCode.TRIPPED)
        values = histories(found.run)
        lower = np.fmin(lower, values) if lower.size else values
        upper = np.fmax(upper, values) if upper.size else values
        if number == 0:
            nominal = values
    wider = margin * (np.nanmax(upper, axis=1) - np.nanmin(lower, axis=1))[:, None, :]
    source = (
        f"rths corridor {scenario.name}: {count} plants of seed {seed} and its own, {100.0 * margin:g} % wider"
    )
    return Corridor(scenario.moved_axes, scenario.servo_rate, source, lower - wider, upper + wider, nominal)


def histories(run: Run) -> Array:
    """``QUANTITIES`` at every sample, ``(3, n, n_axes)``; nan in a soft start, after which they count."""
    first = Evaluation(run).first_sample
    base = max(0, first - 1)
    found = np.full((3, *run.displacement.shape), np.nan)
    found[:, base + 1 :] = quantities(run.displacement[base:], run.force[base:])
    if first == 0:
        found[:, 0] = run.displacement[0], run.force[0], np.zeros_like(run.force[0])
    return found
