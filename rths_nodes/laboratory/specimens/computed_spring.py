# SPDX-License-Identifier: Apache-2.0
"""Computed force: displacement times stiffness, the safest rehearsal of a rig (Horiuchi et al. 1996, Fig. 6a).

The loop then shows only the actuator's control.
"""

from __future__ import annotations

from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel, no_rates


def force(k: tuple[float], s: tuple[()], x: float, v: float) -> float:
    """Spring force: k x."""
    (stiffness,) = k
    return stiffness * x


class ComputedSpring(Specimen):
    """F = k d; the actuator is not affected by F.

    d is the true displacement of the simulated actuator. In a laboratory F includes the noise of the displacement
    sensor; ``sensors.force_noise_rms`` = k ``sensors.displacement_noise_rms`` gives noise of that size.
    """

    @params
    class Params:
        stiffness: float = number("stiffness k", "N/m", 1.0e6, at_least=0.0)

    KERNEL = SpecimenKernel(lambda params: (params.stiffness,), no_state, force, no_rates)
    felt = False
