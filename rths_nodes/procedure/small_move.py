# SPDX-License-Identifier: Apache-2.0
"""Guarded small moves of the axes in turn, to check signs, scales, sensors and cables.

An axis moves out in three stages, rests after each stage, and returns. The first stage shows whether the correct
axis moves, and in which direction. ``checks.py`` interprets the results.

The scenario's specimen models make the same moves and give the expected stiffness, because a rate-dependent
specimen is not as stiff as its parameters state. The ratio of measured to expected stiffness shows a wrong scale.

If the controller closes the force loop of an axis, a small force follows, which verifies sign and scale of
commands in N, and bumpless changes of mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.rig import Rig
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement, by_force
from rths_nodes.laboratory.actuators.unloaded import SpecimenPath
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.loop.procedure_record import NOT_VERIFIED, VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import STEEPEST
from rths_nodes.procedure.checks import (
    AGAINST,
    AWAY,
    DEAD,
    FORCE,
    LOUDEST,
    SWAPPED,
    AxisMove,
    RigKnowledge,
    judge,
    section_of,
    stiffnesses,
    uncertainty,
)
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.motions import GENTLE, GuidedMotion, QuasiStatic, Stand, Steps, smooth

STAGES = (0.25, 0.5, 1.0)
"""Fractions of the travel at which the axis rests."""
CAUTION = 0.1
"""Largest accepted error of the displacement in motion, as a fraction of the travel."""
OTHER = 0.3
"""Largest accepted motion of another axis, as a fraction of the travel. It is not zero, because one specimen
couples its actuators."""
BARS_ALL = (SWAPPED, FORCE, AWAY)
"""Findings after which no other axis is moved, because it is uncertain which axis moves."""
STILL = (1e-3, 1e-5)
"""Largest changes between windows that count as rest, as fractions of the travel and of the load cell's range."""

LEAST, MOST = 0.67, 1.5
"""Bounds of the ratio of measured to expected stiffness. A ratio outside these bounds requires a signature."""
SURE = 0.2
"""Largest relative uncertainty of a stiffness that is compared."""
SCENARIO, DECLARED = "the scenario's", "experimental_stiffness of the integrator"


@dataclass
class SmallMoves:
    """Generates the moves of all axes. ``first`` is the rest before them, and ``done`` contains the moves."""

    scenario: Scenario
    rig: RigKnowledge
    command: Array
    measured: Measurement
    done: list[AxisMove] = field(default_factory=list)
    first: Stand | None = None

    def run(self) -> Steps[None]:
        limits, rig = self.scenario.limits, self.rig
        still = STILL[0] * rig.way, STILL[1] * rig.force_range
        walk = QuasiStatic(self.scenario, self.command, still)
        self.first = yield from walk.stand()
        for index in range(len(limits)):
            move = AxisMove(index, self._direction(index))
            self.done.append(move)
            yield from self._move(walk, move)
            if move.ended in BARS_ALL:
                return

    def _direction(self, index: int) -> float:
        stroke = list(self.scenario.limits.values())[index].stroke
        position = max(float(self.measured.displacement[index]), float(self.command[index]))
        return -1.0 if position + (1.0 + CAUTION) * self.rig.way[index] > stroke else 1.0

    def _move(self, walk: QuasiStatic, move: AxisMove) -> Steps[None]:
        start = walk.command
        move.stands.append((yield from walk.stand()))
        velocity = self.rig.velocity
        for share in STAGES:
            goal = start.copy()
            goal[move.index] += share * move.direction * self.rig.way[move.index]
            guard = self._guard(walk, move, start)
            move.ended = yield from walk.ramp(goal, velocity, guard)
            if move.ended == AGAINST:  # the force is more conclusive at rest
                move.stands.append((yield from walk.stand()))
            if move.ended:
                break
            move.stands.append((yield from walk.stand()))
            move.ended = early(self.rig, move, share)
            if move.ended:
                break
        yield from walk.ramp(start, velocity, self._listen(move.back))
        move.after = yield from walk.stand()

    @staticmethod
    def _listen(forces: list[Array]) -> Callable[[Measurement], str]:
        def listen(measured: Measurement) -> str:
            forces.append(measured.force)
            return ""

        return listen

    def look(self, sent: Array, measured: Measurement) -> None:
        move = self.done[-1] if self.done else None
        if move is not None and move.back and move.after is None:
            move.returning.append((float(sent[move.index]), float(measured.displacement[move.index])))

    def _guard(self, walk: QuasiStatic, move: AxisMove, start: Array) -> Callable[[Measurement], str]:
        rig, before, i = self.rig, move.stands[0], move.index
        caution = np.maximum(CAUTION * rig.way[i], LOUDEST * before.displacement_scatter)
        other = np.maximum(OTHER * rig.way[i], caution)

        def guard(measured: Measurement) -> str:
            moved = measured.displacement - before.displacement
            moved_axis = move.direction * float(moved[i])
            gone = abs(float(walk.command[i] - start[i]))
            move.out.append(measured.force)
            move.last = measured
            if (np.abs(measured.force - before.force) > rig.force_bound).any():
                return FORCE
            if moved_axis < -caution[i]:
                return AGAINST
            beyond = np.abs(moved) > other
            beyond[i] = False
            if beyond.any() and abs(moved_axis) < np.abs(moved[beyond]).max():
                return SWAPPED
            return AWAY if moved_axis > (1.0 + OTHER) * gone + caution[i] else ""

        return guard


def early(rig: RigKnowledge, move: AxisMove, share: float) -> str:
    """Return the reason to end the move after the rest at ``share`` of the travel, or an empty string."""
    i, way, (least, _) = move.index, share * rig.way[move.index], rig.least(move.stands[0])
    moved = move.stands[-1].displacement - move.stands[0].displacement
    moved_axis = move.direction * float(moved[i])
    other_axes = np.abs(np.delete(moved, i))
    other = np.delete(np.maximum(least, 0.5 * way), i)
    if (other_axes > other).any() and other_axes.max() > 2.0 * abs(moved_axis):
        return SWAPPED
    if moved_axis < -least[i]:
        return AGAINST
    # lost motion may hide the first stage from the sensor
    return DEAD if share > STAGES[0] and moved_axis < least[i] else ""


class _Specimens(Rig):
    """Rig without actuators: each specimen is at the command of its axis."""

    def __init__(self, models: Sequence[object], dt: float) -> None:
        self._paths = [SpecimenPath(registry.build("specimen", params), dt) for params in models]
        self._dt = dt
        self.displacement, self.force = np.zeros(len(models)), np.zeros(len(models))

    def step(self, command: Array, auxiliary: Array) -> None:
        velocity = ((command - self.displacement) / self._dt).tolist()
        rows = zip(self._paths, command.tolist(), velocity, strict=True)
        self.force = np.array([path.move(position, rate) for path, position, rate in rows])
        self.displacement = command


def compare(
    scenario: Scenario, rig: RigKnowledge, moves: Sequence[AxisMove], checks: Mapping[str, AxisChecks]
) -> None:
    """Write the ratio of measured to expected stiffness of each axis into ``checks``."""
    expected = {SCENARIO: _of_scenario(scenario, rig), DECLARED: _declared(scenario)}
    for move in moves:
        name, axis_checks = rig.names[move.index], checks[rig.names[move.index]]
        if axis_checks.stiffness is None:
            continue
        known_stiffness = {
            who: stiffness_by_axis[name]
            for who, stiffness_by_axis in expected.items()
            if name in stiffness_by_axis
        }
        if not known_stiffness and NOT_VERIFIED in (axis_checks.force_scale, axis_checks.displacement_scale):
            axis_checks.remarks.append(
                f"axes.{name}: neither the scenario nor the rig file describes the specimen, so its stiffness is "
                "not compared"
            )
        if known_stiffness and uncertainty(rig, move) > SURE:
            axis_checks.remarks.append(f"axes.{name}: the measured stiffness is too uncertain to be compared")
            continue
        for who, value in known_stiffness.items():
            _beside(name, who, value, axis_checks)


def _beside(name: str, who: str, value: float, checks: AxisChecks) -> None:
    assert checks.stiffness is not None
    ratio = checks.ratios[who] = checks.stiffness / value
    finding = f"the stiffness of {name} is {ratio:.2f} times {who}"
    if LEAST <= ratio <= MOST:
        if NOT_VERIFIED in (checks.force_scale, checks.displacement_scale):
            checks.remarks.append(f"{finding}, {value:.4g} N/m")
    else:
        checks.unlike.append(finding)
        checks.remarks.append(
            f"{finding}, {value:.4g} N/m. The scale of the force or of the displacement is wrong, or another "
            "specimen is in the rig"
        )


def _of_scenario(scenario: Scenario, rig: RigKnowledge) -> dict[str, float]:
    model = _model(scenario)
    if model is None:
        return {}
    bounded = copy(rig)
    bounded.force_bound, bounded.steps = np.full(len(rig.names), np.inf), (np.zeros_like(rig.way),) * 2
    moves = _driven(model, scenario, bounded)
    matrices = stiffnesses(bounded, moves)
    # a force below the resolution of the rig depends only on motion and gives no stiffness
    seen = {
        index: row[index]
        for index, row in matrices.items()
        if row[index] * rig.way[index] > 10.0 * _least(rig)[index]
    }
    return {rig.names[index]: value for index, value in seen.items()}


def _least(rig: RigKnowledge) -> Array:
    return np.asarray(np.maximum(rig.steps[1], 1e-5 * rig.force_range))


def _model(scenario: Scenario) -> object:
    try:
        if scenario.rig is not None:
            cls = registry.class_of("rig", scenario.rig)
            if cls.external:
                return None
            return registry.build("rig", scenario.rig, scenario.dt, len(scenario.axes))
        models = [axis.specimen for axis in scenario.axes.values()]
        return None if None in models else _Specimens(models, scenario.dt)
    except ConfigError:
        return None


def _driven(model: Any, scenario: Scenario, rig: RigKnowledge) -> list[AxisMove]:
    zero, inputs = np.zeros(len(rig.names)), np.zeros(len(model.auxiliary_inputs))
    measured = Measurement(0, zero, np.array(model.force, float), zero)
    moves = SmallMoves(scenario, rig, zero, measured)
    motion = GuidedMotion(moves.run(), zero)
    while (command := motion.step(measured)) is not None:
        model.step(command, inputs)
        displacement, force = (np.array(values, float) for values in (model.displacement, model.force))
        measured = Measurement(0, displacement, force, command)
        moves.look(command, measured)
    return moves.done


def _declared(scenario: Scenario) -> dict[str, float]:
    """Return the stiffness (N/m) that an external integrator assumes, for axes that are degrees of freedom."""
    matrix = scenario.integrator.experimental_stiffness
    if matrix is None or type(scenario.setup).type_name != "identity":
        return {}
    diagonal = np.diagonal(np.asarray(matrix, float)).tolist()
    scales = [
        axis.length / axis.force for axis in scenario.similitude
    ]  # convert stiffnesses of the structure to the specimen
    rows = zip(scenario.axes, diagonal, scales, strict=False)
    return {name: value * scale for name, value, scale in rows if value > 0.0}


SAME_FORCE = 0.03
"""Largest accepted relative difference between measured and commanded force."""
FORCE_CAUTION = 0.2
"""Largest accepted force in the wrong direction, as a fraction of the small force, and largest accepted excess
travel, as a fraction of the small move."""


@dataclass
class Pressed:
    """Result of a small ``force`` (N) on the axis at ``index``, with rests before, under and after the force."""

    index: int
    force: float
    stands: list[Stand] = field(default_factory=list)
    ended: str = ""

    def change(self, quantity: str, since: int, to: int) -> float:
        change: float = (getattr(self.stands[to], quantity) - getattr(self.stands[since], quantity))[self.index]
        return change


class SmallForces:
    """Generates small forces on the axes of ``scenario`` whose force loop the controller closes.

    The axes start at the position ``command`` (m). ``modes`` are the control modes in the last command of
    :meth:`run`, one byte per axis; empty bytes mean displacement.
    """

    def __init__(self, scenario: Scenario, rig: RigKnowledge, command: Array) -> None:
        self._walk = QuasiStatic(scenario, command, (1e-3 * rig.way, 1e-5 * rig.force_range))
        self._axes, self._rig, self._dt = list(scenario.axes.values()), rig, scenario.dt
        self.modes = b""
        self.done: list[Pressed] = []

    @staticmethod
    def on(scenario: Scenario) -> list[int]:
        return [index for index, axis in enumerate(scenario.axes.values()) if by_controller(axis)]

    def run(self) -> Steps[None]:
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
        noise = rig.least(before)[1][i] + FORCE_CAUTION * pressed.force
        if (np.abs(changes) > rig.force_bound).any():
            return FORCE
        if changes[i] < -noise:
            return AGAINST
        moved = np.abs(measured.displacement - before.displacement)
        return AWAY if (moved > (1.0 + FORCE_CAUTION) * rig.way).any() else ""

    def watched(self, sent: Array, measured: Measurement, shift: Array) -> Array:
        """Return ``sent`` in m. The displacement minus the sensor offset ``shift`` (m) replaces a command in N."""
        if not self.modes:
            return sent
        return np.where(by_force(self.modes), measured.displacement - shift, sent)


def judge_forces(
    rig: RigKnowledge,
    moves: Sequence[Pressed],
    stopped: str,
    expected: Sequence[int],
    checks: Mapping[str, AxisChecks],
) -> None:
    """Write verdicts on the force loops of the axes ``expected`` (indices) into ``checks``.

    ``stopped`` is the reason why the small forces were stopped, or an empty string.
    """
    done = {move.index: move for move in moves}
    for index in expected:
        axis_checks, name = checks[rig.names[index]], rig.names[index]
        move = done.get(index)
        finding = (
            _wrong(rig, move, stopped)
            if move is not None
            else "the small force was not tried, because an earlier trial has failed"
        )
        axis_checks.force_loop = WRONG if finding else VERIFIED
        if finding:
            axis_checks.findings.append(f"axes.{name}: the check of its force loop has failed: {finding}")


def _wrong(rig: RigKnowledge, move: Pressed, stopped: str) -> str:
    if stopped:
        return f"the small force was stopped: {stopped}"
    if move.ended == AGAINST:
        return (
            "the force opposes its command. The sign of force_command (in the rig file or in the controller) or "
            "the sign of the loop is wrong"
        )
    if move.ended:
        how = (
            "a force has changed by more than small_move.force"
            if move.ended == FORCE
            else "an axis has moved too far"
        )
        return (
            f"the small force was aborted, because {how}. The scale of force_command is wrong, or another "
            "specimen is in the rig"
        )
    (least, least_force), i = rig.least(move.stands[0]), move.index
    changed = move.change("force", 1, 2)
    if abs(changed - move.force) > SAME_FORCE * move.force + least_force[i]:
        return (
            f"the force has changed by {changed:.4g} N while its command changed by {move.force:.4g} N. The "
            "scales of force_command and of the load cell differ, or the loop does not reach its command"
        )
    for since, event in ((0, "taken over"), (3, "given back")):
        bump = move.change("displacement", since, since + 1)
        if abs(bump) > least[i]:
            return (
                f"the axis moved by {1e3 * bump:.4g} mm when its force loop was {event}, so the "
                "change of mode is not bumpless"
            )
    return ""


def check_axes(drive: RigDrive, scenario: Scenario, offsets: Offsets) -> dict[str, AxisChecks]:
    """Move each axis out and back by its small move; return the findings by axis.

    Raises ConfigError before any motion if the rig file does not bound the move, or if the move is too small
    compared with the scatter of the ``offsets``.
    """
    _refuse(scenario, offsets, drive.port.simulated)
    rig = RigKnowledge(scenario, offsets, drive.port.auxiliary_names)
    moves = SmallMoves(scenario, rig, drive.command, drive.measured)
    following = Following(scenario, offsets, {})

    def watch(sent: Array, measured: Measurement) -> str:
        moves.look(sent, measured)
        return following.slow(sent, measured)

    outcome = drive.drive(GuidedMotion(moves.run(), drive.command, watch))
    checks = judge(rig, moves.first, moves.done, outcome.reason)
    compare(scenario, rig, [move for move in moves.done if move.complete], checks)
    pressed = SmallForces.on(scenario)
    if pressed and not any(row.findings for row in checks.values()):
        forces = SmallForces(scenario, rig, drive.command)

        def watch_forces(sent: Array, measured: Measurement) -> str:
            return following.slow(forces.watched(sent, measured, drive.shift), measured)

        outcome = drive.drive(GuidedMotion(forces.run(), drive.command, watch_forces, lambda: forces.modes))
        judge_forces(rig, forces.done, outcome.reason, pressed, checks)
    return checks


def _refuse(scenario: Scenario, offsets: Offsets, simulated: bool) -> None:
    problems = Problems()
    for (name, axis), scatter in zip(scenario.axes.items(), offsets.displacement_scatter.tolist(), strict=True):
        rig = axis.rig_axis
        if rig is None or rig.small_move is None:
            problems.append(
                f"axes.{name}: {section_of(rig, 'small_move')} is missing. Displacement (m), velocity (m/s) and "
                "force (N) are required as bounds of the small move that checks signs and scales"
            )
            continue
        if by_controller(axis) and rig.small_move.press is None:
            problems.append(
                f"axes.{name}: {section_of(rig, 'small_move')} must state press, the small force (N) that checks "
                "the force loop of the controller"
            )
        needed = LOUDEST * scatter / STAGES[0]
        if rig.small_move.displacement < needed:
            problems.append(
                f"axes.{rig.name}.small_move.displacement of the rig file = {rig.small_move.displacement:g} m: "
                f"must be >= {needed:.3g} m, so that the move exceeds the scatter of the displacement "
                f"({scatter:.3g} m rms)"
            )
        if rig.characterised is not None and rig.characterised.simulated and not simulated:
            problems.append(
                f"axes.{rig.name}.characterised of the rig file: the values were measured on a simulator, but "
                "this rig is real. Characterise the rig itself, or omit the section"
            )
    problems.refuse()
