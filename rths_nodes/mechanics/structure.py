# SPDX-License-Identifier: Apache-2.0
"""A structure and its two substructures."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.samples import Array


def combined_load(structure: Any) -> Array:
    """Load (N) of both substructures together per acceleration of the ground (m/s^2), reversed: ``(n_dof,)``."""
    load: Array = (structure.mass + structure.experimental_mass) @ structure.influence
    return load


def combined(structure: Any) -> tuple[Array, Array, Array]:
    """Mass (kg), damping (N s/m) and stiffness (N/m) of both substructures together, ``(n_dof, n_dof)`` each."""
    return (
        structure.mass + structure.experimental_mass,
        structure.damping + structure.experimental_damping,
        structure.stiffness + structure.experimental_stiffness,
    )
