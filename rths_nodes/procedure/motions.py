# SPDX-License-Identifier: Apache-2.0
"""Motions requested by an operator outside of tests, and their ramp.

A guided motion gives one command at a time, in untared coordinates of the axes; the sender (``drive.py``) checks
it against the limits. The ramp connects two rests on a straight line of all axes:

    x_k = x_0 + d (10 s^3 - 15 s^4 + 6 s^5),    s = k / M

Its velocity is at most 1.875 d / T, its acceleration 10 / sqrt(3) d / T^2; M keeps both within the bounds of each
axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.scenario.schema import Scenario

STEEPEST = 15.0 / 8.0
"""Largest slope of 10 s^3 - 15 s^4 + 6 s^5."""
MOST_CURVED = 10.0 / math.sqrt(3.0)
"""Its largest curvature."""
GENTLE = 0.1
"""Acceleration of a ramp, as a share of the deceleration of the safe stop."""

SLOW = 0.02
"""Velocity to the start, as a share of the limit, if the rig file has none."""


@dataclass(frozen=True)
class DriveOutcome:
    """Outcome of a motion: completed without ``reason``, else a safe stop; ``tripped``: not by the operator."""

    reason: str = ""
    tripped: bool = False
    samples: int = 0


class NotFollowing(Exception):
    """The rig does not follow a guided motion, with the reason: it stops and trips."""


class GuidedMotion(Protocol):
    """A motion outside of a test, one command per sample; the drive checks each against the limits."""

    def step(self, measured: Measurement) -> Array | None:
        """Return the next command ``(n_axes,)`` m after ``measured``; None at the end.

        Both are untared, in coordinates of the axes; ``measured.command`` is the active command. Raises
        NotFollowing.
        """
        ...


def by_displacement() -> bytes:
    return b""


class BoundedRamp:
    """From rest at ``start`` to rest at ``goal``, all axes in the same time; arrays ``(n_axes,)``, m and m/s.

    ``velocity`` (m/s) and ``acceleration`` (m/s^2) bound each axis, ``dt`` s. Raises ConfigError for a position
    that is not finite, and for a bound that is not positive.
    """

    def __init__(self, start: Array, goal: Array, velocity: Array, acceleration: Array, dt: float) -> None:
        self._start, self._goal = np.array(start, float), np.array(goal, float)
        if not (np.isfinite(self._start).all() and np.isfinite(self._goal).all()):
            raise ConfigError(f"ramp from {self._start.tolist()} m to {self._goal.tolist()} m: must be finite")
        for name, bound in (("velocity", np.asarray(velocity)), ("acceleration", np.asarray(acceleration))):
            if not (bound > 0.0).all():
                raise ConfigError(f"ramp: {name} = {bound.tolist()}: must be > 0")
        self._way = self._goal - self._start
        far = np.abs(self._way)
        slow, gentle = STEEPEST * far / velocity, np.sqrt(MOST_CURVED * far / acceleration)
        self.samples = math.ceil(float(np.maximum(slow, gentle).max(initial=0.0)) / dt)
        """Length of the ramp, samples."""
        self._done = 0

    def step(self, measured: Measurement) -> Array | None:
        """Return the next command, whatever the measurement."""
        if self._done == self.samples:
            return None
        self._done += 1
        if self._done == self.samples:
            return self._goal.copy()
        s = self._done / self.samples
        return np.asarray(self._start + s**3 * (10.0 - 15.0 * s + 6.0 * s * s) * self._way)


def accelerations(limits: Mapping[str, Limits]) -> Array:
    """Return the acceleration of a gentle ramp, m/s^2: a share of the safe stop's deceleration."""
    return np.array([GENTLE * axis.deceleration for axis in limits.values()])


def positioning_velocities(scenario: Scenario) -> Array:
    """Return the velocity of each axis to its start, m/s: from its small move, or a share of its limit."""
    return np.array([_velocity(axis) for axis in scenario.axes.values()])


def _velocity(axis: Axis) -> float:
    small = None if axis.rig_axis is None else axis.rig_axis.small_move
    return float(small.velocity) if small is not None else SLOW * float(axis.limits.velocity)
