# SPDX-License-Identifier: Apache-2.0
"""Findings of the small moves on signs, sensors and cables, as text; scales are in ``scales.py``.

Signs are right if the displacement follows the command and the force grows with it. Two wrong signs, of
displacement and of command, cancel; the force shows them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.procedure.axis_moves import (
    AGAINST,
    AWAY,
    DEAD,
    FORCE,
    LEAST_FORCE,
    SEEN,
    SWAPPED,
    AxisMove,
    Bands,
    RigKnowledge,
)
from rths_nodes.procedure.offsets import AT_REST
from rths_nodes.procedure.quasi_static import Stand
from rths_nodes.procedure.records import VERIFIED, WRONG, AxisChecks
from rths_nodes.procedure.scales import judge_scales, stiffnesses

FOLLOWS = 0.3
"""Share of its command that an axis must move, after its lost motion."""
CLOSELY = 0.1
"""Relative deviation of a motion from its command that needs no remark."""
BOTH_AFTER_HALF = 3
"""Rests of a move beyond its first half."""


def judge(
    rig: RigKnowledge, first: Stand | None, moves: Sequence[AxisMove], stopped: str
) -> dict[str, AxisChecks]:
    """Return the checks of each axis. ``first`` is the rest before; ``stopped`` the reason of an early end."""
    found = {name: AxisChecks() for name in rig.names}
    if first is not None:
        _at_rest(rig, first, found)
    known = stiffnesses(rig, moves)
    for move in moves:
        name = rig.names[move.index]
        if move.ended:
            _ended(rig, move, found)
        elif move.complete:
            _followed(rig, move, found[name])
            _signs(rig, move, found[name])
            if not found[name].findings:
                bands = rig.bands(move.stands[0])
                row = known.get(move.index, {})
                own = row.get(move.index) if _seen_at_rest(move, bands) else None
                judge_scales(rig, move, own, bands, found[name])
                found[name].beside = {rig.names[i]: each for i, each in row.items() if i != move.index}
    _not_moved(rig, moves, stopped, found)
    return found


def _not_moved(rig: RigKnowledge, moves: Sequence[AxisMove], stopped: str, found: dict[str, AxisChecks]) -> None:
    moved = [move.index for move in moves]
    for index, name in enumerate(rig.names):
        if stopped and (not moved or index == moved[-1]):
            found[name].findings.append(f"axes.{name}: the small move was stopped: {stopped}")
        elif index not in moved:
            last = rig.names[moved[-1]] if moved else name
            found[name].findings.append(
                f"axes.{name}: was not moved, because the small move has ended at axes.{last}"
            )


def _at_rest(rig: RigKnowledge, first: Stand, found: dict[str, AxisChecks]) -> None:
    offsets = rig.offsets
    for name, words in offsets.forces_at_rest(dict(zip(rig.names, rig.axes, strict=True))).items():
        found[name].remarks.append(words)
    noise = SEEN * first.force_scatter / np.sqrt(first.samples)
    for index, name in enumerate(rig.names):
        change = float(first.force[index] - offsets.force[index])
        if abs(change) > AT_REST * rig.force_range[index] + noise[index]:
            found[name].findings.append(
                f"axes.{name}: the force has changed by {change:.4g} N since the offsets were taken, and nothing "
                "has moved: the load cell drifts, or the specimen does not rest; take the offsets again"
            )


def _ended(rig: RigKnowledge, move: AxisMove, found: dict[str, AxisChecks]) -> None:
    """Record the meaning of an early end of a move."""
    i, name = move.index, rig.names[move.index]
    own = found[name]
    rested = len(move.stands) > 1 and move.ended in (AGAINST, DEAD, SWAPPED)
    end = move.stands[-1] if rested or move.last is None else move.last
    moved = move.direction * (end.displacement - move.stands[0].displacement)
    force = move.direction * (end.force - move.stands[0].force)
    gone = abs(float(end.command[i] - move.stands[0].command[i]))
    bands = rig.bands(move.stands[0])
    noise = 0.0 if rested else SEEN * float(move.stands[0].force_scatter[i])
    seen = abs(float(force[i])) > bands.force[i] + noise
    if move.ended == AGAINST:
        own.displacement_sign = WRONG
        own.findings.append(
            f"axes.{name}: wrong sign of displacement: it moves by {_mm(moved[i])} where its command went "
            f"{_mm(gone)} the other way. {_which_sign(float(force[i]), seen)}"
        )
    elif move.ended == AWAY:
        own.displacement_scale = WRONG
        own.findings.append(
            f"axes.{name}: it moves by {_mm(moved[i])} where its command went by {_mm(gone)}: the scale of "
            "displacement or of command is wrong, or the controller is unstable"
        )
    elif move.ended == FORCE:
        changes = np.abs(end.force - move.stands[0].force)
        other = int(np.argmax(changes / rig.force_bound))
        own.findings.append(
            f"axes.{name}: the small move was given up after {_mm(gone)}: the force of axes.{rig.names[other]} "
            f"has changed by {changes[other]:.4g} N, and may by {rig.force_bound[other]:.4g} N (small_move.force)"
            ": the scale of command or force is wrong, something is in the way, or the specimen is stiffer"
        )
    elif move.ended == SWAPPED:
        _swapped(rig, move, moved, gone, found)
    else:
        _dead(rig, move, force, seen, gone, own)


def _which_sign(force: float, seen: bool) -> str:
    """Return which sign is wrong, by the force in the direction of the command."""
    if not seen:
        return "The sign of displacement or of command is wrong, in the rig file or in the controller"
    if force > 0.0:
        return (
            "The force rises with the command, as it should: look at the sign of displacement (or at those of "
            "both command and force)"
        )
    return "The force runs the other way, too: look at the sign of command (or at those of both sensors)"


def _swapped(
    rig: RigKnowledge, move: AxisMove, moved: np.ndarray, gone: float, found: dict[str, AxisChecks]
) -> None:
    name = rig.names[move.index]
    beside = np.abs(moved)
    beside[move.index] = 0.0
    other = rig.names[int(np.argmax(beside))]
    words = (
        f"axes.{name} and axes.{other} are swapped: with the command of axes.{name} at {_mm(gone)}, the sensors "
        f"of axes.{other} show {_mm(moved[int(np.argmax(beside))])}, its own {_mm(moved[move.index])}: the "
        "cables of the commands or of the sensors are swapped, or the axes stand in another order in the rig file"
    )
    for each in (name, other):
        found[each].findings.append(words)


def _dead(rig: RigKnowledge, move: AxisMove, force: np.ndarray, seen: bool, gone: float, own: AxisChecks) -> None:
    i, name = move.index, rig.names[move.index]
    if seen:
        own.findings.append(
            f"axes.{name}: dead displacement sensor: it shows nothing where the command went by {_mm(gone)} and "
            f"the force has changed by {force[i]:.4g} N"
        )
        return
    still = " The displacement does not even scatter" if not move.stands[0].displacement_scatter[i] else ""
    own.findings.append(
        f"axes.{name}: nothing moves: neither displacement nor force has changed where the command went by "
        f"{_mm(gone)}: the displacement sensor is dead, the actuator does not follow (no pressure, wrong mode), "
        f"or lost motion is larger than that.{still}"
    )


def _followed(rig: RigKnowledge, move: AxisMove, own: AxisChecks) -> None:
    i, first, after = move.index, move.stands[0], move.after
    assert after is not None
    moved, half = (float(move.change("displacement", since)[i]) for since in (0, BOTH_AFTER_HALF - 1))
    gone, late = (float(move.change("command", since)[i]) for since in (0, BOTH_AFTER_HALF - 1))
    own.static_error, own.static_error_force = abs(gone - moved), abs(float(move.change("force")[i]))
    own.late = max(0.0, move.late) * rig.dt
    left = abs(float(after.displacement[i] - first.displacement[i]))
    own.lost_motion = max(left, half / late * gone - moved)
    seconds = len(move.out) * rig.dt
    own.damping = max(0.0, _under_way(move)) * seconds / abs(gone) if gone and seconds else None


def _signs(rig: RigKnowledge, move: AxisMove, own: AxisChecks) -> None:
    """Check the signs of an axis that completed its move."""
    i, name = move.index, rig.names[move.index]
    bands = rig.bands(move.stands[0])
    half = float(move.stands[-1].command[i] - move.stands[BOTH_AFTER_HALF - 1].command[i]) * move.direction
    ratio = float(move.change("displacement", BOTH_AFTER_HALF - 1)[i]) / half
    if ratio < FOLLOWS:
        own.findings.append(
            f"axes.{name}: it moves by {ratio:.0%} of its command: lost motion, a loop that is too weak, or the "
            "scale of displacement or command is wrong"
        )
        return
    own.displacement_sign = VERIFIED
    if abs(ratio - 1.0) > CLOSELY:
        own.remarks.append(
            f"axes.{name}: it moves by {ratio:.0%} of its command: static error of the loop, or the scale of the "
            "displacement or of the command"
        )
    for stand in (*move.stands, move.after):
        if stand is not None and not stand.resting:
            own.remarks.append(f"axes.{name}: it did not come to rest: a sensor drifts, or the specimen relaxes")
            break
    _force_sign(rig, move, bands, own)
    assert move.after is not None
    left = float(move.after.displacement[i] - move.stands[0].displacement[i]) * move.direction
    if abs(left) > bands.displacement[i]:
        own.remarks.append(f"axes.{name}: it came back to {_mm(left)} from where it started: lost motion")


def _force_sign(rig: RigKnowledge, move: AxisMove, bands: Bands, own: AxisChecks) -> None:
    i, name = move.index, rig.names[move.index]
    force, moved = float(move.change("force")[i]), float(move.change("displacement")[i])
    of = f"{force:.4g} N"
    if not _seen_at_rest(move, bands):  # a dashpot has a force only in motion, in both directions
        force = _under_way(move)
        of = f"{force:.4g} N under way"
        noise = SEEN * float(move.stands[0].force_scatter[i]) / np.sqrt(max(1, min(len(move.out), len(move.back))))
        if abs(force) <= noise + LEAST_FORCE * rig.force_range[i]:
            own.findings.append(_no_force(rig, move, moved, float(bands.force[i])))
            return
        own.remarks.append(f"axes.{name}: it has a force in motion only: no stiffness was found")
    if force < 0.0:
        own.force_sign = WRONG
        own.findings.append(
            f"axes.{name}: wrong sign of force: it changes by {of} where the displacement changes by "
            f"{_mm(moved)}: the specimen would push along. Look at the sign of force (or at those of both command "
            "and displacement)"
        )
        return
    own.force_sign = VERIFIED


def _seen_at_rest(move: AxisMove, bands: Bands) -> bool:
    """Return whether the force differs between the rests; an axis with a dashpot only has no stiffness."""
    return bool(abs(move.change("force")[move.index]) > bands.force[move.index])


def _under_way(move: AxisMove) -> float:
    """Return half the difference of the mean forces out and back, which depends on rate alone."""
    out, back = (float(np.mean(forces, axis=0)[move.index]) for forces in (move.out, move.back))
    return move.direction * 0.5 * (out - back)


def _no_force(rig: RigKnowledge, move: AxisMove, moved: float, band: float) -> str:
    i, name = move.index, rig.names[move.index]
    beside = np.abs(move.change("force"))
    beside[i] = 0.0
    other = int(np.argmax(beside))
    words = (
        f"axes.{name}: dead load cell: the force has not changed by {band:.3g} N where the axis moved by "
        f"{_mm(moved)}"
    )
    if beside[other] > rig.bands(move.stands[0]).force[other]:
        return (
            f"{words}, but that of axes.{rig.names[other]} by {beside[other]:.4g} N: are the load cells swapped?"
        )
    expected = rig.axes[i].expected
    if expected is not None:
        words += f", and should have by {expected.stiffness * moved:.4g} N"
    return f"{words}; or no specimen is attached, or it is too soft for this move"


def _mm(metres: float) -> str:
    return f"{1e3 * float(metres):.4g} mm"
