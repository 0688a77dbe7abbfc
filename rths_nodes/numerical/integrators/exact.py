"""Exact steps of a linear structure by the matrix exponential: the frame of the TADC paper (Wang et al.)."""

from __future__ import annotations

from rths_nodes.core.discretisation import transition
from rths_nodes.core.parameters import params, text
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.dynamics import Dynamics, refuse_large
from rths_nodes.numerical.integrators.experimental_part import refuse_growth
from rths_nodes.numerical.integrators.state_space import LinearSteps, spectral_radius, state_space
from rths_nodes.numerical.structures.linear_force import refuse_yielding


class Exact(Dynamics):
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

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        refuse_large("exact", self.structure, "its step matrices are full")
        refuse_yielding("exact", self.structure)
        self._extrapolated = params.measured_force == "extrapolated"
        self.force_age = 0.0 if self._extrapolated else 0.5
        refuse_growth("exact", self._growth, dt)
        matrices = transition(*state_space(self.structure), dt)
        self._steps = LinearSteps(matrices, external_force, self._extrapolated)
        self.reset()

    def _growth(self, dt: float) -> float:
        matrices = transition(*state_space(self.structure), dt)
        return spectral_radius(self.structure, matrices, self._extrapolated)

    def _advance(self, experimental_force: Array) -> None:
        motion, forces = (self.displacement, self.velocity), (self._experimental, experimental_force)
        self.displacement, self.velocity = self._steps.step(self._index, motion, forces)
