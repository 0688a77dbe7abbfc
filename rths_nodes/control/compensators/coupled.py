"""Compensators that couple the axes: one kernel for all of them.

    step(constants, state, x, v, a, m, f, rests, preparing) -> state, commands

as that of one axis (``per_axis.py``), with a tuple of numbers, one for each axis, in the place of each number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rths_nodes.control.compensators.per_axis import OnNumbers
from rths_nodes.core.control import Floats


class CoupledKernel(NamedTuple):
    """Arithmetic of a compensator of all axes, with the parts of a :class:`rths_nodes.core.kernels.Kernel`."""

    constants: Callable[..., Any]
    rest: Callable[[Any], Any]
    step: Callable[..., Any]


class Coupled(OnNumbers):
    """A compensator that calls a coupled kernel with its state, which is ``current``."""

    _constants: Any
    _rest: Callable[[Any], Any]
    _step: Callable[..., Any]

    def reset(self) -> None:
        self.current = self._rest(self._constants)

    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]:
        given = map(tuple, (x, v, a, measured, force))
        self.current, commands = self._step(self._constants, self.current, *given, rests, preparing)
        return list(commands)
