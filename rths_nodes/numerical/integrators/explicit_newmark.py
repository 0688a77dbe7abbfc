# SPDX-License-Identifier: Apache-2.0
"""Explicit Newmark method (gamma = 1/2, beta = 0): predictor and corrector of the velocity (Newmark 1959).

The displacements are the same as in the central difference method.
"""

from __future__ import annotations

from typing import NamedTuple

from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.dynamics import (
    Advance,
    Constants,
    Dynamics,
    Moved,
    Moving,
    State,
    Step,
    per_load_of,
    standing,
    start,
)
from rths_nodes.numerical.integrators.experimental_part import Equivalent, refuse_beyond_central_limit
from rths_nodes.numerical.structures.laws import Law, law_of
from rths_nodes.numerical.vectors import Loads, Vector, Vectors, vectors_of


def advance(
    dt: float, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
) -> Moving:
    """Advance displacement and predicted velocity by an explicit Newmark step."""
    x, v, _, _, _, _, _, of_method, _ = s
    half = 0.5 * dt * exact
    velocity = v + half
    return of_method, x + dt * (velocity + half), velocity + half, exact


class Corrected(NamedTuple):
    """Half of the step (s), constants of the method, and state at step 0."""

    half: float
    inner: Constants
    start: State


def corrected(predicted: Step) -> Step:
    def step(k: Corrected, s: object, measured: Vector, external: Loads, index: int) -> tuple[object, Moved]:
        """Make an explicit Newmark step, and correct the velocity with the predicted acceleration."""
        half, inner, _ = k
        s, (x, v, a, exact, r) = predicted(inner, s, measured, external, index)
        return s, (x, v + half * a, a, exact, r)

    return step


class ExplicitNewmark(Dynamics):
    """Explicit Newmark method, with the velocity v~ predicted and then corrected.

        x_{k+1} = x_k + dt v_k + dt^2/2 a_k,  v~_{k+1} = v_k + dt/2 a_k
        (M + dt/2 C) a_{k+1} = F - C v~_{k+1} - r - r_e,  v_{k+1} = v~_{k+1} + dt/2 a_{k+1}

    Forces are at step k + 1. ``memory`` contains v~. The published velocity is corrected with the predicted
    acceleration. Raises ConfigError unless dt is below the stability limit (2/w_max for springs, with the largest
    circular frequency w_max).
    """

    SOURCES = ("newmark_1959",)

    follows = True
    memory = ("displacement", "predicted_velocity", "experimental_force")

    @params
    class Params(Equivalent):
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_beyond_central_limit("explicit_newmark", params, structure, dt)

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        return advance

    @classmethod
    def kernel_of(cls, params: AnyParams, structure: Structure) -> Kernel:
        return Kernel(cls.constants_of, start, corrected(super().kernel_of(params, structure).step))

    @classmethod
    def constants_of(cls, params: AnyParams, structure: Structure, external_force: Array, dt: float) -> Corrected:
        k = super().constants_of(params, structure, external_force, dt)
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        heavier = structure.mass + 0.5 * dt * structure.damping
        k = k._replace(per_load=per_load_of(vectors, heavier), advance=dt)
        nothing, a, applied = k.start.x, k.start.a, vectors.vector(external_force[0])
        state = standing(vectors, law, k, nothing, -0.5 * dt * a, nothing, (), applied)
        return Corrected(0.5 * dt, k._replace(start=()), state._replace(a=a))

    def _put(self, force: object) -> None:
        self.constants = self.constants._replace(inner=self._equation()._replace(force=force))

    def _equation(self) -> Constants:
        inner: Constants = self.constants.inner
        return inner
