# SPDX-License-Identifier: Apache-2.0
"""Check of the scales of an axis' sensors, by a redundant sensor or a known stiffness.

Both are compared over the second half of the small move, after play and lost motion. The stiffness is the axis'
with the others held: K = F X^-1 of the changes of all forces and displacements in the moves of all axes, so axes
of one specimen may move each other. It compares the two scales with each other: a common factor remains unseen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rths_nodes.laboratory.calibration import Expected
from rths_nodes.laboratory.handling import VERIFYING
from rths_nodes.procedure.axis_moves import AxisMove, Bands, RigKnowledge
from rths_nodes.procedure.records import NOT_VERIFIED, VERIFIED, WRONG, AxisChecks

FROM = 2
"""Stage from which changes are compared, among the rests of a move: half of its travel."""
ALIKE = 0.03
"""Relative difference of two redundant sensors that is tolerated."""
CERTAINTY = 3.0
"""Tolerated standard deviations of a result."""


def stiffnesses(rig: RigKnowledge, moves: Sequence[AxisMove]) -> dict[int, dict[int, float]]:
    """Tangent stiffness (N/m) of each axis with a completed move, by its own and by other displacements."""
    whole = [move for move in moves if move.complete]
    places = [move.index for move in whole]
    if not places:
        return {}
    displacement = np.array([move.change("displacement", FROM)[places] for move in whole]).T
    force = np.array([move.change("force", FROM)[places] for move in whole]).T
    try:
        matrix = force @ np.linalg.inv(displacement)
    except np.linalg.LinAlgError:
        return {}
    return {place: dict(zip(places, row, strict=True)) for place, row in zip(places, matrix.tolist(), strict=True)}


def uncertainty(rig: RigKnowledge, move: AxisMove) -> float:
    """Return the relative uncertainty of a stiffness due to noise and resolution."""
    i, stand = move.index, move.stands[-1]
    share = 0.0
    for what, step in zip(("displacement", "force"), rig.steps, strict=True):
        change = abs(float(move.change(what, FROM)[i]))
        noise = CERTAINTY * math.sqrt(2.0 / stand.samples) * float(getattr(stand, f"{what}_scatter")[i])
        # noise above a third of a step makes the mean finer than the step
        coarse = (
            0.5 * float(step[i]) if noise == 0.0 or getattr(stand, f"{what}_scatter")[i] < step[i] / 3.0 else 0.0
        )
        if change == 0.0:
            return math.inf
        share += ((noise + coarse) / change) ** 2
    return math.sqrt(share)


def judge_scales(
    rig: RigKnowledge, move: AxisMove, stiffness: float | None, bands: Bands, found: AxisChecks
) -> None:
    """Write the findings on the scales of an axis with a completed move into ``found``."""
    name, axis = rig.names[move.index], rig.axes[move.index]
    for what, seconds, noun in (
        ("displacement", rig.second_displacement, "displacement sensor"),
        ("force", rig.second_force, "load cell"),
    ):
        place = seconds[move.index]
        if place is not None:
            verdict = _beside(move, what, place, f"axes.{name}", noun, found)
            setattr(found, f"{what}_scale", verdict)
    found.stiffness = stiffness
    if (expected := axis.expected) is not None:
        found.expected = expected.stiffness
        if (known := expected.known_to) is not None:
            found.low, found.high = (1.0 - known) * expected.stiffness, (1.0 + known) * expected.stiffness
            if stiffness is not None:
                _by_stiffness(rig, move, stiffness, expected, known, found)
    for what in ("displacement", "force"):
        if getattr(found, f"{what}_scale") == NOT_VERIFIED:
            found.remarks.append(
                f"axes.{name}: scale of the {what} not verified: there is no second sensor, and no stiffness "
                f"known to {VERIFYING:.0%}: the operator has to sign for it"
            )


def _beside(move: AxisMove, what: str, place: int, path: str, noun: str, found: AxisChecks) -> str:
    """Compare the scale of a sensor with a second one."""
    own = float(move.change(what, FROM)[move.index])
    other = float(move.change("auxiliary", FROM)[place])
    scatter = getattr(move.stands[-1], f"{what}_scatter")[move.index], move.stands[-1].auxiliary_scatter[place]
    noise = CERTAINTY * math.sqrt(2.0 / move.stands[-1].samples) * math.hypot(*scatter)
    unit = "m" if what == "displacement" else "N"
    words = (
        f"{path}: the second {noun} changes by {other:.4g} {unit} where the first one changes by {own:.4g} {unit}"
    )
    if abs(other) <= noise or abs(own) <= noise:
        if abs(own) <= noise:
            return NOT_VERIFIED
        found.findings.append(f"{words}: it is dead, or measures something else")
        return NOT_VERIFIED
    if own * other < 0.0:
        found.findings.append(f"{words}: the sign of one of them is wrong")
        return NOT_VERIFIED
    if abs(own / other - 1.0) > ALIKE + noise / min(abs(own), abs(other)):
        found.findings.append(
            f"{words}: they differ by {own / other - 1.0:+.1%}, and may by {ALIKE:.0%}: the scale of one of "
            "them is wrong"
        )
        return WRONG
    return VERIFIED


def _by_stiffness(
    rig: RigKnowledge, move: AxisMove, stiffness: float, expected: Expected, known: float, found: AxisChecks
) -> None:
    """Judge the scales by a stiffness ``known`` within a band."""
    name = rig.names[move.index]
    off, unsure = stiffness / expected.stiffness - 1.0, uncertainty(rig, move)
    if abs(off) > known + unsure:
        words = (
            f"axes.{name}: its stiffness is {stiffness:.4g} N/m, {off:+.1%} beside the "
            f"{expected.stiffness:.4g} N/m {expected.words}"
        )
        if found.displacement_scale == VERIFIED:
            found.force_scale = WRONG
            found.findings.append(
                f"{words}: the scale of the force is wrong, or another specimen stands in the rig"
            )
        elif found.displacement_scale == WRONG:
            found.findings.append(
                f"{words}: the scale of the displacement is wrong, not that of its second sensor"
            )
        else:
            found.displacement_scale = found.force_scale = WRONG
            found.findings.append(
                f"{words}: the scale of the force or of the displacement is wrong, or another specimen stands in "
                "the rig"
            )
    elif not expected.independent:
        found.remarks.append(
            f"axes.{name}: the stiffness is as cyclic tests have shown it, with the same sensors: their scales "
            "have not changed since; it verifies none"
        )
    elif known > VERIFYING or unsure > VERIFYING:
        why = f"is known to {known:.0%} only" if known > VERIFYING else f"was found to {unsure:.1%} only"
        found.remarks.append(f"axes.{name}: the stiffness {why}: it verifies no scale")
    else:
        for what in ("displacement", "force"):
            if getattr(found, f"{what}_scale") == NOT_VERIFIED:
                setattr(found, f"{what}_scale", VERIFIED)
