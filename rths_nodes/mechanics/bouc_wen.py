# SPDX-License-Identifier: Apache-2.0
"""Bouc-Wen model: slope and decay of its internal state z."""

from __future__ import annotations

import math

from rths_nodes.core.arithmetic import power
from rths_nodes.core.decay import ROUNDED_OFF, Decay
from rths_nodes.core.errors import ConfigError, show

SHARPEST = 100.0
"""Largest exponent. Steel plates and friction do not yield more sharply, and larger exponents require more
integration increments."""

LEAST_GAMMA = 1e-9
"""Smallest ratio of gamma to beta + gamma. Without gamma, z unloads along its loading curve."""


def check_shape(beta: float, gamma: float, path: str, unit: str = "") -> None:
    """Raise ConfigError with ``path`` if beta + gamma <= 0 (no yielding) or gamma is too small (no unloading)."""
    suffix = f" {unit}" if unit else ""
    if beta + gamma <= 0.0:
        raise ConfigError(
            f"{path}.beta + gamma = {beta + gamma:g}{suffix}: must be > 0, because otherwise the force never "
            "yields"
        )
    if gamma < LEAST_GAMMA * (beta + gamma):
        least = LEAST_GAMMA * (beta + gamma)
        raise ConfigError(
            f"{path}.gamma = {show(gamma, unit)}: must be >= {show(least, unit)}, because otherwise the force "
            "never unloads"
        )


def bouc_wen_slope(z: float, direction: float, beta: float, gamma: float, exponent: float) -> float:
    """Return dz/dx times the yield displacement, Eq. (14): 1 - (gamma sgn(dx z) + beta) |z|^exponent."""
    shape = gamma + beta if direction * z > 0.0 else beta - gamma
    if exponent == 2.0:
        return 1.0 - shape * z * z
    return 1.0 - shape * power(abs(z), exponent)


def bouc_wen_decay(beta: float, gamma: float, exponent: float, yield_displacement: float) -> Decay:
    """Return the decay of z towards its limit z_max = (beta + gamma)^(-1 / exponent).

    The decay is fastest at the limit: exponent / (z_max yield_displacement), per m. ``settling`` is the number of
    decay times from the opposite limit until the distance of z from the limit is lost in rounding.
    """
    shape = beta + gamma
    if shape <= 0.0:
        return Decay()  # z follows the displacement without yielding
    rate = exponent * shape ** (1.0 / exponent) / yield_displacement
    # if beta > gamma, unloading begins slowly, with the slope 2 gamma / (beta + gamma)
    slow_beginning = math.log(max(1.0, shape / (2.0 * gamma)))
    return Decay(per_velocity=rate, settling=2.0 * exponent + slow_beginning + ROUNDED_OFF)
