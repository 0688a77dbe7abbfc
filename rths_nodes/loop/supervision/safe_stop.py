"""The safe stop: what drives the rig when no Command may.

The software stop is not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math

from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.limits import Limits


def excess_travel(limits: Limits, max_bridge: float) -> float:
    """How far an axis may go on at most, m, from the last sample with all it needs until it is safe.

    At the velocity limit as long as may be bridged (s), then with the deceleration of the safe stop.
    """
    braking = limits.velocity**2 / (2.0 * limits.deceleration)
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


class SafeStop:
    """The simulator's safe policy: each axis goes on with its velocity, slows down at its deceleration, holds.

    ``position`` and ``velocity``: of the command when the stop begins, (n_axes,) m and m/s. The stop never
    leaves the stroke: an axis that would is held at its end.
    """

    def __init__(self, limits: dict[str, Limits], dt: float, position: Array, velocity: Array) -> None:
        self._dt = dt
        self._limits = [(lim.stroke, lim.velocity, lim.deceleration * dt) for lim in limits.values()]
        self._position: list[float] = position.tolist()
        self._velocity = [
            max(-cap, min(cap, v)) for v, (_, cap, _) in zip(velocity.tolist(), self._limits, strict=True)
        ]

    @property
    def at_rest(self) -> bool:
        """True when every axis holds."""
        return not any(self._velocity)

    def step(self) -> list[float]:
        """The next command, (n_axes,) m."""
        for axis, (stroke, _, brake) in enumerate(self._limits):
            v = self._velocity[axis]
            self._velocity[axis] = v = math.copysign(max(abs(v) - brake, 0.0), v) if v else 0.0
            wanted = self._position[axis] + v * self._dt
            self._position[axis] = max(-stroke, min(stroke, wanted))
            if self._position[axis] != wanted:
                self._velocity[axis] = 0.0
        return self._position
