"""The setup in which axes and degrees of freedom are the same."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Array, Motion


class Identity:
    """Axis a moves with degree of freedom a."""

    @params
    class Params:
        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            """Each axis has a specimen of its own."""
            return tuple(range(n_axes))

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        if n_dof != n_axes:
            raise ConfigError(
                f"setup identity: {n_axes} axes for {n_dof} degrees of freedom: the numbers must be equal"
            )

    def axes(self, motion: Motion) -> Motion:
        return motion

    def moved(self, rows: Any) -> Any:
        """As :meth:`axes`, of a motion in floats."""
        return rows

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        return axis_forces

    def histories(self, displacement: Array) -> Array:
        """Displacements of the axes ``(steps, n_axes)`` at those of the degrees of freedom, of the same shape."""
        return displacement

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return displacement
