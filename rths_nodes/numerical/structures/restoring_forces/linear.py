# SPDX-License-Identifier: Apache-2.0
"""Linear elastic restoring force."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.mechanics.sparse import Matrix
from rths_nodes.numerical.structures.laws import Force, Law, Lawful, OfComponent, elastic_stiffness
from rths_nodes.numerical.vectors import Operand, Vector, vectors_of


def force(k: float, s: tuple[()], x: Vector) -> tuple[tuple[()], Vector]:
    return s, k * x


class Linear(OfComponent):
    """Linear elastic restoring force k x of each degree of freedom."""

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()

    yields = False
    KERNEL = Kernel(lambda p: float(p.stiffness), no_state, force)


def linear(product: Callable[..., Vector]) -> Force:
    def force(k: Operand, s: tuple[()], x: Vector) -> tuple[tuple[()], Vector]:
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
            f"integrator {integrator}: requires a linear restoring force, because the step matrices are "
            "computed before the test; use another integrator"
        )
