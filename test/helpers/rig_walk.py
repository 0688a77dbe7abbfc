# SPDX-License-Identifier: Apache-2.0
"""A session of a rig, and the acts that lead it on: for tests of the procedure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rths_nodes.core.samples import Command
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.rungs import RunOutcome
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording.run import Collector, Run

RIG = """
version: 1
name: bench
port: {type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}
axes:
  bench:
    serves: [story_1]
    displacement: {unit: mm, range: 275.0}
    force: {unit: kN, range: 2000.0}
    command: {unit: mm, range: 260.0}
    limits: {stroke: 0.25, velocity: 1.2, force: 1.8e6, deceleration: 20.0}
    elastic_limit: 0.04
    stiffness: 7.6e6
    stiffness_known_to: 0.03
    small_move: {displacement: 1.0e-3, velocity: 20.0e-3, force: 30.0e3}
    unloading: {travel: 0.05, velocity: 5.0e-3}
"""
"""A bench behind the simulator, with perfect channels."""


def steps(sent: list[float]) -> float:
    """Largest step of the commands ``sent``, m."""
    return float(np.abs(np.diff(np.array(sent))).max())


class Walk:
    """A session on the rig, and the acts that lead it on; ``sent`` are all commands that reached the port, m.

    ``further`` arguments are those of the session.
    """

    def __init__(self, scenario: Scenario, sent: list[float], **further: Any) -> None:
        self.scenario, self.sent = scenario, sent
        self.scenario_file = ""
        self.states: list[State] = []
        self.on_state: Callable[[State], object] = lambda state: None
        self.progress: Callable[[int], None] | None = None
        self.record = ProcedureRecord("test", scenario.name, scenario.whole_hash())
        self.session = RigSession(scenario, self.record, realtime=False, changed=self._changed, **further)
        self.run: Run | None = None

    def _changed(self, state: State, reason: str) -> None:
        self.states.append(state)
        self.on_state(state)

    def refer(self, unloaded: bool = True) -> Walk:
        """Connected, with offsets."""
        self.session.connect()
        self.session.confirm_offsets(self.session.take_offsets(0.05).hash, unloaded)
        return self

    def to_start(self, signs: bool = False) -> Walk:
        """Positioned; ``signs`` for every open item."""
        self.refer()
        self.session.check()
        if signs:
            self.sign_all()
        self.session.position()
        return self

    def tick(self, count: int) -> None:
        """Let ``count`` ticks elapse while the rig is held."""
        for _ in range(count):
            self.session.drive.tick()

    def after_command(self, count: int, action: Callable[[], object]) -> None:
        """Call ``action`` once the port has received ``count`` commands."""
        write = self.session.drive.port.write

        def written(command: Command) -> None:
            write(command)
            if len(self.sent) == count:
                action()

        self.session.drive.port.write = written  # type: ignore[method-assign]

    def sign_all(self, person: str = "") -> None:
        """Sign for every open item."""
        for name in self.session.clearance.unsigned():
            self.session.sign_for(name, person)

    def arm(self, rung: str, scenario: Scenario | None = None) -> None:
        """Arm ``rung`` as it stands there."""
        assert self.session.offsets is not None
        scenario = scenario or self.scenario
        self.session.arm(rung, scenario, scenario.whole_hash(), self.session.offsets.hash)

    def climb(self, rung: str, scenario: Scenario | None = None) -> RungRecord:
        """Arm and run ``rung`` in the host embedded; its arrays are ``run``."""
        self.arm(rung, scenario)
        return self.session.run(self._embedded)

    def _embedded(self, scenario: Scenario, port: Any) -> RunOutcome:
        loop = Loop(Assembly(scenario, port))
        collector = Collector(scenario, loop.assembly.names)
        outcome = loop.run([collector], self.progress)
        self.run = collector.run()
        return RunOutcome(outcome.state.name.lower(), outcome.reason, outcome.samples)
