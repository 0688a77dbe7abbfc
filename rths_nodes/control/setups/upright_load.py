"""The setup that takes the push of inclined load actuators out of the forces of the axes that incline them.

A load actuator above a head that has drifted by u pushes it with P sin b to the side, sin b = u / sqrt(L^2 + u^2)
with its length L, pin to pin. The actuator that moves the head bears that, and its load cell shows

    F = R - P sin b,        so that        R = F + P sin b

is the restoring force of the specimen, with the P-Delta of an upright load in it. The small change of L under the
load is left out: of the correction a share e / L, 3e-4 for 0.5 mm on 2 m.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.axial_load import horizontal_share
from rths_nodes.core.checks import TestContext, stop_groups_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import component, integer, number, params
from rths_nodes.core.samples import Array, Motion


class UprightLoad:
    """Another ``setup``, behind a correction of the measured forces for the inclination of one load actuator.

    ``forces`` takes the forces of all axes, those that are controlled by force behind the others.
    """

    takes_loads = True

    @params
    class Params:
        """Parameters of the correction."""

        actuator_length: float = number(
            "length of the load actuator, pin to pin", "m", more_than=0.0, at_most=100.0
        )
        force_axis: int = integer("number of its axis among those controlled by force, from 1", "", 1, at_least=1)
        inclined_by: int = integer(
            "number of the displacement axis that moves its head, from 1", "", 1, at_least=1
        )
        setup: Any = component("setup", "degrees of freedom <-> displacement axes", {"type": "identity"})

        def fits(self, test: TestContext) -> None:
            """Raises ConfigError for an axis that the test has not."""
            loads = len(test.force_axes)
            for key, most, what in (
                ("force_axis", loads, "axes controlled by force"),
                ("inclined_by", len(test.axes) - loads, "displacement axes"),
            ):
                if getattr(self, key) > most:
                    raise ConfigError(f"{key} = {getattr(self, key)}: must be <= {most}, the number of {what}")

        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            """The load stands on the specimen of the axis that inclines it."""
            groups = list(stop_groups_of(self.setup, n_moved, n_axes))
            load = n_moved + self.force_axis - 1
            groups[load] = groups[self.inclined_by - 1]
            return tuple(groups)

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        self._inner: Any = registry.build("setup", params.setup, n_dof, n_axes)
        if getattr(self._inner, "takes_loads", False):
            raise ConfigError("setup.setup.type = 'upright_load': must be a setup without loads")
        if params.inclined_by > n_axes:
            raise ConfigError(
                f"setup.inclined_by = {params.inclined_by}: must be <= {n_axes}, the displacement axes"
            )
        self._n, self._length = n_axes, params.actuator_length
        self._by, self._load = params.inclined_by - 1, n_axes + params.force_axis - 1
        self._still = np.zeros(n_dof)

    def axes(self, motion: Motion) -> Motion:
        found: Motion = self._inner.axes(motion)
        return found

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        """Forces ``(n_dof,)`` N of those of all axes, N, in the pose ``displacement`` ``(n_dof,)`` m."""
        still = self._still
        drift = float(self._inner.axes(Motion(displacement, still, still)).displacement[self._by])
        forces = axis_forces[: self._n].copy()
        if len(axis_forces) > self._n:  # without loads, as of a model of the specimen alone, nothing inclines
            forces[self._by] += axis_forces[self._load] * horizontal_share(drift, self._length)
        found: Array = self._inner.forces(forces, displacement)
        return found

    def degrees_of_freedom(self, displacement: Array) -> Array:
        found: Array = self._inner.degrees_of_freedom(displacement)
        return found
