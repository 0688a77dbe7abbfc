# SPDX-License-Identifier: Apache-2.0
"""Small force: trial of a controller's force loop on a resting axis, before a test uses it.

After the small moves, which have shown the signs of its sensors, the axis is held. Its loop takes over at the
measured force, which must move nothing; it applies a force, rests, removes it, and the axis is held again. This
verifies sign and scale of commands in N, that they are taken, and that both changes of mode are bumpless. Other
axes rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement, by_force
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.loop.procedure_record import VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.axis_moves import AGAINST, AWAY, FORCE, RigKnowledge
from rths_nodes.procedure.motions import GENTLE, STEEPEST, QuasiStatic, Stand, Steps, smooth

CLOSELY = 0.03
"""Tolerated relative difference of measured and commanded force: scale of the commands in N."""
CAUTION = 0.2
"""Tolerated force in the wrong direction during the trial, as a share of the force, and excess travel, as a share
of the small move."""


@dataclass
class Pressed:
    """Result on the axis at ``index``: rests held, taken over, under the force (N), and held again."""

    index: int
    force: float
    stands: list[Stand] = field(default_factory=list)
    ended: str = ""

    def change(self, what: str, since: int, to: int) -> float:
        found: float = (getattr(self.stands[to], what) - getattr(self.stands[since], what))[self.index]
        return found


class SmallForces:
    """Small forces on the axes of ``scenario`` whose loop the controller closes, from ``command`` m on.

    ``modes`` are the control modes of the last command of :meth:`run`, a byte per axis; empty: displacement.
    """

    def __init__(self, scenario: Scenario, rig: RigKnowledge, command: Array) -> None:
        self._walk = QuasiStatic.of(scenario, command, (1e-3 * rig.way, 1e-5 * rig.force_range))
        self._axes, self._rig, self._dt = list(scenario.axes.values()), rig, scenario.dt
        self.modes = b""
        self.done: list[Pressed] = []

    @staticmethod
    def on(scenario: Scenario) -> list[int]:
        return [index for index, axis in enumerate(scenario.axes.values()) if by_controller(axis)]

    def run(self) -> Steps[None]:
        """Try the axes in turn, up to an early end."""
        for index, axis in enumerate(self._axes):
            small = None if axis.rig_axis is None else axis.rig_axis.small_move
            if not by_controller(axis) or small is None or small.press is None:
                continue
            pressed = Pressed(index, small.press)
            self.done.append(pressed)
            yield from self._press(pressed, GENTLE * (axis.limits.force_rate or 0.0))
            if pressed.ended:
                return

    def _press(self, pressed: Pressed, rate: float) -> Steps[None]:
        walk, i = self._walk, pressed.index
        held = walk.command
        pressed.stands.append((yield from walk.stand()))
        begun = float(pressed.stands[0].force[i])
        self._lead(i, begun)
        pressed.stands.append((yield from walk.stand()))
        for goal in (begun + pressed.force, begun):
            pressed.ended = yield from self._ramp(pressed, goal, rate)
            if pressed.ended:
                break
            pressed.stands.append((yield from walk.stand()))
        self.modes, walk.command = b"", held
        pressed.stands.append((yield from walk.stand()))

    def _lead(self, index: int, newtons: float) -> None:
        command = self._walk.command.copy()
        command[index] = newtons
        self._walk.command = command
        modes = bytearray([MODE_DISPLACEMENT] * len(self._axes))
        modes[index] = MODE_FORCE
        self.modes = bytes(modes)

    def _ramp(self, pressed: Pressed, goal: float, rate: float) -> Steps[str]:
        start = float(self._walk.command[pressed.index])
        samples = math.ceil(STEEPEST * abs(goal - start) / rate / self._dt)
        for done in range(1, samples + 1):
            self._lead(pressed.index, start + smooth(done / samples) * (goal - start))
            measured = yield self._walk.command
            if why := self._guard(pressed, measured):
                return why
        return ""

    def _guard(self, pressed: Pressed, measured: Measurement) -> str:
        rig, before, i = self._rig, pressed.stands[0], pressed.index
        changes = measured.force - before.force
        noise = rig.bands(before).force[i] + CAUTION * pressed.force
        if (np.abs(changes) > rig.force_bound).any():
            return FORCE
        if changes[i] < -noise:
            return AGAINST
        moved = np.abs(measured.displacement - before.displacement)
        return AWAY if (moved > (1.0 + CAUTION) * rig.way).any() else ""

    def watched(self, sent: Array, measured: Measurement, shift: Array) -> Array:
        """Convert ``sent`` to m: an axis in N is at its position; ``shift`` (m) of its sensor."""
        if not self.modes:
            return sent
        return np.where(by_force(self.modes), measured.displacement - shift, sent)


def judge(
    rig: RigKnowledge,
    moves: Sequence[Pressed],
    stopped: str,
    expected: Sequence[int],
    found: Mapping[str, AxisChecks],
) -> None:
    """Judge the force loops of the ``expected`` axes into ``found``; ``stopped``: why the drive ended."""
    done = {move.index: move for move in moves}
    for index in expected:
        own, name = found[rig.names[index]], rig.names[index]
        move = done.get(index)
        words = _wrong(rig, move, stopped) if move is not None else "was not tried, because another one has ended"
        own.force_loop = WRONG if words else VERIFIED
        if words:
            own.findings.append(f"axes.{name}: its force loop: {words}")


def _wrong(rig: RigKnowledge, move: Pressed, stopped: str) -> str:
    """Return why the force loop of an axis is wrong, or empty."""
    if stopped:
        return f"the small force was stopped: {stopped}"
    if move.ended == AGAINST:
        return (
            "the force runs against its command: the sign of force_command is wrong, in the rig file or in the "
            "controller, or that of its loop"
        )
    if move.ended:
        how = (
            "a force has changed by more than small_move.force" if move.ended == FORCE else "an axis has gone far"
        )
        return f"the small force was given up, because {how}: its scale is wrong, or the specimen is another one"
    bands, i = rig.bands(move.stands[0]), move.index
    changed = move.change("force", 1, 2)
    if abs(changed - move.force) > CLOSELY * move.force + bands.force[i]:
        return (
            f"the force has changed by {changed:.4g} N where its command went by {move.force:.4g} N: the scale of "
            "force_command is not that of the load cell, or the loop does not reach its command"
        )
    for since, what in ((0, "taken over"), (3, "given back")):
        bump = move.change("displacement", since, since + 1)
        if abs(bump) > bands.displacement[i]:
            return f"the axis has moved by {1e3 * bump:.4g} mm when its loop was {what}: the change is a bump"
    return ""
