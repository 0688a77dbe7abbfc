# SPDX-License-Identifier: Apache-2.0
"""Restoring forces defined by kernels, and the objects that hold their state.

    force(constants, state, x) -> state, r

The function ``force`` moves to the displacement x (m) and returns the restoring force r (N). x and r are floats
for one degree of freedom, arrays for several. The function changes nothing in place; after a trial displacement
the caller discards the new state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import Field, number, type_of
from rths_nodes.core.protocols import StructuralForce, Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.vectors import Vector

Force = Callable[..., tuple[object, Any]]

Change = Callable[[object, object], tuple[object, object]]


class Law(NamedTuple):
    """A restoring force: kernel function, constants, and state at rest."""

    force: Force
    constants: object
    rest: object


class Lawful:
    law: Law

    def _follow(self, law: Law) -> None:
        self.law = law
        self.reset()

    def reset(self) -> None:
        self.state = self.law.rest

    def renewed(self, name: str, constants: object, memory: object, change: Change) -> tuple[object, object]:
        return change(constants, memory)

    def force(self, displacement: Array) -> Array:
        self.state, r = self._moved(displacement)
        return r

    def trial(self, displacement: Array) -> Array:
        return self._moved(displacement)[1]

    def _moved(self, displacement: Array) -> tuple[object, Array]:
        force, constants, _ = self.law
        if len(displacement) == 1:
            state, r = force(constants, self.state, float(displacement[0]))
            return state, np.array([r])
        return force(constants, self.state, displacement)


def elastic_stiffness() -> Field:
    return number("elastic stiffness k; default: the stiffness of the structure", "N/m", None, more_than=0.0)


class OfComponent(Lawful):
    """A restoring force with a ``KERNEL``, for one degree of freedom or for each degree of freedom separately."""

    Params: ClassVar[type]
    KERNEL: ClassVar[Kernel]
    yields: ClassVar[bool] = True
    """True if the force has a memory and therefore requires a single degree of freedom."""
    initial_stiffness: float
    elastic_energy: float = 0.0
    """Strain energy at first yield, J."""

    def __init__(self, params: AnyParams, n_dof: int) -> None:
        if self.yields and n_dof != 1:
            raise ConfigError(
                f"restoring_force {type_of(params)}: requires 1 degree of freedom, but the structure has {n_dof}"
            )
        if params.stiffness is None:
            raise ConfigError(
                f"restoring_force {type_of(params)}: the elastic stiffness k (N/m) is missing; set stiffness"
            )
        self.initial_stiffness = float(params.stiffness)
        if self.yields:
            self.elastic_energy = self.energy(params)
        constants, rest, force = self.kernel_of(params)
        made = constants(params)
        self._follow(Law(force, made, rest(made)))

    @classmethod
    def kernel_of(cls, params: AnyParams) -> Kernel:
        return cls.KERNEL

    @staticmethod
    def energy(params: object) -> float:
        return 0.0


def law_of(force: StructuralForce) -> Law:
    if isinstance(force, Lawful):
        return force.law
    virgin = copy.copy(force)
    virgin.reset()
    return Law(_by_copies, None, virgin)


def _by_copies(k: None, s: StructuralForce, x: Vector) -> tuple[StructuralForce, Vector]:
    """Step a copy of a user's restoring force, which must replace its memory instead of changing it in place."""
    moved = copy.copy(s)
    r = moved.force(np.array([x]) if isinstance(x, float) else x)
    return moved, float(r[0]) if isinstance(x, float) else r


def trial_force(structure: Structure, displacement: Array) -> Array:
    """Return the restoring force ``(n_dof,)`` N at ``displacement`` (m) without changing the structure's state."""
    force = structure.restoring_force
    return force.trial(displacement) if isinstance(force, Lawful) else copy.copy(force).force(displacement)
