# SPDX-License-Identifier: Apache-2.0
"""Prediction from a recording: the recorded test with another compensator, integrator or ramp.

Integrator, ramp, setup and compensator, if unchanged, reproduce the recorded Commands from the Measurements. The
Commands agree bit for bit up to the first bridged or lost sample. A changed test is predicted completely, on the
rig identified from the recording. Axes under force control keep their recorded loads. The identified forces
include the effect of these axes on other axes, e.g. P-Delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.from_recording import AxisModel, axis_models, usable
from rths_nodes.analysis.units import MM, plain
from rths_nodes.app import hosts
from rths_nodes.app.studies.engine import chosen
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, Problems, show
from rths_nodes.laboratory.force_control import NODES
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import Overrides, override, pairs_in, pairs_of, replace
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.recording.run import Run, measurement_of

DISCREPANCY = {"error_norm_percent": 1.0, "max_error_percent": 2.0}
"""Largest difference of each index (%) at which the repetition of a recording counts as equal."""
AGREEING = 0.3
"""Largest accepted difference relative to the larger of both values, if this exceeds ``DISCREPANCY``."""

MEASURED, AGAIN, CHANGED = "measured", "predicted, nothing changed", "predicted"
"""Rows of a prediction. ``MEASURED``: the recording. ``AGAIN``: its repetition on the identified rig. ``CHANGED``:
the repetition with changes."""
IDENTIFIED = ("actuator", "specimen")


def reproduced(run: Run) -> tuple[int, int | None, float]:
    """Compare the recorded Commands of ``run`` with the Commands recomputed from its Measurements.

    Return the number of compared Commands, the number of the first Command that differs in any bit (None if all
    are equal), and the largest difference (m).

    Controllers of auxiliary inputs are omitted, because no Command of an axis depends on them. Raises ConfigError
    if the loop cannot be built here.
    """
    assembly = Assembly(run.scenario)
    numerical = NumericalStage(assembly, controlled=False)
    commands = CommandStage(assembly)
    count = usable(run)
    numerical.open()
    try:
        commands.open()
        if missing := numerical.missing():
            raise ConfigError(f"integrator: requires {missing}, which cannot be computed from a recording")
        commands.target(numerical.first())
        first, largest, compared = None, 0.0, 0
        for sample in range(count - 1):
            measured = measurement_of(run, sample)
            target = numerical.next(measured)
            if numerical.pending:
                target = numerical.answer(wait=True)
            if target is not None:
                commands.target(target)
            command = commands.next(measured)
            if numerical.learning is not None:
                numerical.learning.learn()
            if command is None:
                break
            compared += 1
            again = command.command[: len(run.axes)]
            if (again != run.command[sample + 1]).any():
                first = sample + 1 if first is None else first
                largest = max(largest, float(np.abs(again - run.command[sample + 1]).max()))
            if run.loads is not None and first is None:
                loads = run.loads.command[sample + 1]  # the load of a held axis is NaN
                if (np.isfinite(loads) & (command.command[len(run.axes) :] != loads)).any():
                    first = sample + 1
    finally:
        numerical.close()
        commands.close()
    if not compared:
        raise ConfigError(
            "there is no command before the first bridged or lost sample, so nothing can be compared"
        )
    return compared, first, largest


@dataclass(frozen=True, eq=False)
class Prediction:
    """Result of a prediction, with rows for the measured, the repeated and the changed test.

    ``runs`` and ``outcomes`` (outcome and reason) are keyed by row. ``indices`` of the measured displacement are
    nested by row, axis and name. The identified ``models`` are keyed by axis.
    """

    models: Mapping[str, AxisModel]
    runs: Mapping[str, Run]
    indices: Mapping[str, Mapping[str, Mapping[str, float]]]
    outcomes: Mapping[str, tuple[str, str]]

    def __repr__(self) -> str:
        rows = []
        for row, (outcome, _) in self.outcomes.items():
            errors = {axis: plain(values["max_error_m"], MM) for axis, values in self.indices[row].items()}
            cells = [outcome, *(f"{axis}: max error {error} mm" for axis, error in errors.items())]
            rows.append(f"{row}: {', '.join(cells)}")
        return f"<Prediction {'; '.join(filter(None, [*rows, self.discrepancy]))}>"

    @property
    def discrepancy(self) -> str:
        """Description of the difference between recording and repetition, or an empty string."""
        before, after = (self.outcomes[row][0] for row in (MEASURED, AGAIN))
        if before != after:
            return f"the recorded test was {before}, but its repetition on the identified rig is {after}"
        for axis, measured in self.indices[MEASURED].items():
            again = self.indices[AGAIN].get(axis, {})
            for name, bound in DISCREPANCY.items():
                recorded, repeated = measured[name], again.get(name, math.nan)
                if math.isnan(recorded) and math.isnan(repeated):  # the axis hardly moved
                    recorded, repeated, bound = measured["max_error_m"], again["max_error_m"], 0.0
                if not abs(repeated - recorded) <= max(bound, AGREEING * max(recorded, repeated)):
                    errors = [plain(row.get("max_error_m"), MM) for row in (measured, again)]
                    return (
                        f"{axis}: the largest error was {errors[0]} mm ({name} {plain(recorded)}), but it is "
                        f"{errors[1]} mm ({plain(repeated)}) in the repetition on the identified rig"
                    )
        return ""


def check(changes: Overrides, scenario: Scenario) -> None:
    """Raise ConfigError if ``changes`` affect a recorded load, an identified section, or the port."""
    problems = Problems()
    for keys, value in pairs_in(changes):
        change = f"{'.'.join(keys)} = {show(value)}"
        if keys[0] == "axes" and len(keys) > 1 and keys[1] in scenario.force_axes:
            problems.append(f"{change}: the load of the recording cannot be changed")
        elif keys[0] in ("port", "rig") or (keys[0] == "axes" and (len(keys) < 3 or keys[2] in IDENTIFIED)):
            problems.append(f"{change}: the rig of the recording cannot be changed")
    problems.refuse()
    override(scenario, changes)


def _load_alone(axis: Axis) -> dict[str, object]:
    assert axis.force_control is not None
    law = axis.force_control.law
    if law.stiffness is None:
        raise ConfigError(f"force_control.law.type = {law.type_name!r}: must be a law with a stiffness")
    return {
        "actuator": {"type": "pure_delay", "delay": 0.0},
        "specimen": {"type": "kelvin_voigt", "stiffness": law.stiffness, "damping": 0.0},
        # the inclination changes a load by 0.1 % at a displacement of 0.1 m and a height of 2 m
        "load.vertical": False,
        "force_control.closed_by": NODES,
        "force_control.law": {"type": "feed_forward_pi", "stiffness": law.stiffness},
    }


def simulated_rig(scenario: Scenario, models: Mapping[str, AxisModel]) -> Scenario:
    port = {"type": "simulator", "transport_samples": int(scenario.port.transport_samples)}
    changes: dict[str, object] = {"port": port} | ({"rig": None} if scenario.force_axes else {})
    for axis in scenario.force_axes:
        changes |= {f"axes.{axis}.{key}": value for key, value in _load_alone(scenario.axes[axis]).items()}
    for axis, model in models.items():
        changes[f"axes.{axis}.actuator"] = dict(model.actuator)
        changes[f"axes.{axis}.specimen"] = dict(model.specimen)
    return replace(scenario, pairs_of(changes))


def predict(run: Run, changes: Overrides, engine: str = AUTO) -> Prediction:
    """Repeat the test of ``run`` on the identified rig, without and with ``changes``.

    ``engine`` is one of ``STUDY_ENGINES``. Raises ConfigError if the rig cannot be identified, or if ``changes``
    or ``engine`` are invalid.
    """
    where = chosen(1, engine=engine)
    registry.class_of("integrator", run.scenario.integrator)  # refuses an imported test without a scenario
    check(changes, run.scenario)
    models = axis_models(run)
    base = simulated_rig(run.scenario, models)
    wanted = {AGAIN: base, CHANGED: override(base, changes)}
    if wanted[CHANGED].dt != base.dt:
        raise ConfigError(
            "servo_rate: must be the rate of the recording, because the rig was identified at this rate"
        )
    runs, outcomes = {MEASURED: run}, {MEASURED: (run.outcome, run.information.get("reason", ""))}
    preferred = where.engine_of(base, len(wanted) * base.samples)
    for name, scenario in wanted.items():
        result = hosts.run(scenario, preferred=preferred)
        runs[name], outcomes[name] = result.read(), (result.outcome, result.reason)
    indices = {name: Evaluation(predicted_run).indices() for name, predicted_run in runs.items()}
    return Prediction(models, runs, indices, outcomes)
