"""No compensation: the target is the command."""

from __future__ import annotations

from collections.abc import Mapping

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Array, Motion


class NoCompensation:
    """d^p = d^c."""

    @params
    class Params:
        lead: float = lead_parameter()

    state_names: tuple[str, ...] = ()
    state_units: Mapping[str, str] = {}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._ahead = Ahead(params.lead, dt, n_axes)

    def step(self, target: Motion, measured: Array) -> Array:
        return self._ahead.of(target).displacement

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s): one, without a lead."""
        return self._ahead.response(omega)

    def state(self) -> tuple[float, ...]:
        return ()

    def reset(self) -> None:
        """The target was at rest."""
        self._ahead.reset()
