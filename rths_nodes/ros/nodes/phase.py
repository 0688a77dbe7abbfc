# SPDX-License-Identifier: Apache-2.0
"""Phases that a node goes through, and the cause of its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision import states
from rths_nodes.loop.supervision.states import State


class Phase(IntEnum):
    """Phases of a node, in their order. Whether it is active is the lifecycle's, beside it."""

    UNCONFIGURED = 0
    CONFIGURED = 1
    """Stage and endpoints are there; the node takes no part yet."""
    MATCHING = 2
    """Active; peers are looked for."""
    READY = 3
    """All peers were found."""
    IN_TEST = 4
    """The rig may move."""
    ENDED = 5
    """The actuator node has said that the test is over."""
    REPORTED = 6
    """The Summary is told; messages of others may still be needed."""
    GONE = 7
    """The node has no more to do: its host may close it."""


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
"""A node may be GONE from everywhere; a test can end, or be given up, before it has begun."""

UNDER_WAY = (State.ARMED, State.RUNNING, State.STOPPING)
"""States of a test in which the rig may move."""


@dataclass(frozen=True)
class StateOfTest:
    """Where the test stands, as the actuator node has said last (TestState)."""

    state: State = State.IDLE
    sample: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Cause:
    """Why a node ends as it does: its exit code, and words for the user; empty where nothing went wrong.

    ``silent``: it had no time to say so, nor to tell its Summary.
    """

    exit_code: int = 0
    problem: str = ""
    silent: bool = False


class PhaseMachine:
    """The phase of a node; refuses a transition that is not in the diagram.

    ``now`` is the phase. ``active`` is the lifecycle's primary state, ``test`` where the test stands, ``cause``
    why the node ends as it does, ``note`` what the user should know besides. ``gone`` and ``ended``, which are
    asked in every sample, follow from them; ``begun`` tells that the rig may have moved. ``on_ended`` is called
    when the end of the test is heard.
    """

    def __init__(self, on_ended: Callable[[], None] = lambda: None) -> None:
        self._on_ended = on_ended
        self.now = Phase.UNCONFIGURED
        self.gone = False
        self.active = False
        self.ended = False
        self.begun = False
        self.test = StateOfTest()
        self.cause = Cause()
        self.note = ""

    def to(self, phase: Phase) -> None:
        """Enter ``phase``. Raises RuntimeError when the diagram has no such arrow."""
        if phase is Phase.GONE:
            self.gone = True
        elif phase not in _SUCCESSORS[self.now]:
            raise RuntimeError(f"phase {self.now.name} -> {phase.name}: no such transition")
        self.now = phase

    def configure(self) -> None:
        """A new attempt: nothing has gone wrong yet."""
        self.cause = Cause()

    def clean_up(self) -> None:
        """Back to where the node was before it was configured; one that is gone stays so."""
        if self.now not in (Phase.UNCONFIGURED, Phase.GONE):
            self.to(Phase.UNCONFIGURED)
        self.test, self.ended, self.begun = StateOfTest(), False, False

    def activate(self, active: bool) -> None:
        """Take part, or not for now. A node that is activated again goes on where it was."""
        self.active = active
        if active and self.now is Phase.CONFIGURED:
            self.to(Phase.MATCHING)

    def follow(self, test: StateOfTest) -> None:
        """The actuator node has said where the test stands."""
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
        """Why the node will end; it goes on for now."""
        self.cause = Cause(exit_code, problem, silent)

    def fail(self, problem: str) -> None:
        """Something unforeseen has happened; what had gone wrong before keeps its exit code."""
        in_order = self.exit_code in (ExitCode.FINISHED, ExitCode.HELD)
        self.blame(ExitCode.FAILED if in_order else self.exit_code, problem)

    def remark(self, note: str) -> None:
        self.note = note

    @property
    def under_way(self) -> bool:
        """True while the rig may move, as far as the node knows."""
        return self.test.state in UNDER_WAY

    @property
    def exit_code(self) -> int:
        """Exit code of the process; 0 as long as nothing is wrong."""
        return self.cause.exit_code

    @property
    def problem(self) -> str:
        """Problem of the node in words, for people; empty when there is none."""
        return self.cause.problem
