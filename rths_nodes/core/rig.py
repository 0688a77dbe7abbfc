# SPDX-License-Identifier: Apache-2.0
"""The simulator of all axes at once, for actuators that are coupled through one specimen.

    step(constants, state, command, auxiliary) -> state, (displacement, velocity, force, channels)

is the kernel of a rig (``core/kernels.py``), in arrays: command, displacement (m), velocity (m/s) and force (N) of
the axes ``(n_axes,)``, auxiliary inputs, and auxiliary channels that are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, inherits
from rths_nodes.core.samples import EMPTY, Array

Shown = tuple[Array, Array, Array, Array]
"""Displacement (m), velocity (m/s), force (N) and auxiliary channels."""


def still(n_axes: int) -> Shown:
    """Nothing moves, and nothing pushes."""
    return np.zeros(n_axes), np.zeros(n_axes), np.zeros(n_axes), np.zeros(0)


class RigKernel(NamedTuple):
    """Arithmetic of a rig: as a ``Kernel``, and what is ``shown`` at rest, of constants and state."""

    constants: Function
    rest: Function
    step: Function
    shown: Callable[..., Shown]


class Rig:
    """Simulator of all axes at once; what it may declare stands here with what holds otherwise.

    One with a kernel has :meth:`kernel_of`; another one ``step``, ``reset`` and the arrays of its own. One whose
    specimen is in another process is ``external``, has ``open``, ``close`` and ``failure``.
    """

    Params: ClassVar[type]
    external: bool = False
    """True for one of which there can be no second copy."""
    failure: str = ""
    """Why it cannot go on, in words; empty while it can."""
    auxiliary_names: tuple[str, ...] = ()
    """Names of the measured channels beside those of the axes, with their units."""
    auxiliary_inputs: tuple[str, ...] = ()
    """Names of what else it is driven with, e.g. a voltage, with their units."""
    displacement: Array
    velocity: Array
    force: Array
    auxiliary: Array = EMPTY

    def __init__(self, params: object, dt: float, n_axes: int, kernel: RigKernel | None = None) -> None:
        """With a ``kernel`` that is made already."""
        self._kernel = self.kernel_of(params, n_axes) if kernel is None else kernel
        self.constants = self._kernel.constants(params, dt)
        self.reset()

    @classmethod
    def kernel_of(cls, params: AnyParams, n_axes: int) -> RigKernel:
        raise NotImplementedError(f"{cls.__name__}: has neither a kernel nor a step of its own")

    @classmethod
    def at_commands(cls, params: AnyParams) -> object | None:
        """Parameters of the same specimen under actuators that are where they are commanded, at each sample.

        With what is measured as commands it gives the forces of a rig that moved so. None where a specimen cannot
        be had without its actuators, or makes force of an acceleration: of noise.
        """
        return None

    def open(self) -> None:
        """Start what computes outside of this process. Raises ConfigError where it cannot be started."""

    def close(self) -> None:
        """End what computes outside of this process; may be called again."""

    def reset(self) -> None:
        """At rest at zero, and commanded to be there."""
        kernel, k = self._kernel, self.constants
        self.state = kernel.rest(k)
        self.displacement, self.velocity, self.force, self.auxiliary = kernel.shown(k, self.state)

    def bound(self) -> tuple[RigKernel, object] | None:
        """Kernel and constants; None of a class with a ``step`` of its own."""
        return (self._kernel, self.constants) if inherits(type(self), Rig, "step") else None

    def step(self, command: Array, auxiliary: Array) -> None:
        """One sample on, with the command ``(n_axes,)`` m and the auxiliary inputs."""
        self.state, shown = self._kernel.step(self.constants, self.state, command, auxiliary)
        self.displacement, self.velocity, self.force, self.auxiliary = shown

    def follow(self, command: list[float], auxiliary: Array) -> tuple[list[float], list[float]]:
        """:meth:`step` with a command in numbers; gives displacements (m) and forces (N) of the axes as these."""
        self.step(np.array(command), auxiliary)
        return self.displacement.tolist(), self.force.tolist()
