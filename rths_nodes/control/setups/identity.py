# SPDX-License-Identifier: Apache-2.0
"""Setups for axes that equal the degrees of freedom, and for scaled specimens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from rths_nodes.core.arithmetic import Numbers, first, scaled
from rths_nodes.core.control import Setup, SetupKernel, SetupOfKernel, functions_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Array

Constants = tuple[object, Numbers, Numbers]
"""Constants of the inner setup, length ratios specimen to structure, and force ratios structure to specimen."""
T = TypeVar("T")


def to_scale(inner_axes: Function, inner_forces: Callable[..., Numbers]) -> tuple[Function, Function]:
    def axes(k: Constants, x: Numbers, v: Numbers, a: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        scales, per_length, _ = k
        x, v, a = inner_axes(scales, x, v, a)
        return scaled(x, per_length), scaled(v, per_length), scaled(a, per_length)

    def forces(k: Constants, axis_forces: Numbers, displacement: Numbers) -> Numbers:
        scales, _, force = k
        return inner_forces(scales, scaled(axis_forces, first(axis_forces, force)), displacement)

    return axes, forces


class ScaledSetup(SetupOfKernel):
    """Converts between a structure and a scaled specimen; ``setup`` has the scale of the structure.

    Axes, measurements and limits have the scale of the specimen. ``length`` ``(n_axes,)`` and ``force`` are ratios
    of structure to specimen. ``force`` lists the force axes last.
    """

    def __init__(self, setup: Setup, length: Sequence[float], force: Sequence[float]) -> None:
        self._setup, self._length, self.takes_loads = setup, np.array(length), setup.takes_loads
        self._axes, self._forces = to_scale(*functions_of(setup))
        self._constants = None, tuple(1.0 / factor for factor in length), tuple(force)

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._setup.degrees_of_freedom(displacement * self._length)


def constants(params: object, n_dof: int, n_axes: int) -> tuple[()]:
    if n_dof != n_axes:
        raise ConfigError(
            f"setup identity: {n_axes} axes for {n_dof} degrees of freedom; both numbers must be equal"
        )
    return ()


def axes(k: tuple[()], x: T, v: T, a: T) -> tuple[T, T, T]:
    return x, v, a


def forces(k: tuple[()], axis_forces: T, displacement: T) -> T:
    return axis_forces


class Identity(SetupOfKernel):
    """Each axis moves with the degree of freedom of the same number."""

    @params
    class Params:
        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            return tuple(range(n_axes))

    KERNEL = SetupKernel(constants, axes, forces)

    def histories(self, displacement: Array) -> Array:
        return displacement

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return displacement
