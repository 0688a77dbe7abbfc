# SPDX-License-Identifier: Apache-2.0
"""Guided motions, which an operator requests outside of a rung.

The steps of a motion come from a generator of commands in untared coordinates: ramps and rests. The drive
(``drive.py``) checks the commands against the limits. A ramp of M samples connects two rests, a distance d apart,
on a straight line of all axes:

    x_k = x_0 + d (10 s^3 - 15 s^4 + 6 s^5),    s = k / M

M is large enough to keep velocity and acceleration within the bounds of each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rths_nodes.core.braking import samples_to_rest
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import STEEPEST
from rths_nodes.loop.supervision.pause import MOST_CURVED

T = TypeVar("T")
Steps = Generator[Array, Measurement, T]
"""Generator that yields commands ``(n_axes,)`` m, receives Measurements, and returns a result."""
Watch = Callable[[Array, Measurement], str]
"""Function that returns the reason why the rig does not follow the last command ``(n_axes,)`` m, or an empty
string."""
Guard = Callable[[Measurement], str]
"""Function that returns the reason to end a ramp, or an empty string."""

WINDOW_S = 0.05
"""Length of a window, s. At rest, the means of two windows agree within the noise."""
AVERAGED_S = 0.5
LONGEST_S = 2.0
"""Longest wait for rest, s. Values that still change after this time are used, with a remark."""
FEWEST = 8
STILL = 1e-6
"""Largest change between windows that counts as rest, as a fraction of the stroke and of the force limit."""
CERTAIN = 4.0
"""Smallest significant difference between two means, in standard deviations of the difference."""
GENTLE = 0.1
"""Acceleration of a ramp, as a fraction of the deceleration of the safe stop."""

SLOW = 0.02
"""Velocity of the motion to the start, as a fraction of the limit, if the rig file states no velocity."""


@dataclass(frozen=True)
class DriveOutcome:
    """Outcome of a motion. ``reason`` is the cause of its safe stop; empty if the motion is complete.

    ``tripped`` is false if the operator stopped the motion.
    """

    reason: str = ""
    tripped: bool = False


class GuidedMotion:
    """Motion from ``command`` ``(n_axes,)`` m along the generator ``steps``, which returns the ``result``.

    ``modes`` returns the control modes in the last command, one byte per axis; empty bytes mean displacement.
    """

    def __init__(
        self,
        steps: Steps[object],
        command: Array,
        watch: Watch = lambda sent, measured: "",
        modes: Callable[[], bytes] = bytes,
    ) -> None:
        self._steps, self._sent, self._watch, self.modes = steps, command, watch, modes
        self._begun = False
        self.result: Any = None

    def watched(self, measured: Measurement) -> str:
        return self._watch(self._sent, measured)

    def step(self, measured: Measurement) -> Array | None:
        """Return the next command ``(n_axes,)`` after ``measured``, or None at the end."""
        try:
            self._sent = self._steps.send(measured if self._begun else None)  # type: ignore[arg-type]  # None starts it
            self._begun = True
            return self._sent
        except StopIteration as end:
            self.result = end.value
            return None


def hold(
    command: Array,
    samples: int,
    ended: Callable[[], str] = str,
    shown: Callable[[int], None] = lambda left: None,
) -> Steps[list[Measurement]]:
    """Hold ``command`` for ``samples``, or until ``ended`` returns a reason. Return the Measurements.

    ``shown`` receives the number of samples left.
    """
    seen: list[Measurement] = []
    for left in range(samples, 0, -1):
        shown(left)
        if ended():
            return seen
        seen.append((yield command))
    shown(0)
    return seen


def smooth(s: float) -> float:
    return s**3 * (10.0 - 15.0 * s + 6.0 * s * s)


class BoundedRamp:
    """Motion from rest at ``start`` to rest at ``goal`` ``(n_axes,)`` m. All axes move for the same time.

    ``velocity`` (m/s) and ``acceleration`` (m/s^2) bound each axis; ``dt`` is the period, s. Raises ConfigError
    unless positions are finite and bounds positive.
    """

    def __init__(self, start: Array, goal: Array, velocity: Array, acceleration: Array, dt: float) -> None:
        self._start, self._goal = np.array(start, float), np.array(goal, float)
        if not (np.isfinite(self._start).all() and np.isfinite(self._goal).all()):
            raise ConfigError(
                f"ramp from {self._start.tolist()} m to {self._goal.tolist()} m: both positions must be finite"
            )
        for name, bound in (("velocity", np.asarray(velocity)), ("acceleration", np.asarray(acceleration))):
            if not (bound > 0.0).all():
                raise ConfigError(f"ramp: {name} = {bound.tolist()}: all values must be > 0")
        self._way = self._goal - self._start
        far = np.abs(self._way)
        slow, gentle = STEEPEST * far / velocity, np.sqrt(MOST_CURVED * far / acceleration)
        self.samples = math.ceil(float(np.maximum(slow, gentle).max(initial=0.0)) / dt)
        """Length of the ramp, samples."""
        self._done = 0

    def step(self, measured: Measurement | None = None) -> Array | None:
        if self._done == self.samples:
            return None
        self._done += 1
        if self._done == self.samples:
            return self._goal.copy()
        return np.asarray(self._start + smooth(self._done / self.samples) * self._way)


def accelerations(limits: Mapping[str, Limits]) -> Array:
    """Return the acceleration of ramps, ``(n_axes,)`` m/s^2."""
    return np.array([GENTLE * axis.deceleration for axis in limits.values()])


def positioning_velocities(scenario: Scenario) -> Array:
    """Return the velocity (m/s) of each axis in the motion to its start.

    This is the velocity of its small move, or by default a fraction of its limit.
    """
    moves = {name: axis.rig_axis and axis.rig_axis.small_move for name, axis in scenario.axes.items()}
    limits = scenario.limits
    return np.array([move.velocity if move else SLOW * limits[name].velocity for name, move in moves.items()])


@dataclass(frozen=True)
class Stand:
    """Rest of the rig: means and scatter (rms) of ``samples`` Measurements, ``(n_axes,)`` m and N.

    ``command`` is their common command. ``resting`` is false if a value was still changing.
    """

    command: Array
    displacement: Array
    force: Array
    auxiliary: Array
    displacement_scatter: Array
    force_scatter: Array
    auxiliary_scatter: Array
    samples: int
    resting: bool


class QuasiStatic:
    """Generates ramps and rests of the rig of ``scenario``, which is at ``command`` ``(n_axes,)`` m.

    The rig rests if displacement (m) and force (N) change by less than ``still`` between two windows.
    """

    def __init__(self, scenario: Scenario, command: Array, still: tuple[Array, Array] | None = None) -> None:
        self.command, limits = np.array(command, float), scenario.limits
        self._dt, self._late = scenario.dt, scenario.port.transport_samples + 1
        self._acceleration = accelerations(limits)
        rows = STILL * np.array([(axis.stroke, axis.force) for axis in limits.values()])
        self._still = (rows[:, 0], rows[:, 1]) if still is None else still

    def ramp(self, goal: Array, velocity: Array, guard: Guard) -> Steps[str]:
        """Move to ``goal`` ``(n_axes,)`` m at up to ``velocity`` m/s.

        Return the reason for which ``guard`` ended the ramp early, or an empty string.
        """
        ramp = BoundedRamp(self.command, goal, velocity, self._acceleration, self._dt)
        before = self.command
        while (wanted := ramp.step()) is not None:
            before, self.command = self.command, wanted
            if why := guard((yield wanted)):
                yield from self._brake(self.command - before)
                return why
        return ""

    def go(self, goal: Array, velocity: Array) -> Steps[Stand]:
        yield from self.ramp(goal, velocity, lambda measured: "")
        return (yield from self.stand())

    def _brake(self, step: Array) -> Steps[None]:
        """Bring all axes to rest in the same time, on the line of the ramp."""
        samples = samples_to_rest(step.tolist(), (self._acceleration * self._dt**2).tolist())
        for done in range(1, samples):
            self.command = self.command + step * (1.0 - done / samples)
            yield self.command

    def stand(self) -> Steps[Stand]:
        """Hold until displacement and force are at rest; return the means of both."""
        yield from hold(self.command, self._late)
        samples = self._samples(WINDOW_S)
        last = yield from self._window(samples)
        resting = False
        for _ in range(math.ceil(LONGEST_S / WINDOW_S)):
            before, last = last, (yield from self._window(samples))
            if resting := self._rests(before, last):
                break
        return (yield from self._window(self._samples(AVERAGED_S), resting))

    def _samples(self, seconds: float) -> int:
        return max(FEWEST, round(seconds / self._dt))

    def _window(self, samples: int, resting: bool = False) -> Steps[Stand]:
        rows = yield from hold(self.command, samples)
        values = {
            name: np.array([getattr(row, name) for row in rows]) for name in ("displacement", "force", "auxiliary")
        }
        mean = {name: rows.mean(axis=0) for name, rows in values.items()}
        scatter = {f"{name}_scatter": rows.std(axis=0) for name, rows in values.items()}
        return Stand(command=self.command, samples=samples, resting=resting, **mean, **scatter)

    def _rests(self, before: Stand, now: Stand) -> bool:
        noise = CERTAIN * math.sqrt(2.0 / now.samples)
        pairs = (
            (now.displacement - before.displacement, now.displacement_scatter, self._still[0]),
            (now.force - before.force, now.force_scatter, self._still[1]),
        )
        return all(bool((np.abs(change) <= still + noise * scatter).all()) for change, scatter, still in pairs)
