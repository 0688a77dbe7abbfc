# SPDX-License-Identifier: Apache-2.0
"""Linear restoring force of a structure, defined by its stiffness matrix."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Structure
from rths_nodes.mechanics.sparse import Matrix
from rths_nodes.numerical.structures.laws import Force, Law, Lawful
from rths_nodes.numerical.structures.restoring_forces.linear import Linear
from rths_nodes.numerical.vectors import Operand, Vector, vectors_of


def linear(product: Callable[..., Vector]) -> Force:
    def force(k: Operand, s: tuple[()], x: Vector) -> tuple[tuple[()], Vector]:
        """Linear restoring force: K x."""
        return s, product(k, x)

    return force


class LinearRestoringForce(Lawful):
    def __init__(self, stiffness: Matrix) -> None:
        vectors = vectors_of(stiffness)
        self._follow(Law(linear(vectors.product), vectors.operand(stiffness), ()))


def is_linear(structure: Structure) -> bool:
    return isinstance(structure.restoring_force, (Linear, LinearRestoringForce))


def refuse_yielding(integrator: str, structure: Structure) -> None:
    if not is_linear(structure):
        raise ConfigError(
            f"integrator {integrator}: needs a linear restoring force, because its step matrices are "
            "computed before the test; use another integrator"
        )
