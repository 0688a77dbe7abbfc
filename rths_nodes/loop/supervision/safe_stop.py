"""Safe policies: what drives the rig when no Command may. The safe stop is the first of them.

The software stop is not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_FORCE, Array, Measurement
from rths_nodes.loop.supervision.handover import Tares


def excess_travel(limits: Limits, max_bridge: float, sharpest: float = 1.0) -> float:
    """How far an axis travels at most, m, from the last sample that had its Target and Command until it stands.

    It moves at the velocity limit for ``max_bridge`` s, then slows down with the deceleration of the safe stop,
    which is ``sharpest`` times that of the mean.
    """
    braking = sharpest * limits.velocity**2 / (2.0 * limits.deceleration)
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


class SafePolicy(Protocol):
    """Drives the rig from the moment on at which no Command may be sent any more, until it is at rest.

    It has no limits above it: what it commands is sent as it is.
    """

    def begin(self, before: Array, last: Array) -> None:
        """Take over. ``before`` and ``last`` are the last two commands that were sent, ``(n_axes,)`` m."""
        ...

    def step(self, measured: Measurement) -> Array:
        """The command of the next sample ``(n_axes,)`` m, after ``measured``; a new array, which may be kept."""
        ...

    @property
    def at_rest(self) -> bool:
        """True when the rig is safe and stays where it is."""
        ...


class SafeStop:
    """Each axis goes on with its velocity, slows down at its deceleration, and holds.

    The stop never leaves the stroke: an axis that would is held at its end. Commands count from the zero of the
    test, which ``tares`` tell.
    """

    def __init__(self, limits: dict[str, Limits], dt: float, tares: Tares | None = None) -> None:
        self._dt = dt
        zeros = (tares or Tares.none(len(limits))).command.tolist()
        self._limits = [
            (-lim.stroke - zero, lim.stroke - zero, lim.velocity, lim.deceleration * dt)
            for lim, zero in zip(limits.values(), zeros, strict=True)
        ]
        self._position = [0.0] * len(limits)
        self._velocity = [0.0] * len(limits)

    def begin(self, before: Array, last: Array) -> None:
        """The stop begins at the last command, with the velocity of the last two, within the limits."""
        velocity = (last - before) / self._dt
        self._position = last.tolist()
        self._velocity = [
            max(-cap, min(cap, v)) for v, (_, _, cap, _) in zip(velocity.tolist(), self._limits, strict=True)
        ]

    @property
    def at_rest(self) -> bool:
        """True when every axis holds."""
        return not any(self._velocity)

    def step(self, measured: Measurement) -> Array:
        """The next command; the measurement does not change it."""
        for axis, (low, high, _, brake) in enumerate(self._limits):
            v = self._velocity[axis]
            self._velocity[axis] = v = math.copysign(max(abs(v) - brake, 0.0), v) if v else 0.0
            wanted = self._position[axis] + v * self._dt
            self._position[axis] = max(low, min(high, wanted))
            if self._position[axis] != wanted:
                self._velocity[axis] = 0.0
        return np.array(self._position)


def held_places(
    commands: tuple[Array, Array], modes: tuple[bytes, bytes], n_moved: int, measured: Measurement
) -> tuple[Array, Array]:
    """The last two ``commands`` ``(n_axes,)``, in m, where the axes behind ``n_moved`` may have had them in N.

    ``modes`` are those of both. In place of N stands where the axis is: there it is held from now on, without
    velocity. Its force loop ends where it has led the axis to, whatever number says so (``ForceAxis.hold``).
    """
    before, last = commands
    for axis in range(n_moved, len(last)):
        then, now = (bool(each) and each[axis] == MODE_FORCE for each in modes)
        if now:
            place = float(measured.displacement[axis])
            last[axis] = place if math.isfinite(place) else 0.0
        if then or now:
            before[axis] = last[axis]
    return before, last
