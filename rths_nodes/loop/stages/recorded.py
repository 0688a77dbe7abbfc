# SPDX-License-Identifier: Apache-2.0
"""Recorded Measurements and Targets that replace the rig and the integrator in the test of a node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from rths_nodes.core.data import Data
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import FLAG_TRIPPED, Command, Measurement, Target
from rths_nodes.loop.stages.numerical import NumericalStage


class RecordedPort(Port):
    """Port that returns the recorded Measurement of each sample, independent of the Commands.

    The scenario's ``port`` only defines the channels and is never opened. ``targets``, unless empty, replace the
    integrator. After the last Measurement, ``exhausted`` is true and this Measurement is repeated.
    """

    external, simulated = False, True
    interlock, partial_stop = "", ""

    def __init__(self, port: Port, measurements: Sequence[Measurement], targets: Sequence[Target]) -> None:
        self.transport_samples = port.transport_samples
        self.auxiliary_names, self.auxiliary_inputs = port.auxiliary_names, port.auxiliary_inputs
        self._measurements, self.targets = measurements, targets
        self._sample = 0

    @property
    def exhausted(self) -> bool:
        return self._sample >= len(self._measurements) - 1

    def open(self, pacer: Callable[[], int] | None = None) -> None: ...

    def begin(self) -> None:
        self._sample = 0

    def arm_watchdog(self) -> None: ...

    def disarm_watchdog(self) -> None: ...

    def wait_tick(self) -> int:
        self._sample += 1
        return self._sample

    def write(self, command: Command) -> None: ...

    def ready(self) -> bool:
        return True

    def read(self) -> Measurement:
        last = len(self._measurements) - 1
        return replace(self._measurements[min(self._sample, last)], sample=self._sample)

    def truth(self) -> Measurement | None:
        return None

    def safe(self) -> None: ...

    def close(self) -> None: ...


class RecordedTargets(NumericalStage):
    """Returns recorded ``targets`` in order, each at the Measurement with which its step begins."""

    external = True
    learning = None
    pending = False

    def __init__(self, targets: deque[Target], substeps: int) -> None:
        self._targets, self.substeps = targets, substeps

    def open(self) -> None: ...

    def close(self) -> None: ...

    def missing(self) -> str:
        return ""

    def numbers(self) -> Data:
        return {}

    def first(self) -> Target:
        return self._targets.popleft()

    def next(self, measured: Measurement) -> Target | None:
        due = measured.sample // self.substeps + 1
        if measured.flags & FLAG_TRIPPED or not self._targets or self._targets[0].step > due:
            return None
        return self._targets.popleft()
