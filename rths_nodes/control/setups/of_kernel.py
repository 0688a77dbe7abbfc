"""Setups made of pure functions of numbers, for the way to the axes and for the forces back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core.control import Rows, Setup, motion_of, rows_of
from rths_nodes.core.samples import Array, Motion


class SetupKernel(NamedTuple):
    """Arithmetic of a setup, which remembers nothing; tuples of floats, or arrays where there are many."""

    constants: Callable[[Any, int, int], Any]
    """From parameters and the numbers of degrees of freedom and of axes."""
    axes: Callable[..., Any]
    """``axes(constants, x, v, a) -> x, v, a`` of the axes from those of the degrees of freedom."""
    forces: Callable[..., Any]
    """``forces(constants, axis_forces, displacement) -> forces`` on the degrees of freedom."""


class OfKernel(Setup):
    """A setup that calls the functions ``_axes`` and ``_forces`` of a kernel with its ``_constants``."""

    _on_arrays = False

    def __init__(self, params: Any, n_dof: int, n_axes: int) -> None:
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

    def felt(self, axis_forces: Sequence[float], displacement: Sequence[float]) -> Sequence[float]:
        given = axis_forces, displacement
        found: Any = self._forces(self._constants, *(map(np.array, given) if self._on_arrays else given))
        return found.tolist() if self._on_arrays else found  # type: ignore[no-any-return]


def functions_of(setup: Setup) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``axes`` and ``forces`` of any setup, also one of another package, as those of a kernel; no constants."""
    return lambda k, x, v, a: setup.moved((x, v, a)), lambda k, f, pose: setup.felt(f, pose)
