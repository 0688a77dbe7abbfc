# SPDX-License-Identifier: Apache-2.0
"""Actuator that follows its command exactly, with a delay."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.actuators.specimen_path import Unloaded

LONGEST = 1_000_000
"""Largest delay in samples; a longer delay indicates a wrong unit."""


def go(
    k: tuple[int, float, float], s: tuple[Array, int], command: float
) -> tuple[tuple[Array, int], float, float]:
    """Command interpolated between two past samples.

    State: a ring buffer of the last commands (m), two longer than the delay in whole samples, and the index of the
    oldest command.
    """
    integral, fraction, dt = k
    ring, oldest = s
    ring[oldest] = command
    oldest = 0 if oldest > integral else oldest + 1
    before = float(ring[oldest])
    after = float(ring[0 if oldest > integral else oldest + 1])
    return (ring, oldest), after + fraction * (before - after), (after - before) / dt


def constants(params: PureDelay.Params, dt: float) -> tuple[int, float, float]:
    """Return the delay in whole samples, the remaining fraction, and ``dt``. Raises ConfigError for an excessive
    delay.
    """
    samples = params.delay / dt
    if samples > LONGEST:
        raise ConfigError(f"actuator.delay = {params.delay:g} s: must be <= {LONGEST * dt:g} s")
    integral = math.floor(samples)
    return integral, samples - integral, dt


class PureDelay(Unloaded):
    """d(t) = c(t - delay); the command is linear between samples, so any delay is exact."""

    @params
    class Params:
        delay: float = number("time by which the actuator is late", "s", 0.0, at_least=0.0)

    MOTION = Kernel(constants, lambda k: (np.zeros(k[0] + 2), 0), go)

    def frequency_response(self, omega: Frequencies) -> Complex:
        integral, fraction, dt = self.constants[0]
        return taps(omega, (1.0 - fraction, fraction), (integral * dt, (integral + 1) * dt))
