# SPDX-License-Identifier: Apache-2.0
"""The smallest margin of a test against the ends of the strokes: the way left less the braking way, by axis."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.braking import braked_together, braking_way, changes_of_step, samples_to_rest, way_left
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Command, Measurement, Target


class Margins:
    """A sink of a loop that follows displacement commands; ``limits`` and ``groups`` as of a LimitCheck, ``dt`` s.

    ``smallest`` has m by axis, inf for an axis of which there was no command; ``samples`` is the last one.
    """

    def __init__(self, limits: dict[str, Limits], dt: float, groups: Sequence[int]) -> None:
        self._strokes = [each.stroke for each in limits.values()]
        self._changes = changes_of_step(limits.values(), dt)
        forced = [each.of_force for each in limits.values()]
        together = braked_together(limits.values(), groups)
        self._groups = [group for group in together if not forced[group[0]]]
        self.smallest = [float("inf")] * len(limits)
        self.samples = 0
        self._before: list[float] = []

    def command(self, command: Command) -> None:
        now, before = command.command.tolist(), self._before
        self._before, self.samples = now, command.sample
        for group in self._groups if before else ():
            steps = [now[axis] - before[axis] for axis in group]
            samples = samples_to_rest(steps, [self._changes[axis] for axis in group])
            for axis, step in zip(group, steps, strict=True):
                left = way_left(now[axis], step, self._strokes[axis]) - braking_way(step, samples)
                self.smallest[axis] = min(self.smallest[axis], left)

    def target(self, target: Target) -> None: ...

    def measurement(self, measured: Measurement) -> None: ...

    def truth(self, true: Measurement) -> None: ...

    def state(self, sample: int, values: Sequence[float]) -> None: ...

    def updating(self, sample: int, values: Sequence[float]) -> None: ...
