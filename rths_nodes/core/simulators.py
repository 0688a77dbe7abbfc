# SPDX-License-Identifier: Apache-2.0
"""Simulators of the laboratory: specimen, actuator of one axis, and rig of all axes together.

The kernel functions of a specimen (``core/kernels.py``) are

    force(constants, state, displacement, velocity) -> force
    rate(constants, state, displacement, velocity) -> rates of the state

The inner states are a tuple of floats, which the actuator integrates. The kernel of an actuator advances the axis
and its specimen by one sample:

    step(constants, state, command) -> state, (displacement, velocity, force)

Command and displacement are in m, velocity in m/s, force in N. The kernel of a rig, for actuators coupled through
one specimen, is

    step(constants, state, command, auxiliary) -> state, (displacement, velocity, force, channels)

with arrays ``(n_axes,)``. The arrays ``auxiliary`` and ``channels`` hold the auxiliary inputs and the measured
auxiliary channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.decay import Decay, declared
from rths_nodes.core.kernels import Function, Kernel, inherits, no_state
from rths_nodes.core.parameters import AnyParams
from rths_nodes.core.samples import EMPTY, Array


class SpecimenKernel(NamedTuple):
    """Functions of a specimen that return constants, states at rest, force (N), and rates of the states."""

    constants: Function
    rest: Callable[..., tuple[float, ...]]
    force: Callable[..., float]
    rate: Callable[..., tuple[float, ...]]
    driven: Callable[..., object] | None = None
    """Function of constants and voltage (V) that returns new constants; None if the specimen has no voltage."""


def no_rates(constants: object, state: object, displacement: float, velocity: float) -> tuple[()]:
    return ()


class Specimen:
    """Computes the force of a specimen of one axis and the rates of its inner states, as floats.

    A class with a kernel defines ``KERNEL`` or :meth:`kernel_of`. Any other class implements ``force``, ``rate``,
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
    """Stiffness (N/m) and damping (N s/m) of a stateless spring and dashpot, whose force is computed exactly."""
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
        """Return the force (N), without inertia, in ``state`` at ``displacement`` (m) and ``velocity`` (m/s)."""
        return self._kernel.force(self._constants, tuple(state), displacement, velocity)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        """Return the rates of change of the inner ``state`` at ``displacement`` (m) and ``velocity`` (m/s)."""
        return self._kernel.rate(self._constants, tuple(state), displacement, velocity)

    def bound(self) -> tuple[SpecimenKernel, object]:
        """Return a kernel and its constants. The kernel calls ``force`` and ``rate`` if either is overridden."""
        if inherits(type(self), Specimen, "force", "rate"):
            return self._kernel, self._constants
        return SPECIMEN_OBJECT, self


def _driven_object(specimen: Specimen, voltage: float) -> Specimen:
    specimen.voltage = voltage
    return specimen


SPECIMEN_OBJECT = SpecimenKernel(
    constants=lambda specimen: specimen,
    rest=lambda specimen: tuple(specimen.initial_state),
    force=lambda specimen, state, x, v: specimen.force(state, x, v),
    rate=lambda specimen, state, x, v: tuple(specimen.rate(state, x, v)),
    driven=_driven_object,
)


def no_force(constants: object, state: object, displacement: float, velocity: float) -> float:
    return 0.0


class NoSpecimen(Specimen):
    KERNEL = SpecimenKernel(no_state, no_state, no_force, no_rates)

    def __init__(self) -> None:
        self._made(self.kernel_of(None), None)


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
        raise NotImplementedError(f"{cls.__name__}: the class must define a kernel or the method step")

    def reset(self) -> None:
        """Return the actuator to rest at zero displacement and zero command."""
        self.state = self._kernel.rest(self.constants)
        self.displacement = self.velocity = self.force = 0.0

    def step(self, command: float) -> None:
        """Advance by one sample. ``command`` (m) is the command at the end of the sample."""
        self.state, (self.displacement, self.velocity, self.force) = self._kernel.step(
            self.constants, self.state, command
        )

    def bound(self) -> tuple[Kernel, object]:
        """Return a kernel and its constants. The kernel calls ``step`` if the class overrides it."""
        if inherits(type(self), Actuator, "step"):
            return self._kernel, self.constants
        return ACTUATOR_OBJECT, self


def _rest_object(actuator: Actuator) -> tuple[()]:
    actuator.reset()
    return ()


def _step_object(
    actuator: Actuator, state: tuple[()], command: float
) -> tuple[tuple[()], tuple[float, float, float]]:
    actuator.step(command)
    return state, (actuator.displacement, actuator.velocity, actuator.force)


ACTUATOR_OBJECT = Kernel(lambda actuator: actuator, _rest_object, _step_object)


Shown = tuple[Array, Array, Array, Array]


def still(n_axes: int) -> Shown:
    return np.zeros(n_axes), np.zeros(n_axes), np.zeros(n_axes), np.zeros(0)


class RigKernel(NamedTuple):
    """Functions of a ``Kernel``, and ``shown(constants, state)``, which returns the results at rest."""

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
    """Names of the measured auxiliary channels, with units."""
    auxiliary_inputs: tuple[str, ...] = ()
    """Names of the auxiliary inputs, e.g. a voltage, with units."""
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
        raise NotImplementedError(f"{cls.__name__}: the class must define a kernel or the method step")

    @classmethod
    def at_commands(cls, params: AnyParams) -> object | None:
        """Return the parameters of a rig with the same specimen and ideal actuators.

        Return None if the specimen cannot be separated from its actuators, or if the force of the specimen
        depends on acceleration.
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
        """Advance by one sample, and return displacements (m) and forces (N) as lists of floats."""
        self.step(np.array(command), auxiliary)
        return self.displacement.tolist(), self.force.tolist()
