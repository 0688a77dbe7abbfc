# SPDX-License-Identifier: Apache-2.0
"""Force controllers defined by pure functions, with or without a column."""

from __future__ import annotations

from typing import NamedTuple

from rths_nodes.core.control import ForceController
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import AnyParams, TestContext
from rths_nodes.mechanics.axial_load import ColumnGeometry, check_drift, extension_at


class ForceKernel(NamedTuple):
    constants: Function
    rest: Function
    begin: Function
    """``begin(constants, state, position, target, drift, drift_before) -> state``."""
    step: Function
    """``step(constants, state, target, measured, drift) -> state, command``."""


class ForceControllerOfKernel(ForceController):
    """Runs a force controller defined by a :class:`ForceKernel`.

    Its parameters include ``column``, which may be None, and ``coupled_to``, an axis number from 1.
    """

    def __init__(self, params: AnyParams, dt: float) -> None:
        constants, self._rest, self._begin, self._step = self.kernel_of(params)
        self._constants = constants(params, dt)
        self.coupled_to = None if params.column is None else params.coupled_to - 1
        self.reset()

    def reset(self) -> None:
        self._state = self._rest(self._constants)

    def begin(self, position: float, target: float, drift: float, drift_before: float) -> None:
        self._state = self._begin(self._constants, self._state, position, target, drift, drift_before)

    def step(self, target: float, measured: float, drift: float) -> float:
        self._state, command = self._step(self._constants, self._state, target, measured, drift)
        return float(command)


def extension_of(column: ColumnGeometry | None) -> Function:
    return uncoupled if column is None else extension_at


def uncoupled(k: tuple[()], shortening: float, drift: float) -> float:
    return shortening


def check_coupling(column: ColumnGeometry | None, coupled_to: int, test: TestContext) -> None:
    """Raise ConfigError if no axis moves the head of ``column``, or its stroke reaches a length in ``column``."""
    if column is None:
        return
    moved = len(test.axes) - len(test.force_axes)
    if coupled_to > moved:
        raise ConfigError(f"coupled_to = {coupled_to}: must be <= {moved}, the number of displacement axes")
    check_drift(column, test.strokes[coupled_to - 1], "column")
