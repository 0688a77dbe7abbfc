"""The guarded moves of all axes, one after the other; ``small_move.py`` has what they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.procedure.axis_moves import AGAINST, AWAY, DEAD, FORCE, SWAPPED, AxisMove, Bands, RigKnowledge
from rths_nodes.loop.procedure.motions import accelerations
from rths_nodes.loop.procedure.quasi_static import QuasiStatic, Stand, Steps
from rths_nodes.loop.scenario.schema import Scenario

STAGES = (0.25, 0.5, 1.0)
"""Shares of the way at which the axis rests."""
CAUTION = 0.1
"""Share of the way by which a displacement may be wrong under way."""
LOUDEST = 8.0
"""So many times its scatter no sample of a sensor goes."""
OTHER = 0.3
"""Share of the way that another axis may move along: actuators of one specimen are coupled."""
BARS_ALL = (SWAPPED, FORCE, AWAY)
"""After these no other axis is moved: it is not known what would move."""
STILL = (1e-3, 1e-5)
"""What goes on by less in a window rests: share of the way, of the range of the load cell."""


@dataclass
class SmallMoves:
    """The moves of all axes. ``first`` is how the rig stood before, ``done`` has what came of each axis."""

    scenario: Scenario
    rig: RigKnowledge
    command: Array
    measured: Measurement
    done: list[AxisMove] = field(default_factory=list)
    first: Stand | None = None

    def run(self) -> Steps[None]:
        """All axes, one after the other."""
        limits, rig = self.scenario.limits, self.rig
        still = STILL[0] * rig.way, STILL[1] * rig.force_range
        transport = self.scenario.port.transport_samples
        walk = QuasiStatic(self.command, self.scenario.dt, transport, accelerations(limits), still)
        self.first = yield from walk.stand()
        for index in range(len(limits)):
            move = AxisMove(index, self._direction(index))
            self.done.append(move)
            yield from self._move(walk, move)
            if move.ended in BARS_ALL:
                return

    def _direction(self, index: int) -> float:
        """Out of the stroke no axis is moved."""
        stroke = list(self.scenario.limits.values())[index].stroke
        place = max(float(self.measured.displacement[index]), float(self.command[index]))
        return -1.0 if place + (1.0 + CAUTION) * self.rig.way[index] > stroke else 1.0

    def _move(self, walk: QuasiStatic, move: AxisMove) -> Steps[None]:
        start = walk.command
        move.stands.append((yield from walk.stand()))
        bands = self.rig.bands(move.stands[0])
        velocity = self.rig.velocity
        for share in STAGES:
            goal = start.copy()
            goal[move.index] += share * move.direction * self.rig.way[move.index]
            guard = self._guard(walk, move, start, bands)
            move.ended = yield from walk.ramp(goal, velocity, guard)
            if move.ended == AGAINST:  # at rest it is seen what the force does
                move.stands.append((yield from walk.stand()))
            if move.ended:
                break
            move.stands.append((yield from walk.stand()))
            move.ended = early(self.rig, move, bands, share)
            if move.ended:
                break
        yield from walk.ramp(start, velocity, self._listen(move.back))
        move.after = yield from walk.stand()

    @staticmethod
    def _listen(forces: list[Array]) -> Callable[[Measurement], str]:
        """On the way back nothing ends the motion but limits and slow_error: it leads to where the rig stood."""

        def listen(measured: Measurement) -> str:
            forces.append(measured.force)
            return ""

        return listen

    def look(self, sent: Array, measured: Measurement) -> None:
        """Each sample, at rest, too."""
        move = self.done[-1] if self.done else None
        if move is not None and move.back and move.after is None:
            move.returning.append((float(sent[move.index]), float(measured.displacement[move.index])))

    def _guard(
        self, walk: QuasiStatic, move: AxisMove, start: Array, bands: Bands
    ) -> Callable[[Measurement], str]:
        rig, before, i = self.rig, move.stands[0], move.index
        caution = np.maximum(CAUTION * rig.way[i], LOUDEST * bands.displacement_scatter)
        other = np.maximum(OTHER * rig.way[i], caution)

        def guard(measured: Measurement) -> str:
            moved = measured.displacement - before.displacement
            own = move.direction * float(moved[i])
            gone = abs(float(walk.command[i] - start[i]))
            move.out.append(measured.force)
            move.last = measured
            if (np.abs(measured.force - before.force) > rig.force_bound).any():
                return FORCE
            if own < -caution[i]:
                return AGAINST
            beyond = np.abs(moved) > other
            beyond[i] = False
            if beyond.any() and abs(own) < np.abs(moved[beyond]).max():
                return SWAPPED
            return AWAY if own > (1.0 + OTHER) * gone + caution[i] else ""

        return guard


def early(rig: RigKnowledge, move: AxisMove, bands: Bands, share: float) -> str:
    """Why the move must not go on after the rest at ``share`` of its way; empty where it may."""
    i, way = move.index, share * rig.way[move.index]
    moved = move.stands[-1].displacement - move.stands[0].displacement
    own = move.direction * float(moved[i])
    others = np.abs(np.delete(moved, i))
    other = np.delete(np.maximum(bands.displacement, 0.5 * way), i)
    if (others > other).any() and others.max() > 2.0 * abs(own):
        return SWAPPED
    if own < -bands.displacement[i]:
        return AGAINST
    # with lost motion the first stage may not get through to the sensor
    return DEAD if share > STAGES[0] and own < bands.displacement[i] else ""
