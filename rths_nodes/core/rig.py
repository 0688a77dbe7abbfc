# SPDX-License-Identifier: Apache-2.0
"""Simulator of all axes together, for actuators coupled through one specimen.

The kernel of a rig (``core/kernels.py``) is

    step(constants, state, command, auxiliary) -> state, (displacement, velocity, force, channels)

``command`` (m), displacement (m), velocity (m/s) and force (N) are arrays ``(n_axes,)``. ``auxiliary`` is the
array of the auxiliary inputs, ``channels`` the array of the measured auxiliary channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, inherits
from rths_nodes.core.samples import EMPTY, Array

Shown = tuple[Array, Array, Array, Array]


def still(n_axes: int) -> Shown:
    return np.zeros(n_axes), np.zeros(n_axes), np.zeros(n_axes), np.zeros(0)


class RigKernel(NamedTuple):
    """Holds the functions of a ``Kernel``, and ``shown(constants, state)`` for the results at rest."""

    constants: Function
    rest: Function
    step: Function
    shown: Callable[..., Shown]


class Rig:
    """Simulates all axes together, and provides defaults of optional members.

    A class with a kernel implements :meth:`kernel_of`. Any other class implements ``step``, ``reset``,
    ``displacement``, ``velocity`` and ``force``. A rig whose specimen is in another process is ``external``, and
    has ``open``, ``close`` and ``failure``.
    """

    Params: ClassVar[type]
    external: bool = False
    failure: str = ""
    """Reason why the rig cannot continue, or an empty string."""
    auxiliary_names: tuple[str, ...] = ()
    """Names of further measured channels, with units."""
    auxiliary_inputs: tuple[str, ...] = ()
    """Names of further inputs, e.g. a voltage, with units."""
    displacement: Array
    velocity: Array
    force: Array
    auxiliary: Array = EMPTY

    def __init__(self, params: object, dt: float, n_axes: int, kernel: RigKernel | None = None) -> None:
        self._kernel = self.kernel_of(params, n_axes) if kernel is None else kernel
        self.constants = self._kernel.constants(params, dt)
        self.reset()

    @classmethod
    def kernel_of(cls, params: AnyParams, n_axes: int) -> RigKernel:
        raise NotImplementedError(f"{cls.__name__}: the class must have a kernel, or its own method step")

    @classmethod
    def at_commands(cls, params: AnyParams) -> object | None:
        """Return parameters of a rig with the same specimen and ideal actuators.

        Return None if the specimen cannot be separated from its actuators, or if its force depends on
        acceleration.
        """
        return None

    def open(self) -> None: ...

    def close(self) -> None: ...

    def reset(self) -> None:
        kernel, k = self._kernel, self.constants
        self.state = kernel.rest(k)
        self.displacement, self.velocity, self.force, self.auxiliary = kernel.shown(k, self.state)

    def bound(self) -> tuple[RigKernel, object] | None:
        return (self._kernel, self.constants) if inherits(type(self), Rig, "step") else None

    def step(self, command: Array, auxiliary: Array) -> None:
        """Advance by one sample, with the command ``(n_axes,)`` m and the auxiliary inputs."""
        self.state, shown = self._kernel.step(self.constants, self.state, command, auxiliary)
        self.displacement, self.velocity, self.force, self.auxiliary = shown

    def follow(self, command: list[float], auxiliary: Array) -> tuple[list[float], list[float]]:
        """Advance by one sample, and return displacements (m) and forces (N) as floats."""
        self.step(np.array(command), auxiliary)
        return self.displacement.tolist(), self.force.tolist()
