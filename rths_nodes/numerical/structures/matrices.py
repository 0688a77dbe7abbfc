"""A structure given by its matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import component, matrix, params, vector
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.partitioned import DAMPING, Partition


class Matrices(Partition):
    """A linear structure given by the matrices of the whole, and of the part that stands in the laboratory."""

    @params
    class Params:
        mass: tuple[tuple[float, ...], ...] = matrix("mass matrix of the whole structure, n rows of n", "kg")
        stiffness: tuple[tuple[float, ...], ...] = matrix("stiffness matrix of the whole structure", "N/m")
        damping: Any = component("damping", "damping of the whole structure", DAMPING)
        experimental_mass: tuple[tuple[float, ...], ...] | None = matrix(
            "the part of the mass that stands in the laboratory", "kg", None
        )
        experimental_stiffness: tuple[tuple[float, ...], ...] | None = matrix(
            "the part of the stiffness that stands in the laboratory", "N/m", None
        )
        experimental_damping: tuple[tuple[float, ...], ...] | None = matrix(
            "the part of the damping that stands in the laboratory", "N s/m", None
        )
        influence: tuple[float, ...] | None = vector(
            "displacement of each degree of freedom per unit of the ground's; ones if left out", "1", None
        )

        def validate(self, path: str) -> None:
            """Refuses matrices of different size or without symmetry."""
            n = len(self.mass)
            for name in (
                "mass",
                "stiffness",
                "experimental_mass",
                "experimental_stiffness",
                "experimental_damping",
            ):
                rows = getattr(self, name)
                if rows is None:
                    continue
                if len(rows) != n or len(rows[0]) != n or not np.allclose(rows, np.transpose(rows)):
                    raise ConfigError(
                        f"{path}.{name}: must be symmetric, {n} rows of {n} numbers, as many as mass"
                    )
            if self.influence is not None and len(self.influence) != n:
                raise ConfigError(f"{path}.influence = {show(self.influence)}: must be {n} numbers")

    def __init__(self, params: Params) -> None:
        n = len(params.mass)
        self.names = tuple(f"x_{index + 1}" for index in range(n))
        self.influence = np.ones(n) if params.influence is None else np.array(params.influence)

        def square(rows: tuple[tuple[float, ...], ...] | None) -> Array:
            return np.zeros((n, n)) if rows is None else np.array(rows)

        super().__init__(
            params.damping,
            (square(params.mass), square(params.stiffness)),
            (
                square(params.experimental_mass),
                square(params.experimental_damping),
                square(params.experimental_stiffness),
            ),
        )
