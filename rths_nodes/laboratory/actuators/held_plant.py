"""Linear actuators in state space, solved exactly between the samples of their command."""

from __future__ import annotations

from operator import mul
from typing import Any

import numpy as np

from rths_nodes.core import discretisation as exact_steps
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.parameters import text
from rths_nodes.core.protocols import Specimen
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath

HOLDS = ("staircase", "ramp")


def hold_parameter() -> Any:
    """The parameter ``hold`` of these actuators."""
    return text("how the command runs within a sample: staircase (held) or ramp (straight)", "staircase", HOLDS)


def transition(a: Array, b: Array, dt: float, hold: str) -> Array:
    """Rows [Phi, g_0, g_1], ``(n, n + 2)``, of x_k = Phi x_{k-1} + g_0 c_{k-1} + g_1 c_k.

    x' = ``a`` x + ``b`` c with ``a`` ``(n, n)`` 1/s and ``b`` ``(n,)``; over the sample of length ``dt`` (s) that
    ends at k the command is c_k (staircase) or runs straight from c_{k-1} to c_k (ramp).
    """
    phi, before, now = exact_steps.transition(a, b[:, None], dt)
    if hold == "staircase":
        before, now = np.zeros_like(before), before + now
    return np.hstack([phi, before, now])


class HeldPlant:
    """Moves a linear plant and its specimen; displacement and velocity at a sample are exact.

    displacement = ``c`` x + ``d`` command; ``d`` is zero for any plant with a finite velocity on a staircase.
    """

    def __init__(self, a: Array, b: Array, c: Array, d: float, hold: str, dt: float, specimen: Specimen) -> None:
        rows = transition(a, b, dt, hold)
        self._dt = dt
        self._rows: list[list[float]] = rows.tolist()
        self._output: list[float] = [*c.tolist(), 0.0, d]
        slope = d / dt if hold == "ramp" else 0.0
        self._output_rate: list[float] = [*(c @ a).tolist(), -slope, float(c @ b) + slope]
        self._path = SpecimenPath(specimen, dt)
        self.reset()

    def reset(self) -> None:
        """At rest at zero, and commanded to be there."""
        self._state = [0.0] * len(self._rows)
        self._command = 0.0
        self._path.reset()
        self.displacement = self.velocity = self.force = 0.0

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Displacement over command at ``omega`` (rad/s), both at the samples."""
        return held(omega, self._rows, self._output, self._dt)

    def step(self, command: float) -> None:
        before, self._command = self._command, command
        inputs = [*self._state, before, command]
        self._state = [sum(map(mul, row, inputs)) for row in self._rows]
        inputs = [*self._state, before, command]
        self.displacement = sum(map(mul, self._output, inputs))
        self.velocity = sum(map(mul, self._output_rate, inputs))
        self.force = self._path.move(self.displacement, self.velocity)
