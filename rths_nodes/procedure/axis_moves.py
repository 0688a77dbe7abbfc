# SPDX-License-Identifier: Apache-2.0
"""Data of a rig for the small moves of its axes, and the result of each move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.motions import Stand
from rths_nodes.procedure.offsets import Offsets

AGAINST, AWAY, SWAPPED, DEAD, FORCE = "against", "away", "swapped", "dead", "force"
"""Reasons for an early end of a move: the displacement opposes the command, or exceeds it by far; another axis
moves; nothing is measured; a force has changed by more than the rig file allows."""

SEEN = 6.0
"""Standard deviations of a mean by which a value must differ to count as changed."""
BOTH = ("command", "displacement")
LEAST_WAY, LEAST_FORCE = 0.02, 1e-5
"""Smallest change that counts: share of the travel, of the range of the load cell."""


def section_of(rig: RigAxis | None, section: str) -> str:
    return f"axes.{rig.name}.{section} of the rig file" if rig else "a rig file (--rig)"


@dataclass
class AxisMove:
    """Move of the axis at ``index`` in ``direction`` (1, -1), with the rest at each stage, first at its start.

    ``out`` and ``back`` are forces ``(n_axes,)`` N of each sample in motion, ``ended`` the reason of an early end.
    """

    index: int
    direction: float
    stands: list[Stand] = field(default_factory=list)
    after: Stand | None = None
    ended: str = ""
    out: list[Array] = field(default_factory=list)
    back: list[Array] = field(default_factory=list)
    last: Measurement | None = None
    """Measurement at an early end."""
    returning: list[tuple[float, float]] = field(default_factory=list)
    """Command and displacement (m) of each sample of the way back and of the rest after it."""

    @property
    def late(self) -> float:
        """Lag of the displacement on the way back, samples: area between command and displacement, over travel."""
        end, after = self.stands[-1], self.after
        assert after is not None
        gone, moved = (float(getattr(after, what)[self.index] - getattr(end, what)[self.index]) for what in BOTH)
        if not gone or not moved or not self.returning:
            return 0.0
        commands, places = (np.array(column) for column in zip(*self.returning, strict=True))
        share = (places - end.displacement[self.index]) / moved
        return float(np.sum((commands - end.command[self.index]) / gone - share))

    @property
    def complete(self) -> bool:
        return not self.ended and self.after is not None

    def change(self, what: str, since: int = 0) -> Array:
        """Return the change of displacement, force or auxiliary channels since a stage, along the move."""
        return np.asarray(self.direction * (getattr(self.stands[-1], what) - getattr(self.stands[since], what)))


@dataclass(frozen=True)
class Bands:
    """Smallest visible changes between two rests, ``(n_axes,)`` m and N; with the scatter of one sample."""

    displacement: Array
    force: Array
    displacement_scatter: Array


@dataclass(frozen=True)
class RigKnowledge:
    """Data of each axis in the rig file, ``(n_axes,)``: travel (m), velocity (m/s), bounds and ranges of force
    (N).

    ``second_displacement`` and ``second_force`` are indices of redundant sensors among the auxiliary channels, or
    None.
    """

    names: tuple[str, ...]
    axes: tuple[RigAxis, ...]
    way: Array
    velocity: Array
    force_bound: Array
    force_range: Array
    steps: tuple[Array, Array]
    """Resolution of displacement and force, m and N."""
    second_displacement: tuple[int | None, ...]
    second_force: tuple[int | None, ...]
    offsets: Offsets
    dt: float
    """Sample period, s."""

    @classmethod
    def of(cls, scenario: Scenario, offsets: Offsets, channels: Sequence[str]) -> RigKnowledge:
        """Return the data of a rig whose axes all have a small move; ``channels`` of the port."""
        axes = [axis.rig_axis for axis in scenario.axes.values() if axis.rig_axis is not None]
        moves = [axis.small_move for axis in axes if axis.small_move is not None]
        assert len(moves) == len(scenario.axes)
        names = tuple(scenario.axes)
        known = [name.partition(" [")[0] for name in channels]

        def second(quantity: str, usual: str) -> tuple[int | None, ...]:
            found = []
            for name, axis in scenario.axes.items():
                levels = axis.limits.levels
                level = None if levels is None else getattr(levels, f"{quantity}_disagreement")
                channel = level.channel if level is not None else f"{usual}_{name}"
                found.append(known.index(channel) if channel in known else None)
            return tuple(found)

        return cls(
            names,
            tuple(axes),
            np.array([each.displacement for each in moves]),
            np.array([each.velocity for each in moves]),
            np.array([each.force for each in moves]),
            np.array([axis.force.range_si for axis in axes]),
            (
                np.array([axis.displacement.step_si for axis in axes]),
                np.array([axis.force.step_si for axis in axes]),
            ),
            second("displacement", "second_displacement"),
            second("force", "second_force"),
            offsets,
            scenario.dt,
        )

    def bands(self, stand: Stand) -> Bands:
        """Return the bands of change visible in the scatter of ``stand``."""
        of_mean = SEEN * math.sqrt(2.0 / stand.samples)
        displacement_step, force_step = self.steps
        return Bands(
            np.maximum(of_mean * stand.displacement_scatter + displacement_step, LEAST_WAY * self.way),
            np.maximum(of_mean * stand.force_scatter + force_step, LEAST_FORCE * self.force_range),
            stand.displacement_scatter,
        )
