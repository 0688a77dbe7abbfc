# SPDX-License-Identifier: Apache-2.0
"""Second-order actuator; the defaults model the loading system of the TADC tests (plant P2).

With a held command P2 lags by 13.7 ms at 2 Hz and by 15.6 ms at 10 Hz, counted from the start of the sample in
which the command takes effect. At its natural frequency the phase lag is 90 degrees.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.parameters import number, params
from rths_nodes.laboratory.actuators.held_plant import HeldPlant, Plant, hold_parameter


class SecondOrder(HeldPlant):
    """d'' + 2 zeta w d' + w^2 d = w^2 c, solved exactly; velocity is d' at the sample."""

    @params
    class Params:
        natural_frequency: float = number(
            "natural frequency w / 2 pi, at 90 degrees of lag", "Hz", 15.571359045, more_than=0.0, at_most=1e5
        )
        damping_ratio: float = number("damping ratio zeta", default=0.6415455449, more_than=0.0, at_most=1e3)
        hold: str = hold_parameter()

    @classmethod
    def plant_of(cls, params: Params) -> Plant:
        """Return the plant with the states d and d' / w (m), which have equal magnitude."""
        omega = 2.0 * math.pi * params.natural_frequency
        a = omega * np.array([[0.0, 1.0], [-1.0, -2.0 * params.damping_ratio]])
        return Plant(a, np.array([0.0, omega]), np.array([1.0, 0.0]), 0.0, params.hold)
