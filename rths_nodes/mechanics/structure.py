# SPDX-License-Identifier: Apache-2.0
"""A structure and its two substructures."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.samples import Array


def combined_load(structure: Any) -> Array:
    """Return the load (N) of both substructures per reversed ground acceleration (m/s^2): ``(n_dof,)``."""
    load: Array = (structure.mass + structure.experimental_mass) @ structure.influence
    return load


def combined(structure: Any) -> tuple[Array, Array, Array]:
    """Return mass (kg), damping (N s/m) and stiffness (N/m) of both substructures, ``(n_dof, n_dof)`` each."""
    return (
        structure.mass + structure.experimental_mass,
        structure.damping + structure.experimental_damping,
        structure.stiffness + structure.experimental_stiffness,
    )
