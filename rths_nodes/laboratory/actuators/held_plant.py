# SPDX-License-Identifier: Apache-2.0
"""Linear actuators in state space, solved exactly between command samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import times
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import Field, text
from rths_nodes.core.samples import Array
from rths_nodes.core.specimen import Specimen
from rths_nodes.laboratory.actuators.specimen_path import Unloaded
from rths_nodes.mechanics import structure as exact_steps

HOLDS = ("staircase", "ramp")


def hold_parameter(default: str = "staircase") -> Field:
    return text("command within a sample: staircase (held) or ramp (straight)", default, HOLDS)


def transition(a: Array, b: Array, dt: float, hold: str) -> Array:
    """Return rows [Phi, g_0, g_1], ``(n, n + 2)``, of x_k = Phi x_{k-1} + g_0 c_{k-1} + g_1 c_k.

    x' = ``a`` x + ``b`` c, ``(n, n)`` and ``(n,)``. During the sample of ``dt`` (s) that ends at k, the command is
    c_k (staircase) or linear from c_{k-1} to c_k (ramp).
    """
    phi, before, now = exact_steps.transition(a, b[:, None], dt)
    if hold == "staircase":
        before, now = np.zeros_like(before), before + now
    return np.hstack([phi, before, now])


class Plant(NamedTuple):
    """x' = ``a`` x + ``b`` command, displacement = ``c`` x + ``d`` command; ``d`` is zero on a staircase."""

    a: Array
    b: Array
    c: Array
    d: float
    hold: str


Rows = tuple[tuple[float, ...], ...]
Constants = tuple[Rows, Rows]
"""Rows that multiply ``(*x, last command, command)``: next x; displacement (m) and velocity (m/s)."""


def go(k: Constants, s: tuple[tuple[float, ...], float], command: float) -> tuple[object, float, float]:
    """Advance by a sample: x_k = Phi x_{k-1} + g_0 c_{k-1} + g_1 c_k. State: x and the last command (m)."""
    rows, shown = k
    x, before = s
    x = times(rows, x + (before, command))
    displacement, velocity = times(shown, x + (before, command))
    return (x, command), displacement, velocity


def constants(plant: Plant, dt: float) -> Constants:
    a, b, c, d, hold = plant
    slope = d / dt if hold == "ramp" else 0.0
    shown = [[*c.tolist(), 0.0, d], [*(c @ a).tolist(), -slope, float(c @ b) + slope]]
    return _rows(transition(a, b, dt, hold).tolist()), _rows(shown)


def _rows(rows: list[list[float]]) -> Rows:
    return tuple([tuple(row) for row in rows])


def rest(k: Constants) -> tuple[tuple[float, ...], float]:
    return (0.0,) * len(k[0]), 0.0


class HeldPlant(Unloaded):
    """Actuator with a linear plant; displacement and velocity are exact at each sample."""

    @classmethod
    def plant_of(cls, params: AnyParams) -> Plant:
        raise NotImplementedError

    @classmethod
    def motion_of(cls, params: object) -> Kernel:
        return Kernel(lambda plant_params, dt: constants(cls.plant_of(plant_params), dt), rest, go)

    def __init__(self, params: object, dt: float, specimen: Specimen) -> None:
        self._dt = dt
        super().__init__(params, dt, specimen)

    def frequency_response(self, omega: Frequencies) -> Complex:
        rows, (displacement, _) = self.constants[0]
        return held(omega, rows, displacement, self._dt)
