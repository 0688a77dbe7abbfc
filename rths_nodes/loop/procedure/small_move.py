"""The guarded small move of one axis after the other: what is wrong with signs, scales, sensors and cables.

An axis goes out in three stages, rests after each, and comes back. At the first one, a quarter of the way, it is
seen whether what moves is what was meant to, and in which direction; only then it goes on. Under way the move
ends where the displacement runs against the command or away, where another axis moves instead, and where a force
changes by more than the rig file allows. What all of it means is told by ``checks.py``.
"""

from __future__ import annotations

from typing import Any, Protocol

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.procedure.axis_moves import (
    RigKnowledge,
)
from rths_nodes.loop.procedure.checks import judge
from rths_nodes.loop.procedure.expectation import compare
from rths_nodes.loop.procedure.following import Following
from rths_nodes.loop.procedure.guarded_moves import LOUDEST, STAGES, SmallMoves
from rths_nodes.loop.procedure.motions import GuidedMotion
from rths_nodes.loop.procedure.offsets import Offsets
from rths_nodes.loop.procedure.quasi_static import Script
from rths_nodes.loop.procedure.records import AxisChecks
from rths_nodes.loop.scenario.schema import Scenario


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
    following = Following(scenario, offsets, {})

    def watch(sent: Array, measured: Measurement) -> str:
        moves.look(sent, measured)
        return following.slow(sent, measured)

    outcome = drive.drive(Script(moves.run(), drive.command, watch))
    found = judge(rig, moves.first, moves.done, outcome.reason)
    compare(scenario, rig, [move for move in moves.done if move.complete], found)
    return found


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
