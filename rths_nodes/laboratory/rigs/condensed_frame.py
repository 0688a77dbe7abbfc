"""A linear specimen of many degrees of freedom of which the rig drives some: condensed to those.

    q_o = -K_oo^-1 K_ot q_t = G q_t,   T = [1; G],   M_r = T' M T,   C_r = T' C T,   K_r = T' K T

(R. J. Guyan, AIAA Journal 3, 1965). What nobody drives follows statically: no load acts on it from outside, as on
the rotation of a node to which no actuator is fastened, and its inertia and damping act on the driven ones by the
same virtual work. Exact for slow motion; good while the frequencies of the test are well below those that the
specimen has with the driven degrees of freedom held.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import matrix, params, vector
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array

Indices = NDArray[np.intp]


@params
class CondensedFrame:
    """Matrices of a specimen, and which of its degrees of freedom the rig drives."""

    mass: tuple[tuple[float, ...], ...] = matrix("mass matrix of the specimen, n rows of n", "kg")
    damping: tuple[tuple[float, ...], ...] = matrix("damping matrix of the specimen", "N s/m")
    stiffness: tuple[tuple[float, ...], ...] = matrix("stiffness matrix of the specimen", "N/m")
    driven: tuple[float, ...] = vector(
        "numbers of the degrees of freedom that the rig drives, from 1 on, in the order of the rig",
        "1",
        at_least=1.0,
    )

    def validate(self, path: str) -> None:
        """Refuses matrices that do not fit together, and a specimen that nothing holds where it is not driven."""
        n = len(self.mass)
        for name in ("mass", "damping", "stiffness"):
            rows = np.array(getattr(self, name))
            if rows.shape != (n, n) or not np.allclose(rows, rows.T):
                raise ConfigError(f"{path}.{name}: must be symmetric, {n} rows of {n} numbers, as many as mass")
            lowest = float(np.linalg.eigvalsh(rows)[0])
            if lowest < -ROUNDING * float(np.abs(rows).max()):
                raise ConfigError(f"{path}.{name}: has the eigenvalue {lowest:g}: must be >= 0")
        if any(one % 1.0 or one > n for one in self.driven) or len(set(self.driven)) < len(self.driven):
            raise ConfigError(
                f"{path}.driven = {show(self.driven)}: must be different whole numbers from 1 to {n}"
            )
        _, o = self._split()
        stiffness = np.array(self.stiffness)
        if len(o) and np.linalg.eigvalsh(stiffness[np.ix_(o, o)])[0] <= ROUNDING * np.abs(stiffness).max():
            raise ConfigError(f"{path}.stiffness: nothing holds a motion that the rig does not drive")

    def _split(self) -> tuple[Indices, Indices]:
        """Indices of the driven degrees of freedom, and of the others."""
        driven = np.array(self.driven, int) - 1
        return driven, np.setdiff1d(np.arange(len(self.mass)), driven)

    def condensed(self) -> tuple[Array, Array, Array]:
        """Mass (kg), damping (N s/m) and stiffness (N/m) at the driven degrees of freedom, ``(t, t)`` each."""
        t, o = self._split()
        stiffness = np.array(self.stiffness)
        shape = np.zeros((len(stiffness), len(t)))
        shape[t] = np.eye(len(t))
        shape[o] = -np.linalg.solve(stiffness[np.ix_(o, o)], stiffness[np.ix_(o, t)])
        mass, damping = np.array(self.mass), np.array(self.damping)
        return shape.T @ mass @ shape, shape.T @ damping @ shape, shape.T @ stiffness @ shape
