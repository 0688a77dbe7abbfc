# SPDX-License-Identifier: Apache-2.0
"""Motion by steps: a bounded ramp, rest, and the mean of the measurements at rest, repeatedly.

At rest an actuator has reached its command, a dashpot has no force, and noise is averaged. Steps are generators
that yield commands and receive the Measurement after each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rths_nodes.core.braking import samples_to_rest
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.motions import BoundedRamp, NotFollowing, accelerations

T = TypeVar("T")
Steps = Generator[Array, Measurement, T]
"""Yields commands ``(n_axes,)`` m, receives Measurements, returns a result."""
Watch = Callable[[Array, Measurement], str]
"""Returns why the rig does not follow the last command ``(n_axes,)`` m, or empty."""
Guard = Callable[[Measurement], str]
"""Returns why a ramp has to end, or empty."""

WINDOW_S = 0.05
"""Length of a window, s: at rest, values do not differ between windows."""
AVERAGED_S = 0.5
"""Averaging time at rest, s."""
LONGEST_S = 2.0
"""Longest wait for rest, s; a value that still moves is used, with a remark."""
FEWEST = 8
"""Smallest length of a window, samples."""
STILL = 1e-6
"""Change in a window that counts as rest, as a share of stroke and force limit."""
CERTAIN = 4.0
"""Standard deviations by which means differ."""


class Script:
    """A guided motion (``motions.py``) of ``steps``, from ``command`` ``(n_axes,)`` m on.

    ``watch`` returns at each tick why the rig does not follow; ``result`` is the result of the steps.
    """

    def __init__(self, steps: Steps[object], command: Array, watch: Watch) -> None:
        self._steps, self._sent, self._watch = steps, command, watch
        self._begun = False
        self.result: Any = None

    def step(self, measured: Measurement) -> Array | None:
        """Return the next command, or None at the end. Raises NotFollowing."""
        if reason := self._watch(self._sent, measured):
            raise NotFollowing(reason)
        try:
            self._sent = self._steps.send(measured if self._begun else None)  # type: ignore[arg-type]  # it begins
            self._begun = True
            return self._sent
        except StopIteration as end:
            self.result = end.value
            return None


@dataclass(frozen=True)
class Stand:
    """Means and scatter (rms) at rest of ``samples`` Measurements, ``(n_axes,)`` m and N, ``(n_channels,)``.

    ``command`` ``(n_axes,)`` m is the sent command; ``resting`` is false if a value still moved.
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
    """Ramps and rests of a rig at ``command`` ``(n_axes,)`` m, with period ``dt`` s and ``transport`` samples.

    ``acceleration`` ``(n_axes,)`` m/s^2 bounds the ramps. Changes of displacement (m) or force (N) below ``still``
    in a window count as rest.
    """

    def __init__(
        self, command: Array, dt: float, transport: int, acceleration: Array, still: tuple[Array, Array]
    ) -> None:
        self.command = np.array(command, float)
        self._dt, self._late = dt, transport + 1
        self._acceleration, self._still = acceleration, still

    @classmethod
    def of(cls, scenario: Scenario, command: Array) -> QuasiStatic:
        """Return the steps of the rig of ``scenario``, which rests at ``command`` ``(n_axes,)`` m."""
        limits = scenario.limits
        still = tuple(
            STILL * np.array([getattr(axis, of) for axis in limits.values()]) for of in ("stroke", "force")
        )
        late = scenario.port.transport_samples
        return cls(command, scenario.dt, late, accelerations(limits), (still[0], still[1]))

    def ramp(self, goal: Array, velocity: Array, guard: Guard) -> Steps[str]:
        """Ramp to ``goal`` ``(n_axes,)`` m at up to ``velocity`` m/s; return why ``guard`` braked it, or empty."""
        ramp = BoundedRamp(self.command, goal, velocity, self._acceleration, self._dt)
        before, measured = self.command, None
        while (wanted := ramp.step(measured)) is not None:  # type: ignore[arg-type]  # it looks at no measurement
            before, self.command = self.command, wanted
            measured = yield wanted
            if why := guard(measured):
                yield from self._brake(self.command - before)
                return why
        return ""

    def go(self, goal: Array, velocity: Array) -> Steps[Stand]:
        """Move to ``goal`` ``(n_axes,)`` m at ``velocity`` m/s at most, and rest there."""
        yield from self.ramp(goal, velocity, lambda measured: "")
        return (yield from self.stand())

    def _brake(self, step: Array) -> Steps[None]:
        """Bring all axes to rest in a common time, on the line of the ramp and before its goal."""
        samples = samples_to_rest(step.tolist(), (self._acceleration * self._dt**2).tolist())
        for done in range(1, samples):
            self.command = self.command + step * (1.0 - done / samples)
            yield self.command

    def stand(self) -> Steps[Stand]:
        """Hold until displacement and force rest; return their means."""
        for _ in range(self._late):
            yield self.command
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
        rows: list[Measurement] = []
        for _ in range(samples):
            rows.append((yield self.command))
        values = {
            name: np.array([getattr(row, name) for row in rows]) for name in ("displacement", "force", "auxiliary")
        }
        mean = {name: each.mean(axis=0) for name, each in values.items()}
        scatter = {f"{name}_scatter": each.std(axis=0) for name, each in values.items()}
        return Stand(command=self.command, samples=samples, resting=resting, **mean, **scatter)

    def _rests(self, before: Stand, now: Stand) -> bool:
        noise = CERTAIN * math.sqrt(2.0 / now.samples)
        pairs = (
            (now.displacement - before.displacement, now.displacement_scatter, self._still[0]),
            (now.force - before.force, now.force_scatter, self._still[1]),
        )
        return all(bool((np.abs(change) <= still + noise * scatter).all()) for change, scatter, still in pairs)
