# SPDX-License-Identifier: Apache-2.0
"""From the active commands of the controllers to where the actuators go, on a rig that is not as it should be.

Controller i leads its actuator to scale c_i + offset, with its active command c_i, less z_i where its loop is
proportional:

    z_i' = (F / K_i - z_i) / T        at rest short of its command by F / K

F is the force of the actuator that it drives; by a wrong cable that is another one than its own. The play b of the
drive is taken up before the actuator moves, which stays within +- b/2 of where it is led. Without pressure, or
with an open interlock, it stays where it was; with low pressure it follows at a limited velocity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.samples import HYDRAULICS_LOW, HYDRAULICS_OFF, Array
from rths_nodes.laboratory.sensors import Output

SETTLING = 1.0 / 36.6
"""T, s: the loop gain of the 1700 kN actuator of Chen & Ricles (2010), as ``servo_hydraulic`` has it."""
WALK, REST = 1.0, 1.0
"""s that an actuator takes to its start before a test, and stands there before sample 0."""


class Drive:
    """Leads the actuators of all axes; ``dt`` s, ``low_velocity`` (m/s) at low pressure.

    Raises ConfigError where two commands are cabled to one actuator.
    """

    def __init__(self, outputs: Mapping[str, Output], dt: float, low_velocity: float) -> None:
        self._places = _places(outputs)
        self._rows = [
            (
                output.scale,
                output.offset,
                1.0 / output.static_stiffness if output.static_stiffness else 0.0,
                0.5 * output.lost_motion,
            )
            for output in outputs.values()
        ]
        self.start = np.array([_start(output) for output in outputs.values()])
        """Active commands at sample 0, ``(n_axes,)`` m."""
        self._rest = np.array([_rest(output) for output in outputs.values()])
        self._dt, self._share = dt, -math.expm1(-dt / SETTLING)
        self._slowest = low_velocity * dt
        self.reset()

    def reset(self) -> None:
        """All actuators at zero, without force."""
        self._short = [0.0] * len(self._rows)
        self._led = [0.0] * len(self._rows)

    def goes_on_from(self, led: Sequence[float]) -> None:
        """Begin where others have ``led`` the actuators (m)."""
        self._led = list(led)

    def walk(self) -> Iterator[Array]:
        """Active commands of the way to the start, from where the actuators are at zero; none where it is that."""
        if (self.start == self._rest).all():
            return
        for step in range(1, round((WALK + REST) / self._dt) + 1):
            share = 0.5 - 0.5 * math.cos(math.pi * min(step * self._dt / WALK, 1.0))
            yield self._rest + share * (self.start - self._rest)

    def led(self, command: Sequence[float], force: Sequence[float], hydraulics: int, stopped: bool) -> list[float]:
        """Where the actuators go, m, with active ``command`` (m) and last ``force`` (N) of all."""
        before, after = self._led, list(self._led)
        rows = zip(command, self._places, self._rows, strict=True)
        for i, (active, place, (scale, offset, compliance, play)) in enumerate(rows):
            if compliance:
                self._short[i] += self._share * (compliance * force[place] - self._short[i])
            wanted = scale * active + offset - self._short[i]
            after[place] = min(max(before[place], wanted - play), wanted + play) if play else wanted
        if stopped or hydraulics == HYDRAULICS_OFF:
            after = before
        elif hydraulics == HYDRAULICS_LOW:
            most = self._slowest
            after = [old + min(max(new - old, -most), most) for old, new in zip(before, after, strict=True)]
        self._led = after
        return after


def _rest(output: Output) -> float:
    return 0.0 - output.offset / output.scale


def _start(output: Output) -> float:
    return _rest(output) if output.start is None else output.start


def _places(outputs: Mapping[str, Output]) -> list[int]:
    names, taken = list(outputs), dict[str, str]()
    for name, output in outputs.items():
        driven = output.cabled_to or name
        if driven in taken:
            guilty, other = (name, taken[driven]) if output.cabled_to else (taken[driven], name)
            raise ConfigError(
                f"axes.{guilty}.output.cabled_to = {show(driven)}: the command of axes.{other} drives that "
                "actuator, too; swap both cables"
            )
        taken[driven] = name
    return [names.index(output.cabled_to or name) for name, output in outputs.items()]
