"""A structure given by its matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import component, matrix, params, vector
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.partitioned import DAMPING, Partition

EXPERIMENTAL = ("experimental_mass", "experimental_damping", "experimental_stiffness")


class Matrices(Partition):
    """A linear structure given by the matrices of the whole, and of the part that stands in the laboratory.

    Degrees of freedom may have no mass, the rotations of a finite-element model: rows of zeros.
    """

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
        experimental_at: tuple[float, ...] | None = vector(
            "numbers of the degrees of freedom that the experimental matrices belong to, from 1 on; all if left "
            "out",
            "1",
            None,
            at_least=1.0,
        )
        influence: tuple[float, ...] | None = vector(
            "displacement of each degree of freedom per unit of the ground's; ones if left out", "1", None
        )

        def validate(self, path: str) -> None:
            """Refuses matrices of different size or without symmetry."""
            n = len(self.mass)
            at = self.experimental_at
            if at is not None and (any(one % 1.0 or one > n for one in at) or len(set(at)) < len(at)):
                raise ConfigError(
                    f"{path}.experimental_at = {show(at)}: must be different whole numbers from 1 to {n}"
                )
            for name in ("mass", "stiffness", *EXPERIMENTAL):
                rows = getattr(self, name)
                if rows is None:
                    continue
                wanted = len(at) if at is not None and name in EXPERIMENTAL else n
                if len(rows) != wanted or len(rows[0]) != wanted or not np.allclose(rows, np.transpose(rows)):
                    other = "mass" if wanted == n else "experimental_at"
                    raise ConfigError(
                        f"{path}.{name}: must be symmetric, {wanted} rows of {wanted} numbers, as many as {other}"
                    )
            if self.influence is not None and len(self.influence) != n:
                raise ConfigError(f"{path}.influence = {show(self.influence)}: must be {n} numbers")

    def __init__(self, params: Params) -> None:
        n = len(params.mass)
        self.names = tuple(f"x_{index + 1}" for index in range(n))
        self.influence = np.ones(n) if params.influence is None else np.array(params.influence)

        at = np.arange(n) if params.experimental_at is None else np.array(params.experimental_at, int) - 1

        def tested(rows: tuple[tuple[float, ...], ...] | None) -> Array:
            found = np.zeros((n, n))
            if rows is not None:
                found[np.ix_(at, at)] = rows
            return found

        mass, damping, stiffness = (tested(getattr(params, name)) for name in EXPERIMENTAL)
        super().__init__(
            params.damping, (np.array(params.mass), np.array(params.stiffness)), (mass, damping, stiffness)
        )
