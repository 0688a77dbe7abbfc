"""No compensation: the target is the command."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Array, Motion


class NoCompensation:
    """d^p = d^c."""

    @params
    class Params:
        pass

    state_names: tuple[str, ...] = ()
    state_units: Mapping[str, str] = {}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        pass

    def step(self, target: Motion, measured: Array) -> Array:
        return target.displacement

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s): one."""
        return np.ones(len(omega), complex)

    def state(self) -> tuple[float, ...]:
        return ()

    def reset(self) -> None:
        """Nothing to forget."""
