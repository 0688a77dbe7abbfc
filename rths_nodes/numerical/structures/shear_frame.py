"""Shear frame: a mass per floor, a spring per story."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import component, params, vector
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.partitioned import DAMPING, Partition, zeros


class ShearFrame(Partition):
    """Masses on floors, springs between them: x_i is the displacement of floor i relative to the ground.

    The drift of story i is x_i - x_{i-1}. What is named ``experimental_`` is part of the frame, but stands in the
    laboratory: it is taken out of the numerical substructure. Leave out what is only added by the specimen.
    """

    @params
    class Params:
        masses: tuple[float, ...] = vector("mass of each floor, lowest first", "kg", more_than=0.0)
        stiffnesses: tuple[float, ...] = vector("shear stiffness of each story", "N/m", more_than=0.0)
        damping: Any = component("damping", "damping of the whole frame", DAMPING)
        experimental_masses: tuple[float, ...] | None = vector(
            "the part of these masses that stands in the laboratory, floor by floor", "kg", None, at_least=0.0
        )
        experimental_stiffnesses: tuple[float, ...] | None = vector(
            "the part of these stiffnesses that stands in the laboratory, story by story",
            "N/m",
            None,
            at_least=0.0,
        )
        experimental_dampings: tuple[float, ...] | None = vector(
            "dashpots in the laboratory in each story, as part of the damping", "N s/m", None, at_least=0.0
        )

        def validate(self, path: str) -> None:
            """Refuses lists of different length, and a laboratory that holds more than the whole."""
            n = len(self.masses)
            for name in (
                "stiffnesses",
                "experimental_masses",
                "experimental_stiffnesses",
                "experimental_dampings",
            ):
                values = getattr(self, name)
                if values is not None and len(values) != n:
                    raise ConfigError(
                        f"{path}.{name} = {show(values)}: must be {n} numbers, as many as there are masses"
                    )
            for name, unit in (("masses", "kg"), ("stiffnesses", "N/m")):
                parts = getattr(self, f"experimental_{name}") or ()
                for index, (part, all_of_it) in enumerate(zip(parts, getattr(self, name), strict=False)):
                    if part > all_of_it:
                        raise ConfigError(
                            f"{path}.experimental_{name}[{index}] = {show(part, unit)}: must be <= "
                            f"{path}.{name}[{index}] = {show(all_of_it, unit)}"
                        )

    def __init__(self, params: Params) -> None:
        n = len(params.masses)
        self.names = tuple(f"floor_{index + 1}" for index in range(n))
        self.influence = np.ones(n)
        drifts = np.eye(n) - np.eye(n, k=-1)

        def stories(values: tuple[float, ...] | None) -> Array:
            matrix: Array = drifts.T @ np.diag(zeros(n, values)) @ drifts
            return matrix

        super().__init__(
            params.damping,
            (np.diag(params.masses), stories(params.stiffnesses)),
            (
                np.diag(zeros(n, params.experimental_masses)),
                stories(params.experimental_dampings),
                stories(params.experimental_stiffnesses),
            ),
        )
