"""A column whose head one actuator drifts while another one above it loads it, with the geometry of both.

The first axis moves the head horizontally by u, the second one pushes it down: e is its extension, positive
displacement, and positive force is compression. With the inclinations a and b, and the shortening c, of
``core/axial_load.py``, V the force of the lateral specimen:

    N = K c,  1 / K = 1 / k_column + 1 / k_frame        along the column
    P = N cos a / cos b                                 of the vertical actuator, by the equilibrium of the head
    F = V(u, u') - N sin a - P sin b                    of the horizontal actuator

N sin a is the P-Delta of the column, which belongs to its restoring force; P sin b is the push of the inclined
actuator, which does not (``control/setups/upright_load.py``). The horizontal actuator is so long that it keeps its
direction. Actuators do not feel the forces; the column has no mass along its axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.axial_load import AxialLoad, ColumnGeometry, check_drift
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import component, number, params
from rths_nodes.core.samples import EMPTY, Array
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath
from rths_nodes.laboratory.rigs.linear_with_specimen import NoSpecimen


class AxiallyLoadedColumn:
    """A column under a horizontal and a vertical actuator: two axes, the horizontal one first."""

    @params
    class Params(ColumnGeometry):
        """Parameters of the column, its actuators and the load frame."""

        axial_stiffness: float = number("of the column along its axis, k_column", "N/m", more_than=0.0)
        frame_stiffness: float | None = number(
            "of the load frame, in series with the column, k_frame; rigid if left out", "N/m", None, more_than=0.0
        )
        crushing_force: float | None = number(
            "compression at which the column loses its axial stiffness; never if left out",
            "N",
            None,
            more_than=0.0,
        )
        crushed_force: float = number("compression that a crushed column still bears", "N", 0.0, at_least=0.0)
        lateral: Any = component("specimen", "lateral restoring force V of the column", {"type": "kelvin_voigt"})
        horizontal: Any = component("actuator", "actuator that moves the head", {"type": "second_order"})
        vertical: Any = component("actuator", "actuator that loads the column", {"type": "second_order"})

        def validate(self, path: str) -> None:
            """Refuses a crushed column that bears more than an intact one."""
            if self.crushing_force is not None and self.crushed_force > self.crushing_force:
                raise ConfigError(
                    f"{path}.crushed_force = {self.crushed_force:g} N: must be <= crushing_force = "
                    f"{self.crushing_force:g} N"
                )

        def fits(self, test: TestContext) -> None:
            """Refuses another number of axes, and a drift that lays the column down."""
            if len(test.axes) != 2:
                raise ConfigError(
                    f"axes: {len(test.axes)}: must be 2, one that moves the head and one that loads it"
                )
            check_drift(self, test.strokes[0], "")

    auxiliary_names: tuple[str, ...] = ()
    auxiliary_inputs: tuple[str, ...] = ()
    auxiliary = EMPTY

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        if n_axes != 2:
            raise ConfigError(f"rig axially_loaded_column: {n_axes} axes: must be 2, horizontal and vertical")
        p = self._p = params
        self._load = AxialLoad(p)
        soft = 0.0 if p.frame_stiffness is None else 1.0 / p.frame_stiffness
        self._stiffness = 1.0 / (1.0 / p.axial_stiffness + soft)
        self._actuators = [
            registry.build("actuator", each, dt, NoSpecimen()) for each in (p.horizontal, p.vertical)
        ]
        self._lateral = SpecimenPath(registry.build("specimen", p.lateral), dt)
        self.reset()

    def reset(self) -> None:
        """At rest at zero, without force, the column intact."""
        for part in (*self._actuators, self._lateral):
            part.reset()
        self.crushed = False
        self._look(0.0)

    def step(self, command: Array, auxiliary: Array) -> None:
        """One sample on, with the command ``(2,)`` m."""
        for actuator, value in zip(self._actuators, command.tolist(), strict=True):
            actuator.step(value)
        moving = self._actuators[0]
        self._look(self._lateral.move(moving.displacement, moving.velocity))

    def _look(self, lateral: float) -> None:
        moving, loading = self._actuators
        drift, extension = moving.displacement, loading.displacement
        along = self._compression(self._load.shortening(extension, drift))
        sin_a, cos_a, sin_b, cos_b = self._load.directions(extension, drift)
        push = along * cos_a / cos_b
        self.displacement = np.array([drift, extension])
        self.velocity = np.array([moving.velocity, loading.velocity])
        self.force = np.array([lateral - along * sin_a - push * sin_b, push])

    def _compression(self, shortening: float) -> float:
        p, elastic = self._p, self._stiffness * shortening
        if p.crushing_force is not None and elastic >= p.crushing_force:
            self.crushed = True
        return min(elastic, p.crushed_force) if self.crushed else elastic
