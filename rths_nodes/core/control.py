# SPDX-License-Identifier: Apache-2.0
"""Base classes of the control families: what each component between Targets and Commands has, and may declare.

One that inherits has the defaults; one of another package that does not is given them where it is built
(``core/foreign.py``). The parameter class stands in each as ``Params``. Setups and semi-active controllers have a
second base class here, for those that are made of pure functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core import channels
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, Kernel
from rths_nodes.core.samples import EMPTY, Array, Measurement, Motion, Target

Floats = Sequence[float]
Rows = tuple[Floats, Floats, Floats]
"""Displacement (m), velocity (m/s) and acceleration (m/s^2) of a motion in numbers, one for each place."""


def motion_of(rows: Rows) -> Motion:
    x, v, a = rows
    return Motion(np.array(x), np.array(v), np.array(a))


def rows_of(motion: Motion | Target) -> Rows:
    return motion.displacement.tolist(), motion.velocity.tolist(), motion.acceleration.tolist()


class Component(ABC):
    """A member of a control family."""

    Params: ClassVar[type]
    KERNEL: ClassVar[Any] = None
    """Its arithmetic as pure functions (``core/kernels.py``), where it is the same with all parameters."""

    @classmethod
    def kernel_of(cls, params: AnyParams) -> Any:
        """The kernel with these parameters; None where it has none."""
        return cls.KERNEL


class Ramp(Component):
    """Interpolates Targets at the servo rate; built with ``(params, dt, substeps, n_dof)``, dt in s."""

    predicted: int = 0
    """Sub-steps at the start of a step that need no Target."""

    @abstractmethod
    def start(self, target: Target) -> None:
        """Stand at Target 0."""

    @abstractmethod
    def follow(self, target: Target) -> None:
        """Begin the step that ends at ``target``."""

    def follow_rows(self, target: Target, rows: Rows) -> None:
        """Begin the step that ends at ``target``, whose numbers are ``rows``."""
        self.follow(target)

    @abstractmethod
    def step(self, substep: int) -> Motion:
        """Motion ``(n_dof,)`` at sub-step 1..substeps of the step under way."""

    def predict(self, substep: int) -> Motion:
        """Motion at one of the ``predicted`` sub-steps before :meth:`follow`; the same as after it."""
        return self.step(substep)

    def rows(self, substep: int) -> Rows:
        """As :meth:`step`, in numbers."""
        return rows_of(self.step(substep))

    def predicted_rows(self, substep: int) -> Rows:
        """As :meth:`predict`, in numbers."""
        return rows_of(self.predict(substep))


class Setup(Component):
    """Degrees of freedom <-> actuator axes, by virtual work; not a number beyond the reach of the rig.

    Built with ``(params, n_dof, n_axes)``. Its ``Params`` may say which axes stop together (``core/checks.py``).
    """

    takes_loads: bool = False
    """True where ``forces`` gets the forces of the axes that are controlled by force, too, behind the others."""

    @abstractmethod
    def axes(self, motion: Motion) -> Motion:
        """Motion of the axes ``(n_axes,)`` of that of the degrees of freedom ``(n_dof,)``."""

    @abstractmethod
    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        """Forces ``(n_dof,)`` N of the axes' forces ``(n_axes,)`` N in the pose ``displacement`` ``(n_dof,)`` m.

        The axes are those that move. The pose is that of the Target of the same step: the object that moved the
        axes there may be another one.
        """

    @abstractmethod
    def degrees_of_freedom(self, displacement: Array) -> Array:
        """The smallest motion ``(n_dof,)`` m that brings the axes to ``displacement`` ``(n_axes,)`` m."""

    def moved(self, rows: Rows) -> Rows:
        """As :meth:`axes`, of a motion in numbers."""
        return rows_of(self.axes(motion_of(rows)))

    def felt(self, axis_forces: Sequence[float], displacement: Sequence[float]) -> Sequence[float]:
        """As :meth:`forces`, in numbers."""
        found: list[float] = self.forces(np.array(axis_forces), np.array(displacement)).tolist()
        return found

    def histories(self, displacement: Array) -> Array:
        """Displacements of the axes ``(steps, n_axes)`` m of those of the structure, ``(steps, n_dof)``."""
        still = np.zeros(displacement.shape[1])
        return np.array([self.axes(Motion(row, still, still)).displacement.copy() for row in displacement])

    def poses(self, displacement: Array) -> Array:
        """As :meth:`degrees_of_freedom`, ``(steps, n_dof)`` of those of the axes ``(steps, n_axes)`` m."""
        return np.array([self.degrees_of_freedom(row) for row in displacement])


class SetupKernel(NamedTuple):
    """Arithmetic of a setup, which remembers nothing; tuples of floats, or arrays where there are many."""

    constants: Function
    """From parameters and the numbers of degrees of freedom and of axes."""
    axes: Function
    """``axes(constants, x, v, a) -> x, v, a`` of the axes from those of the degrees of freedom."""
    forces: Function
    """``forces(constants, axis_forces, displacement) -> forces`` on the degrees of freedom."""


class SetupOfKernel(Setup):
    """A setup that calls the functions ``_axes`` and ``_forces`` of a kernel with its ``_constants``."""

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
        found: Rows = self._axes(self._constants, *rows)
        return found

    def bound(self) -> tuple[Function, Function, object, bool]:
        """``axes`` and ``forces`` of the kernel, its constants, and whether they take arrays."""
        return self._axes, self._forces, self._constants, self._on_arrays

    def felt(self, axis_forces: Sequence[float], displacement: Sequence[float]) -> Sequence[float]:
        given = axis_forces, displacement
        found = self._forces(self._constants, *(map(np.array, given) if self._on_arrays else given))
        return found.tolist() if self._on_arrays else found  # type: ignore[no-any-return]


def functions_of(setup: Setup) -> tuple[Function, Function]:
    """``axes`` and ``forces`` of any setup, also one of another package, as those of a kernel; no constants."""
    return lambda k, x, v, a: setup.moved((x, v, a)), lambda k, f, pose: setup.felt(f, pose)


class SemiActive(Component):
    """Controls the auxiliary inputs of the rig, e.g. the voltage of a damper, once in an integration step.

    Built with ``(params, structure, dt, measured)``: the numerical substructure or None, the integration step (s),
    the names of the auxiliary channels of a Measurement.
    """

    inputs: tuple[str, ...]
    """Names of what it controls, with their units: those that the rig must have."""

    def bound(self) -> tuple[Kernel, object, object] | None:
        """Kernel, constants and state; None of one without a kernel."""
        return None

    def chance(self) -> float:
        """The next random number that its kernel gets; 0 of one that leaves nothing to chance."""
        return 0.0

    @abstractmethod
    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        """Inputs ``(len(inputs),)`` from a Measurement and the ground acceleration (m/s^2) of the same step."""

    @abstractmethod
    def reset(self) -> None:
        """To the first state."""


class SemiActiveOfKernel(SemiActive):
    """Voltage of a damper by a ``KERNEL``.

        step(constants, state, auxiliary, ground_acceleration, chance) -> state, inputs

    from the auxiliary channels of a Measurement (an array), the ground acceleration (m/s^2) of the same step, and
    a random number of its own (``chance``). Constants are made of parameters, structure, dt (s) and the names of
    the channels.
    """

    KERNEL: ClassVar[Kernel]
    inputs: tuple[str, ...] = (channels.DAMPER_VOLTAGE,)

    def __init__(self, params: object, structure: object, dt: float, measured: Sequence[str]) -> None:
        self._constants = self.KERNEL.constants(params, structure, dt, measured)
        self.reset()

    def reset(self) -> None:
        self._state = self.KERNEL.rest(self._constants)

    def bound(self) -> tuple[Kernel, object, object]:
        return self.KERNEL, self._constants, self._state

    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        given = measured.auxiliary, ground_acceleration, self.chance()
        self._state, inputs = self.KERNEL.step(self._constants, self._state, *given)
        return np.array(inputs)


class ForceController(Component):
    """Turns the force target of one axis into the displacement command of its actuator, in plain floats.

    Built with ``(params, dt)``, dt in s. It has no limits: who calls it judges what it gives, and holds the axis
    where that must not be sent.
    """

    coupled_to: int | None = None
    """The displacement axis that moves what this axis loads, from 0; None for none."""

    @property
    @abstractmethod
    def correction(self) -> float:
        """Displacement that feedback has added to the command since :meth:`begin`, m."""

    @abstractmethod
    def begin(self, place: float, target: float, drift: float, drift_before: float) -> None:
        """Take over an axis that is commanded to ``place`` (m), at the force ``target`` (N) of the same sample.

        ``drift`` and ``drift_before`` (m) are the targets of the coupled axis, now and a sample before.
        """

    @abstractmethod
    def step(self, target: float, measured: float, drift: float) -> float:
        """The command (m) of the coming sample for ``target`` (N), after ``measured`` (N) of the last one."""

    @abstractmethod
    def reset(self) -> None:
        """To the first state."""


class Compensator(Component):
    """Turns the target of the coming sample into a command that makes the actuator be there in time.

    Built with ``(params, dt, n_axes)``, dt in s.
    """

    external: ClassVar[bool] = False
    """True for one that another process computes: there is no second copy, and it is opened before it steps."""
    transport_in_lead: ClassVar[bool] = False
    """True where the scenario adds the port's transport to the parameter ``lead``: the model leaves it out."""
    state_names: tuple[str, ...]
    """Names of ``state()``; ``alpha[0]`` belongs to axis 0."""
    state_units: Mapping[str, str] = {}
    """Unit of each name, without the axis; what is left out has none."""
    state_limits: Mapping[str, tuple[float, float]] = {}
    """Smallest and largest value of what is adapted, by the same names, in these units."""

    def open(self) -> None:
        """Before the test: start what computes outside of this process. Raises ConfigError where it cannot be."""

    def close(self) -> None:
        """After the test: end what :meth:`open` started; may be called again, or without it."""

    def rehearsed(self) -> Array:
        """In place of a test: how long each of some samples takes, s; empty where it computes in this process."""
        return EMPTY

    @abstractmethod
    def step(self, target: Motion, measured: Array) -> Array:
        """Command ``(n_axes,)`` m from the target of sample k and the displacement measured at sample k-1."""

    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]:
        """Commands (m) by axis, from what :meth:`step` gets, as numbers."""
        target = Motion(np.array(x), np.array(v), np.array(a), rests, preparing, np.array(force))
        found: list[float] = self.step(target, np.array(measured)).tolist()
        return found

    @abstractmethod
    def state(self) -> Sequence[float]:
        """Inner numbers for recording, in the order of ``state_names``."""

    def bound(self) -> Any:
        """Return the ``Bound`` of ``control/compensators/per_axis.py``, for a loop over kernels; None: none."""
        return None

    @abstractmethod
    def reset(self) -> None:
        """To the first state."""
