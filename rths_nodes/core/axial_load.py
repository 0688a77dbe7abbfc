"""A column under the push of an actuator that inclines with its head: the closed form of its plane geometry.

The column of length h is hinged at its base, or its curvature does not matter for its chord. Its head drifts by u
and comes down by w. The actuator stands above it, upright at rest, with the length L from its pin at the load
frame to its pin at the head, and e is how far it has extended:

    actuator    (L + e)^2 = u^2 + (L + w)^2      its direction from the vertical    sin b = u / (L + e)
    column      (h - c)^2 = u^2 + (h - w)^2      its direction from the vertical    sin a = u / (h - c)

c is what the column is shortened by, along its chord. Where nothing holds the load, a drift alone takes from it
u^2 / 2h + u^2 / 2L of shortening at the same extension, but for terms of fourth order. An actuator that is not
given a length travels along with the head: it stays upright, and e = w.
"""

from __future__ import annotations

import math

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params


@params
class ColumnGeometry:
    """Lengths of a column and of the actuator above it."""

    column_length: float = number(
        "length of the column, from its hinge to that of the actuator", "m", more_than=0.0, at_most=100.0
    )
    actuator_length: float | None = number(
        "length of the actuator at rest, pin to pin; left out: it travels along with the head and stays upright",
        "m",
        None,
        more_than=0.0,
        at_most=100.0,
    )


class AxialLoad:
    """Extension of the actuator <-> shortening of the column, at a drift; in plain floats, all in m.

    Beyond the reach everything is nan, which trips a test.
    """

    def __init__(self, params: ColumnGeometry) -> None:
        self._column, self._actuator = params.column_length, params.actuator_length

    def extension(self, shortening: float, drift: float) -> float:
        """How far the actuator extends so that the column is shortened by ``shortening`` at ``drift``."""
        down = self._column - _other(self._column - shortening, drift)
        if self._actuator is None:
            return down
        return math.hypot(self._actuator + down, drift) - self._actuator

    def shortening(self, extension: float, drift: float) -> float:
        """What the column is shortened by at ``drift``, where the actuator has extended by ``extension``."""
        down = self._down(extension, drift)
        return self._column - math.hypot(self._column - down, drift)

    def directions(self, extension: float, drift: float) -> tuple[float, float, float, float]:
        """Sine and cosine of the column's inclination, then those of the actuator's."""
        down = self._down(extension, drift)
        column = math.hypot(self._column - down, drift)
        above = math.inf if self._actuator is None else self._actuator + extension
        cosine = 1.0 if self._actuator is None else (self._actuator + down) / above
        return drift / column, (self._column - down) / column, drift / above, cosine

    def _down(self, extension: float, drift: float) -> float:
        """How far the head has come down."""
        if self._actuator is None:
            return extension
        return _other(self._actuator + extension, drift) - self._actuator


def horizontal_share(drift: float, actuator_length: float) -> float:
    """The sine of the inclination of an actuator of ``actuator_length`` (m) at ``drift`` (m)."""
    return drift / math.hypot(actuator_length, drift)


def check_drift(geometry: ColumnGeometry, stroke: float, path: str) -> None:
    """Raises ConfigError, with the ``path`` of the geometry, for a ``stroke`` (m) that lays the column down."""
    for name in ("column_length", "actuator_length"):
        length = getattr(geometry, name)
        if length is not None and stroke >= length:
            raise ConfigError(
                f"{path}.{name} = {length:g} m: must be > {stroke:g} m, the stroke of the axis that moves the head"
            )


def _other(hypotenuse: float, one: float) -> float:
    """The other leg of a right triangle."""
    left = (hypotenuse - one) * (hypotenuse + one)
    return math.sqrt(left) if left >= 0.0 else math.nan
