# SPDX-License-Identifier: Apache-2.0
"""Parts of a loop for tests: components, sink of commands and measurements, bare port, clock, rig at sample 0."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data, walk_declared
from rths_nodes.loop.embedded import Loop, Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.mechanics.small_specimen import SmallSpecimen
from rths_nodes.recording.run import Collector, Run


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


def spring_specimen(stiffness: float, damping: float = 0.0) -> SmallSpecimen:
    return SmallSpecimen(stiffness, damping, np.zeros((0, 0)), *np.zeros((3, 0)), mass=0.0)


def make(family: str, name: str, *arguments: Any, **data: Any) -> Any:
    """Build a component: ``make("ramp", "linear", dt, 10, 1)``; parameters by keyword."""
    cls = registry.load(family, name)
    return cls(from_data(cls.Params, data, family), *arguments)


def declared(scenario: Scenario) -> Counter[str]:
    """Count the components that a scenario declares, as the fixture ``built`` does."""
    parts = ((part, specs[-1].family) for _, part, specs in walk_declared(scenario) if specs)
    return Counter(f"{family} {type(part).type_name}" for part, family in parts if family)


def simulate(scenario: str | Scenario, *overrides: str) -> tuple[Outcome, Run]:
    """Run a scenario in the reference loop; return its outcome and histories."""
    return collected(Loop(Assembly(files.load(scenario, overrides))))


def collected(loop: Loop) -> tuple[Outcome, Run]:
    """Run a loop; return its outcome and histories."""
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    return outcome, collector.run(metrics=outcome.metrics)


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
