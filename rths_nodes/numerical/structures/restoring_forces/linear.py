"""Linear elastic restoring force."""

from __future__ import annotations

from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.restoring_forces.elastic import elastic_stiffness, stated


class Linear:
    """Linear elastic restoring force k x, per degree of freedom."""

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()

    def __init__(self, params: Params, n_dof: int) -> None:
        self.initial_stiffness = stated("linear", params)
        self.elastic_energy = 0.0

    def force(self, displacement: Array) -> Array:
        return self.initial_stiffness * displacement

    def reset(self) -> None:
        """Nothing to forget."""
