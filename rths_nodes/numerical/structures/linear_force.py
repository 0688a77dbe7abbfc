"""The linear restoring force of a structure by its stiffness matrix."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import Matrix, product
from rths_nodes.numerical.structures.restoring_forces.linear import Linear


class LinearRestoringForce:
    """K x with a full or sparse matrix ``(n_dof, n_dof)`` N/m."""

    def __init__(self, stiffness: Matrix) -> None:
        self._stiffness = product(stiffness)

    def force(self, displacement: Array) -> Array:
        """Force ``(n_dof,)`` N at ``displacement`` (m)."""
        force: Array = self._stiffness.dot(displacement)
        return force

    def reset(self) -> None:
        """Nothing to forget."""


def is_linear(structure: Any) -> bool:
    """True when the restoring force of ``structure`` is its stiffness times the displacement."""
    return isinstance(structure.restoring_force, (Linear, LinearRestoringForce))


def refuse_yielding(integrator: str, structure: Any) -> None:
    """Refuses (ConfigError) a ``structure`` that is not linear for an ``integrator`` whose steps are matrices."""
    if not is_linear(structure):
        raise ConfigError(
            f"integrator {integrator}: needs a structure with a linear restoring force, its steps are matrices "
            "that are made before the test; this one yields"
        )
