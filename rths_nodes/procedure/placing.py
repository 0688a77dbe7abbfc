# SPDX-License-Identifier: Apache-2.0
"""Unloading by displacement: with a dead load cell, the operator enters the positions of the axes.

The operator types and signs for them. The motion is bounded by ``unloading`` of the rig file and ``slow_error``,
and needs a check that has shown that the displacement follows the command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from rths_nodes.core.errors import ConfigError, Problems, unknown
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.handling import Unloading
from rths_nodes.loop.procedure_record import VERIFIED, AxisChecks, UnloadingRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.axis_moves import section_of
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.quasi_static import QuasiStatic, Script
from rths_nodes.procedure.small_move import Drive


def places(given: str, names: tuple[str, ...]) -> dict[str, float]:
    """Parse positions by axis, m: a number for one axis, else ``axis: number, ...``. Raises ConfigError."""
    found = {}
    for each in given.split(","):
        name, colon, number = each.rpartition(":")
        try:
            found[name.strip() if colon or len(names) > 1 else names[0]] = float(number)
        except ValueError:
            raise ConfigError(f"unload.to = {given!r}: must be a number (m), or axis: number, ...") from None
    return found


def written(
    scenario: Scenario, offsets: Offsets, forces: tuple[Array, Array], travel: Array, given_up: str
) -> UnloadingRecord:
    """Return the record of an unloading: untared ``forces`` (N) before and after, ``travel`` m, ``(n_axes,)``."""
    names, tare = tuple(scenario.axes), offsets.tares().force
    before, after = (dict(zip(names, (force - tare).tolist(), strict=True)) for force in forces)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return UnloadingRecord(time, before, after, dict(zip(names, travel.tolist(), strict=True)), given_up)


def bounds_of(scenario: Scenario) -> list[Unloading]:
    """Return the bounds of the unloading of each axis in the rig file. Raises ConfigError if missing."""
    problems = Problems()
    found = []
    for name, axis in scenario.axes.items():
        rig = axis.rig_axis
        if rig is None or rig.unloading is None:
            problems.append(
                f"axes.{name}: nobody has bounded the way to no force: {section_of(rig, 'unloading')} is missing: "
                "travel (m) and velocity (m/s)"
            )
        else:
            found.append(rig.unloading)
    problems.refuse()
    return found


def goal_of(
    scenario: Scenario,
    offsets: Offsets,
    checks: Mapping[str, AxisChecks],
    command: Array,
    to: Mapping[str, float],
    signed: str,
) -> Array:
    """Return the command ``(n_axes,)`` m that leads from ``command`` to positions ``to``, m from the zero of the
    test.

    Other axes stay. Raises ConfigError without a ``signed`` name, for a position beyond the bounds of the rig
    file, and for an axis whose displacement is not known to follow.
    """
    problems, goal = Problems(), np.array(command, float)
    if not signed:
        problems.append("unload.signed: empty: somebody has to answer for a way on which the force is unknown")
    names, bounds = tuple(scenario.axes), bounds_of(scenario)
    for name, place in to.items():
        if name not in names:
            raise unknown("unload.to", "axis", name, names)
        index = names.index(name)
        goal[index] = offsets.held[index] + place
        way = abs(float(goal[index] - command[index]))
        if not math.isfinite(place):
            problems.append(f"unload.to.{name} = {place} m: must be finite")
        elif way > bounds[index].travel:
            problems.append(
                f"unload.to.{name} = {place:g} m: is {way:.4g} m away: must be <= {bounds[index].travel:g} m, "
                "unloading.travel of the rig file"
            )
        if name not in checks or checks[name].displacement_sign != VERIFIED:
            problems.append(
                f"unload.to.{name}: the check has not verified its displacement: take the pressure off "
                "at the controller"
            )
    problems.refuse()
    return goal


def lead(
    drive: Drive, scenario: Scenario, offsets: Offsets, checks: Mapping[str, AxisChecks], goal: Array
) -> UnloadingRecord:
    """Lead the axes to ``goal`` ``(n_axes,)`` m, whatever the forces within their limits; return the record."""
    walk = QuasiStatic.of(scenario, drive.command)
    velocity = np.array([each.velocity for each in bounds_of(scenario)])
    watch = Following(scenario, offsets, checks).slow
    begun = drive.measured
    outcome = drive.drive(Script(walk.go(goal, velocity), drive.command, watch))
    after = drive.measured
    return written(
        scenario, offsets, (begun.force, after.force), after.displacement - begun.displacement, outcome.reason
    )
