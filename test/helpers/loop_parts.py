# SPDX-License-Identifier: Apache-2.0
"""Parts of a loop for tests: sink of commands and measurements, bare port, clock, rig at Measurement 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State


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


def started(scenario: Scenario) -> RigStage:
    """Return a rig at Measurement 0."""
    stage = RigStage(scenario, Assembly(scenario).port)
    stage.connect()
    stage.machine.to(State.ARMED)
    stage.first()
    return stage


def command(sample: int, value: float = 0.0, flags: int = 0) -> Command:
    """Return a Command whose target is its value."""
    return Command(sample, np.array([value]), np.array([value]), flags=flags)
