"""Whether the external command may be accepted: the controller drives to where the rig stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array

AGREEMENT = 0.02
"""Share of the range of the displacement sensor by which active command and measured position may differ."""
MOVED = 1e-4
"""Share of the range of the command by which the active one may differ from what was sent; a step may be more."""


def disagreement(axes: Mapping[str, Any], active: Array, displacement: Array) -> str:
    """Why the external command must not be accepted, in words; empty where it may.

    ``active`` is the active command of the controller, ``displacement`` what is measured, both ``(n_axes,)`` m.
    """
    problems = Problems()
    for (name, axis), command, place in zip(axes.items(), active.tolist(), displacement.tolist(), strict=True):
        bound = AGREEMENT * (axis.rig_axis.displacement.range_si if axis.rig_axis else axis.limits.stroke)
        if not abs(command - place) <= bound:
            problems.append(
                f"axes.{name}: the controller drives to {command:.6g} m, {place:.6g} m is measured: the external "
                f"command is accepted only where they differ by <= {bound:.6g} m"
            )
    return "\n".join(problems)


def not_taken(axes: Mapping[str, Any], active: Array, sent: Array) -> str:
    """Why the controller does not drive to what was ``sent`` last, in words; empty where it does.

    An axis of force is held where its loop has led it to, and follows only changes of what is sent from there on.
    """
    for (name, axis), now, last in zip(axes.items(), active.tolist(), sent.tolist(), strict=True):
        if axis.limits.of_force:
            continue
        span = axis.rig_axis.command.range_si if axis.rig_axis else axis.limits.stroke
        if not abs(now - last) <= max(MOVED * span, axis.output.resolution):
            return (
                f"axes.{name}: the controller drives to {now:.6g} m, {last:.6g} m was sent last: it does not take "
                "the external command"
            )
    return ""
