# SPDX-License-Identifier: Apache-2.0
"""Column with a horizontal and a vertical actuator at its head, including the geometry of both actuators.

The first axis moves the head horizontally by u. The second axis pushes the head down. Its extension is e, and a
positive force is compression. a and b are the inclinations and c is the shortening in ``mechanics/axial_load.py``.
V is the force of the lateral specimen.

    N = K c,  1 / K = 1 / k_column + 1 / k_frame        force along the column
    P = N cos a / cos b                                 force of the vertical actuator, by equilibrium of the head
    F = V(u, u') - N sin a - P sin b                    force of the horizontal actuator

N sin a, the P-Delta force of the column, is part of its restoring force; P sin b, the push of the inclined
actuator, is not (``control/setups.py``). The forces do not affect the actuators. The column has no axial mass.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.arithmetic import numbers
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function, Kernel, ToNumber
from rths_nodes.core.parameters import OfParams, TestContext, component, evolved, number, params, type_of
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import ACTUATOR_OBJECT, NoSpecimen, Rig, RigKernel, Shown, still
from rths_nodes.laboratory.actuators.unloaded import path_of
from rths_nodes.mechanics.axial_load import (
    ColumnGeometry,
    Lengths,
    check_drift,
    directions_at,
    lengths_of,
    shortening_at,
)


class Constants(NamedTuple):
    lengths: Lengths
    stiffness: float
    """Stiffness of column and load frame in series, N/m."""
    crushing_force: float
    crushed_force: float
    horizontal: object
    vertical: object
    lateral: object


State = tuple[object, object, object, bool]
"""States of both actuators and of the lateral specimen; true if the column is crushed."""


def column_under(move: Function, load: Function, lateral: ToNumber) -> Function:
    def step(k: Constants, s: State, command: Array, auxiliary: Array) -> tuple[tuple[object, ...], Shown]:
        """Advance both actuators, then compute the forces with the equations of this module."""
        lengths, stiffness, crushing, remains, of_moving, of_loading, of_lateral = k
        moving, loading, bent, crushed = s
        asked = numbers(command)
        moving, (drift, drift_rate, _) = move(of_moving, moving, asked[0])
        loading, (extension, rate, _) = load(of_loading, loading, asked[1])
        bent, pushed = lateral(of_lateral, bent, drift, drift_rate)
        along = stiffness * shortening_at(lengths, extension, drift)
        crushed = crushed or along >= crushing
        if crushed and along > remains:
            along = remains
        sin_a, cos_a, sin_b, cos_b = directions_at(lengths, extension, drift)
        push = along * cos_a / cos_b
        forces = np.array([pushed - along * sin_a - push * sin_b, push])
        places, rates = np.array([drift, extension]), np.array([drift_rate, rate])
        return (moving, loading, bent, crushed), (places, rates, forces, np.zeros(0))

    return step


def _kernel_of(params: object) -> Kernel:
    specimen, built_in = NoSpecimen(), type_of(params) in registry.built_in("actuator")
    kernel: Kernel = (
        registry.class_of("actuator", params).kernel_of(params, specimen) if built_in else ACTUATOR_OBJECT
    )
    return kernel._replace(
        constants=lambda actuator, dt: registry.build("actuator", actuator, dt, specimen).bound()[1]
    )


class AxiallyLoadedColumn(Rig):
    """Column with a horizontal actuator (first axis) and a vertical actuator (second axis) at its head."""

    @params
    class Params(ColumnGeometry):
        to_scale: ClassVar[bool] = True

        axial_stiffness: float = number("stiffness k_column of the column along its axis", "N/m", more_than=0.0)
        frame_stiffness: float | None = number(
            "stiffness k_frame of the load frame, in series with the column; default: rigid",
            "N/m",
            None,
            more_than=0.0,
        )
        crushing_force: float | None = number(
            "compression at which the column loses its axial stiffness; default: never",
            "N",
            None,
            more_than=0.0,
        )
        crushed_force: float = number("compression that a crushed column can still carry", "N", 0.0, at_least=0.0)
        lateral: OfParams = component(
            "specimen", "lateral restoring force V of the column", {"type": "kelvin_voigt"}
        )
        horizontal: OfParams = component("actuator", "actuator that moves the head", {"type": "second_order"})
        vertical: OfParams = component("actuator", "actuator that loads the column", {"type": "second_order"})

        def validate(self, path: str) -> None:
            if self.crushing_force is not None and self.crushed_force > self.crushing_force:
                raise ConfigError(
                    f"{path}.crushed_force = {self.crushed_force:g} N: must be <= crushing_force = "
                    f"{self.crushing_force:g} N"
                )

        def fits(self, test: TestContext) -> None:
            if len(test.axes) != 2:
                raise ConfigError(
                    f"axes: the number of axes is {len(test.axes)}; must be 2, one that moves the head and one "
                    "that loads the column"
                )
            check_drift(self, test.strokes[0], "")

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        if n_axes != 2:
            raise ConfigError(
                f"rig axially_loaded_column: the number of axes is {n_axes}; must be 2 (horizontal and vertical)"
            )
        super().__init__(params, dt, n_axes)

    @classmethod
    def at_commands(cls, params: Params) -> Params:
        there = registry.load("actuator", "pure_delay").Params()
        return evolved(params, horizontal=there, vertical=there)

    @classmethod
    def kernel_of(cls, params: Params, n_axes: int) -> RigKernel:
        move, load = (_kernel_of(actuator) for actuator in (params.horizontal, params.vertical))
        lateral = path_of(registry.build("specimen", params.lateral))

        def constants(p: AxiallyLoadedColumn.Params, dt: float) -> Constants:
            soft = 0.0 if p.frame_stiffness is None else 1.0 / p.frame_stiffness
            return Constants(
                lengths_of(p),
                1.0 / (1.0 / p.axial_stiffness + soft),
                math.inf if p.crushing_force is None else p.crushing_force,
                p.crushed_force,
                move.constants(p.horizontal, dt),
                load.constants(p.vertical, dt),
                lateral.constants(dt),
            )

        return RigKernel(
            constants,
            lambda k: (move.rest(k.horizontal), load.rest(k.vertical), lateral.rest(k.lateral), False),
            column_under(move.step, load.step, lateral.step),
            lambda k, s: still(n_axes),
        )
