# SPDX-License-Identifier: Apache-2.0
"""A test of one rung on the simulator with an operator socket, and a client that conducts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.app.procedure.operator_socket import Answer, Request
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.procedure.session import CLEAR, MOTIONS
from rths_nodes.ros.transport.line import Credentials

if TYPE_CHECKING:
    from rths_nodes.ros.nodes.operator import OperatorNode

MOVES = ("connect", "take_offsets", "confirm_offsets", "check", "position", "arm", "run", "finish")
"""Acts of a whole test of one rung, in order."""
PEER = Credentials(os.getpid(), os.getuid())


@dataclass
class Session:
    """A test of rung g on the simulator, and its server."""

    runner: ProcedureRunner
    served: Served
    said: list[str] = field(default_factory=list)

    @property
    def done(self) -> list[tuple[str, str]]:
        """Completed acts, each with its way."""
        return [(act.act, act.way) for act in self.runner.record.acts if not act.refused]

    def send(self, request: Request) -> Answer:
        """Answer a request as the socket does."""
        return self.served.answer(request, PEER)


class Operator:
    """A client that requests the situation before each act."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def request(self, act: str) -> Request:
        """Return the request of an act in the present situation."""
        seen = self._session.send(Request())
        arguments = arguments_of(act, seen)
        return Request(act, arguments, "Ada", seen.stops, seen.state, seen.test_id)

    def act(self, act: str) -> Answer:
        return self._session.send(self.request(act))

    def climb(self, last: str) -> None:
        """Do the acts of a test up to the ``last`` one."""
        for act in MOVES[: MOVES.index(last) + 1]:
            answer = self.act(act)
            assert answer.done, answer.reason


def arguments_of(act: str, seen: Answer) -> dict[str, str]:
    """Return the operator's arguments of an act after the answer ``seen``."""
    hashes = {"scenario_hash": seen.scenario_hash, "offsets_hash": seen.offsets_hash}
    return {
        "take_offsets": {"seconds": "0.1"},
        "confirm_offsets": {"hash": seen.offsets_hash, "unloaded": "true"},
        "arm": {"rung": seen.next_rung, **hashes},
        **{name: {"clear": CLEAR} for name in MOTIONS},
    }.get(act, {})


def runner_of(folder: Path, number: int, duration: float = 0.1, planned: str = "g") -> ProcedureRunner:
    scenario = files.load("chen_ricles_2010", [f"duration={duration}"], rig="bench_simulated")
    record = ProcedureRecord(
        f"test {number}", scenario.name, scenario.whole_hash(), operator="A. Tester", planned=list(planned)
    )
    return ProcedureRunner(Ladder(scenario, planned, 0.2, 2, realtime=False), record, folder / str(number))


@contextmanager
def directly(folder: Path, number: int = 0, duration: float = 0.1) -> Iterator[Session]:
    """Session of a test of ``duration`` (s), without socket and middleware."""
    runner, said = runner_of(folder, number, duration), list[str]()
    try:
        yield Session(runner, Served(runner, said.append), said)
    finally:
        runner.session.close()


def operator_node(session: Session, namespace: str) -> OperatorNode:
    from rths_nodes.ros.nodes.operator import OperatorNode

    return OperatorNode(session.runner.session, session.served.stop, session.served.hold, namespace)


@contextmanager
def with_node(folder: Path, number: int = 0, duration: float = 0.1) -> Iterator[Session]:
    """Session with an operator node in the namespace ``rths_NUMBER``."""
    with directly(folder, number, duration) as session:
        node = operator_node(session, f"rths_{number}")
        node.start()
        try:
            yield session
        finally:
            node.close()
