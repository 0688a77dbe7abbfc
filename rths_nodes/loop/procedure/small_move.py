"""The guarded small move of one axis after the other: what is wrong with signs, scales, sensors and cables.

An axis goes out in three stages, rests after each, and comes back. At the first one, a quarter of the way, it is
seen whether what moves is what was meant to, and in which direction; only then it goes on. Under way the move
ends where the displacement runs against the command or away, where another axis moves instead, and where a force
changes by more than the rig file allows. What all of it means is told by ``checks.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.procedure.axis_moves import (
    AGAINST,
    AWAY,
    DEAD,
    FORCE,
    SWAPPED,
    AxisMove,
    Bands,
    RigKnowledge,
)
from rths_nodes.loop.procedure.checks import judge
from rths_nodes.loop.procedure.motions import GuidedMotion, accelerations
from rths_nodes.loop.procedure.offsets import Offsets
from rths_nodes.loop.procedure.quasi_static import QuasiStatic, Script, Stand, Steps
from rths_nodes.loop.procedure.records import AxisChecks
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


class Drive(Protocol):
    """What of ``RigDrive`` is needed to move a rig."""

    command: Array
    measured: Measurement
    port: Any

    def drive(self, motion: GuidedMotion) -> Any:
        """Move the rig; the outcome has ``reason``, empty where the motion came to its end."""
        ...


def check_axes(drive: Drive, scenario: Scenario, offsets: Offsets) -> dict[str, AxisChecks]:
    """Move each axis a little, out and back; what is found of it, by axis.

    Raises ConfigError before anything moves where the rig file does not bound the move, and where it is too small
    to be seen beside the scatter of ``offsets``.
    """
    _refuse(scenario, offsets, drive.port.simulated)
    rig = RigKnowledge.of(scenario, offsets, drive.port.auxiliary_names)
    moves = SmallMoves(scenario, rig, drive.command, drive.measured)
    outcome = drive.drive(Script(moves.run()))
    return judge(rig, moves.first, moves.done, outcome.reason)


def _refuse(scenario: Scenario, offsets: Offsets, simulated: bool) -> None:
    problems = Problems()
    for (name, axis), scatter in zip(scenario.axes.items(), offsets.displacement_scatter.tolist(), strict=True):
        rig = axis.rig_axis
        if rig is None or rig.small_move is None:
            where = f"axes.{rig.name}.small_move of the rig file" if rig else "a rig file (--rig)"
            problems.append(
                f"axes.{name}: signs and scales are checked by a small move, which nobody has bounded: {where} is "
                "missing: displacement (m), velocity (m/s) and force (N)"
            )
            continue
        needed = LOUDEST * scatter / STAGES[0]
        if rig.small_move.displacement < needed:
            problems.append(
                f"axes.{rig.name}.small_move.displacement of the rig file = "
                f"{rig.small_move.displacement:g} m: must be >= {needed:.3g} m, to be seen beside "
                f"the scatter of the displacement, {scatter:.3g} m rms"
            )
        if rig.characterised is not None and rig.characterised.simulated and not simulated:
            problems.append(
                f"axes.{rig.name}.characterised of the rig file: was found on a simulator, and this rig is none: "
                "characterise the rig itself, or leave the section out"
            )
    problems.refuse()


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
        """On the way back nothing ends the motion but the limits: it leads to where the rig stood."""

        def listen(measured: Measurement) -> str:
            forces.append(measured.force)
            return ""

        return listen

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
