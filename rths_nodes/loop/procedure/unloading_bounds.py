"""What bounds an unloading, and what stands in the record of one, whichever way it goes."""

from __future__ import annotations

from datetime import UTC, datetime

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.handling import Unloading
from rths_nodes.loop.procedure.offsets import Offsets
from rths_nodes.loop.procedure.records import UnloadingRecord
from rths_nodes.loop.scenario.schema import Scenario


def written(
    scenario: Scenario, offsets: Offsets, forces: tuple[Array, Array], travel: Array, given_up: str
) -> UnloadingRecord:
    """The record of an unloading: untared ``forces`` (N) before and after, ``travel`` m, ``(n_axes,)``."""
    names, tare = tuple(scenario.axes), offsets.tares().force
    before, after = (dict(zip(names, (force - tare).tolist(), strict=True)) for force in forces)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return UnloadingRecord(time, before, after, dict(zip(names, travel.tolist(), strict=True)), given_up)


def bounds_of(scenario: Scenario) -> list[Unloading]:
    """What the rig file says of the unloading of each axis. Raises ConfigError where it says nothing."""
    problems = Problems()
    found = []
    for name, axis in scenario.axes.items():
        rig = axis.rig_axis
        if rig is None or rig.unloading is None:
            where = f"axes.{rig.name}.unloading of the rig file" if rig else "a rig file (--rig)"
            problems.append(
                f"axes.{name}: nobody has bounded the way to no force: {where} is missing: travel (m) and "
                "velocity (m/s)"
            )
        else:
            found.append(rig.unloading)
    problems.refuse()
    return found
