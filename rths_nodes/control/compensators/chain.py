"""Two compensators in series.

The first sees the target; the second sees the output of the first as its target. Both see the same measurement.
Two-stage adaptive delay compensation (TADC, Wang et al.) is the chain of `discrete_model` and `polynomial`: the
polynomial makes up for most of the delay, the model in front of it for what is left (Fig. 1 there).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.frequency_response import Complex, Frequencies, in_series
from rths_nodes.core.parameters import component, params
from rths_nodes.core.samples import Array, Motion


class Chain:
    """The output of one compensator is the target of another.

    Velocity and acceleration of the second one's target are backward differences of the first one's output. A
    chain may stand in a chain.
    """

    @params
    class Params:
        first: Any = component("compensator", "sees the target")
        second: Any = component("compensator", "sees the output of the first as its target", after="first")

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._dt = dt
        stages = {"first": params.first, "second": params.second}
        built = {name: registry.build("compensator", own, dt, n_axes) for name, own in stages.items()}
        self._first, self._second = built["first"], built["second"]
        names = {f"{place}.{own}": (stage, own) for place, stage in built.items() for own in stage.state_names}
        self.state_names = tuple(names)
        self.state_units: Mapping[str, str] = {
            _bare(name): stage.state_units[_bare(own)]
            for name, (stage, own) in names.items()
            if _bare(own) in getattr(stage, "state_units", {})  # one of another package may state none
        }
        self.state_limits: Mapping[str, tuple[float, float]] = {
            _bare(name): stage.state_limits[_bare(own)]
            for name, (stage, own) in names.items()
            if _bare(own) in getattr(stage, "state_limits", {})
        }
        self._between = Motion(np.zeros(n_axes), np.zeros(n_axes), np.zeros(n_axes))

    def reset(self) -> None:
        """The first one's output was zero before the test."""
        self._first.reset()
        self._second.reset()
        between = self._between
        between.displacement[:] = between.velocity[:] = between.acceleration[:] = 0.0

    def step(self, target: Motion, measured: Array) -> Array:
        output = self._first.step(target, measured)
        between = self._between
        velocity = (output - between.displacement) / self._dt
        between.acceleration[:] = (velocity - between.velocity) / self._dt
        between.velocity[:] = velocity
        between.displacement[:] = output
        between.flagged, between.preparing, between.force = target.flagged, target.preparing, target.force
        command: Array = self._second.step(between, measured)
        return command

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s), the derivatives between the two taken as exact."""
        first, second = (stage.frequency_response(omega) for stage in (self._first, self._second))
        return in_series(first, second)

    def state(self) -> list[float]:
        return list(chain(self._first.state(), self._second.state()))


def _bare(name: str) -> str:
    """The name of an inner number without its axis."""
    return name.partition("[")[0]
