# SPDX-License-Identifier: Apache-2.0
"""Processor time of a function, in s and in steps of a plain Python loop, little affected by other processes."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns
from typing import Any

import floor
import numpy as np


def least(make: Callable[[], Callable[[], Any]], samples: int, runs: int) -> tuple[list[Any], float, float]:
    """Run each of ``runs`` functions from ``make``. Return their results and the shortest time per sample.

    The time is in s and in plain steps; the plain step is measured before and after each run.
    """
    results, fastest, steps = [], np.inf, np.inf
    for _ in range(runs):
        before, run = floor.python_step(), make()
        start = thread_time_ns()
        results.append(run())
        elapsed = 1e-9 * (thread_time_ns() - start) / samples
        fastest, steps = min(fastest, elapsed), min(steps, elapsed / min(before, floor.python_step()))
    return results, fastest, steps
