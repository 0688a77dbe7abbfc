# SPDX-License-Identifier: Apache-2.0
"""Trial steps of a model in another process before a test, and the durations of these steps."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rths_nodes.core.protocols import Integrator
from rths_nodes.core.samples import Array

REHEARSAL_S, LOOK_S = 5.0, 0.002
"""``REHEARSAL_S``: longest duration of the rehearsal, s. ``LOOK_S``: polling interval, s."""


def rehearse(integrator: Integrator, steps: int, force: Callable[[], Array]) -> Array:
    """Run at most ``steps`` trial steps, for at most ``REHEARSAL_S`` seconds, and return their durations (s).

    ``force()`` returns the measured force ``(n_dof,)`` N. Raises ConfigError or IntegratorError if the model
    fails.
    """
    took: list[float] = []
    try:
        integrator.open()
        while integrator.missing():
            time.sleep(LOOK_S)
        until = time.monotonic() + REHEARSAL_S
        while len(took) < steps and time.monotonic() < until:
            measured, began = force(), time.perf_counter()
            integrator.begin(measured)
            integrator.step(measured)
            took.append(time.perf_counter() - began)
    finally:
        integrator.close()
    return np.array(took)
