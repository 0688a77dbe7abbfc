# SPDX-License-Identifier: Apache-2.0
"""Phases of a node, the cause of its end, and the context that the parts of a node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.supervision import states
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.transport.rclpy_private import Logger
from rths_nodes.ros.transport.topics import DeferredSends, NodeTopics
from rths_nodes.ros.transport.wiring import NodeLocation


@dataclass(frozen=True)
class NodeContext:
    location: NodeLocation
    phase: PhaseMachine
    topics: NodeTopics
    deferred: DeferredSends
    logger: Logger
    clock: Clock = SYSTEM_CLOCK


class Phase(IntEnum):
    """Phases of a node, in order, independent of the lifecycle's active state."""

    UNCONFIGURED = 0
    CONFIGURED = 1
    """Stage and endpoints exist, but the node does not participate yet."""
    MATCHING = 2
    READY = 3
    IN_TEST = 4
    """The rig may move."""
    ENDED = 5
    REPORTED = 6
    """The Summary is published; messages from other nodes may still be needed."""
    GONE = 7
    """The node has finished, and its host may close it."""


_SUCCESSORS = {
    Phase.UNCONFIGURED: (Phase.CONFIGURED,),
    Phase.CONFIGURED: (Phase.UNCONFIGURED, Phase.MATCHING),
    Phase.MATCHING: (Phase.UNCONFIGURED, Phase.READY, Phase.IN_TEST, Phase.ENDED, Phase.REPORTED),
    Phase.READY: (Phase.UNCONFIGURED, Phase.IN_TEST, Phase.ENDED, Phase.REPORTED),
    Phase.IN_TEST: (Phase.UNCONFIGURED, Phase.ENDED, Phase.REPORTED),
    Phase.ENDED: (Phase.UNCONFIGURED, Phase.REPORTED),
    Phase.REPORTED: (Phase.UNCONFIGURED,),
    Phase.GONE: (),
}
"""Valid next phases of each phase, in addition to GONE. A test can end before the rig moves."""

UNDER_WAY = (State.ARMED, State.RUNNING, State.STOPPING)
"""States of a test in which the rig may move."""


@dataclass(frozen=True)
class StateOfTest:
    state: State = State.IDLE
    sample: int = 0
    reason: str = ""


class PhaseMachine:
    """Holds the phase of a node, and raises RuntimeError for an invalid transition.

    ``active`` is true in the active state of the lifecycle. ``begun`` is true if the rig may have moved. ``note``
    is information for the user. ``on_ended`` is called at the end of the test. ``exit_code`` and ``problem`` (the
    reason; empty if there is none) belong to the node's end; a ``silent`` end is not published.
    """

    def __init__(self, on_ended: Callable[[], None] = lambda: None) -> None:
        self._on_ended = on_ended
        self.now = Phase.UNCONFIGURED
        self.gone = False
        self.active = False
        self.ended = False
        self.begun = False
        self.test = StateOfTest()
        self.note = ""
        self.configure()

    def to(self, phase: Phase) -> None:
        if phase is Phase.GONE:
            self.gone = True
        elif phase not in _SUCCESSORS[self.now]:
            raise RuntimeError(f"phase {self.now.name} -> {phase.name}: no such transition")
        self.now = phase

    def configure(self) -> None:
        self.blame(ExitCode.FINISHED, "")

    def clean_up(self) -> None:
        if self.now not in (Phase.UNCONFIGURED, Phase.GONE):
            self.to(Phase.UNCONFIGURED)
        self.test, self.ended, self.begun = StateOfTest(), False, False

    def activate(self, active: bool) -> None:
        self.active = active
        if active and self.now is Phase.CONFIGURED:
            self.to(Phase.MATCHING)

    def follow(self, test: StateOfTest) -> None:
        had_ended = self.ended
        self.test = test
        self.ended = test.state in states.ENDED
        if self.ended and not had_ended:
            self._on_ended()
        self.begun = self.begun or test.state in UNDER_WAY or test.sample > 0
        if self.ended and Phase.MATCHING <= self.now < Phase.ENDED:
            self.to(Phase.ENDED)
        elif test.state in UNDER_WAY and Phase.MATCHING <= self.now < Phase.IN_TEST:
            self.to(Phase.IN_TEST)

    def report(self) -> None:
        if Phase.MATCHING <= self.now < Phase.REPORTED:
            self.to(Phase.REPORTED)

    def end(self, exit_code: int, problem: str, silent: bool = False) -> None:
        self.blame(exit_code, problem, silent)
        self.to(Phase.GONE)

    def blame(self, exit_code: int, problem: str, silent: bool = False) -> None:
        self.exit_code, self.problem, self.silent = exit_code, problem, silent

    def fail(self, problem: str) -> None:
        in_order = self.exit_code in (ExitCode.FINISHED, ExitCode.HELD)
        self.blame(ExitCode.FAILED if in_order else self.exit_code, problem)

    def remark(self, note: str) -> None:
        self.note = note

    @property
    def under_way(self) -> bool:
        return self.test.state in UNDER_WAY
