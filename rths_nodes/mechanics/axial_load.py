# SPDX-License-Identifier: Apache-2.0
"""Plane geometry, in closed form, of a column and of an actuator that inclines with the column's head.

The column of length h is hinged at its base. Its head drifts by u and descends by w. The actuator above the
column, vertical at rest, has the length L from pin to pin and the extension e:

    actuator    (L + e)^2 = u^2 + (L + w)^2      direction from the vertical    sin b = u / (L + e)
    column      (h - c)^2 = u^2 + (h - w)^2      direction from the vertical    sin a = u / (h - c)

c is the shortening of the column along its chord. Without load control, a drift at constant extension reduces c by
u^2 / 2h + u^2 / 2L, up to terms of fourth order. An actuator without a length stays vertical, and e = w. For a
drift that the lengths do not permit, all results are NaN, which trips a test.
"""

from __future__ import annotations

from rths_nodes.core.arithmetic import INF, hypot, sqrt
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params


@params
class ColumnGeometry:
    column_length: float = number(
        "length of the column, from its hinge to the hinge of the actuator", "m", more_than=0.0, at_most=100.0
    )
    actuator_length: float | None = number(
        "length of the actuator at rest, pin to pin; default: the actuator moves with the head and stays vertical",
        "m",
        None,
        more_than=0.0,
        at_most=100.0,
    )


Lengths = tuple[float, float]
"""Lengths of column and actuator at rest (m); the second is infinite for an actuator that stays vertical."""


def lengths_of(geometry: ColumnGeometry) -> Lengths:
    return geometry.column_length, INF if geometry.actuator_length is None else geometry.actuator_length


def extension_at(k: Lengths, shortening: float, drift: float) -> float:
    """Return the extension of the actuator (m) that shortens the column by ``shortening`` (m) at ``drift`` (m)."""
    column, actuator = k
    down = column - other_leg(column - shortening, drift)
    return down if actuator == INF else hypot(actuator + down, drift) - actuator


def lowered(k: Lengths, extension: float, drift: float) -> float:
    """Return the descent of the head (m) at ``extension`` (m) of the actuator and ``drift`` (m)."""
    _, actuator = k
    return extension if actuator == INF else other_leg(actuator + extension, drift) - actuator


def shortening_at(k: Lengths, extension: float, drift: float) -> float:
    """Return the shortening of the column (m) at ``extension`` (m) and ``drift`` (m)."""
    return k[0] - hypot(k[0] - lowered(k, extension, drift), drift)


def directions_at(k: Lengths, extension: float, drift: float) -> tuple[float, float, float, float]:
    """Return sin a, cos a, sin b and cos b: the directions of column and actuator from the vertical."""
    length, actuator = k
    down = lowered(k, extension, drift)
    column = hypot(length - down, drift)
    above = actuator + extension
    upright = 1.0 if actuator == INF else (actuator + down) / above
    return drift / column, (length - down) / column, drift / above, upright


def other_leg(hypotenuse: float, one: float) -> float:
    return sqrt((hypotenuse - one) * (hypotenuse + one))


def horizontal_share(drift: float, actuator_length: float) -> float:
    return drift / hypot(actuator_length, drift)


def vertical_share(drift: float, actuator_length: float) -> float:
    return actuator_length / hypot(actuator_length, drift)


def check_drift(geometry: ColumnGeometry, stroke: float, path: str) -> None:
    for name in ("column_length", "actuator_length"):
        length = getattr(geometry, name)
        if length is not None and stroke >= length:
            raise ConfigError(
                f"{path}.{name} = {length:g} m: must be > {stroke:g} m, the stroke of the axis that moves the head"
            )
