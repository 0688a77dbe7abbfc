# SPDX-License-Identifier: Apache-2.0
"""Sequence of a commissioning: trials, their order, and their scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rths_nodes.core.errors import ConfigError, PortError, Problems
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.commissioned import FAILED, SIGN, CommissioningRow
from rths_nodes.procedure.commissioning.bench import Bench
from rths_nodes.procedure.commissioning.free_rig import Refused, TooEarly
from rths_nodes.procedure.commissioning.moves import limits, signs
from rths_nodes.procedure.commissioning.silence import cable, closed, killed
from rths_nodes.procedure.commissioning.stops import stops
from rths_nodes.procedure.commissioning.switched import interlock, pressure

PARTS: dict[str, Callable[[Bench], list[CommissioningRow]]] = {
    "signs": signs,
    "limits": limits,
    "stops": stops,
    "closed": closed,
    "killed": killed,
    "cable": cable,
    "interlock": interlock,
    "pressure": pressure,
}
"""Trials by name, in order: signs first, a condition of all others."""
SIMULATED = {
    "actuator": {"type": "first_order", "alpha": 30.0},
    "specimen": {"type": "kelvin_voigt", "stiffness": 1.0, "damping": 0.0},
}
"""Models of each axis for the computed rung: no specimen, and any actuator if the rig file has none."""
ATTEMPTS = 10
"""Tries of a trial in which the operator acts too early."""
HERTZ = 0.1
"""Frequency of a motion that is never run; it completes the scenario and its start, Hz."""


def scenario_of(rig: RigFile) -> Scenario:
    """Return the rig as a scenario whose axes start at half a small move. Raises ConfigError."""
    problems = Problems()
    if rig.servo_rate is None:
        problems.append("servo_rate: missing: a commissioning measures in samples of the controller")
    for name, axis in rig.axes.items():
        if axis.small_move is None:
            problems.append(
                f"axes.{name}.small_move: missing: it bounds how far and how fast a free axis is moved"
            )
    problems.refuse()
    start = min(0.5 * axis.small_move.displacement for axis in rig.axes.values() if axis.small_move is not None)
    motion = {"type": "sine", "amplitude": start, "frequency": HERTZ, "phase": 0.5 * math.pi}
    data: Mapping[str, object] = {
        "version": 1,
        "name": "commissioning",
        "servo_rate": rig.servo_rate,
        "substeps": 1,
        "duration": 1.0,
        "integrator": {"type": "prescribed", "displacement": motion},
        "compensator": {"type": "none"},
        "axes": {name: dict(SIMULATED) for name in rig.axes},
    }
    scenario = from_data(Scenario, on_rig(data, rig))
    judgement.refuse(scenario)
    return scenario


def _tried(bench: Bench, part: Callable[[Bench], list[CommissioningRow]]) -> list[CommissioningRow]:
    for _ in range(ATTEMPTS):
        try:
            return part(bench)
        except TooEarly:
            bench.operator.ready(
                "that was before the axes moved: bring it back, and do it once more while they move"
            )
    raise Refused(f"the operator has acted {ATTEMPTS} times before the axes moved")


def commission(
    bench: Bench,
    parts: Mapping[str, Callable[[Bench], list[CommissioningRow]]] = PARTS,
    told: Callable[[CommissioningRow], None] = lambda row: None,
) -> list[CommissioningRow]:
    """Try all ``parts`` and report each row; a wrong sign, or an axis that is not free, ends it."""
    rows: list[CommissioningRow] = []
    for name, part in parts.items():
        try:
            found, ended = _tried(bench, part), False
        except (Refused, ConfigError, PortError) as error:
            found, ended = [CommissioningRow(name, "all axes", "can be tried", str(error), FAILED)], True
        for row in found:
            told(row)
        rows += found
        if ended or any(row.cause == SIGN and row.verdict == FAILED for row in found):
            break
    return rows
