# SPDX-License-Identifier: Apache-2.0
"""Experimental substructure of one axis.

The kernel functions of a specimen (``core/kernels.py``) are

    force(constants, state, displacement, velocity) -> force
    rate(constants, state, displacement, velocity) -> rates of the state

The inner states are a tuple of floats, which the actuator integrates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from rths_nodes.core.decay import Decay, declared
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, inherits, no_state


class SpecimenKernel(NamedTuple):
    """Holds ``constants`` from parameters, states at ``rest``, and functions ``force`` (N) and ``rate``."""

    constants: Function
    rest: Callable[..., tuple[float, ...]]
    force: Callable[..., float]
    rate: Callable[..., tuple[float, ...]]
    driven: Callable[..., object] | None = None
    """Function of constants and voltage (V) that returns new constants; None if the specimen has no voltage."""


def no_rates(constants: object, state: object, displacement: float, velocity: float) -> tuple[()]:
    return ()


class Specimen:
    """Computes the force of a specimen of one axis and the rates of its inner states, in plain floats.

    A class with a kernel has ``KERNEL`` or :meth:`kernel_of`. Any other class implements ``force``, ``rate``,
    ``initial_state`` and, if it has states, ``decay``.
    """

    Params: ClassVar[type]
    KERNEL: ClassVar[SpecimenKernel | None] = None
    initial_state: tuple[float, ...]
    decay: Decay | None = None
    """Decay of the inner states, which determines the increments per sample; ``Decay()`` without states."""
    mass: float = 0.0
    """Mass, kg. The actuator computes the inertial force of this mass."""
    felt: bool = True
    """False if the force is only computed and does not load the actuator."""
    linear: tuple[float, float] | None = None
    """Stiffness (N/m) and damping (N s/m) of a stateless spring and dashpot; actuators compute their force
    exactly."""
    voltage: float | None = None
    """Voltage that a controller sets at the damper's current driver, V; None if the specimen has no voltage."""

    def __init__(self, params: object, kernel: SpecimenKernel | None = None) -> None:
        self._made(self.kernel_of(params) if kernel is None else kernel, params)
        self.decay = declared(params) or (None if self.initial_state else Decay())

    def _made(self, kernel: SpecimenKernel, params: object) -> None:
        self._kernel, self._constants = kernel, kernel.constants(params)
        self.initial_state = tuple(kernel.rest(self._constants))

    @classmethod
    def kernel_of(cls, params: AnyParams) -> SpecimenKernel:
        assert cls.KERNEL is not None, cls
        return cls.KERNEL

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        """Return the force, N, in ``state`` at ``displacement`` (m) and ``velocity`` (m/s), without inertia."""
        return self._kernel.force(self._constants, tuple(state), displacement, velocity)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        """Return the rates of the inner ``state`` at ``displacement`` (m) and ``velocity`` (m/s)."""
        return self._kernel.rate(self._constants, tuple(state), displacement, velocity)

    def bound(self) -> tuple[SpecimenKernel, object]:
        """Return a kernel and its constants.

        The kernel calls ``force`` and ``rate`` of a class that defines them.
        """
        if inherits(type(self), Specimen, "force", "rate"):
            return self._kernel, self._constants
        return OBJECT, self


def _force(specimen: Specimen, state: tuple[float, ...], displacement: float, velocity: float) -> float:
    return specimen.force(state, displacement, velocity)


def _rate(specimen: Specimen, state: tuple[float, ...], displacement: float, velocity: float) -> tuple[float, ...]:
    return tuple(specimen.rate(state, displacement, velocity))


def _driven(specimen: Specimen, voltage: float) -> Specimen:
    specimen.voltage = voltage
    return specimen


OBJECT = SpecimenKernel(lambda specimen: specimen, lambda k: tuple(k.initial_state), _force, _rate, _driven)


def no_force(constants: object, state: object, displacement: float, velocity: float) -> float:
    return 0.0


class NoSpecimen(Specimen):
    KERNEL = SpecimenKernel(no_state, no_state, no_force, no_rates)

    def __init__(self) -> None:
        self._made(self.kernel_of(None), None)
