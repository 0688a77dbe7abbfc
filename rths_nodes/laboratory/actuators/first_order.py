"""First-order actuator of Chen & Ricles (2010), Eq. (3)."""

from __future__ import annotations

from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Specimen
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath


class FirstOrder:
    """d_k = d_{k-1} + (c_k - d_{k-1}) / alpha; velocity by backward difference.

    alpha counts samples from the previous one: alpha = 1 is no delay, a ramp lags by alpha - 1 samples.
    """

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        self._alpha = params.alpha
        self._dt = dt
        self._path = SpecimenPath(specimen, dt)
        self.reset()

    def reset(self) -> None:
        """At rest at zero."""
        self._path.reset()
        self.displacement = self.velocity = self.force = 0.0

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Displacement over command at ``omega`` (rad/s)."""
        return 1.0 / taps(omega, (self._alpha, 1.0 - self._alpha), (0.0, self._dt))

    def step(self, command: float) -> None:
        before = self.displacement
        self.displacement = before + (command - before) / self._alpha
        self.velocity = (self.displacement - before) / self._dt
        self.force = self._path.move(self.displacement, self.velocity)
