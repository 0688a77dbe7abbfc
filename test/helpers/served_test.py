# SPDX-License-Identifier: Apache-2.0
"""A test of one rung on the simulator that is asked for by services, and a program that leads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.app.procedure.services import Served
from rths_nodes.core.wire.acts import Answer, Request, Signer, of_message
from rths_nodes.loop.scenario import files, rehearsal
from rths_nodes.procedure.acts import ACTS
from rths_nodes.procedure.records import ProcedureRecord

SECRET = bytes(range(32))
MOVES = ("connect", "take_offsets", "confirm_offsets", "check", "position", "arm", "run", "finish")
"""The acts of a whole test of one rung, in their order."""

Send = Callable[[Request], Answer]


@dataclass
class Session:
    """A test of the rung g on the simulator, and the service by which it is asked for."""

    runner: ProcedureRunner
    send: Send
    said: list[str] = field(default_factory=list)
    client: Client | None = None
    """Of service and action, where there is a middleware in between."""

    @property
    def done(self) -> list[tuple[str, str]]:
        """The acts that were done, each with the way it came."""
        return [(act.act, act.way) for act in self.runner.record.acts if not act.refused]

    def seen(self) -> Answer:
        return self.send(Request())


class Operator:
    """A program with the key. ``heard`` is all that it has sent, as everybody on the domain hears it."""

    def __init__(self, session: Session) -> None:
        self._session, self._signer = session, Signer(SECRET)
        self.heard: list[Request] = []

    def _asks(self, act: str = "", **arguments: str) -> Request:
        request = self._signer.request(act, "Ada", **arguments)
        self.heard.append(request)
        return request

    def _send(self, request: Request) -> Answer:
        return self._signer.accept(request, self._session.send(request))

    def request(self, act: str) -> Request:
        """An act, signed for the situation as it is now."""
        return self._asks(act, **arguments_of(act, self._send(self._asks())))

    def act(self, act: str) -> Answer:
        return self._send(self.request(act))

    def climb(self, last: str) -> None:
        """Do the acts of a whole test up to the ``last`` one."""
        for act in MOVES[: MOVES.index(last) + 1]:
            told = self.act(act)
            assert told.done, told.reason


def arguments_of(act: str, told: Answer) -> dict[str, str]:
    """What an operator names, of what he was told."""
    hashes = {"scenario_hash": told.scenario_hash, "offsets_hash": told.offsets_hash}
    return {
        "take_offsets": {"seconds": "0.1"},
        "confirm_offsets": {"hash": told.offsets_hash, "unloaded": "true"},
        "arm": {"rung": told.next_rung, **hashes},
    }.get(act, {})


def runner_of(folder: Path, number: int, duration: float = 0.1) -> ProcedureRunner:
    scenario = files.load("chen_ricles_2010", [f"duration={duration}"], rig="bench_simulated")
    record = ProcedureRecord(
        f"test {number}", scenario.name, rehearsal.hash_of(scenario), operator="A. Tester", planned=["g"]
    )
    return ProcedureRunner(Ladder(scenario, ["g"], 0.2, 2, realtime=False), record, folder / str(number))


class Client:
    """A node of its own that asks the operator node of a ``namespace``: by the action what takes its time."""

    def __init__(self, namespace: str) -> None:
        import rclpy
        from rclpy.action import ActionClient
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        from rths_nodes.action import Act as LastingAct
        from rths_nodes.srv import Act

        self._shutdown, self._goal, self._request = rclpy.shutdown, LastingAct.Goal, Act.Request
        self._context = Context()
        rclpy.init(args=[], context=self._context)
        self._node = Node("asking", namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._service = self._node.create_client(Act, "operator/act")
        self._action = ActionClient(self._node, LastingAct, "operator/act")
        assert self._service.wait_for_service(30.0)
        assert self._action.wait_for_server(30.0)

    def answer(self, asked: Any) -> Any:
        """Wait for what was ``asked``."""
        self._executor.spin_until_future_complete(asked, 60.0)
        return asked.result()

    def spin(self, seconds: float) -> None:
        self._executor.spin_once(seconds)

    def goal(self, request: Request, feedback: Callable[[Any], None] | None = None) -> Any:
        """The handle of a goal that was accepted."""
        return self.answer(self._action.send_goal_async(self._goal(**request.fields()), feedback))

    def asked(self, request: Request) -> Any:
        """A future with the answer of the service."""
        return self._service.call_async(self._request(**request.fields()))

    def by_service(self, request: Request) -> Answer:
        return of_message(Answer, self.answer(self.asked(request)))

    def send(self, request: Request) -> Answer:
        if request.act not in ACTS or not ACTS[request.act].lasting:
            return self.by_service(request)
        return of_message(Answer, self.answer(self.goal(request).get_result_async()).result)

    def close(self) -> None:
        """Leave, as a program that ends; may be called again."""
        if self._context.ok():
            self._executor.shutdown()  # which holds what it has waited for last
            self._action.destroy()
            self._node.destroy_node()
            self._shutdown(context=self._context)


@contextmanager
def by_service(folder: Path, number: int = 0, duration: float = 0.1) -> Iterator[Session]:
    """A session of a test of ``duration`` (s) whose requests go through the middleware."""
    from rths_nodes.ros.nodes.operator import OperatorNode

    runner = runner_of(folder, number, duration)
    said: list[str] = []
    node = OperatorNode(Served(runner, SECRET, said.append), f"rths_{number}")
    node.start()
    client = Client(f"rths_{number}")
    try:
        yield Session(runner, client.send, said, client)
    finally:
        client.close()
        node.close()
        runner.session.close()
