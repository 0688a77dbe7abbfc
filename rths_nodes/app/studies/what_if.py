# SPDX-License-Identifier: Apache-2.0
"""Repetition of a recorded test: its computed part run again, or the test predicted with other settings.

With nothing changed, integrator, ramp, setup and compensator make of the recorded Measurements the recorded
Commands, to the bit: up to the first sample that was bridged or lost, where more than messages played a part.
That is the proof that a recording holds all that a test depended on. With other settings the whole test is
predicted, on the rig as the recording tells it.

Axes that are controlled by force are not predicted: they have their loads as in the recorded test, each on a
spring of its own. What they do to the others, as P-Delta, is in the forces from which those are identified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.from_recording import AxisModel, axis_models, usable
from rths_nodes.app import hosts
from rths_nodes.app.studies.engine import Where
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.laboratory.force_control import NODES
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.scenario.overrides import override, replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.recording.run import Run, measurement_of

MEASURED, AGAIN, CHANGED = "measured", "predicted, nothing changed", "predicted"
"""Rows of a prediction: the recording, the identified rig as the test was, and with what was changed."""
IDENTIFIED = ("actuator", "specimen")
"""Sections of an axis that come from the recording."""


@dataclass(frozen=True)
class Reproduction:
    """Agreement of the recorded Commands with those computed again.

    ``compared`` Commands, from the first on, of ``samples`` in the test; ``first_difference`` is the number of the
    first that differs in any bit, None where none does; ``largest`` the largest difference (m).
    """

    compared: int
    samples: int
    first_difference: int | None
    largest: float


def reproduced(run: Run) -> Reproduction:
    """Run the computed part of ``run`` on its Measurements. Raises ConfigError where it cannot be built here.

    What controls auxiliary inputs of a rig is left out: no Command of an axis depends on it.
    """
    assembly = Assembly(run.scenario)
    numerical = NumericalStage(assembly, controlled=False)
    commands = CommandStage.of(assembly)
    count = usable(run)
    numerical.open()
    try:
        commands.open()
        if missing := numerical.missing():
            raise ConfigError(f"integrator: needs {missing}: its part of a test is not computed here")
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
            if command is None:
                break
            compared += 1
            again = command.command[: len(run.axes)]
            if (again != run.command[sample + 1]).any():
                first = sample + 1 if first is None else first
                largest = max(largest, float(np.abs(again - run.command[sample + 1]).max()))
            if run.loads is not None and first is None:
                loads = run.loads.command[sample + 1]  # nan where the axis was held
                if (np.isfinite(loads) & (command.command[len(run.axes) :] != loads)).any():
                    first = sample + 1
    finally:
        numerical.close()
        commands.close()
    return Reproduction(compared, run.scenario.samples, first, largest)


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
        if keys[0] == "axes" and len(keys) > 1 and keys[1] in scenario.force_axes:
            problems.append(f"--set {words}: the load is what the recording tells it was, and cannot be changed")
        elif keys[0] in ("port", "rig") or (keys[0] == "axes" and len(keys) > 2 and keys[2] in IDENTIFIED):
            problems.append(f"--set {words}: the rig is what the recording tells it is, and cannot be changed")
    problems.refuse()
    override(scenario, assignments)


def _load_alone(axis: Axis) -> list[tuple[list[str], object]]:
    """Keys of the section of a force axis that give it its load, whatever the others do, and their values.

    Raises ConfigError where its law does not say against which stiffness it works.
    """
    assert axis.force_control is not None
    stiffness = axis.force_control.law.stiffness
    if stiffness is None:
        raise ConfigError(f"force_control.law.type = {axis.force_control.law.type_name!r}: has no stiffness")
    return [
        (["actuator"], {"type": "pure_delay", "delay": 0.0}),
        (["specimen"], {"type": "kelvin_voigt", "stiffness": stiffness, "damping": 0.0}),
        (["load", "vertical"], False),  # 0.1 % of a load at 0.1 m below 2 m, which a recording cannot tell either
        (["force_control", "closed_by"], NODES),
        (["force_control", "law"], {"type": "feed_forward_pi", "stiffness": stiffness}),
    ]


def simulated_rig(scenario: Scenario, models: Mapping[str, AxisModel]) -> Scenario:
    """``scenario`` with a simulator of the identified rig behind the transport that its port declares."""
    port = {"type": "simulator", "transport_samples": int(scenario.port.transport_samples)}
    pairs: list[tuple[list[str], object]] = [(["port"], port)]
    pairs += [(["rig"], None)] if scenario.force_axes else []
    for axis in scenario.force_axes:
        pairs += [(["axes", axis, *keys], value) for keys, value in _load_alone(scenario.axes[axis])]
    for axis, model in models.items():
        pairs.append((["axes", axis, "actuator"], dict(model.actuator)))
        pairs.append((["axes", axis, "specimen"], dict(model.specimen)))
    return replace(scenario, pairs)


def predict(run: Run, assignments: Sequence[str], engine: str = AUTO) -> Prediction:
    """The test of ``run`` once more on the identified rig, as it was and with ``assignments``.

    ``engine`` is one of ``loop/options.py``. Raises ConfigError where the rig cannot be identified, and for
    changes that make no test.
    """
    check(assignments, run.scenario)
    models = axis_models(run)
    base = simulated_rig(run.scenario, models)
    wanted = {AGAIN: base, CHANGED: override(base, assignments)}
    if wanted[CHANGED].dt != base.dt:
        raise ConfigError("servo_rate: the rig was identified at that of the recording, and cannot be changed")
    runs, outcomes = {MEASURED: run}, {MEASURED: (run.outcome, run.information.get("reason", ""))}
    preferred = Where(engine=engine).engine_of(base, len(wanted) * base.samples)
    for name, scenario in wanted.items():
        result = hosts.run(scenario, preferred=preferred)
        runs[name], outcomes[name] = result.read(), (result.outcome, result.reason)
    indices = {name: Evaluation(each).indices() for name, each in runs.items()}
    return Prediction(models, runs, indices, outcomes)
