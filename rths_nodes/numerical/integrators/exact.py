# SPDX-License-Identifier: Apache-2.0
"""Exact steps of a linear structure by the matrix exponential: the frame of the TADC paper (Wang et al.)."""

from __future__ import annotations

from rths_nodes.core.parameters import params, text
from rths_nodes.core.protocols import Structure
from rths_nodes.mechanics.structure import transition
from rths_nodes.numerical.integrators.dynamics import refuse_large
from rths_nodes.numerical.integrators.experimental_part import refuse_growth
from rths_nodes.numerical.integrators.state_space import ByMatrix, Matrices, state_space
from rths_nodes.numerical.structures.linear_force import refuse_yielding


class Exact(ByMatrix):
    """y' = Phi y + Gamma_0 p + Gamma_1 p', y = (x, v): exact for a load that runs straight over the step.

    The external force is interpolated; the measured one is held over the step, which reduces damping as half a
    step of delay does, or extrapolated. Raises ConfigError for a nonlinear restoring force, and for a step at
    which it grows.
    """

    @params
    class Params:
        measured_force: str = text(
            "how the measured force runs over the step: held or extrapolated", "held", ("held", "extrapolated")
        )

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_large("exact", structure, "its step matrices are full")
        refuse_yielding("exact", structure)
        self.force_age = 0.0 if params.measured_force == "extrapolated" else 0.5
        refuse_growth("exact", lambda dt: self.growth(params, structure, dt), dt)

    @staticmethod
    def matrices(params: Params, structure: Structure, dt: float) -> tuple[Matrices, bool]:
        return transition(*state_space(structure), dt), params.measured_force == "extrapolated"
