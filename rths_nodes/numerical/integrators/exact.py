"""Exact steps of a linear structure by the matrix exponential: the frame of the TADC paper (Wang et al.)."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.discretisation import transition
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import params, text
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.dynamics import refuse_large
from rths_nodes.numerical.integrators.experimental_part import refuse_growth
from rths_nodes.numerical.integrators.state_space import (
    ByMatrix,
    Constants,
    constants_by_matrix,
    kernel_by_matrix,
    spectral_radius,
    state_space,
)
from rths_nodes.numerical.structures.linear_force import refuse_yielding
from rths_nodes.numerical.vectors import vectors_of


class Exact(ByMatrix):
    """y' = Phi y + Gamma_0 p + Gamma_1 p', y = (x, v): exact for a load that runs straight over the step.

    The external force is interpolated; the measured one is held over the step, which takes damping away as half
    a step of delay does, or extrapolated. Raises ConfigError for a nonlinear restoring force, and for a step at
    which it grows.
    """

    @params
    class Params:
        measured_force: str = text(
            "how the measured force runs over the step: held or extrapolated", "held", ("held", "extrapolated")
        )

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        """Refuses (ConfigError) what is not linear, what is kept sparse, and a step at which it grows."""
        refuse_large("exact", structure, "its step matrices are full")
        refuse_yielding("exact", structure)
        extrapolated = params.measured_force == "extrapolated"
        self.force_age = 0.0 if extrapolated else 0.5
        refuse_growth("exact", lambda dt: growth(structure, dt, extrapolated), dt)

    @classmethod
    def kernel_of(cls, params: Any, structure: Structure) -> Kernel:
        return kernel_by_matrix(vectors_of(structure.mass), cls.constants_of)

    @classmethod
    def constants_of(cls, params: Params, structure: Structure, external_force: Array, dt: float) -> Constants:
        """The matrix of a step."""
        matrices = transition(*state_space(structure), dt)
        return constants_by_matrix(structure, matrices, params.measured_force == "extrapolated")


def growth(structure: Structure, dt: float, extrapolated: bool) -> float:
    """Growth in a step ``dt`` (s) with a perfect actuator before the part under test."""
    return spectral_radius(structure, transition(*state_space(structure), dt), extrapolated)
