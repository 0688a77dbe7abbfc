# SPDX-License-Identifier: Apache-2.0
"""Parts of a loop for tests: a sink that keeps commands and measurements, a bare port, a clock."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.samples import Command, Measurement


class History:
    """Keeps commands, measurements and true values; ignores targets and states."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.measured: list[Measurement] = []
        self.true: list[Measurement] = []
        self.command, self.measurement, self.truth = self.commands.append, self.measured.append, self.true.append

    def target(self, target: object) -> None: ...

    def state(self, sample: int, values: object) -> None: ...


class Bare:
    """Port that measures nothing and declares nothing."""

    transport_samples = 0
    external = simulated = True
    auxiliary_names = auxiliary_inputs = ()
    interlock = partial_stop = ""

    def _nothing(self, *_: Any) -> None: ...

    open = begin = arm_watchdog = disarm_watchdog = wait_tick = write = ready = read = truth = _nothing
    safe = close = _nothing


class Hours:
    def __init__(self) -> None:
        self.now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a test may not wait")
