# SPDX-License-Identifier: Apache-2.0
"""Guarded small moves of the axes in turn, and their findings on signs, scales, sensors and cables.

An axis moves out in three stages, rests after each stage, and returns. The first stage shows whether the correct
axis moves, and in which direction. The signs are correct if the displacement follows the command, and the force
increases with the displacement. Wrong signs of both displacement and command cancel, but the force reveals them.

The scenario's specimen models make the same moves and give the expected stiffness, because the effective stiffness
of a rate-dependent specimen differs from its stiffness parameter. The ratio of measured to expected stiffness
reveals a wrong scale.

If the controller closes the force loop of an axis, a small force is applied afterwards. This force verifies
the sign and scale of commands in N, and that changes of control mode are bumpless.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement
from rths_nodes.core.simulators import Rig
from rths_nodes.laboratory.calibration import CERTAINTY, VERIFYING, Expected, RigAxis
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.procedure_record import NOT_VERIFIED, TO_SIGN, VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.clearance import AT_REST, CHANNELS, Offsets
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.motions import GENTLE, Guard, GuidedMotion, QuasiStatic, Stand, Steps, Watch

AGAINST, AWAY, SWAPPED, DEAD, FORCE = "against", "away", "swapped", "dead", "force"
"""Reasons for an early end of a move. ``AGAINST``: the displacement opposes the command. ``AWAY``: the
displacement far exceeds the command. ``SWAPPED``: another axis moves. ``DEAD``: the displacement does not respond.
``FORCE``: a force has changed by more than the rig file allows."""

LOUDEST = 8.0
"""Largest deviation of a sample, as a multiple of the scatter, that is attributed to noise."""
SEEN = 6.0
"""Smallest significant change of a mean, in standard deviations of the change."""
LEAST_WAY, LEAST_FORCE = 0.02, 1e-5
"""Smallest significant changes of displacement (``LEAST_WAY``, relative to the travel) and of force
(``LEAST_FORCE``, relative to the load cell's range)."""

STAGES = (0.25, 0.5, 1.0)
"""Positions of the rests, as fractions of the travel."""
CAUTION = 0.1
"""Largest accepted displacement error in motion, as a fraction of the travel."""
OTHER = 0.3
"""Largest accepted motion of another axis, as a fraction of the travel. It is not zero, because actuators on one
specimen are coupled."""
SAME_FORCE = 0.03
"""Largest accepted relative difference between measured and commanded force."""
FORCE_CAUTION = 0.2
"""Largest accepted force in the wrong direction, relative to the small force, and largest accepted excess travel,
relative to the small move."""

LEAST, MOST = 0.67, 1.5
"""Bounds of the ratio of measured to expected stiffness. A ratio outside these bounds requires a signature."""
SURE = 0.2
"""Largest relative uncertainty of a measured stiffness that is compared with the expected stiffness."""
SCENARIO, DECLARED = "the scenario's", "experimental_stiffness of the integrator"


def check_axes(drive: RigDrive, scenario: Scenario, offsets: Offsets) -> dict[str, AxisChecks]:
    """Move each axis out and back by its small move, and return the results by axis.

    Raises ConfigError before any motion if the rig file does not bound the move, or if the move is too small
    compared with the scatter of the ``offsets``.
    """
    problems = Problems()
    for (name, axis), scatter in zip(scenario.axes.items(), offsets.displacement_scatter.tolist(), strict=True):
        rig = axis.rig_axis
        if rig is None or rig.small_move is None:
            problems.append(
                f"axes.{name}: {section_of(rig, 'small_move')} is missing. Displacement (m), velocity "
                "(m/s) and force (N) are required as bounds of the small move that checks signs and scales"
            )
            continue
        if by_controller(axis) and rig.small_move.press is None:
            problems.append(
                f"axes.{name}: {section_of(rig, 'small_move')} must declare press, the small force (N) that "
                "checks the force loop of the controller"
            )
        needed = LOUDEST * scatter / STAGES[0]
        if rig.small_move.displacement < needed:
            problems.append(
                f"axes.{rig.name}.small_move.displacement of the rig file = {rig.small_move.displacement:g} m: "
                f"must be >= {needed:.3g} m, so that the move exceeds the scatter of the displacement "
                f"({scatter:.3g} m rms)"
            )
        if rig.characterised is not None and rig.characterised.simulated and not drive.port.simulated:
            problems.append(
                f"axes.{rig.name}.characterised of the rig file: the values were measured on a simulator, but "
                "this rig is real. Characterise the real rig, or delete the section"
            )
    problems.refuse()
    knowledge = RigKnowledge(scenario, offsets, drive.port.auxiliary_names)
    moves = SmallMoves(scenario, knowledge)
    watch = Following(scenario, offsets, {}).slow
    outcome = drive.drive(GuidedMotion(moves.run, watch))
    results = judge(knowledge, moves.first, moves.done, outcome.reason)
    compare(scenario, knowledge, moves.done, results)
    if moves.forces and not any(row.findings for row in results.values()):
        _press_axes(drive, moves, watch, results)
    return results


def section_of(rig: RigAxis | None, section: str) -> str:
    return f"axes.{rig.name}.{section} of the rig file" if rig else "a rig file (--rig)"


@dataclass
class AxisMove:
    """Move of the axis at ``index`` in ``direction`` (1 or -1), with its rests. The first rest precedes the move.

    ``out`` and ``back`` are the forces ``(n_axes,)`` N in each sample of the outward and the return motion.
    ``ended`` is the reason for an early end, or an empty string.
    """

    index: int
    direction: float
    stands: list[Stand] = field(default_factory=list)
    after: Stand | None = None
    ended: str = ""
    out: list[Array] = field(default_factory=list)
    back: list[Array] = field(default_factory=list)
    last: Measurement | None = None
    """Last Measurement of the outward motion, or the Measurement at which this motion ended early."""
    returning: list[tuple[Array, Measurement]] = field(default_factory=list)
    """Command ``(n_axes,)`` m and Measurement in each sample of the return motion and of the rest after it."""

    @property
    def late(self) -> float:
        """Lag in the return motion, samples: area between command and displacement, divided by the travel."""
        i, end, after = self.index, self.stands[-1], self.after
        assert after is not None
        start = np.array([end.command[i], end.displacement[i]])
        travel = np.array([after.command[i], after.displacement[i]]) - start
        if not travel.all() or not self.returning:
            return 0.0
        rows = [(sent[i], measured.displacement[i]) for sent, measured in self.returning]
        command, displacement = ((np.array(rows) - start) / travel).T
        return float(np.sum(command - displacement))

    @property
    def complete(self) -> bool:
        return not self.ended and self.after is not None

    def change(self, quantity: str, since: int = 0) -> Array:
        """Return the change of ``quantity`` ``(n,)`` along ``direction`` since the rest with index ``since``."""
        last, first = (getattr(self.stands[rest], quantity) for rest in (-1, since))
        return np.asarray(self.direction * (last - first))

    @property
    def under_way(self) -> float:
        """Rate-dependent part of the moved axis's force during the move, N."""
        out, back = (float(np.mean(forces, axis=0)[self.index]) for forces in (self.out, self.back))
        return self.direction * 0.5 * (out - back)


class RigKnowledge:
    """Data for the small moves: travel (m), velocity (m/s), permitted force change (N) and force range (N).

    Arrays are ``(n_axes,)``. ``channels`` are the names of the auxiliary channels.
    """

    def __init__(self, scenario: Scenario, offsets: Offsets, channels: Sequence[str]) -> None:
        axes = [axis.rig_axis for axis in scenario.axes.values() if axis.rig_axis is not None]
        moves = [axis.small_move for axis in axes if axis.small_move is not None]
        assert len(moves) == len(scenario.axes)
        self.names, self.axes = tuple(scenario.axes), axes
        self.offsets, self.dt = offsets, scenario.dt
        bounds = np.array([(move.displacement, move.velocity, move.force) for move in moves])
        self.way, self.velocity, self.force_bound = bounds.T
        self.force_range = np.array([axis.force.range_si for axis in axes])
        self.steps = tuple(np.array([(axis.displacement.step_si, axis.force.step_si) for axis in axes]).T)
        """Resolution of displacement and force, m and N."""
        self.levels = [axis.limits.levels for axis in scenario.axes.values()]
        self.channels = [name.partition(" [")[0] for name in channels]

    def second(self, index: int, quantity: str) -> int | None:
        """Return the index of the auxiliary channel with an axis's redundant sensor of ``quantity``, or None."""
        levels = self.levels[index]
        level = None if levels is None else getattr(levels, f"{quantity}_disagreement")
        channel = f"second_{quantity}_{self.names[index]}" if level is None else level.channel
        return self.channels.index(channel) if channel in self.channels else None

    def least(self, stand: Stand) -> tuple[Array, Array]:
        """Return the smallest significant changes of displacement (m) and force (N), ``(n_axes,)``."""
        of_mean = SEEN * math.sqrt(2.0 / stand.samples)
        return (
            np.maximum(of_mean * stand.displacement_scatter + self.steps[0], LEAST_WAY * self.way),
            np.maximum(of_mean * stand.force_scatter + self.steps[1], LEAST_FORCE * self.force_range),
        )


class SmallMoves:
    """Generates the small moves of all axes of ``scenario``, and then small forces on force-controlled axes.

    ``first`` is the rest before the moves. ``done`` contains the moves, and ``pressed`` the small forces. A small
    force has five rests: in displacement control, in force control, under the force, after its removal, and again
    in displacement control.
    """

    def __init__(self, scenario: Scenario, rig: RigKnowledge) -> None:
        self.rig, self._limits = rig, list(scenario.limits.values())
        small = [axis.rig_axis and axis.rig_axis.small_move for axis in scenario.axes.values()]
        by_force = [by_controller(axis) for axis in scenario.axes.values()]
        self.forces = {i: move.press for i, move in enumerate(small) if move and move.press and by_force[i]}
        """Small forces (N) by index of the axis, if the controller closes its force loop."""
        self.walk = QuasiStatic(scenario, np.zeros(len(small)), (rig.way, rig.force_range))
        self.first: Stand | None = None
        self.done: list[AxisMove] = []
        self.pressed: list[AxisMove] = []

    def run(self, command: Array) -> Steps[None]:
        self.walk.command = command
        self.first = yield from self.walk.stand()
        furthest = np.maximum(self.first.displacement, command)
        for index, limits in enumerate(self._limits):
            beyond = furthest[index] + (1.0 + CAUTION) * self.rig.way[index] > limits.stroke
            move = AxisMove(index, -1.0 if beyond else 1.0)
            self.done.append(move)
            yield from self._move(move)
            if move.ended in (SWAPPED, FORCE, AWAY):  # it is uncertain which axis moves
                return

    def _rest(self, move: AxisMove) -> Steps[None]:
        move.stands.append((yield from self.walk.stand()))

    def _move(self, move: AxisMove) -> Steps[None]:
        walk, rig, start = self.walk, self.rig, self.walk.command
        yield from self._rest(move)
        guard = self._guard(move, start)
        for share in STAGES:
            goal = start.copy()
            goal[move.index] += share * move.direction * rig.way[move.index]
            move.ended = yield from walk.ramp(goal, rig.velocity, guard)
            if move.ended in ("", AGAINST):  # the force at rest is more conclusive
                yield from self._rest(move)
            move.ended = move.ended or early(rig, move, share)
            if move.ended:
                break
        yield from walk.ramp(start, rig.velocity)
        move.back = [measured.force for _, measured in walk.trace]
        move.after = yield from walk.stand()
        move.returning = walk.trace[1:]

    def _guard(self, move: AxisMove, start: Array) -> Guard:
        rig, before, i = self.rig, move.stands[0], move.index
        caution = np.maximum(CAUTION * rig.way[i], LOUDEST * before.displacement_scatter)
        other = np.maximum(OTHER * rig.way[i], caution)

        def guard(measured: Measurement) -> str:
            moved = measured.displacement - before.displacement
            moved_axis = move.direction * float(moved[i])
            gone = abs(float(self.walk.command[i] - start[i]))
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

    def press(self, command: Array) -> Steps[None]:
        self.walk.command = command
        for index, force in self.forces.items():
            move = AxisMove(index, 1.0)
            self.pressed.append(move)
            yield from self._press(move, force)
            if move.ended:
                return

    def _press(self, move: AxisMove, force: float) -> Steps[None]:
        walk, rig, i, held = self.walk, self.rig, move.index, self.walk.command
        yield from self._rest(move)
        before = move.stands[0]
        noise = rig.least(before)[1][i] + FORCE_CAUTION * force

        def guard(measured: Measurement) -> str:
            changes = measured.force - before.force
            if (np.abs(changes) > rig.force_bound).any():
                return FORCE
            if changes[i] < -noise:
                return AGAINST
            moved = np.abs(measured.displacement - before.displacement)
            return AWAY if (moved > (1.0 + FORCE_CAUTION) * rig.way).any() else ""

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


def early(rig: RigKnowledge, move: AxisMove, share: float) -> str:
    """Return the reason to end a move after its rest at ``share`` of the travel, or an empty string."""
    i, way, (least, _) = move.index, share * rig.way[move.index], rig.least(move.stands[0])
    moved = move.stands[-1].displacement - move.stands[0].displacement
    moved_axis = move.direction * float(moved[i])
    other_axes = np.abs(np.delete(moved, i))
    other = np.delete(np.maximum(least, 0.5 * way), i)
    if (other_axes > other).any() and other_axes.max() > 2.0 * abs(moved_axis):
        return SWAPPED
    if moved_axis < -least[i]:
        return AGAINST
    # in the first stage, lost motion may prevent any displacement
    return DEAD if share > STAGES[0] and moved_axis < least[i] else ""


FROM = 2
"""Index of the rest from which changes are measured, at half of the travel."""
ALIKE = 0.03
"""Largest accepted relative difference between two redundant sensors."""


def stiffnesses(moves: Sequence[AxisMove]) -> dict[int, dict[int, float]]:
    """Return the tangent stiffness matrix (N/m) of axes with complete moves; empty if it cannot be computed.

    The outer key is the index of the axis whose force changes, the inner key the index of the axis that moves.
    """
    complete = [move for move in moves if move.complete]
    places = [move.index for move in complete]
    if not places:
        return {}
    displacement = np.array([move.change("displacement", FROM)[places] for move in complete]).T
    force = np.array([move.change("force", FROM)[places] for move in complete]).T
    try:
        matrix = force @ np.linalg.inv(displacement)
    except np.linalg.LinAlgError:
        return {}
    return {index: dict(zip(places, row, strict=True)) for index, row in zip(places, matrix.tolist(), strict=True)}


def uncertainty(rig: RigKnowledge, move: AxisMove) -> float:
    i, end, square = move.index, move.stands[-1], 0.0
    for quantity, steps in zip(CHANNELS, rig.steps, strict=True):
        change, step = abs(float(move.change(quantity, FROM)[i])), float(steps[i])
        scatter = float(getattr(end, f"{quantity}_scatter")[i])
        if change == 0.0:
            return math.inf
        error = CERTAINTY * math.sqrt(2.0 / end.samples) * scatter
        if error == 0.0 or scatter < step / 3.0:  # with more scatter, the mean resolves fractions of a step
            error += 0.5 * step
        square += (error / change) ** 2
    return math.sqrt(square)


UNSEEN = "The sign of the displacement or of the command is wrong, either in the rig file or in the controller"
SAME_WAY = (
    "The force correctly increases with the command, so check the sign of displacement (or the signs of both "
    "command and force)"
)
OTHER_WAY = (
    "The force also changes in the wrong direction, so check the sign of command (or the signs of both sensors)"
)
FOLLOWS = 0.3
"""Smallest ratio of displacement to command for an axis that follows, without lost motion."""
CLOSELY = 0.1
"""Largest relative difference between displacement and command without a remark."""


def judge(
    rig: RigKnowledge, first: Stand | None, moves: Sequence[AxisMove], stopped: str
) -> dict[str, AxisChecks]:
    """Return the results of the ``moves`` by axis. ``first`` is the rest before the moves.

    ``stopped`` is the reason why the moves were stopped, or an empty string.
    """
    checks = {name: AxisChecks() for name in rig.names}
    if first is not None:
        _at_rest(rig, first, checks)
    rows = stiffnesses(moves)
    for move in moves:
        if not (move.ended or move.complete):  # the move was stopped, perhaps before its first rest
            continue
        axis = _AxisJudge(rig, move, checks[rig.names[move.index]])
        if move.ended:
            axis.ended(checks)
        else:
            axis.followed()
            if not axis.checks.findings:
                row = rows.get(move.index, {})
                axis.scales(row.get(move.index) if axis.seen_at_rest else None)
                axis.checks.beside = {rig.names[i]: value for i, value in row.items() if i != move.index}
    moved = [move.index for move in moves]
    for index, name in enumerate(rig.names):
        if stopped and (not moved or index == moved[-1]):
            checks[name].findings.append(f"axes.{name}: the small move was stopped: {stopped}")
        elif index not in moved:
            last = rig.names[moved[-1]] if moved else name
            checks[name].findings.append(
                f"axes.{name}: the axis was not moved, because the small move ended at axes.{last}"
            )
    return checks


def _at_rest(rig: RigKnowledge, first: Stand, checks: dict[str, AxisChecks]) -> None:
    for name, remark in rig.offsets.forces_at_rest(dict(zip(rig.names, rig.axes, strict=True))).items():
        checks[name].remarks.append(remark)
    changes, noise = first.force - rig.offsets.force, SEEN * first.force_scatter / np.sqrt(first.samples)
    for name, change, bound in zip(rig.names, changes.tolist(), AT_REST * rig.force_range + noise, strict=True):
        if abs(change) > bound:
            checks[name].findings.append(
                f"axes.{name}: the force has changed by {change:.4g} N since the offsets were taken, although "
                "nothing has moved. Take the offsets again, because the load cell drifts or the specimen is not "
                "at rest"
            )


class _AxisJudge:
    def __init__(self, rig: RigKnowledge, move: AxisMove, checks: AxisChecks) -> None:
        self._rig, self._move, self._i, self.checks = rig, move, move.index, checks
        self._name, self._expected = rig.names[move.index], rig.axes[move.index].expected
        self._least, self._least_force = (float(least[move.index]) for least in rig.least(move.stands[0]))

    def _find(self, text: str) -> None:
        self.checks.findings.append(f"axes.{self._name}: {text}")

    def _remark(self, text: str) -> None:
        self.checks.remarks.append(f"axes.{self._name}: {text}")

    @property
    def seen_at_rest(self) -> bool:
        return abs(float(self._move.change("force")[self._i])) > self._least_force

    def ended(self, checks: dict[str, AxisChecks]) -> None:
        rig, move, i, first = self._rig, self._move, self._i, self._move.stands[0]
        rested = len(move.stands) > 1 and move.ended in (AGAINST, DEAD, SWAPPED)
        end = move.stands[-1] if rested or move.last is None else move.last
        moved = move.direction * (end.displacement - first.displacement)
        force = move.direction * (end.force - first.force)
        gone = _mm(abs(float(end.command[i] - first.command[i])))
        noise = 0.0 if rested else SEEN * float(first.force_scatter[i])
        seen = abs(float(force[i])) > self._least_force + noise
        if move.ended == AGAINST:
            self.checks.displacement_sign = WRONG
            which = UNSEEN if not seen else SAME_WAY if force[i] > 0.0 else OTHER_WAY
            self._find(
                f"the displacement has the wrong sign: it changes by {_mm(moved[i])} while the command changes by "
                f"{gone}. {which}"
            )
        elif move.ended == AWAY:
            self.checks.displacement_scale = WRONG
            self._find(
                f"the axis moves by {_mm(moved[i])} while its command changes by {gone}. The scale of the "
                "displacement or of the command is wrong, or the controller is unstable"
            )
        elif move.ended == FORCE:
            changes = np.abs(force)
            other = int(np.argmax(changes / rig.force_bound))
            self._find(
                f"the small move was aborted after {gone}, because the force of axes.{rig.names[other]} has "
                f"changed by {changes[other]:.4g} N but may change by {rig.force_bound[other]:.4g} N at most "
                "(small_move.force). The scale of the command or of the force is wrong, an obstacle is in the "
                "way, or the specimen is stiffer than expected"
            )
        elif move.ended == SWAPPED:
            other = _largest_beside(moved, i)
            this, that = f"axes.{self._name}", f"axes.{rig.names[other]}"
            finding = (
                f"{this} and {that} are swapped: when the command of {this} changes by {gone}, {that} moves by "
                f"{_mm(moved[other])} and {this} moves by {_mm(moved[i])}. The cables of the commands or of the "
                "sensors are swapped, or the axes have a different order in the rig file"
            )
            for index in (i, other):
                checks[rig.names[index]].findings.append(finding)
        elif seen:
            self._find(
                f"the displacement sensor does not respond while the command changes by {gone} and the force "
                f"changes by {force[i]:.4g} N"
            )
        else:
            still = "" if first.displacement_scatter[i] else ", and the displacement signal has no noise"
            self._find(
                f"neither the displacement nor the force changes while the command changes by {gone}{still}. The "
                "displacement sensor is dead, the actuator does not follow (no pressure, wrong mode), or the lost "
                "motion is larger than this change"
            )

    def followed(self) -> None:
        move, i, first, after, checks = self._move, self._i, self._move.stands[0], self._move.after, self.checks
        assert after is not None
        moved, half = (float(move.change("displacement", since)[i]) for since in (0, FROM))
        gone, late = (float(move.change("command", since)[i]) for since in (0, FROM))
        left, seconds = float(after.displacement[i] - first.displacement[i]), len(move.out) * self._rig.dt
        ratio = half / late
        checks.static_error, checks.static_error_force = abs(gone - moved), abs(float(move.change("force")[i]))
        checks.late = max(0.0, move.late) * self._rig.dt
        checks.lost_motion = max(abs(left), ratio * gone - moved)
        checks.damping = max(0.0, move.under_way) * seconds / abs(gone) if gone and seconds else None
        if ratio < FOLLOWS:
            self._find(
                f"the axis moves by only {ratio:.0%} of its command. The axis has lost motion, its control loop "
                "is too weak, or the scale of the displacement or of the command is wrong"
            )
            return
        checks.displacement_sign = VERIFIED
        if abs(ratio - 1.0) > CLOSELY:
            self._remark(
                f"the axis moves by {ratio:.0%} of its command. The control loop has a static error, or the scale "
                "of the displacement or of the command is wrong"
            )
        if not all(stand.resting for stand in (*move.stands, after)):
            self._remark("the axis did not come to rest, because a sensor drifts or the specimen relaxes")
        self._force_sign(moved)
        if abs(left) > self._least:
            self._remark(
                f"the axis has returned to {_mm(left * move.direction)} from its start, because it has lost motion"
            )

    def _force_sign(self, moved: float) -> None:
        move, first = self._move, self._move.stands[0]
        force = float(move.change("force")[self._i])
        change = f"{force:.4g} N"
        if not self.seen_at_rest:  # a dashpot has no force at rest
            force = move.under_way
            change = f"{force:.4g} N in motion"
            samples = max(1, min(len(move.out), len(move.back)))
            noise = SEEN * float(first.force_scatter[self._i]) / np.sqrt(samples)
            if abs(force) <= noise + LEAST_FORCE * self._rig.force_range[self._i]:
                self._no_force(moved)
                return
            self._remark("the force exists only in motion, so no stiffness was measured")
        self.checks.force_sign = WRONG if force < 0.0 else VERIFIED
        if force < 0.0:
            self._find(
                f"the force has the wrong sign: it changes by {change} while the displacement changes by "
                f"{_mm(moved)}, so the specimen would push in the direction of motion. Check the sign of force "
                "(or the signs of both command and displacement)"
            )

    def _no_force(self, moved: float) -> None:
        rig, forces = self._rig, np.abs(self._move.change("force"))
        other = _largest_beside(forces, self._i)
        expected = f" (expected change: {self._expected.stiffness * moved:.4g} N)" if self._expected else ""
        cause = (
            f"{expected}. The load cell is dead, no specimen is mounted, or the specimen is too soft for this move"
        )
        if other != self._i and forces[other] > rig.least(self._move.stands[0])[1][other]:
            name, change = rig.names[other], forces[other]
            cause = f", but the force of axes.{name} changed by {change:.4g} N. Check the load-cell cables"
        self._find(
            f"the load cell does not respond: the force changed by less than {self._least_force:.3g} N while the "
            f"axis moved by {_mm(moved)}{cause}"
        )

    def _unverified(self) -> list[str]:
        return [quantity for quantity in CHANNELS if getattr(self.checks, f"{quantity}_scale") == NOT_VERIFIED]

    def scales(self, stiffness: float | None) -> None:
        checks, expected = self.checks, self._expected
        for quantity in CHANNELS:
            if (channel := self._rig.second(self._i, quantity)) is not None:
                setattr(checks, f"{quantity}_scale", self._by_second_sensor(quantity, channel))
        checks.stiffness = stiffness
        if expected is not None:
            checks.expected = expected.stiffness
            if (known_to := expected.known_to) is not None:
                checks.low = (1.0 - known_to) * expected.stiffness
                checks.high = (1.0 + known_to) * expected.stiffness
                if stiffness is not None:
                    self._by_stiffness(stiffness, expected, known_to)
        for quantity in self._unverified():
            self._remark(
                f"scale of the {quantity} not verified by a second sensor or by a stiffness known to "
                f"{VERIFYING:.0%}: {TO_SIGN}"
            )

    def _by_second_sensor(self, quantity: str, channel: int) -> str:
        move, i, end = self._move, self._i, self._move.stands[-1]
        change, other = float(move.change(quantity, FROM)[i]), float(move.change("auxiliary", FROM)[channel])
        scatter = math.hypot(getattr(end, f"{quantity}_scatter")[i], end.auxiliary_scatter[channel])
        noise = CERTAINTY * math.sqrt(2.0 / end.samples) * scatter
        if not abs(change) > noise:  # also if a value is NaN
            return NOT_VERIFIED
        noun, unit = ("displacement sensor", "m") if quantity == "displacement" else ("load cell", "N")
        text = (
            f"the second {noun} changes by {other:.4g} {unit}, and the first {noun} changes by {change:.4g} {unit}"
        )
        verdict = NOT_VERIFIED
        if not abs(other) > noise:
            cause = "The second sensor is dead, or it measures something else"
        elif change * other < 0.0:
            cause = "One of these two sensors has the wrong sign"
        elif abs(change / other - 1.0) > ALIKE + noise / min(abs(change), abs(other)):
            verdict = WRONG
            cause = (
                "One of these two sensors has the wrong scale, because the changes differ by "
                f"{change / other - 1.0:+.1%} and may differ by {ALIKE:.0%} at most"
            )
        else:
            return VERIFIED
        self._find(f"{text}. {cause}")
        return verdict

    def _by_stiffness(self, stiffness: float, expected: Expected, known_to: float) -> None:
        checks = self.checks
        off, unsure = stiffness / expected.stiffness - 1.0, uncertainty(self._rig, self._move)
        if abs(off) > known_to + unsure:
            cause = "The scale of the force or of the displacement is wrong, or another specimen is in the rig"
            if checks.displacement_scale == VERIFIED:
                checks.force_scale = WRONG
                cause = "The scale of the force is wrong, or another specimen is in the rig"
            elif checks.displacement_scale == WRONG:
                cause = "The scale of the displacement is wrong, not the scale of the second displacement sensor"
            else:
                checks.displacement_scale = checks.force_scale = WRONG
            self._find(
                f"the stiffness is {stiffness:.4g} N/m and differs by {off:+.1%} from the "
                f"{expected.stiffness:.4g} N/m {expected.basis}. {cause}"
            )
        elif not expected.independent:
            self._remark(
                "the stiffness agrees with cyclic tests that used the same sensors. The scales of these sensors "
                "have not changed since then, but the agreement verifies no scale"
            )
        elif known_to > VERIFYING or unsure > VERIFYING:
            why = f"was measured only to {unsure:.1%}"
            if known_to > VERIFYING:
                why = f"is known only to {known_to:.0%}"
            self._remark(f"the stiffness {why}, which is not accurate enough to verify a scale")
        else:
            for quantity in self._unverified():
                setattr(checks, f"{quantity}_scale", VERIFIED)


def _largest_beside(values: Array, index: int) -> int:
    beside = np.abs(values)
    beside[index] = 0.0
    return int(np.argmax(beside))


def _mm(metres: float) -> str:
    return f"{1e3 * float(metres):.4g} mm"


def compare(
    scenario: Scenario,
    rig: RigKnowledge,
    moves: Sequence[AxisMove],
    results: Mapping[str, AxisChecks],
) -> None:
    """Add the ratios of measured to expected stiffness, and remarks on them, to the ``results`` of the axes."""
    expected = {SCENARIO: _of_scenario(scenario, rig), DECLARED: _declared(scenario)}
    for move in moves:
        name, axis = rig.names[move.index], results[rig.names[move.index]]
        if axis.stiffness is None:
            continue
        values = {who: by_axis[name] for who, by_axis in expected.items() if name in by_axis}
        unverified = NOT_VERIFIED in (axis.force_scale, axis.displacement_scale)
        if not values and unverified:
            axis.remarks.append(
                f"axes.{name}: neither the scenario nor the rig file describes the specimen, so the measured "
                "stiffness cannot be compared with an expected stiffness"
            )
        if values and uncertainty(rig, move) > SURE:
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


def _of_scenario(scenario: Scenario, rig: RigKnowledge) -> dict[str, float]:
    """Return the stiffness (N/m) of each axis, computed from small moves of the scenario's models."""
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
    # a force below the rig's resolution at rest is due to motion only and gives no stiffness
    least = 10.0 * np.maximum(rig.steps[1], 1e-5 * rig.force_range)
    rows = stiffnesses(moves.done)
    return {rig.names[i]: row[i] for i, row in rows.items() if row[i] * rig.way[i] > least[i]}


def _model(scenario: Scenario) -> Rig | None:
    """Return the scenario's rig model, or its specimens with ideal actuators. None if a model cannot be used."""
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
    """Return the stiffness (N/m) by axis that the integrator assumes; empty if axes are not degrees of freedom."""
    matrix = scenario.integrator.experimental_stiffness
    if matrix is None or type(scenario.setup).type_name != "identity":
        return {}
    rows = zip(scenario.axes, np.diagonal(np.asarray(matrix, float)).tolist(), scenario.similitude, strict=False)
    # the matrix is at the scale of the structure, the results at the scale of the specimen
    return {name: value * (axis.length / axis.force) for name, value, axis in rows if value > 0.0}


def _press_axes(drive: RigDrive, moves: SmallMoves, watch: Watch, results: Mapping[str, AxisChecks]) -> None:
    outcome = drive.drive(GuidedMotion(moves.press, watch, lambda: moves.walk.modes))
    done = {move.index: move for move in moves.pressed}
    for index, force in moves.forces.items():
        name, move = moves.rig.names[index], done.get(index)
        finding = "the small force was not tried, because an earlier trial failed"
        if move is not None:
            finding = f"the trial of the small force was stopped: {outcome.reason}" if outcome.reason else ""
            finding = finding or _wrong(moves.rig, move, force)
        results[name].force_loop = WRONG if finding else VERIFIED
        if finding:
            results[name].findings.append(f"axes.{name}: the check of its force loop has failed: {finding}")


def _wrong(rig: RigKnowledge, move: AxisMove, force: float) -> str:
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
    (least, least_force), i, rests = rig.least(move.stands[0]), move.index, move.stands
    changed = float(rests[2].force[i] - rests[1].force[i])
    if abs(changed - force) > SAME_FORCE * force + least_force[i]:
        return (
            f"the force has changed by {changed:.4g} N while its command changed by {force:.4g} N. The "
            "scales of force_command and of the load cell differ, or the loop does not reach its command"
        )
    for since, event in ((0, "switched on"), (3, "switched off")):
        bump = float(rests[since + 1].displacement[i] - rests[since].displacement[i])
        if abs(bump) > least[i]:
            return (
                f"the axis moved by {1e3 * bump:.4g} mm when its force loop was {event}, so the "
                "change of mode is not bumpless"
            )
    return ""
