"""A constant voltage at the inputs of the rig."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.core import channels
from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array, Measurement


class Passive:
    """The same voltage all the time: 0 V is "passive off", the largest is "passive on"."""

    @params
    class Params:
        """Parameters of a damper without control."""

        voltage: float = number("voltage at the current driver", "V", 0.0, at_least=0.0)

    inputs: tuple[str, ...] = (channels.DAMPER_VOLTAGE,)

    def __init__(self, params: Params, structure: Structure | None, dt: float, measured: Sequence[str]) -> None:
        self._voltage = np.array([params.voltage])

    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        """Voltage ``(1,)`` V."""
        return self._voltage

    def reset(self) -> None:
        """Nothing to forget."""
