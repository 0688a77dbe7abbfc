# SPDX-License-Identifier: Apache-2.0
"""Angle by which a function of a complex frequency turns around zero along a path: it counts zeros."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies

HZ = 2.0 * math.pi
CHANGE = 0.5
"""Largest change of the determinant's logarithm between neighbours on the border: turn (rad) and magnitude.

Two roots close to one interval turn the determinant by 2 pi in it, invisible at its ends. In the neighbouring
intervals the magnitude then changes e^2.2 = 9-fold, geometric mean: the bound is less than a quarter of that.
"""
MOST = 50_000
"""Most frequencies of an evaluation of the determinant."""
ROUNDS = 60
"""Halvings of an interval, to the last digit."""


def turn(function: Callable[[Frequencies], Complex], path: Frequencies) -> float:
    """Return the angle by which ``function`` turns around zero along ``path``, rad.

    Intervals in which its logarithm changes by more than ``CHANGE``, and their neighbours, are halved repeatedly.
    Raises ConfigError if that has no end: a root on the path, or values of rounding only.
    """
    values = function(path)
    for _ in range(ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.log(values[1:] / values[:-1])
        fast = ~(np.abs(steps) < CHANGE)  # nan is fast, too
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
        f"stability: cannot be judged: {len(path)} frequencies do not resolve how many motions grow near "
        f"{float(np.median(where.imag)) / HZ:.4g} Hz; one of them neither grows nor decays, or rounding hides it"
    )
