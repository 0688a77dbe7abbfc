"""What if: a recorded test predicted with other settings, on the rig as the recording tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.from_recording import AxisModel, axis_models
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.loop.scenario.force_axes import refuse_loads
from rths_nodes.loop.scenario.overrides import override, replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run

MEASURED, AGAIN, CHANGED = "measured", "predicted, nothing changed", "predicted"
"""Rows of a prediction: the recording, the identified rig as the test was, and with what was changed."""
IDENTIFIED = ("actuator", "specimen")
"""Sections of an axis that come from the recording."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """``runs`` by the name of their row; ``indices`` likewise, by axis and name, of the measured displacement.

    ``outcomes`` are those of the runs with their reasons; ``models`` what was identified, by axis.
    """

    models: Mapping[str, AxisModel]
    runs: Mapping[str, Run]
    indices: Mapping[str, Mapping[str, Mapping[str, float]]]
    outcomes: Mapping[str, tuple[str, str]]


def check(assignments: Sequence[str], scenario: Scenario) -> None:
    """Refuses, with ConfigError, changes of what is identified, and a port, which is simulated here."""
    problems = Problems()
    for words in assignments:
        keys = words.partition("=")[0].strip().split(".")
        if keys[0] in ("port", "rig") or (keys[0] == "axes" and len(keys) > 2 and keys[2] in IDENTIFIED):
            problems.append(f"--set {words}: the rig is what the recording tells it is, and cannot be changed")
    problems.refuse()
    override(scenario, assignments)


def simulated_rig(scenario: Scenario, models: Mapping[str, AxisModel]) -> Scenario:
    """``scenario`` with a simulator of the identified rig behind the transport that its port declares."""
    port = {"type": "simulator", "transport_samples": int(scenario.port.transport_samples)}
    pairs: list[tuple[list[str], Any]] = [(["port"], port)]
    for axis, model in models.items():
        pairs.append((["axes", axis, "actuator"], dict(model.actuator)))
        pairs.append((["axes", axis, "specimen"], dict(model.specimen)))
    return replace(scenario, pairs)


def predict(run: Run, assignments: Sequence[str]) -> Prediction:
    """The test of ``run`` once more on the identified rig, as it was and with ``assignments``.

    Raises ConfigError where the rig cannot be identified, and for changes that make no test.
    """
    check(assignments, run.scenario)
    refuse_loads(run.scenario, "a rig that is identified axis by axis")
    models = axis_models(run)
    base = simulated_rig(run.scenario, models)
    wanted = {AGAIN: base, CHANGED: override(base, assignments)}
    if wanted[CHANGED].dt != base.dt:
        raise ConfigError("servo_rate: the rig was identified at that of the recording, and cannot be changed")
    runs, outcomes = {MEASURED: run}, {MEASURED: (run.outcome, run.information.get("reason", ""))}
    for name, scenario in wanted.items():
        result = hosts.run(scenario)
        runs[name], outcomes[name] = result.read(), (result.outcome, result.reason)
    indices = {name: Evaluation(each).indices(each.displacement) for name, each in runs.items()}
    return Prediction(models, runs, indices, outcomes)
