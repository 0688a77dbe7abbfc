# SPDX-License-Identifier: Apache-2.0
"""A port of another package that has what it must, and nothing else."""

from __future__ import annotations

from typing import Any


class Bare:
    """It reads nothing back, and declares nothing."""

    transport_samples = 0
    external = simulated = True
    auxiliary_names = auxiliary_inputs = ()
    interlock = partial_stop = ""

    def _nothing(self, *_: Any) -> None: ...

    open = begin = arm_watchdog = disarm_watchdog = wait_tick = write = ready = read = truth = _nothing
    safe = close = _nothing
