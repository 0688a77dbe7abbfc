# SPDX-License-Identifier: Apache-2.0
"""A port with the required attributes only."""

from __future__ import annotations

from typing import Any


class Bare:
    """Port that measures nothing and declares nothing."""

    transport_samples = 0
    external = simulated = True
    auxiliary_names = auxiliary_inputs = ()
    interlock = partial_stop = ""

    def _nothing(self, *_: Any) -> None: ...

    open = begin = arm_watchdog = disarm_watchdog = wait_tick = write = ready = read = truth = _nothing
    safe = close = _nothing
