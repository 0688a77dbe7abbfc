# SPDX-License-Identifier: Apache-2.0
"""Sequence of a commissioning: trials, order, scenario; free moves for signs, cables and limits of the far end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError, Problems
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.commissioned import (
    FAILED,
    NOT_TRIED,
    PASSED,
    SIGN,
    STROKE,
    UNTRIED,
    VELOCITY,
    CommissioningRow,
)
from rths_nodes.procedure.commissioning.bench import REST_S, Bench
from rths_nodes.procedure.commissioning.free_rig import FreeRig, Refused, Row, TooEarly
from rths_nodes.procedure.commissioning.silence import cable, closed, killed
from rths_nodes.procedure.commissioning.stops import stops
from rths_nodes.procedure.commissioning.switched import interlock, pressure

FOLLOWS = 0.2
"""Tolerance at rest, and of the motion of other axes, as a share of the small move."""
BEYOND_VELOCITY = 1.05
"""Velocity of a step beyond the limit, relative to the limit."""
BEYOND_STROKE, MOST_BEYOND = 0.02, 1e-3
"""Distance of a command beyond the stroke: share of it, and largest, m."""
FREE = 0.05
"""Velocity of a free axis to the ends of its stroke, relative to the limit; the ramp ends at rest."""
ROUNDING = 1e-3
"""Tolerance of a limit for rounding of the period."""

Rows = list[CommissioningRow]


def signs(bench: Bench) -> Rows:
    """Move each axis out and back by its small move, and check that it alone moves that way."""
    with bench.opened() as rig:
        bench.clear(rig, f"one axis after the other goes out and back: {bench.ways(rig.way, rig.velocity)}")
        return [_moved(rig, index) for index in range(len(bench.names))]


def _moved(rig: FreeRig, index: int) -> CommissioningRow:
    start, before = rig.command, _mean(rig.hold(REST_S))
    goal = start.copy()
    goal[index] += rig.way[index]
    rig.ramp(goal, rig.velocity)
    rig.hold(REST_S)
    change = _mean(rig.hold(REST_S)) - before
    rig.ramp(start, rig.velocity)
    rig.hold(REST_S)
    bound = FOLLOWS * rig.way
    off = np.abs(change - (goal - start)) > bound
    told = ", ".join(f"{name} {1e3 * moved:+.3g} mm" for name, moved in zip(rig.names, change, strict=True))
    stated = f"{rig.names[index]} {1e3 * rig.way[index]:+.3g} mm" + ", no other axis" * (len(rig.names) > 1)
    words = _meaning(rig.names, index, change, bound)
    return CommissioningRow(SIGN, rig.names[index], stated, told + words, FAILED if off.any() else PASSED)


def _meaning(names: Sequence[str], index: int, change: Array, bound: Array) -> str:
    others = [name for i, name in enumerate(names) if i != index and abs(change[i]) > bound[i]]
    if abs(change[index]) <= bound[index]:
        return (
            f": {' and '.join(others)} moves in its place" if others else ": it does not move, or is not measured"
        )
    if change[index] < 0.0:
        return ": the wrong way"
    return f": {' and '.join(others)} moves along" if others else ""


def _mean(rows: Sequence[Row]) -> Array:
    return np.asarray(np.mean([row.displacement for row in rows], axis=0))


def limits(bench: Bench) -> Rows:
    """Command slightly beyond the stated limits, which the far end has to keep."""
    with bench.opened() as rig:
        stated = rig.stated()
        found = []
        for index, name in enumerate(bench.names):
            step = BEYOND_VELOCITY * float(stated.velocity[index]) * bench.dt
            beyond = min(BEYOND_STROKE * float(stated.stroke[index]), MOST_BEYOND)
            far = float(stated.stroke[index]) + beyond
            bench.clear(
                rig,
                f"{name}: a step of {1e3 * step:.3g} mm, beyond its limit of velocity; then to both ends of its "
                f"stroke, and {1e3 * beyond:.3g} mm further: +- {1e3 * far:.4g} mm at "
                f"{1e3 * float(_to_the_end(bench, rig)[index]):.3g} mm/s",
            )
            found += [
                _velocity(bench, rig, index, step, float(stated.velocity[index])),
                *(_stroke(bench, rig, index, sign * far, float(stated.stroke[index])) for sign in (1.0, -1.0)),
            ]
    return found + untried(bench, stated.force, stated.error)


def _velocity(bench: Bench, rig: FreeRig, index: int, step: float, limit: float) -> CommissioningRow:
    """Command one step, so small that only a limit of velocity delays the axis."""
    start, since = rig.command, len(rig.rows) - 1
    goal = start.copy()
    goal[index] += step
    for _ in range(rig.samples(REST_S)):
        rig.tick(goal)
    active = np.array([row.active[index] for row in rig.rows[since:]])
    rig.ramp(start, rig.velocity)
    rig.hold(REST_S)
    reached = float(np.abs(np.diff(active)).max()) / bench.dt
    spare = ROUNDING * limit + float(bench.resolution[index]) / bench.dt
    verdict = PASSED if reached <= limit + min(spare, 0.5 * (BEYOND_VELOCITY - 1.0) * limit) else FAILED
    return CommissioningRow(
        VELOCITY, bench.names[index], f"{limit:.4g} m/s at most", f"{reached:.4g} m/s", verdict
    )


def _to_the_end(bench: Bench, rig: FreeRig) -> Array:
    """Return the speeds at which free axes go to the ends of their stroke, m/s."""
    slow = np.array([FREE * limits.velocity for limits in bench.scenario.limits.values()])
    return np.asarray(np.maximum(rig.velocity, slow))


def _stroke(bench: Bench, rig: FreeRig, index: int, far: float, limit: float) -> CommissioningRow:
    """Move slowly to ``far`` m, beyond the stroke, and back."""
    start, since = rig.command, len(rig.rows)
    goal, velocity = start.copy(), _to_the_end(bench, rig)
    goal[index] = far
    rig.ramp(goal, velocity)
    rig.hold(REST_S)
    active = np.array([row.active[index] for row in rig.rows[since:]])
    rig.ramp(start, velocity)
    rig.hold(REST_S)
    reached = float(active.max() if far > 0.0 else -active.min())
    spare = limit * 1e-6 + float(bench.resolution[index])
    side = "extended" if far > 0.0 else "retracted"
    verdict = PASSED if reached <= limit + min(spare, 0.5 * (abs(far) - limit)) else FAILED
    words = f"{1e3 * limit:.5g} mm at most"
    return CommissioningRow(STROKE, f"{bench.names[index]} {side}", words, f"{1e3 * reached:.5g} mm", verdict)


def untried(bench: Bench, force: Array, error: Array) -> Rows:
    """Return rows of limits that cannot be reached without a specimen."""
    found = []
    for i, name in enumerate(bench.names):
        for cause, value, unit in ((UNTRIED[0], 1e-3 * force[i], "kN"), (UNTRIED[1], 1e3 * error[i], "mm")):
            told = f"{value:.4g} {unit}" if np.isfinite(value) else "none told"
            words = "nothing reaches it without a specimen"
            found.append(CommissioningRow(cause, name, told, words, NOT_TRIED))
    return found


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
