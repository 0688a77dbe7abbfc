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

from collections.abc import Mapping, Sequence
from copy import copy
from types import SimpleNamespace

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement
from rths_nodes.core.simulators import Rig
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.procedure_record import NOT_VERIFIED, VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure import checks
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.motions import GENTLE, Guard, GuidedMotion, QuasiStatic, Stand, Steps, Watch

STAGES = (0.25, 0.5, 1.0)
"""Fractions of the travel at which the axis rests."""
CAUTION = 0.1
"""Largest accepted error of the displacement in motion, as a fraction of the travel."""
OTHER = 0.3
"""Largest accepted motion of another axis, as a fraction of the travel. It is not zero, because one specimen
couples its actuators."""
SAME_FORCE = 0.03
"""Largest accepted relative difference between measured and commanded force."""
FORCE_CAUTION = 0.2
"""Largest accepted force in the wrong direction, as a fraction of the small force, and largest accepted excess
travel, as a fraction of the small move."""

LEAST, MOST = 0.67, 1.5
"""Bounds of the ratio of measured to expected stiffness. A ratio outside these bounds requires a signature."""
SURE = 0.2
"""Largest relative uncertainty of a stiffness that is compared."""
SCENARIO, DECLARED = "the scenario's", "experimental_stiffness of the integrator"


class SmallMoves:
    """Generates the small moves of all axes of ``scenario``, and then small forces on force-controlled axes.

    ``first`` is the rest before the moves. ``done`` and ``pressed`` contain moves and small forces. The rests of a
    small force are before it, in force control, under the force, without the force, and after it.
    """

    def __init__(self, scenario: Scenario, rig: checks.RigKnowledge) -> None:
        self.rig, self._limits = rig, list(scenario.limits.values())
        small = [axis.rig_axis and axis.rig_axis.small_move for axis in scenario.axes.values()]
        by_force = [by_controller(axis) for axis in scenario.axes.values()]
        self.forces = {i: move.press for i, move in enumerate(small) if move and move.press and by_force[i]}
        """Small forces (N) by index of the axis, if the controller closes its force loop."""
        self.walk = QuasiStatic(scenario, np.zeros(len(small)), (rig.way, rig.force_range))
        self.first: Stand | None = None
        self.done: list[checks.AxisMove] = []
        self.pressed: list[checks.AxisMove] = []

    def run(self, command: Array) -> Steps[None]:
        self.walk.command = command
        self.first = yield from self.walk.stand()
        furthest = np.maximum(self.first.displacement, command)
        for index, limits in enumerate(self._limits):
            beyond = furthest[index] + (1.0 + CAUTION) * self.rig.way[index] > limits.stroke
            move = checks.AxisMove(index, -1.0 if beyond else 1.0)
            self.done.append(move)
            yield from self._move(move)
            if move.ended in (checks.SWAPPED, checks.FORCE, checks.AWAY):  # it is uncertain which axis moves
                return

    def _rest(self, move: checks.AxisMove) -> Steps[None]:
        move.stands.append((yield from self.walk.stand()))

    def _move(self, move: checks.AxisMove) -> Steps[None]:
        walk, rig, start = self.walk, self.rig, self.walk.command
        yield from self._rest(move)
        guard = self._guard(move, start)
        for share in STAGES:
            goal = start.copy()
            goal[move.index] += share * move.direction * rig.way[move.index]
            move.ended = yield from walk.ramp(goal, rig.velocity, guard)
            if move.ended in ("", checks.AGAINST):  # the force is more conclusive at rest
                yield from self._rest(move)
            move.ended = move.ended or early(rig, move, share)
            if move.ended:
                break
        yield from walk.ramp(start, rig.velocity)
        move.back = [measured.force for _, measured in walk.trace]
        move.after = yield from walk.stand()
        move.returning = walk.trace[1:]

    def _guard(self, move: checks.AxisMove, start: Array) -> Guard:
        rig, before, i = self.rig, move.stands[0], move.index
        caution = np.maximum(CAUTION * rig.way[i], checks.LOUDEST * before.displacement_scatter)
        other = np.maximum(OTHER * rig.way[i], caution)

        def guard(measured: Measurement) -> str:
            moved = measured.displacement - before.displacement
            moved_axis = move.direction * float(moved[i])
            gone = abs(float(self.walk.command[i] - start[i]))
            move.out.append(measured.force)
            move.last = measured
            if (np.abs(measured.force - before.force) > rig.force_bound).any():
                return checks.FORCE
            if moved_axis < -caution[i]:
                return checks.AGAINST
            beyond = np.abs(moved) > other
            beyond[i] = False
            if beyond.any() and abs(moved_axis) < np.abs(moved[beyond]).max():
                return checks.SWAPPED
            return checks.AWAY if moved_axis > (1.0 + OTHER) * gone + caution[i] else ""

        return guard

    def press(self, command: Array) -> Steps[None]:
        self.walk.command = command
        for index, force in self.forces.items():
            move = checks.AxisMove(index, 1.0)
            self.pressed.append(move)
            yield from self._press(move, force)
            if move.ended:
                return

    def _press(self, move: checks.AxisMove, force: float) -> Steps[None]:
        walk, rig, i, held = self.walk, self.rig, move.index, self.walk.command
        yield from self._rest(move)
        before = move.stands[0]
        noise = rig.least(before)[1][i] + FORCE_CAUTION * force

        def guard(measured: Measurement) -> str:
            changes = measured.force - before.force
            if (np.abs(changes) > rig.force_bound).any():
                return checks.FORCE
            if changes[i] < -noise:
                return checks.AGAINST
            moved = np.abs(measured.displacement - before.displacement)
            return checks.AWAY if (moved > (1.0 + FORCE_CAUTION) * rig.way).any() else ""

        def under(newtons: float) -> Array:
            command = held.copy()
            command[i] = newtons
            return command

        rate = np.full(len(held), GENTLE * (self._limits[i].force_rate or 0.0))
        walk.command = under(before.force[i])
        walk.modes = bytes(MODE_FORCE if index == i else MODE_DISPLACEMENT for index in range(len(held)))
        yield from self._rest(move)
        for newtons in (before.force[i] + force, before.force[i]):
            move.ended = yield from walk.ramp(under(newtons), rate, guard)
            if move.ended:
                break
            yield from self._rest(move)
        walk.modes, walk.command = b"", held
        yield from self._rest(move)


def early(rig: checks.RigKnowledge, move: checks.AxisMove, share: float) -> str:
    """Return the reason to end the move after the rest at ``share`` of the travel, or an empty string."""
    i, way, (least, _) = move.index, share * rig.way[move.index], rig.least(move.stands[0])
    moved = move.stands[-1].displacement - move.stands[0].displacement
    moved_axis = move.direction * float(moved[i])
    other_axes = np.abs(np.delete(moved, i))
    other = np.delete(np.maximum(least, 0.5 * way), i)
    if (other_axes > other).any() and other_axes.max() > 2.0 * abs(moved_axis):
        return checks.SWAPPED
    if moved_axis < -least[i]:
        return checks.AGAINST
    # lost motion may hide the first stage from the sensor
    return checks.DEAD if share > STAGES[0] and moved_axis < least[i] else ""


def compare(
    scenario: Scenario,
    rig: checks.RigKnowledge,
    moves: Sequence[checks.AxisMove],
    results: Mapping[str, AxisChecks],
) -> None:
    """Write the ratio of measured to expected stiffness of each axis into ``results``."""
    expected = {SCENARIO: _of_scenario(scenario, rig), DECLARED: _declared(scenario)}
    for move in moves:
        name, axis = rig.names[move.index], results[rig.names[move.index]]
        if axis.stiffness is None:
            continue
        values = {who: by_axis[name] for who, by_axis in expected.items() if name in by_axis}
        unverified = NOT_VERIFIED in (axis.force_scale, axis.displacement_scale)
        if not values and unverified:
            axis.remarks.append(
                f"axes.{name}: neither the scenario nor the rig file describes the specimen, so its stiffness is "
                "not compared"
            )
        if values and checks.uncertainty(rig, move) > SURE:
            axis.remarks.append(f"axes.{name}: the measured stiffness is too uncertain to be compared")
            continue
        for who, value in values.items():
            ratio = axis.ratios[who] = axis.stiffness / value
            finding = f"the stiffness of {name} is {ratio:.2f} times {who}"
            if LEAST <= ratio <= MOST:
                axis.remarks += [f"{finding}, {value:.4g} N/m"] if unverified else []
                continue
            axis.unlike.append(finding)
            axis.remarks.append(
                f"{finding}, {value:.4g} N/m. The scale of the force or of the displacement is wrong, or another "
                "specimen is in the rig"
            )


def _of_scenario(scenario: Scenario, rig: checks.RigKnowledge) -> dict[str, float]:
    """Return the stiffness (N/m) of each axis that small moves of the scenario's models show."""
    if (model := _model(scenario)) is None:
        return {}
    bounded, zero = copy(rig), np.zeros(len(rig.names))
    bounded.force_bound, bounded.steps = np.full(len(rig.names), np.inf), (np.zeros_like(rig.way),) * 2
    measured = Measurement(0, zero, zero, zero)
    moves = SmallMoves(scenario, bounded)
    motion = GuidedMotion(moves.run)
    while (command := motion.step(measured, zero)) is not None:
        model.step(command, np.zeros(len(model.auxiliary_inputs)))
        displacement, force = (np.array(values, float) for values in (model.displacement, model.force))
        measured = Measurement(0, displacement, force, command)
    # a force below the resolution of the rig depends only on motion and gives no stiffness
    least = 10.0 * np.maximum(rig.steps[1], 1e-5 * rig.force_range)
    rows = checks.stiffnesses(moves.done)
    return {rig.names[i]: row[i] for i, row in rows.items() if row[i] * rig.way[i] > least[i]}


def _model(scenario: Scenario) -> Rig | None:
    """Return the scenario's rig, or its specimens at the commands of their axes; None without models."""
    ideal = registry.load("actuator", "pure_delay").Params(delay=0.0)
    try:
        if scenario.rig is None:
            models = {name: axis.specimen for name, axis in scenario.axes.items()}
            axes = {name: SimpleNamespace(actuator=ideal, specimen=model) for name, model in models.items()}
            return None if None in models.values() else SeparateAxes(axes, scenario.dt)
        external = registry.class_of("rig", scenario.rig).external
        return None if external else registry.build("rig", scenario.rig, scenario.dt, len(scenario.axes))
    except ConfigError:
        return None


def _declared(scenario: Scenario) -> dict[str, float]:
    """Return the stiffness (N/m) that an external integrator assumes, for axes that are degrees of freedom."""
    matrix = scenario.integrator.experimental_stiffness
    if matrix is None or type(scenario.setup).type_name != "identity":
        return {}
    rows = zip(scenario.axes, np.diagonal(np.asarray(matrix, float)).tolist(), scenario.similitude, strict=False)
    # convert stiffnesses of the structure to the specimen
    return {name: value * (axis.length / axis.force) for name, value, axis in rows if value > 0.0}


def _press_axes(drive: RigDrive, moves: SmallMoves, watch: Watch, results: Mapping[str, AxisChecks]) -> None:
    outcome = drive.drive(GuidedMotion(moves.press, watch, lambda: moves.walk.modes))
    done = {move.index: move for move in moves.pressed}
    for index, force in moves.forces.items():
        name, move = moves.rig.names[index], done.get(index)
        finding = "the small force was not tried, because an earlier trial has failed"
        if move is not None:
            finding = f"the small force was stopped: {outcome.reason}" if outcome.reason else ""
            finding = finding or _wrong(moves.rig, move, force)
        results[name].force_loop = WRONG if finding else VERIFIED
        if finding:
            results[name].findings.append(f"axes.{name}: the check of its force loop has failed: {finding}")


def _wrong(rig: checks.RigKnowledge, move: checks.AxisMove, force: float) -> str:
    if move.ended == checks.AGAINST:
        return (
            "the force opposes its command. The sign of force_command (in the rig file or in the controller) or "
            "the sign of the loop is wrong"
        )
    if move.ended:
        how = (
            "a force has changed by more than small_move.force"
            if move.ended == checks.FORCE
            else "an axis has moved too far"
        )
        return (
            f"the small force was aborted, because {how}. The scale of force_command is wrong, or another "
            "specimen is in the rig"
        )
    (least, least_force), i, rests = rig.least(move.stands[0]), move.index, move.stands
    changed = float(rests[2].force[i] - rests[1].force[i])
    if abs(changed - force) > SAME_FORCE * force + least_force[i]:
        return (
            f"the force has changed by {changed:.4g} N while its command changed by {force:.4g} N. The "
            "scales of force_command and of the load cell differ, or the loop does not reach its command"
        )
    for since, event in ((0, "taken over"), (3, "given back")):
        bump = float(rests[since + 1].displacement[i] - rests[since].displacement[i])
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
    problems = Problems()
    for (name, axis), scatter in zip(scenario.axes.items(), offsets.displacement_scatter.tolist(), strict=True):
        rig = axis.rig_axis
        if rig is None or rig.small_move is None:
            problems.append(
                f"axes.{name}: {checks.section_of(rig, 'small_move')} is missing. Displacement (m), velocity "
                "(m/s) and force (N) are required as bounds of the small move that checks signs and scales"
            )
            continue
        if by_controller(axis) and rig.small_move.press is None:
            problems.append(
                f"axes.{name}: {checks.section_of(rig, 'small_move')} must state press, the small force (N) that "
                "checks the force loop of the controller"
            )
        needed = checks.LOUDEST * scatter / STAGES[0]
        if rig.small_move.displacement < needed:
            problems.append(
                f"axes.{rig.name}.small_move.displacement of the rig file = {rig.small_move.displacement:g} m: "
                f"must be >= {needed:.3g} m, so that the move exceeds the scatter of the displacement "
                f"({scatter:.3g} m rms)"
            )
        if rig.characterised is not None and rig.characterised.simulated and not drive.port.simulated:
            problems.append(
                f"axes.{rig.name}.characterised of the rig file: the values were measured on a simulator, but "
                "this rig is real. Characterise the rig itself, or omit the section"
            )
    problems.refuse()
    knowledge = checks.RigKnowledge(scenario, offsets, drive.port.auxiliary_names)
    moves = SmallMoves(scenario, knowledge)
    watch = Following(scenario, offsets, {}).slow
    outcome = drive.drive(GuidedMotion(moves.run, watch))
    results = checks.judge(knowledge, moves.first, moves.done, outcome.reason)
    compare(scenario, knowledge, moves.done, results)
    if moves.forces and not any(row.findings for row in results.values()):
        _press_axes(drive, moves, watch, results)
    return results
