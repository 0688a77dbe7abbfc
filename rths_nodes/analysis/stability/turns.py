# SPDX-License-Identifier: Apache-2.0
"""Angle by which a function of a complex frequency turns around zero along a path; gives the number of zeros."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies

HZ = 2.0 * math.pi
CHANGE = 0.5
"""Largest change of the determinant's logarithm between adjacent points: turn (rad) and magnitude.

Two roots close to an interval turn the determinant by 2 pi within the interval, which its end values do not show.
In the adjacent intervals the magnitude then changes 9-fold (e^2.2, geometric mean). The bound is less than a
quarter of this exponent."""
MOST = 50_000
ROUNDS = 60
"""Number of halvings of an interval, down to the last digit."""


def turn(function: Callable[[Frequencies], Complex], path: Frequencies) -> float:
    """Return the angle by which ``function`` turns around zero along ``path``, rad.

    Intervals in which the logarithm of the function changes by more than ``CHANGE``, and adjacent intervals, are
    halved repeatedly. Raises ConfigError if the halving does not end: a root is on the path, or the values are
    only rounding.
    """
    values = function(path)
    for _ in range(ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.log(values[1:] / values[:-1])
        fast = ~(np.abs(steps) < CHANGE)  # nan also counts as fast
        if not fast.any():
            return float(steps.imag.sum())
        where = path[:-1][fast]
        fast[1:], fast[:-1] = fast[1:] | fast[:-1], fast[:-1] | fast[1:]
        halved = np.flatnonzero(fast)
        if len(path) + len(halved) > MOST:
            break
        between = 0.5 * (path[halved] + path[halved + 1])
        path = np.insert(path, halved + 1, between)
        values = np.insert(values, halved + 1, function(between))
    raise ConfigError(
        f"stability: {len(path)} frequencies do not resolve the number of growing motions near "
        f"{float(np.median(where.imag)) / HZ:.4g} Hz. A motion neither grows nor decays, or rounding "
        "hides its growth"
    )
