# SPDX-License-Identifier: Apache-2.0
"""Simulator of one axis, including its specimen.

The kernel of an actuator (``core/kernels.py``) is

    step(constants, state, command) -> state, (displacement, velocity, force)

A step advances by one sample. Command and displacement are in m, velocity in m/s, force in N.
"""

from __future__ import annotations

from typing import ClassVar

from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Kernel, inherits
from rths_nodes.core.specimen import Specimen


class Actuator:
    """Simulates one axis, including its specimen.

    A class with a kernel implements :meth:`kernel_of`. Any other class implements ``step``, ``reset``,
    ``displacement``, ``velocity`` and ``force``.
    """

    Params: ClassVar[type]
    displacement: float
    velocity: float
    force: float

    def __init__(self, params: object, dt: float, specimen: Specimen) -> None:
        self._kernel = self.kernel_of(params, specimen)
        self.constants = self._kernel.constants(params, dt)
        self.reset()

    @classmethod
    def kernel_of(cls, params: AnyParams, specimen: Specimen) -> Kernel:
        raise NotImplementedError(f"{cls.__name__}: the class must have a kernel, or its own method step")

    def reset(self) -> None:
        """Return to rest at zero displacement and zero command."""
        self.state = self._kernel.rest(self.constants)
        self.displacement = self.velocity = self.force = 0.0

    def step(self, command: float) -> None:
        """Advance by one sample; ``command`` (m) is the command at the end of the sample."""
        self.state, (self.displacement, self.velocity, self.force) = self._kernel.step(
            self.constants, self.state, command
        )

    def bound(self) -> tuple[Kernel, object]:
        """Return a kernel and its constants. If the class has its own ``step``, the kernel calls this method."""
        if inherits(type(self), Actuator, "step"):
            return self._kernel, self.constants
        return OBJECT, self


def _rest(actuator: Actuator) -> tuple[()]:
    actuator.reset()
    return ()


def _step(actuator: Actuator, state: tuple[()], command: float) -> tuple[tuple[()], tuple[float, float, float]]:
    actuator.step(command)
    return state, (actuator.displacement, actuator.velocity, actuator.force)


OBJECT = Kernel(lambda actuator: actuator, _rest, _step)
