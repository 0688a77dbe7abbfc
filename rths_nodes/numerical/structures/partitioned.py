# SPDX-License-Identifier: Apache-2.0
"""Base of structures with an experimental part."""

from __future__ import annotations

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import StructuralForce
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.mechanics.sparse import Matrix, diagonal, is_definite, is_sparse, largest, zero
from rths_nodes.mechanics.structure import combined_load, massless
from rths_nodes.numerical.structures.restoring_forces.linear import LinearRestoringForce

DAMPING = {"type": "modal", "ratios": [0.02]}


class Partition:
    """A linear structure with a part in the laboratory."""

    elastic_energy: float = 0.0
    influence: Array

    def __init__(
        self, damping: object, total: tuple[Matrix, Matrix], tested: tuple[Matrix, Matrix, Matrix]
    ) -> None:
        """Subtract the part under test from the whole structure.

        ``total`` is mass and stiffness of the whole. ``tested`` is mass, damping and stiffness under test. Raises
        ConfigError if the numerical part is not a valid structure.
        """
        mass, stiffness = total
        self.experimental_mass, self.experimental_damping, self.experimental_stiffness = tested
        self.mass = self._rest("mass", mass, tested[0], positive=True)
        self.stiffness = self._rest("stiffness", stiffness, tested[2])
        model = registry.build("damping", damping)
        self.damping = self._rest("damping", model.matrix(mass, stiffness), tested[1])
        self.restoring_force: StructuralForce = LinearRestoringForce(self.stiffness)

    @property
    def ground_load(self) -> Array:
        """Return the load of both parts, ``(n_dof,)`` N, for a ground acceleration of -1 m/s^2.

        The load includes the experimental part, because the laboratory floor does not move.
        """
        return combined_load(self)

    @staticmethod
    def _rest(name: str, matrix: Matrix, tested: Matrix, positive: bool = False) -> Matrix:
        rest = matrix - tested
        rounding = ROUNDING * largest(matrix)
        if is_sparse(rest):
            _refuse_indefinite(name, rest, tested, positive, rounding)
            return rest
        for part, kept, above in (
            (f"{name} under test", tested, False),
            (f"numerical {name} (whole - experimental)", rest, positive),
        ):
            if above:  # there are massless degrees of freedom
                some = ~(massless(matrix) & massless(tested))
                kept = kept[np.ix_(some, some)]
            if not len(kept):
                raise ConfigError(f"structure: the {name} must not be zero")
            lowest = float(np.linalg.eigvalsh(kept)[0])
            if lowest < -rounding or (above and lowest <= rounding):
                sign = ">" if above else ">="
                raise ConfigError(f"structure: the {part} has the eigenvalue {lowest:g}, which must be {sign} 0")
        return rest


def _refuse_indefinite(name: str, rest: Matrix, tested: Matrix, positive: bool, rounding: float) -> None:
    one = diagonal(np.ones(rest.shape[0]))
    if not zero(tested) and not is_definite(tested + 2.0 * rounding * one):
        raise ConfigError(
            f"structure: the {name} under test has a negative eigenvalue, but all eigenvalues must be >= 0"
        )
    if zero(rest) and not positive:
        return
    if positive:
        some = ~(massless(rest) & massless(tested))
        if not some.any():
            raise ConfigError(f"structure: the {name} must not be zero")
        rest, one, rounding = rest[some][:, some], one[some][:, some], -rounding
    if not is_definite(rest + (rounding if positive else 2.0 * rounding) * one):
        raise ConfigError(
            f"structure: the numerical {name} (whole - experimental) must have only eigenvalues "
            f"{'>' if positive else '>='} 0"
        )


def zeros(n: int, values: tuple[float, ...] | Array | None) -> Array:
    return np.zeros(n) if values is None else np.array(values)
