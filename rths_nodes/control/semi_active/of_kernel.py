"""Semi-active control made of pure functions.

    step(constants, state, auxiliary, ground_acceleration, chance) -> state, inputs

from the auxiliary channels of a Measurement (an array), the ground acceleration (m/s^2) of the same step, and a
random number of its own (``chance``). Constants are made of parameters, structure, dt (s) and the names
of the channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rths_nodes.core import channels
from rths_nodes.core.control import SemiActive
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array, Measurement


class OfKernel(SemiActive):
    """Voltage of a damper by a ``KERNEL``."""

    KERNEL: ClassVar[Kernel]
    inputs: tuple[str, ...] = (channels.DAMPER_VOLTAGE,)

    def __init__(self, params: Any, structure: Structure | None, dt: float, measured: Sequence[str]) -> None:
        self._constants = self.KERNEL.constants(params, structure, dt, measured)
        self.reset()

    @classmethod
    def kernel_of(cls, params: Any) -> Kernel:
        """The kernel of all inputs."""
        return cls.KERNEL

    def reset(self) -> None:
        """To the first state."""
        self._state = self.KERNEL.rest(self._constants)

    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        given = measured.auxiliary, ground_acceleration, self.chance()
        self._state, inputs = self.KERNEL.step(self._constants, self._state, *given)
        return np.array(inputs)
