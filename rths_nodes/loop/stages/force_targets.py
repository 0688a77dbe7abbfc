# SPDX-License-Identifier: Apache-2.0
"""Commands to the axes that are controlled by force, beside the motion of the others.

Each axis is held where it stands when the test begins, then controlled by force, and perhaps held again: its
target is the scenario's (``loop/scenario/loads.py``), never a Target's, but for the inclination of an actuator
that bears a vertical load, which the drift of the coupled axis gives. Targets and commands are the same: what
makes up for the delay of the actuator and for the compliance is the force controller's, who alone knows both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.scenario.loads import LoadHistory
from rths_nodes.mechanics.axial_load import vertical_share


class ForceTargets:
    """Targets of the force axes of ``axes``, which stand behind the first ``n_moved``; ``dt`` s."""

    def __init__(self, axes: Mapping[str, Axis], n_moved: int, dt: float) -> None:
        self._n, self._dt = n_moved, dt
        self._rows = [_Row(axis, dt) for axis in list(axes.values())[n_moved:]]
        self._moved = bytes([MODE_DISPLACEMENT]) * n_moved

    def step(self, sample: int, measured: Measurement, aimed: Sequence[float]) -> tuple[Array, bytes]:
        """Targets ``(n_force,)``, m or N, of ``sample``, which follows ``measured``; the modes of all axes.

        ``aimed`` are the targets of the others at the same sample, m.
        """
        n = self._n
        time = sample * self._dt
        rows = zip(
            self._rows,
            measured.command[n:].tolist(),
            measured.displacement[n:].tolist(),
            measured.force[n:].tolist(),
            strict=True,
        )
        targets = [
            row.step(time, applied, place, force, row.upright(aimed)) for row, applied, place, force in rows
        ]
        modes = self._moved + bytes([MODE_FORCE if row.controlled else MODE_DISPLACEMENT for row in self._rows])
        return np.array(targets), modes


class _Row:
    """One axis."""

    def __init__(self, axis: Any, dt: float) -> None:
        load, law = axis.own_load, axis.force_control.law
        self._history = LoadHistory(load, axis.limits.force_rate, dt)
        self._from = load.held_for
        self._to = math.inf if load.held_from is None else load.held_from
        self._inclined = (law.coupled_to - 1, law.column.actuator_length) if load.vertical else None
        self._held: float | None = None
        self.controlled = False

    def upright(self, aimed: Sequence[float]) -> float:
        """Share of the force that is what the load says, where the others are ``aimed`` (m) to."""
        if self._inclined is None:
            return 1.0
        axis, length = self._inclined
        return vertical_share(aimed[axis], length)

    def step(self, time: float, applied: float, place: float, force: float, share: float) -> float:
        """Target at ``time`` (s), after the ``applied`` command, measured ``place`` (m) and ``force`` (N).

        A ``share`` of the force is the load.
        """
        if self._from < time <= self._to:
            if not self.controlled:
                self.controlled, self._begun = True, time
                self._history.begin(force * share)
                return force
            return self._history.step(time - self._begun) / share
        if self.controlled or self._held is None:
            # the controller has the axis at what it was sent; after force control only its place is known here
            self._held = place if self.controlled else applied
            self.controlled = False
        return self._held
