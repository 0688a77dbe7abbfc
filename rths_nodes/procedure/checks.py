# SPDX-License-Identifier: Apache-2.0
"""Results of the small moves of the axes, and findings on signs, sensors, cables and scales.

The signs are correct if the displacement follows the command and the force increases with the displacement. Wrong
signs of both displacement and command cancel, but the force shows them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import VERIFYING, Expected, RigAxis
from rths_nodes.loop.procedure_record import NOT_VERIFIED, TO_SIGN, VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.clearance import AT_REST, Offsets
from rths_nodes.procedure.motions import Stand

AGAINST, AWAY, SWAPPED, DEAD, FORCE = "against", "away", "swapped", "dead", "force"
"""Reasons for an early end of a move. AGAINST: the displacement opposes the command. AWAY: the displacement
exceeds the command by far. SWAPPED: another axis moves. DEAD: no sensor responds. FORCE: a force has changed by
more than the rig file allows."""

LOUDEST = 8.0
"""Largest deviation of one sample that noise explains, as a multiple of the scatter."""
SEEN = 6.0
"""Smallest significant change of a mean, in standard deviations of the change."""
BOTH = ("command", "displacement")
LEAST_WAY, LEAST_FORCE = 0.02, 1e-5
"""Smallest significant changes of displacement and force, as fractions of travel and load cell range."""


def section_of(rig: RigAxis | None, section: str) -> str:
    return f"axes.{rig.name}.{section} of the rig file" if rig else "a rig file (--rig)"


@dataclass
class AxisMove:
    """Move of the axis at ``index`` in ``direction`` (1 or -1), with its rests; the first rest precedes the move.

    ``out`` and ``back`` are the forces ``(n_axes,)`` N at each sample of outward and return motion. ``ended`` is
    the reason for an early end, or an empty string.
    """

    index: int
    direction: float
    stands: list[Stand] = field(default_factory=list)
    after: Stand | None = None
    ended: str = ""
    out: list[Array] = field(default_factory=list)
    back: list[Array] = field(default_factory=list)
    last: Measurement | None = None
    """Measurement at which the move ended early."""
    returning: list[tuple[Array, Measurement]] = field(default_factory=list)
    """Command ``(n_axes,)`` m and Measurement of each sample of the return motion and of the rest after it."""

    @property
    def late(self) -> float:
        """Lag of the displacement in the return motion, samples.

        This is the area between command and displacement, divided by the travel.
        """
        end, after = self.stands[-1], self.after
        assert after is not None
        gone, moved = (
            float(getattr(after, quantity)[self.index] - getattr(end, quantity)[self.index]) for quantity in BOTH
        )
        if not gone or not moved or not self.returning:
            return 0.0
        rows = [(sent[self.index], measured.displacement[self.index]) for sent, measured in self.returning]
        commands, places = np.array(rows).T
        share = (places - end.displacement[self.index]) / moved
        return float(np.sum((commands - end.command[self.index]) / gone - share))

    @property
    def complete(self) -> bool:
        return not self.ended and self.after is not None

    def change(self, quantity: str, since: int = 0) -> Array:
        """Return the change of ``quantity`` ``(n,)`` from the rest ``since`` to the last, along ``direction``."""
        return np.asarray(
            self.direction * (getattr(self.stands[-1], quantity) - getattr(self.stands[since], quantity))
        )


class RigKnowledge:
    """Data of the small moves: travel (m), velocity (m/s), permitted force change (N) and force range (N).

    Arrays are ``(n_axes,)``. ``channels`` are the names of the auxiliary channels.
    """

    def __init__(self, scenario: Scenario, offsets: Offsets, channels: Sequence[str]) -> None:
        axes = [axis.rig_axis for axis in scenario.axes.values() if axis.rig_axis is not None]
        moves = [axis.small_move for axis in axes if axis.small_move is not None]
        assert len(moves) == len(scenario.axes)
        self.names, self.axes = tuple(scenario.axes), axes
        self.offsets, self.dt = offsets, scenario.dt
        self.way = np.array([move.displacement for move in moves])
        self.velocity = np.array([move.velocity for move in moves])
        self.force_bound = np.array([move.force for move in moves])
        self.force_range = np.array([axis.force.range_si for axis in axes])
        self.steps = (
            np.array([axis.displacement.step_si for axis in axes]),
            np.array([axis.force.step_si for axis in axes]),
        )
        """Resolution of displacement and force, m and N."""
        channel_names = [name.partition(" [")[0] for name in channels]

        def second(quantity: str) -> list[int | None]:
            indices = []
            for name, axis in scenario.axes.items():
                levels = axis.limits.levels
                level = None if levels is None else getattr(levels, f"{quantity}_disagreement")
                channel = level.channel if level is not None else f"second_{quantity}_{name}"
                indices.append(channel_names.index(channel) if channel in channel_names else None)
            return indices

        self.second_displacement, self.second_force = second("displacement"), second("force")
        """Indices of redundant sensors among the channels, or None without such a sensor."""

    def least(self, stand: Stand) -> tuple[Array, Array]:
        """Return the smallest significant changes of displacement (m) and force (N), ``(n_axes,)``."""
        of_mean = SEEN * math.sqrt(2.0 / stand.samples)
        displacement_step, force_step = self.steps
        return (
            np.maximum(of_mean * stand.displacement_scatter + displacement_step, LEAST_WAY * self.way),
            np.maximum(of_mean * stand.force_scatter + force_step, LEAST_FORCE * self.force_range),
        )


FROM = 2
"""Index of the rest, at half of the travel, from which changes are measured."""
ALIKE = 0.03
"""Tolerated relative difference between two redundant sensors."""
CERTAINTY = 3.0
"""Uncertainty of a measured change, in standard deviations."""


def stiffnesses(rig: RigKnowledge, moves: Sequence[AxisMove]) -> dict[int, dict[int, float]]:
    """Return the tangent stiffness matrix (N/m) of axes with complete moves; empty if it cannot be computed.

    Rows are the axes whose force changes, columns the axes that move.
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
    i, stand = move.index, move.stands[-1]
    share = 0.0
    for quantity, step in zip(("displacement", "force"), rig.steps, strict=True):
        change = abs(float(move.change(quantity, FROM)[i]))
        noise = CERTAINTY * math.sqrt(2.0 / stand.samples) * float(getattr(stand, f"{quantity}_scatter")[i])
        # if the noise exceeds a third of the step, the mean has a finer resolution than the step
        coarse = (
            0.5 * float(step[i])
            if noise == 0.0 or getattr(stand, f"{quantity}_scatter")[i] < step[i] / 3.0
            else 0.0
        )
        if change == 0.0:
            return math.inf
        share += ((noise + coarse) / change) ** 2
    return math.sqrt(share)


def judge_scales(rig: RigKnowledge, move: AxisMove, stiffness: float | None, checks: AxisChecks) -> None:
    name, axis = rig.names[move.index], rig.axes[move.index]
    for quantity, seconds, noun in (
        ("displacement", rig.second_displacement, "displacement sensor"),
        ("force", rig.second_force, "load cell"),
    ):
        sample = seconds[move.index]
        if sample is not None:
            verdict = _beside(move, quantity, sample, f"axes.{name}", noun, checks)
            setattr(checks, f"{quantity}_scale", verdict)
    checks.stiffness = stiffness
    if (expected := axis.expected) is not None:
        checks.expected = expected.stiffness
        if (known_to := expected.known_to) is not None:
            checks.low, checks.high = (1.0 - known_to) * expected.stiffness, (1.0 + known_to) * expected.stiffness
            if stiffness is not None:
                _by_stiffness(rig, move, stiffness, expected, known_to, checks)
    for quantity in ("displacement", "force"):
        if getattr(checks, f"{quantity}_scale") == NOT_VERIFIED:
            checks.remarks.append(
                f"axes.{name}: scale of the {quantity} not verified by a second sensor or by a stiffness known "
                f"to {VERIFYING:.0%}: {TO_SIGN}"
            )


def _beside(move: AxisMove, quantity: str, sample: int, path: str, noun: str, checks: AxisChecks) -> str:
    change = float(move.change(quantity, FROM)[move.index])
    other = float(move.change("auxiliary", FROM)[sample])
    scatter = (
        getattr(move.stands[-1], f"{quantity}_scatter")[move.index],
        move.stands[-1].auxiliary_scatter[sample],
    )
    noise = CERTAINTY * math.sqrt(2.0 / move.stands[-1].samples) * math.hypot(*scatter)
    unit = "m" if quantity == "displacement" else "N"
    text = (
        f"{path}: the second {noun} changes by {other:.4g} {unit}, and the first {noun} changes by "
        f"{change:.4g} {unit}"
    )
    if abs(other) <= noise or abs(change) <= noise:
        if abs(change) <= noise:
            return NOT_VERIFIED
        checks.findings.append(f"{text}. The second sensor is dead, or it measures something else")
        return NOT_VERIFIED
    if change * other < 0.0:
        checks.findings.append(f"{text}. One of these two sensors has the wrong sign")
        return NOT_VERIFIED
    if abs(change / other - 1.0) > ALIKE + noise / min(abs(change), abs(other)):
        checks.findings.append(
            f"{text}. One of these two sensors has the wrong scale, because the changes differ by "
            f"{change / other - 1.0:+.1%} and may differ by {ALIKE:.0%} at most"
        )
        return WRONG
    return VERIFIED


def _by_stiffness(
    rig: RigKnowledge, move: AxisMove, stiffness: float, expected: Expected, known_to: float, checks: AxisChecks
) -> None:
    name = rig.names[move.index]
    off, unsure = stiffness / expected.stiffness - 1.0, uncertainty(rig, move)
    if abs(off) > known_to + unsure:
        text = (
            f"axes.{name}: the stiffness is {stiffness:.4g} N/m and differs by {off:+.1%} from the "
            f"{expected.stiffness:.4g} N/m {expected.basis}"
        )
        if checks.displacement_scale == VERIFIED:
            checks.force_scale = WRONG
            checks.findings.append(f"{text}. The scale of the force is wrong, or another specimen is in the rig")
        elif checks.displacement_scale == WRONG:
            checks.findings.append(
                f"{text}. The scale of the displacement is wrong, not the scale of the second displacement sensor"
            )
        else:
            checks.displacement_scale = checks.force_scale = WRONG
            checks.findings.append(
                f"{text}. The scale of the force or of the displacement is wrong, or another specimen "
                "is in the rig"
            )
    elif not expected.independent:
        checks.remarks.append(
            f"axes.{name}: the stiffness agrees with cyclic tests that used the same sensors. The scales of "
            "these sensors have not changed since then, but the agreement verifies no scale"
        )
    elif known_to > VERIFYING or unsure > VERIFYING:
        why = (
            f"the stiffness is known only to {known_to:.0%}"
            if known_to > VERIFYING
            else f"the stiffness was measured only to {unsure:.1%}"
        )
        checks.remarks.append(f"axes.{name}: {why}, which is not accurate enough to verify a scale")
    else:
        for quantity in ("displacement", "force"):
            if getattr(checks, f"{quantity}_scale") == NOT_VERIFIED:
                setattr(checks, f"{quantity}_scale", VERIFIED)


FOLLOWS = 0.3
"""Smallest ratio of displacement to command for an axis that follows; lost motion is excluded."""
CLOSELY = 0.1
"""Largest relative difference between displacement and command that causes no remark."""


def judge(
    rig: RigKnowledge, first: Stand | None, moves: Sequence[AxisMove], stopped: str
) -> dict[str, AxisChecks]:
    """Return the checks of each axis. ``first`` is the rest before the moves.

    ``stopped`` is the reason why the moves were stopped, or an empty string.
    """
    checks = {name: AxisChecks() for name in rig.names}
    if first is not None:
        _at_rest(rig, first, checks)
    rows = stiffnesses(rig, moves)
    for move in moves:
        name = rig.names[move.index]
        if move.ended:
            _ended(rig, move, checks)
        elif move.complete:
            _followed(rig, move, checks[name])
            _signs(rig, move, checks[name])
            if not checks[name].findings:
                row = rows.get(move.index, {})
                stiffness = row.get(move.index) if _seen_at_rest(rig, move) else None
                judge_scales(rig, move, stiffness, checks[name])
                checks[name].beside = {rig.names[i]: value for i, value in row.items() if i != move.index}
    _not_moved(rig, moves, stopped, checks)
    return checks


def _not_moved(rig: RigKnowledge, moves: Sequence[AxisMove], stopped: str, checks: dict[str, AxisChecks]) -> None:
    moved = [move.index for move in moves]
    for index, name in enumerate(rig.names):
        if stopped and (not moved or index == moved[-1]):
            checks[name].findings.append(f"axes.{name}: the small move was stopped: {stopped}")
        elif index not in moved:
            last = rig.names[moved[-1]] if moved else name
            checks[name].findings.append(
                f"axes.{name}: the axis was not moved, because the small move ended at axes.{last}"
            )


def _at_rest(rig: RigKnowledge, first: Stand, checks: dict[str, AxisChecks]) -> None:
    offsets = rig.offsets
    for name, finding in offsets.forces_at_rest(dict(zip(rig.names, rig.axes, strict=True))).items():
        checks[name].remarks.append(finding)
    noise = SEEN * first.force_scatter / np.sqrt(first.samples)
    for index, name in enumerate(rig.names):
        change = float(first.force[index] - offsets.force[index])
        if abs(change) > AT_REST * rig.force_range[index] + noise[index]:
            checks[name].findings.append(
                f"axes.{name}: the force has changed by {change:.4g} N since the offsets were taken, although "
                "nothing has moved. Take the offsets again, because the load cell drifts or the specimen is not "
                "at rest"
            )


def _ended(rig: RigKnowledge, move: AxisMove, checks: dict[str, AxisChecks]) -> None:
    i, name = move.index, rig.names[move.index]
    axis_checks = checks[name]
    rested = len(move.stands) > 1 and move.ended in (AGAINST, DEAD, SWAPPED)
    end = move.stands[-1] if rested or move.last is None else move.last
    moved = move.direction * (end.displacement - move.stands[0].displacement)
    force = move.direction * (end.force - move.stands[0].force)
    gone = abs(float(end.command[i] - move.stands[0].command[i]))
    noise = 0.0 if rested else SEEN * float(move.stands[0].force_scatter[i])
    seen = abs(float(force[i])) > rig.least(move.stands[0])[1][i] + noise
    if move.ended == AGAINST:
        axis_checks.displacement_sign = WRONG
        axis_checks.findings.append(
            f"axes.{name}: the displacement has the wrong sign: it changes by {_mm(moved[i])} while the command "
            f"changes by {_mm(gone)}. {_which_sign(float(force[i]), seen)}"
        )
    elif move.ended == AWAY:
        axis_checks.displacement_scale = WRONG
        axis_checks.findings.append(
            f"axes.{name}: the axis moves by {_mm(moved[i])} while its command changes by {_mm(gone)}. The scale "
            "of the displacement or of the command is wrong, or the controller is unstable"
        )
    elif move.ended == FORCE:
        changes = np.abs(end.force - move.stands[0].force)
        other = int(np.argmax(changes / rig.force_bound))
        axis_checks.findings.append(
            f"axes.{name}: the small move was aborted after {_mm(gone)}, because the force of "
            f"axes.{rig.names[other]} has changed by {changes[other]:.4g} N but may change by "
            f"{rig.force_bound[other]:.4g} N at most (small_move.force). The scale of the command or of the "
            "force is wrong, an obstacle is in the way, or the specimen is stiffer than expected"
        )
    elif move.ended == SWAPPED:
        _swapped(rig, move, moved, gone, checks)
    else:
        _dead(rig, move, force, seen, gone, axis_checks)


def _which_sign(force: float, seen: bool) -> str:
    if not seen:
        return (
            "The sign of the displacement or of the command is wrong, either in the rig file or in the controller"
        )
    if force > 0.0:
        return (
            "The force correctly increases with the command, so check the sign of displacement (or the signs of "
            "both command and force)"
        )
    return (
        "The force also changes in the wrong direction, so check the sign of command (or the signs of "
        "both sensors)"
    )


def _swapped(
    rig: RigKnowledge, move: AxisMove, moved: np.ndarray, gone: float, checks: dict[str, AxisChecks]
) -> None:
    name = rig.names[move.index]
    beside = np.abs(moved)
    beside[move.index] = 0.0
    other = rig.names[int(np.argmax(beside))]
    finding = (
        f"axes.{name} and axes.{other} are swapped: when the command of axes.{name} changes by {_mm(gone)}, "
        f"axes.{other} moves by {_mm(moved[int(np.argmax(beside))])} and axes.{name} moves by "
        f"{_mm(moved[move.index])}. The cables of the commands or of the sensors are swapped, or the axes have a "
        "different order in the rig file"
    )
    for axis_name in (name, other):
        checks[axis_name].findings.append(finding)


def _dead(
    rig: RigKnowledge, move: AxisMove, force: np.ndarray, seen: bool, gone: float, checks: AxisChecks
) -> None:
    i, name = move.index, rig.names[move.index]
    if seen:
        checks.findings.append(
            f"axes.{name}: the displacement sensor does not respond while the command changes by {_mm(gone)} and "
            f"the force changes by {force[i]:.4g} N"
        )
        return
    still = ", and the displacement signal has no noise" if not move.stands[0].displacement_scatter[i] else ""
    checks.findings.append(
        f"axes.{name}: neither the displacement nor the force changes while the command changes by "
        f"{_mm(gone)}{still}. The displacement sensor is dead, the actuator does not follow (no pressure, wrong "
        "mode), or the lost motion is larger than this change"
    )


def _followed(rig: RigKnowledge, move: AxisMove, checks: AxisChecks) -> None:
    i, first, after = move.index, move.stands[0], move.after
    assert after is not None
    moved, half = (float(move.change("displacement", since)[i]) for since in (0, FROM))
    gone, late = (float(move.change("command", since)[i]) for since in (0, FROM))
    checks.static_error, checks.static_error_force = abs(gone - moved), abs(float(move.change("force")[i]))
    checks.late = max(0.0, move.late) * rig.dt
    left = abs(float(after.displacement[i] - first.displacement[i]))
    checks.lost_motion = max(left, half / late * gone - moved)
    seconds = len(move.out) * rig.dt
    checks.damping = max(0.0, _under_way(move)) * seconds / abs(gone) if gone and seconds else None


def _signs(rig: RigKnowledge, move: AxisMove, checks: AxisChecks) -> None:
    i, name = move.index, rig.names[move.index]
    half = float(move.stands[-1].command[i] - move.stands[FROM].command[i]) * move.direction
    ratio = float(move.change("displacement", FROM)[i]) / half
    if ratio < FOLLOWS:
        checks.findings.append(
            f"axes.{name}: the axis moves by only {ratio:.0%} of its command. The axis has lost motion, its "
            "control loop is too weak, or the scale of the displacement or of the command is wrong"
        )
        return
    checks.displacement_sign = VERIFIED
    if abs(ratio - 1.0) > CLOSELY:
        checks.remarks.append(
            f"axes.{name}: the axis moves by {ratio:.0%} of its command. The control loop has a static error, or "
            "the scale of the displacement or of the command is wrong"
        )
    for stand in (*move.stands, move.after):
        if stand is not None and not stand.resting:
            checks.remarks.append(
                f"axes.{name}: the axis did not come to rest, because a sensor drifts or the specimen relaxes"
            )
            break
    _force_sign(rig, move, checks)
    assert move.after is not None
    left = float(move.after.displacement[i] - move.stands[0].displacement[i]) * move.direction
    if abs(left) > rig.least(move.stands[0])[0][i]:
        checks.remarks.append(
            f"axes.{name}: the axis has returned to {_mm(left)} from its start, because it has lost motion"
        )


def _force_sign(rig: RigKnowledge, move: AxisMove, checks: AxisChecks) -> None:
    i, name = move.index, rig.names[move.index]
    force, moved = float(move.change("force")[i]), float(move.change("displacement")[i])
    change = f"{force:.4g} N"
    if not _seen_at_rest(rig, move):  # a dashpot has a force only in motion
        force = _under_way(move)
        change = f"{force:.4g} N in motion"
        noise = SEEN * float(move.stands[0].force_scatter[i]) / np.sqrt(max(1, min(len(move.out), len(move.back))))
        if abs(force) <= noise + LEAST_FORCE * rig.force_range[i]:
            checks.findings.append(_no_force(rig, move, moved))
            return
        checks.remarks.append(f"axes.{name}: the force exists only in motion, so no stiffness was measured")
    if force < 0.0:
        checks.force_sign = WRONG
        checks.findings.append(
            f"axes.{name}: the force has the wrong sign: it changes by {change} while the displacement changes "
            f"by {_mm(moved)}, so the specimen would push in the direction of motion. Check the sign of force "
            "(or the signs of both command and displacement)"
        )
        return
    checks.force_sign = VERIFIED


def _seen_at_rest(rig: RigKnowledge, move: AxisMove) -> bool:
    return bool(abs(move.change("force")[move.index]) > rig.least(move.stands[0])[1][move.index])


def _under_way(move: AxisMove) -> float:
    """Return half the difference between the mean forces of outward and return motion: the rate-dependent part."""
    out, back = (float(np.mean(forces, axis=0)[move.index]) for forces in (move.out, move.back))
    return move.direction * 0.5 * (out - back)


def _no_force(rig: RigKnowledge, move: AxisMove, moved: float) -> str:
    i, name, least = move.index, rig.names[move.index], rig.least(move.stands[0])[1]
    beside = np.abs(move.change("force"))
    beside[i] = 0.0
    other = int(np.argmax(beside))
    finding = (
        f"axes.{name}: the load cell does not respond: the force changed by less than {least[i]:.3g} N while the "
        f"axis moved by {_mm(moved)}"
    )
    if beside[other] > least[other]:
        return (
            f"{finding}, but the force of axes.{rig.names[other]} changed by {beside[other]:.4g} N. Are the load "
            "cells swapped?"
        )
    expected = rig.axes[i].expected
    if expected is not None:
        finding += f" (expected change: {expected.stiffness * moved:.4g} N)"
    return f"{finding}. The load cell is dead, no specimen is mounted, or the specimen is too soft for this move"


def _mm(metres: float) -> str:
    return f"{1e3 * float(metres):.4g} mm"
