# SPDX-License-Identifier: Apache-2.0
"""Processor time of a piece of work, in steps of a plain Python loop, without the effect of other processes."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns
from typing import Any

import floor
import numpy as np


def least(make: Callable[[], Callable[[], Any]], samples: int, runs: int) -> tuple[list[Any], float, float]:
    """Results of ``runs`` of what ``make`` gives; the least time of one of ``samples`` (s), and in plain steps.

    The plain step is measured around each run.
    """
    results, fastest, steps = [], np.inf, np.inf
    for _ in range(runs):
        before, run = floor.python_step(), make()
        begun = thread_time_ns()
        results.append(run())
        spent = 1e-9 * (thread_time_ns() - begun) / samples
        fastest, steps = min(fastest, spent), min(steps, spent / min(before, floor.python_step()))
    return results, fastest, steps
