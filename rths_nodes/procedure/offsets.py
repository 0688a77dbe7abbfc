# SPDX-License-Identifier: Apache-2.0
"""Offsets of a rig at rest: readings of its sensors at the zero of the test, with their scatter.

A test counts displacements and commands from the position at which the offsets were taken, and forces from the
load cells' readings there, if the operator has stated that the specimen carried nothing. Tares are bounded: a
larger one means a wrong zero of the sensor. The displacement sensor is compared with the active command of the
controller if that can be read, otherwise with its own zero.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.procedure_record import AxisOffsets, OffsetsRecord
from rths_nodes.loop.supervision.handover import Tares

LARGEST_TARE = 0.02
"""Largest tare, as a share of the channel's range."""
AT_REST = 0.005
"""Untared force that counts as a force at rest, as a share of the load cell's range."""


@dataclass(frozen=True)
class Offsets:
    """Offsets of the axes ``names``, ``(n_axes,)`` m and N: mean and scatter (rms) over ``seconds``.

    ``active`` is the controller's active command, nan if it cannot be read; ``held`` is the sent command.
    ``unloaded``: the operator has stated that the specimen carried nothing.
    """

    names: tuple[str, ...]
    time: str
    seconds: float
    displacement: Array
    displacement_scatter: Array
    force: Array
    force_scatter: Array
    active: Array
    held: Array
    unloaded: bool = False
    confirmed: bool = False

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        samples: Sequence[Measurement],
        active: Array | None,
        held: Array,
        time: str,
        seconds: float,
    ) -> Offsets:
        displacement = np.array([measured.displacement for measured in samples])
        force = np.array([measured.force for measured in samples])
        return cls(
            tuple(names),
            time,
            seconds,
            displacement.mean(axis=0),
            displacement.std(axis=0),
            force.mean(axis=0),
            force.std(axis=0),
            np.full(len(held), math.nan) if active is None else np.array(active, float),
            np.array(held, float),
        )

    @property
    def hash(self) -> str:
        """Hash by which an operator refers to these offsets."""
        numbers = (self.displacement, self.force, self.active, self.held)
        everything = [self.names, self.time, *(array.tolist() for array in numbers)]
        return hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16]

    def confirm(self, unloaded: bool, axes: Mapping[str, RigAxis], simulated: bool = True) -> Offsets:
        """Return confirmed offsets. Raises ConfigError for a tare beyond the bounds of ``axes``.

        It also does for a channel without scatter, unless the rig is ``simulated``.
        """
        problems = Problems()
        if not simulated:
            for problem in self._still(axes):
                problems.append(problem)
        for index, (name, axis) in enumerate(axes.items()):
            shown, active = float(self.displacement[index]), float(self.active[index])
            bound = LARGEST_TARE * axis.displacement.range_si
            readable = math.isfinite(active)
            off = shown - active if readable else shown
            if not abs(off) <= bound:
                compared = "differs from the active command of the controller by" if readable else "at rest is"
                problems.append(
                    f"axes.{name}: the measured displacement {compared} {off:.6g} m: a tare must be within +- "
                    f"{bound:.6g} m, {LARGEST_TARE:.0%} of the range of its sensor: set the zero of the sensor"
                )
            bound = LARGEST_TARE * axis.force.range_si
            if unloaded and not abs(self.force[index]) <= bound:
                problems.append(
                    f"axes.{name}: the force of the unloaded specimen = {self.force[index]:.6g} N: a tare must be "
                    f"within +- {bound:.6g} N, {LARGEST_TARE:.0%} of the range of the load cell: set its zero"
                )
        problems.refuse()
        return replace(self, unloaded=unloaded, confirmed=True)

    def _still(self, axes: Mapping[str, RigAxis]) -> list[str]:
        """Return texts on constant channels: a real sensor has noise."""
        columns = ("displacement", self.displacement_scatter, "m"), ("force", self.force_scatter, "N")
        return [
            f"axes.{axis.name}.{channel} of the rig file: no scatter in {self.seconds:g} s: 0 {unit} rms: a real "
            "sensor has noise: is this one connected, and does its converter run?"
            for index, axis in enumerate(axes.values())
            for channel, scatter, unit in columns
            if scatter[index] == 0.0
        ]

    def forces_at_rest(self, axes: Mapping[str, RigAxis]) -> dict[str, str]:
        """Return texts on forces at rest that were not tared and exceed noise, by axis."""
        remarks: dict[str, str] = {}
        for (name, axis), force in zip(axes.items(), self.force.tolist(), strict=True):
            span = axis.force.range_si
            if not (self.unloaded or abs(force) <= AT_REST * span):
                remarks[name] = (
                    f"axes.{name}: the load cell shows {force:.6g} N at rest, {force / span:.2%} of its range: "
                    "tare it (state that the specimen is unloaded when the offsets are confirmed), or unload first"
                )
        return remarks

    def tares(self, reach: Array | None = None) -> Tares:
        """Zero of the test; ``reach`` is the largest displacement from there, ``(n_axes,)`` m."""
        force = self.force if self.unloaded else np.zeros(len(self.force))
        free = np.full(len(self.names), math.inf)
        return Tares(self.displacement, force, self.held, free if reach is None else reach)

    def record(self) -> OffsetsRecord:
        columns = (self.displacement, self.displacement_scatter, self.force, self.force_scatter, self.active)
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        rows = [AxisOffsets(x, x_scatter, f, f_scatter, active) for x, x_scatter, f, f_scatter, active in numbers]
        for row in rows:
            row.force_tared = self.unloaded
        return OffsetsRecord(
            self.time, self.seconds, dict(zip(self.names, rows, strict=True)), self.hash, self.confirmed
        )
