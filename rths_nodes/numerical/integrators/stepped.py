# SPDX-License-Identifier: Apache-2.0
"""Integrators by their kernel: state, plain step, and arrays for other parts.

    step(constants, state, measured, excitation, index) -> state, (x, v, a, exact, r)

finishes step ``index`` with the force ``measured`` there (N) and goes to the next one: displacement (m), velocity
(m/s) and predicted acceleration (m/s^2) at the next step, exact acceleration and restoring force (N) at this one.
Vectors are floats for one degree of freedom, arrays ``(n_dof,)`` for several. ``excitation`` is the external force
by steps: floats, or rows ``(steps + 1, n_dof)``. An array ``measured`` may become part of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rths_nodes.core.arithmetic import record
from rths_nodes.core.kernels import Kernel, copied
from rths_nodes.core.protocols import Integrator
from rths_nodes.core.samples import Array
from rths_nodes.numerical.vectors import Loads, Vector

Moved = tuple[Vector, Vector, Vector, Vector, Vector]
"""x, v, a, exact acceleration and restoring force."""
Step = Callable[..., tuple[object, Moved]]


class Stepped(Integrator):
    """An integrator by its kernel, whose constants, state and excitation can be stepped elsewhere, too."""

    kernel: Kernel
    constants: Any
    excitation: Loads
    state: Any
    in_floats: bool
    """The kernel uses floats, for one degree of freedom."""
    in_tuples = False
    """The kernel uses tuples or lists in place of arrays."""

    def _follow(self, kernel: Kernel, constants: object, excitation: Loads, first: Array, in_floats: bool) -> None:
        """Start at step 0 with the acceleration ``first`` ``(n_dof,)`` m/s^2; the kernel may be in floats."""
        self.kernel, self.constants, self.excitation = kernel, constants, excitation
        self._step, self._first, self.in_floats = kernel.step, first, in_floats
        self.reset()

    def reset(self) -> None:
        self._index = 0
        self.state = copied(self.kernel.rest(self.constants))
        nothing = np.zeros(len(self._first))
        self.displacement = self.velocity = self.exact_acceleration = self.restoring_force = nothing
        self.acceleration = self._first

    def resume(self, index: int, displacement: Array, state: object) -> None:
        """Continue at step ``index`` from ``displacement`` ``(n_dof,)`` m and a ``state`` computed elsewhere."""
        self._index, self.displacement, self.state = index, displacement, state

    def step(self, experimental_force: Array) -> None:
        index = self._index
        self._index = index + 1
        if self.in_tuples:
            measured: object = tuple(experimental_force.tolist())
        else:
            measured = experimental_force.item() if self.in_floats else experimental_force.copy()
        self.state, shown = self._step(self.constants, self.state, measured, self.excitation, index)
        if self.in_floats or self.in_tuples:
            x, v, a, exact, r = shown
            shown = np.empty((5, len(self._first)))
            record(shown, 0, (x, v, a, exact, r) if self.in_floats else (*x, *v, *a, *exact, *r))
        self.displacement, self.velocity, self.acceleration, self.exact_acceleration, self.restoring_force = shown


class Played(Stepped):
    """Motion by a history known before the test, without a structure."""

    excitation: Array

    def _play(self, kernel: Kernel, history: Array, n_dof: int) -> None:
        """Follow the ``history`` of x, v, a ``(steps + 1, 3)``, or ``(steps + 1, 3, n_dof)``, from its start."""
        nothing: Vector = np.zeros(n_dof) if n_dof > 1 else 0.0
        self._follow(kernel, nothing, history, history[0, 2] + np.zeros(n_dof), n_dof == 1)

    def reset(self) -> None:
        super().reset()
        x, v, a = self.excitation[0]
        zeros = np.zeros(len(self._first))
        self.displacement, self.velocity = x + zeros, v + zeros
        self.acceleration = self.exact_acceleration = a + zeros
