# SPDX-License-Identifier: Apache-2.0
"""Base classes of the families of components that convert Targets to Commands.

Subclasses inherit defaults of optional members. ``core/component_guard.py`` adds these defaults to other classes.
Setups and semi-active controllers have a second base class for implementations by pure functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.kernels import GUARD, Function, Kernel, inherits
from rths_nodes.core.parameters import AnyParams
from rths_nodes.core.samples import EMPTY, Array, Measurement, Motion, Target

DAMPER_VOLTAGE = "damper_voltage [V]"
DAMPER_DISPLACEMENT = "damper_displacement [m]"
DAMPER_FORCE = "damper_force [N]"
"""Channel of the measured damper force. The force is positive if it resists a growing elongation."""


def accelerations(count: int) -> tuple[str, ...]:
    """Return channel names for ``count`` accelerations of the specimen relative to the laboratory floor."""
    return tuple(f"acceleration_{index + 1} [m/s^2]" for index in range(count))


Floats = Sequence[float]
Rows = tuple[Floats, Floats, Floats]
"""Displacement (m), velocity (m/s) and acceleration (m/s^2) of a motion as floats."""


def motion_of(rows: Rows) -> Motion:
    x, v, a = rows
    return Motion(np.array(x), np.array(v), np.array(a))


def rows_of(motion: Motion | Target) -> Rows:
    return motion.displacement.tolist(), motion.velocity.tolist(), motion.acceleration.tolist()


class Component(ABC):
    Params: ClassVar[type]
    KERNEL: ClassVar[Any] = None
    """Kernel (``core/kernels.py``); None if the kernel depends on the parameters."""

    @classmethod
    def kernel_of(cls, params: AnyParams) -> Any:
        return cls.KERNEL


class Ramp(Component):
    """Interpolates Targets at the servo rate. Built with ``(params, dt, substeps, n_dof)``, dt in s."""

    predicted: int = 0
    """Number of substeps at the start of a step whose motion is predicted, before the next Target is known."""

    @abstractmethod
    def start(self, target: Target) -> None:
        """Begin the test at ``target``, which is Target 0."""

    @abstractmethod
    def follow(self, target: Target) -> None:
        """Begin the integration step that ends at ``target``."""

    def follow_rows(self, target: Target, rows: Rows) -> None:
        self.follow(target)

    @abstractmethod
    def step(self, substep: int) -> Motion:
        """Return the motion ``(n_dof,)`` at ``substep`` (1 to ``substeps``) of the current step."""

    def predict(self, substep: int) -> Motion:
        """Return the motion at ``substep`` (1 to ``predicted``) before :meth:`follow` begins the step."""
        return self.step(substep)

    def rows(self, substep: int) -> Rows:
        return rows_of(self.step(substep))

    def predicted_rows(self, substep: int) -> Rows:
        return rows_of(self.predict(substep))


class Setup(Component):
    """Converts motions and forces between degrees of freedom and axes.

    Built with ``(params, n_dof, n_axes)``. Results are NaN for a pose that the rig cannot reach. ``Params`` may
    define which axes stop together (``core/parameters.py``).
    """

    takes_loads: bool = False
    """True if ``forces`` also receives the forces of force axes, after the forces of displacement axes."""

    @abstractmethod
    def axes(self, motion: Motion) -> Motion:
        """Return the motion of the axes for a ``motion`` of the degrees of freedom."""

    @abstractmethod
    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        """Return the forces ``(n_dof,)`` N for axis forces ``(n_axes,)`` N at ``displacement`` ``(n_dof,)`` m.

        ``axis_forces`` omits the force axes if ``takes_loads`` is false. ``displacement`` is from the Target
        of the same step. Another setup object may have converted this Target.
        """

    @abstractmethod
    def degrees_of_freedom(self, displacement: Array) -> Array:
        """Return the smallest displacement ``(n_dof,)`` m that brings the axes to ``displacement`` (m)."""

    def moved(self, rows: Rows) -> Rows:
        """Convert displacement, velocity and acceleration as :meth:`axes` does, but as sequences of floats."""
        return rows_of(self.axes(motion_of(rows)))

    def felt(self, axis_forces: Sequence[float], displacement: Sequence[float]) -> Sequence[float]:
        """Convert axis forces (N) at ``displacement`` (m) as :meth:`forces` does, but as sequences of floats."""
        forces: list[float] = self.forces(np.array(axis_forces), np.array(displacement)).tolist()
        return forces

    def histories(self, displacement: Array) -> Array:
        """Convert displacements of the degrees of freedom to displacements of the axes.

        Both are in m, with the shapes ``(steps, n_dof)`` and ``(steps, n_axes)``.
        """
        still = np.zeros(displacement.shape[1])
        return np.array([self.axes(Motion(row, still, still)).displacement.copy() for row in displacement])

    def poses(self, displacement: Array) -> Array:
        """Convert displacements of axes to displacements of degrees of freedom, shaped as in :meth:`histories`."""
        return np.array([self.degrees_of_freedom(row) for row in displacement])


class SetupKernel(NamedTuple):
    """Stateless functions of a setup, which take tuples of floats, or arrays for elementwise operations."""

    constants: Function
    axes: Function
    """Function ``axes(constants, x, v, a) -> x, v, a``, which converts a motion to the axes."""
    forces: Function
    """Function ``forces(constants, axis_forces, displacement)``, with one result per degree of freedom, N."""


class SetupOfKernel(Setup):
    """Converts motions and forces with a :class:`SetupKernel`."""

    _on_arrays = False

    def __init__(self, params: AnyParams, n_dof: int, n_axes: int) -> None:
        constants, self._axes, self._forces = self.kernel_of(params)
        self._constants = constants(params, n_dof, n_axes)

    def axes(self, motion: Motion) -> Motion:
        return motion_of(self.moved(rows_of(motion)))

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        return np.array(self.felt(axis_forces.tolist(), displacement.tolist()))

    def moved(self, rows: Rows) -> Rows:
        if self._on_arrays:
            x, v, a = self._axes(self._constants, *map(np.array, rows))
            return x.tolist(), v.tolist(), a.tolist()
        rows_of_axes: Rows = self._axes(self._constants, *rows)
        return rows_of_axes

    def bound(self) -> tuple[Function, Function, object, bool]:
        """Return the kernel's ``axes``, ``forces`` and constants, and whether both functions take arrays."""
        return self._axes, self._forces, self._constants, self._on_arrays

    def felt(self, axis_forces: Sequence[float], displacement: Sequence[float]) -> Sequence[float]:
        arguments = axis_forces, displacement
        forces = self._forces(self._constants, *(map(np.array, arguments) if self._on_arrays else arguments))
        return forces.tolist() if self._on_arrays else forces  # type: ignore[no-any-return]


def functions_of(setup: Setup) -> tuple[Function, Function, object]:
    """Return ``axes`` and ``forces`` of a setup as functions of floats, and the constants that both take."""
    if isinstance(setup, SetupOfKernel) and inherits(type(setup), SetupOfKernel, "moved", "felt"):
        axes, forces, constants, on_arrays = setup.bound()
        if not on_arrays:
            if (guard := vars(type(setup).moved).get(GUARD)) is not None:  # component of another package
                axes, forces = guard.around(axes), guard.around(forces)
            return axes, forces, constants
    return lambda k, x, v, a: setup.moved((x, v, a)), lambda k, f, pose: setup.felt(f, pose), None


class SemiActive(Component):
    """Controls the auxiliary inputs of the rig, e.g. the voltage of a damper, once per integration step.

    Built with ``(params, structure, dt, measured)``. ``structure`` is the numerical substructure or None, ``dt``
    the integration step (s). ``measured`` contains the names of the auxiliary channels of a Measurement.
    """

    inputs: tuple[str, ...]
    """Names of the controlled inputs of the rig, with units."""

    def bound(self) -> tuple[Kernel, object, object] | None:
        return None

    def chance(self) -> float:
        return 0.0

    @abstractmethod
    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        """Return the rig's inputs for a Measurement and the ground acceleration (m/s^2) of the same step."""

    @abstractmethod
    def reset(self) -> None: ...


class SemiActiveOfKernel(SemiActive):
    """Controls the voltage of a damper with the kernel ``KERNEL``::

        step(constants, state, auxiliary, ground_acceleration, chance) -> state, inputs

    ``auxiliary`` is the array of the auxiliary channels of a Measurement, and ``chance`` is a random number.
    """

    KERNEL: ClassVar[Kernel]
    inputs: tuple[str, ...] = (DAMPER_VOLTAGE,)

    def __init__(self, params: object, structure: object, dt: float, measured: Sequence[str]) -> None:
        self._constants = self.KERNEL.constants(params, structure, dt, measured)
        self.reset()

    def reset(self) -> None:
        self._state = self.KERNEL.rest(self._constants)

    def bound(self) -> tuple[Kernel, object, object]:
        return self.KERNEL, self._constants, self._state

    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        arguments = measured.auxiliary, ground_acceleration, self.chance()
        self._state, inputs = self.KERNEL.step(self._constants, self._state, *arguments)
        return np.array(inputs)


class ForceController(Component):
    """Converts the force target of one axis to the displacement command of its actuator. All values are floats.

    Built with ``(params, dt)``, dt in s. The caller holds the axis if a command is invalid.
    """

    coupled_to: int | None = None
    """Index, from 0, of the displacement axis that moves the loaded part; None if no axis moves it."""

    @property
    @abstractmethod
    def correction(self) -> float:
        """Displacement added by feedback since :meth:`begin`, m."""

    @abstractmethod
    def begin(self, place: float, target: float, drift: float, drift_before: float) -> None:
        """Take over an axis at the displacement command ``place`` (m).

        ``target`` (N) is the force target for the same sample. ``drift`` and ``drift_before`` (m) are the present
        and the previous target of the coupled axis.
        """

    @abstractmethod
    def step(self, target: float, measured: float, drift: float) -> float:
        """Return the next command (m) for the force ``target`` (N).

        ``measured`` (N) is the force at the last sample, and ``drift`` (m) the target of the coupled axis.
        """

    @abstractmethod
    def reset(self) -> None: ...


class Compensator(Component):
    """Computes a command for the target of the next sample, so that the actuator reaches the target in time.

    Built with ``(params, dt, n_axes)``, dt in s.
    """

    external: ClassVar[bool] = False
    """True if another process computes the commands."""
    transport_in_lead: ClassVar[bool] = False
    """True if the compensator's model omits the port's transport delay. The scenario then adds it to ``lead``."""
    state_names: tuple[str, ...]
    """Names of the values of :meth:`state`. ``alpha[0]`` belongs to axis 0."""
    state_units: Mapping[str, str] = {}
    """Unit of each quantity, by state name, e.g. ``alpha`` for ``alpha[0]``."""
    state_limits: Mapping[str, tuple[float, float]] = {}
    """Lower and upper bounds of adapted quantities, with names and units as in ``state_units``."""

    def open(self) -> None:
        """Start the external process, if any, before the test. Raises ConfigError if the start fails."""

    def close(self) -> None:
        """Terminate the process started by :meth:`open`, after the test. May be called at any time."""

    def rehearsed(self) -> Array:
        """Return the computing times (s) of trial commands; empty if this process computes the commands."""
        return EMPTY

    @abstractmethod
    def step(self, target: Motion, measured: Array) -> Array:
        """Return the command ``(n_axes,)`` m for target k and the displacement (m) ``measured`` at sample k-1."""

    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]:
        """Return the commands (m) as :meth:`step` does, for the fields of a target as sequences of floats."""
        target = Motion(np.array(x), np.array(v), np.array(a), rests, preparing, np.array(force))
        commands: list[float] = self.step(target, np.array(measured)).tolist()
        return commands

    @abstractmethod
    def state(self) -> Sequence[float]:
        """Return the internal quantities for recording, in the order of ``state_names``."""

    def bound(self) -> Any:
        """Return the kernels as a ``Bound`` (``control/compensators/per_axis.py``), or None if there are none."""
        return None

    @abstractmethod
    def reset(self) -> None: ...
