"""The slope of the Bouc-Wen model."""

from __future__ import annotations

import math


def bouc_wen_slope(z: float, direction: float, beta: float, gamma: float, exponent: float) -> float:
    """dz/dx times the yield displacement, Eq. (14): 1 - (gamma sgn(dx z) + beta) |z|^q."""
    shape = gamma + beta if direction * z > 0.0 else beta - gamma
    if exponent == 2.0:
        return 1.0 - shape * z * z
    try:
        return float(1.0 - shape * abs(z) ** exponent)
    except OverflowError:  # diverged: not a number, which the limits judge
        return math.nan
