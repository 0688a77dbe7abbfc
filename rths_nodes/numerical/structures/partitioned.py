"""What every structure has that states its experimental part."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.massless import massless
from rths_nodes.core.protocols import StructuralForce
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.linear_force import LinearRestoringForce

DAMPING = {"type": "modal", "ratios": [0.02]}
"""Damping of a structure that states none: that of ``sdof``."""


class Partition:
    """A linear structure of which a part stands in the laboratory: the numerical part is the difference."""

    elastic_energy: float = 0.0

    def __init__(self, damping: Any, given: tuple[Array, Array], tested: tuple[Array, Array, Array]) -> None:
        """``given`` is mass and stiffness of the whole, ``tested`` mass, damping and stiffness under test.

        The damping model is formed from the whole. Raises ConfigError when the rest is no structure.
        """
        mass, stiffness = given
        self.experimental_mass, self.experimental_damping, self.experimental_stiffness = tested
        self.mass = self._rest("mass", mass, tested[0], positive=True)
        self.stiffness = self._rest("stiffness", stiffness, tested[2])
        model = registry.build("damping", damping)
        self.damping = self._rest("damping", model.matrix(mass, stiffness), tested[1])
        self.restoring_force: StructuralForce = LinearRestoringForce(self.stiffness)

    @staticmethod
    def _rest(name: str, given: Array, tested: Array, positive: bool = False) -> Array:
        rest = given - tested
        rounding = ROUNDING * float(np.abs(given).max())
        for part, kept, above in (
            ("under test", tested, False),
            ("numerical, whole - experimental,", rest, positive),
        ):
            if above:  # what nobody gives a mass does without
                some = ~(massless(given) & massless(tested))
                kept = kept[np.ix_(some, some)]
            if not len(kept):
                raise ConfigError(f"structure: its {name} is zero")
            lowest = float(np.linalg.eigvalsh(kept)[0])
            if lowest < -rounding or (above and lowest <= rounding):
                sign = ">" if above else ">="
                raise ConfigError(f"structure: its {name} {part} has the eigenvalue {lowest:g}: must be {sign} 0")
        return rest


def zeros(n: int, values: tuple[float, ...] | Array | None) -> Array:
    return np.zeros(n) if values is None else np.array(values)
