# SPDX-License-Identifier: Apache-2.0
"""The setup in which axes and degrees of freedom are the same."""

from __future__ import annotations

from typing import TypeVar

from rths_nodes.core.control import SetupKernel, SetupOfKernel
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Array

T = TypeVar("T")


def constants(params: object, n_dof: int, n_axes: int) -> tuple[()]:
    """Raises ConfigError for different numbers."""
    if n_dof != n_axes:
        raise ConfigError(
            f"setup identity: {n_axes} axes for {n_dof} degrees of freedom: the numbers must be equal"
        )
    return ()


def axes(k: tuple[()], x: T, v: T, a: T) -> tuple[T, T, T]:
    return x, v, a


def forces(k: tuple[()], axis_forces: T, displacement: T) -> T:
    return axis_forces


class Identity(SetupOfKernel):
    """Axis a moves with degree of freedom a."""

    @params
    class Params:
        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            return tuple(range(n_axes))

    KERNEL = SetupKernel(constants, axes, forces)

    def histories(self, displacement: Array) -> Array:
        return displacement

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return displacement
