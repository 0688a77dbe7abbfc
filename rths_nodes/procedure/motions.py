# SPDX-License-Identifier: Apache-2.0
"""Guided motions, which an operator requests outside a rung.

A generator yields the commands of a motion, which consists of ramps and rests, in untared coordinates. The drive
(``drive.py``) checks the commands against the limits. A ramp of M samples leads from rest at x_0 to rest at
x_0 + d, and all axes move in proportion:

    x_k = x_0 + d (10 s^3 - 15 s^4 + 6 s^5),    s = k / M

M is large enough to keep velocity and acceleration within the bounds of each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits, samples_to_rest
from rths_nodes.core.samples import Array, Measurement, by_force
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import MOST_CURVED, STEEPEST

T = TypeVar("T")
Steps = Generator[Array, Measurement, T]
"""Generator that yields commands ``(n_axes,)`` m, is sent Measurements, and returns a result."""
Watch = Callable[[Array, Measurement], str]
"""Function that returns the reason if the rig does not follow the last command, or an empty string."""
Guard = Callable[[Measurement], str]
"""Function that returns the reason to end a ramp, or an empty string."""

WINDOW_S = 0.05
"""Length of a window, s. At rest, the means of two windows agree within the noise."""
AVERAGED_S = 0.5
LONGEST_S = 2.0
"""Longest wait for rest, s. Values that still change after this time are used, with a remark."""
FEWEST = 8
STILL = 1e-6
"""Largest change between windows that counts as rest, as a fraction of stroke or force limit."""
STILL_BY_STEP = np.array([[1e-3], [1e-5]])
"""Alternative to ``STILL``, as fractions of the smallest step and of the load cell's range."""
CERTAIN = 4.0
"""Smallest significant difference between two means, in standard deviations of this difference."""
GENTLE = 0.1
"""Largest acceleration of a ramp, as a fraction of the deceleration of the safe stop."""

SLOW = 0.02
"""Velocity of the motion to the start, for axes without a small move, as a fraction of the limit."""


@dataclass(frozen=True)
class DriveOutcome:
    """Outcome of a motion: ``reason`` of its safe stop, or empty. ``tripped`` is false for an operator's stop."""

    reason: str = ""
    tripped: bool = False


@dataclass
class GuidedMotion:
    """Motion with the commands that ``steps`` generates, and the ``result`` of ``steps``. ``watch`` may stop it.

    ``steps`` receives the last command before the motion. A loss of the rig may have changed this command since
    the request. ``modes`` returns the control mode (a byte) of each axis, or empty bytes for displacement.
    """

    steps: Callable[[Array], Steps[object]]
    watch: Watch = lambda sent, measured: ""
    modes: Callable[[], bytes] = bytes
    result: Any = None
    _begun: Steps[object] | None = None

    def step(self, measured: Measurement, command: Array) -> Array | None:
        """Return the next command ``(n_axes,)`` m or N after ``command`` and ``measured``, or None at the end."""
        try:
            if self._begun is None:
                self._begun = self.steps(command.copy())
                return next(self._begun)
            return self._begun.send(measured)
        except StopIteration as end:
            self.result = end.value
            return None


def hold(command: Array, samples: int) -> Steps[list[Measurement]]:
    seen: list[Measurement] = []
    for _ in range(samples):
        seen.append((yield command))
    return seen


def bounded_ramp(start: Array, goal: Array, velocity: Array, acceleration: Array, dt: float) -> Iterator[Array]:
    """Yield the commands from rest at ``start`` to rest at ``goal`` ``(n_axes,)`` m.

    All axes start and end together. ``velocity`` (m/s) and ``acceleration`` (m/s^2) bound each axis. ``dt`` is the
    period, s. Raises ConfigError unless positions are finite and bounds are positive.
    """
    if not (np.isfinite(start).all() and np.isfinite(goal).all()):
        raise ConfigError(f"ramp from {start.tolist()} m to {goal.tolist()} m: both positions must be finite")
    for name, bound in (("velocity", velocity), ("acceleration", acceleration)):
        if not (bound > 0.0).all():
            raise ConfigError(f"ramp: {name} = {bound.tolist()}: all values must be > 0")
    way = goal - start
    slow, gentle = STEEPEST * np.abs(way) / velocity, np.sqrt(MOST_CURVED * np.abs(way) / acceleration)
    samples = math.ceil(float(np.maximum(slow, gentle).max(initial=0.0)) / dt)
    for sample in range(1, samples):
        s = sample / samples
        yield np.asarray(start + s**3 * (10.0 - 15.0 * s + 6.0 * s * s) * way)
    if samples:
        yield goal.copy()


def accelerations(limits: Mapping[str, Limits]) -> Array:
    """Return the largest permitted accelerations in ramps, ``(n_axes,)`` m/s^2."""
    return np.array([GENTLE * axis.deceleration for axis in limits.values()])


def positioning_velocities(scenario: Scenario) -> Array:
    """Return the velocities to the start, m/s: of the small move or, if it is missing, SLOW times the limit."""
    rows = [(axis.rig_axis and axis.rig_axis.small_move, axis.limits) for axis in scenario.axes.values()]
    return np.array([move.velocity if move else SLOW * limits.velocity for move, limits in rows])


@dataclass(frozen=True)
class Stand:
    """State of the rig at rest: mean and scatter (rms) of ``samples`` Measurements, ``(n_axes,)`` m and N.

    ``command`` is constant during these Measurements. ``resting`` is false if a value was still changing.
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


def averages(rows: Sequence[Measurement], *quantities: str) -> dict[str, Array]:
    values = {name: np.array([getattr(row, name) for row in rows]) for name in quantities}
    mean = {name: column.mean(axis=0) for name, column in values.items()}
    return mean | {f"{name}_scatter": column.std(axis=0) for name, column in values.items()}


class QuasiStatic:
    """Generates ramps and rests for the rig of ``scenario``, which is at ``command`` ``(n_axes,)`` m.

    ``fine`` holds smallest steps (m) and force ranges (N), for a stricter check of rest than by the limits.
    ``modes`` holds the control mode of each axis (a byte) in the last command; empty for displacement control.
    """

    def __init__(self, scenario: Scenario, command: Array, fine: tuple[Array, Array] | None = None) -> None:
        self.command, limits = np.array(command, float), scenario.limits
        self.modes = b""
        self.trace: list[tuple[Array, Measurement]] = []
        """Commands and Measurements of the last ramp and of the rest after it."""
        self._dt, self._late = scenario.dt, scenario.port.transport_samples + 1
        self._acceleration = accelerations(limits)
        sizes = np.array([(axis.stroke, axis.force) for axis in limits.values()]).T
        self._still = STILL * sizes if fine is None else STILL_BY_STEP * np.array(fine)

    def ramp(self, goal: Array, velocity: Array, guard: Guard = lambda measured: "") -> Steps[str]:
        """Move to ``goal`` ``(n_axes,)`` m at up to ``velocity`` m/s (N and N/s in force control).

        Return the reason if ``guard`` ended the ramp early, or an empty string. After an early end, all axes brake
        for the same time, on the line of the ramp. Commands in N have no acceleration limit.
        """
        most = np.where(by_force(self.modes), np.inf, self._acceleration) if self.modes else self._acceleration
        before, self.trace = self.command, []
        for wanted in bounded_ramp(self.command, goal, velocity, most, self._dt):
            before, self.command = self.command, wanted
            measured = yield wanted
            self.trace.append((wanted, measured))
            if why := guard(measured):
                step = self.command - before
                samples = samples_to_rest(step.tolist(), (most * self._dt**2).tolist())
                for done in range(1, samples):
                    self.command = self.command + step * (1.0 - done / samples)
                    yield self.command
                return why
        return ""

    def go(self, goal: Array, velocity: Array) -> Steps[Stand]:
        yield from self.ramp(goal, velocity)
        return (yield from self.stand())

    def stand(self) -> Steps[Stand]:
        """Hold until displacement and force are at rest, or for LONGEST_S seconds, then return their means."""
        yield from self._hold(self._late)
        last = yield from self._window(WINDOW_S)
        resting = False
        for _ in range(math.ceil(LONGEST_S / WINDOW_S)):
            before, last = last, (yield from self._window(WINDOW_S))
            if resting := self._rests(before, last):
                break
        return (yield from self._window(AVERAGED_S, resting))

    def _window(self, seconds: float, resting: bool = False) -> Steps[Stand]:
        rows = yield from self._hold(max(FEWEST, round(seconds / self._dt)))
        means = averages(rows, "displacement", "force", "auxiliary")
        return Stand(command=self.command, samples=len(rows), resting=resting, **means)

    def _hold(self, samples: int) -> Steps[list[Measurement]]:
        rows = yield from hold(self.command, samples)
        self.trace += [(self.command, row) for row in rows]
        return rows

    def _rests(self, before: Stand, now: Stand) -> bool:
        noise = CERTAIN * math.sqrt(2.0 / now.samples)
        changes = np.abs([now.displacement - before.displacement, now.force - before.force])
        scatters = np.array([now.displacement_scatter, now.force_scatter])
        return bool((changes <= self._still + noise * scatters).all())
