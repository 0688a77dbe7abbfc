# SPDX-License-Identifier: Apache-2.0
"""The part of a structure that stands in the laboratory, as one axis feels it.

    force(constants, state, displacement, velocity) -> force
    rate(constants, state, displacement, velocity) -> rates of the state

are the kernel functions of a specimen (``core/kernels.py``), with the inner states as a tuple of floats: whatever
moves a specimen is made around them, and integrates the states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from rths_nodes.core.decay import Decay, declared
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, inherits, no_state


class SpecimenKernel(NamedTuple):
    """Arithmetic of a specimen: ``constants`` from parameters, states at ``rest``, ``force`` (N) and ``rate``."""

    constants: Function
    rest: Callable[..., tuple[float, ...]]
    force: Callable[..., float]
    rate: Callable[..., tuple[float, ...]]
    driven: Callable[..., object] | None = None
    """Constants under another voltage (V), for a specimen that has one."""


def no_rates(constants: object, state: object, displacement: float, velocity: float) -> tuple[()]:
    """The rates of a specimen without inner states."""
    return ()


class Specimen:
    """Experimental substructure of one axis: a force and the rates of its inner states, in plain floats.

    One with a kernel is made of its ``KERNEL``, or of what :meth:`kernel_of` makes of its parameters. One without
    has ``force``, ``rate``, ``initial_state`` and, where it has states, ``decay`` of its own. What else it may
    declare stands here with what holds otherwise.
    """

    Params: ClassVar[type]
    KERNEL: ClassVar[SpecimenKernel | None] = None
    initial_state: tuple[float, ...]
    decay: Decay | None = None
    """Decay of the inner states, which divides a sample into increments; ``Decay()`` without states."""
    mass: float = 0.0
    """kg: it resists the acceleration as well, by a force that is the actuator's to compute."""
    felt: bool = True
    """False where the force is only computed, so that nothing stands against the actuator."""
    linear: tuple[float, float] | None = None
    """Stiffness (N/m) and damping (N s/m) of a spring and dashpot without states; actuators solve it exactly."""
    voltage: float | None = None
    """V, of a current driver that a controller sets; None where there is none."""

    def __init__(self, params: object, kernel: SpecimenKernel | None = None) -> None:
        """With a ``kernel`` that is made already."""
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
        """N, in the inner ``state`` at ``displacement`` (m) and ``velocity`` (m/s), without that of the mass."""
        return self._kernel.force(self._constants, tuple(state), displacement, velocity)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        """Rates of the inner ``state`` at ``displacement`` (m) and ``velocity`` (m/s)."""
        return self._kernel.rate(self._constants, tuple(state), displacement, velocity)

    def bound(self) -> tuple[SpecimenKernel, object]:
        """Kernel and constants; of a class with ``force`` or ``rate`` of its own those that call the object."""
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
"""The kernel of a specimen without one: its constants are the object."""


def no_force(constants: object, state: object, displacement: float, velocity: float) -> float:
    """The force where nothing stands against the motion."""
    return 0.0


class NoSpecimen(Specimen):
    """In the place of a specimen where there is none."""

    KERNEL = SpecimenKernel(no_state, no_state, no_force, no_rates)

    def __init__(self) -> None:
        self._made(self.kernel_of(None), None)
