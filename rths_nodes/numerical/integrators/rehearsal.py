# SPDX-License-Identifier: Apache-2.0
"""Steps of a model in another process, tried before a test: how long each takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rths_nodes.core.protocols import Integrator
from rths_nodes.core.samples import Array

REHEARSAL_S, LOOK_S = 5.0, 0.002
"""s that steps are tried for, and between two looks whether the model is there."""


def rehearse(integrator: Integrator, steps: int, force: Callable[[], Array]) -> Array:
    """Return how long each of ``steps`` took, s, of those for which there was time.

    ``force`` gives what is measured, ``(n_dof,)`` N, before each. Raises ConfigError or IntegratorError where the
    model does not come so far.
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
