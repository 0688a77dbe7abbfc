# SPDX-License-Identifier: Apache-2.0
"""Floods of service requests: the loop continues, and a stop reaches the rig within two samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from served_test import Operator, Session, with_node
from std_srvs.srv import SetBool
from stranger import stranger

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.loop.options import run_options
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files, rehearsal
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.hosting.executor import answers
from rths_nodes.ros.nodes.operator import OperatorNode
from rths_nodes.ros.transport.endpoints import ByHand
from rths_nodes.ros.transport.service_thread import (
    PAUSE_S,
    SERVICE_QOS,
    Answer,
    FewRequests,
    LoopCalls,
    ServiceThread,
)

REQUESTS = 20_000
SAMPLES = 2
"""Most samples from the acceptance of a stop to the first sample that brakes."""


def spied(calls: LoopCalls, rig: Any) -> list[int]:
    """Samples of the ``rig`` at which its requests to stop are accepted."""
    accepted, call = list[int](), calls.call

    def noted(function: Callable[[], object]) -> object:
        accepted.append(rig.last_sample)
        return call(function)

    calls.call = noted  # type: ignore[method-assign]
    return accepted


@pytest.mark.parametrize("gone", [False, True], ids=["during a flood", "after its client has left"])
def test_a_stop_reaches_the_rig_within_two_samples(gone: bool, tmp_path: Path, patience: list[str]) -> None:
    """A client that leaves is worst: the middleware waits for it with each response that it will never take."""
    chosen = {"overrides": ["duration=60", *patience], "host": "composed", "pace": "realtime"}
    descriptions = launching.describe(
        run_options({"scenario": "chen_ricles_2010", "record": tmp_path / "run"} | chosen)
    )
    with composed.ros_context() as context, stranger() as operator, stranger("flood", str(REQUESTS)) as flood:
        test = composed.ComposedTest()
        for each in descriptions:
            test.add(each.role, hosts.open_writer, context, each.parameters).start()
        rig, moving = test.rig, threading.Event()
        accepted = spied(rig._stop_calls, rig)

        def talk() -> None:
            assert moving.wait(60.0)
            flood.ready()
            flood.go()
            if gone:
                flood.wait()
            assert operator.stop()

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            test.run(context, lambda: moving.set() if rig.rig.machine.state is State.RUNNING else None)
        finally:
            moving.set()
            thread.join()
            for node in test.nodes:
                node.destroy_node()
    assert "stop service" in test.result.reason
    braking = int(np.flatnonzero(rths_nodes.read(tmp_path / "run").flags & FLAG_TRIPPED)[0])
    assert 0 < braking - accepted[0] <= SAMPLES


def test_a_stop_of_a_procedure_reaches_the_rig_within_two_samples(tmp_path: Path, patience: list[str]) -> None:
    """Nodes of the run answer services in the process of the procedure."""
    scenario = files.load("chen_ricles_2010", ["duration=60", *patience], rig="bench_simulated")
    record = ProcedureRecord("test", scenario.name, rehearsal.hash_of(scenario), operator="Ada", planned=["g"])
    runner = ProcedureRunner(Ladder(scenario, ["g"], 0.2, 2, realtime=True), record, tmp_path / "test")
    served, accepted = Served(runner, print), list[int]()

    def sample() -> int:
        rung = runner.session.rung
        assert rung is not None
        return rung.port._measured.sample - rung.port._zero if rung.port._begun else -1

    def stop(reason: str) -> None:
        accepted.append(sample())
        Served.stop(served, reason)

    served.stop = stop  # type: ignore[method-assign]
    node, operator = OperatorNode(served, "rths"), Operator(Session(runner, served))
    node.start()
    running = threading.Thread(target=operator.act, args=("run",))
    try:
        operator.climb("arm")
        with stranger() as caller, stranger("flood", str(REQUESTS)) as flood:
            running.start()
            wait_for(lambda: runner.state is State.RUNNING)
            flood.ready()
            wait_for(lambda: sample() > 0)
            flood.go()
            assert caller.stop("operator")
            running.join(60.0)
    finally:
        runner.session.close()
        node.close()
    recording = tmp_path / "test" / runner.record.rungs[-1].recording
    braking = int(np.flatnonzero(rths_nodes.read(recording).flags & FLAG_TRIPPED)[0])
    assert 0 < braking - accepted[0] <= SAMPLES


def test_rclpy_serves_nothing_of_the_operator_node(tmp_path: Path) -> None:
    """Its executor would wait for clients that have left, with the interpreter lock of the loop."""
    with with_node(tmp_path), composed.ros_context() as context:
        onlooker = Node("onlooker", context=context)
        services = partial(onlooker.get_service_names_and_types_by_node, "operator", "/rths_0")
        wait_for(lambda: "operator" in onlooker.get_node_names())
        wait_for(lambda: len(services()) >= 3)
        assert sorted(name for name, _ in services()) == [
            "/rths_0/operator/hold",
            "/rths_0/operator/stop",
            "/rths_0/operator/stop_by_page",
        ]
        onlooker.destroy_node()


class Server(FewRequests, Node):  # type: ignore[misc]
    """A node without a loop."""


@contextmanager
def served(*names: str) -> Iterator[tuple[Node, list[str], list[str]]]:
    """A client, a server whose thread answers the services ``names``, what they were asked, and the warnings."""
    with composed.ros_context() as context:
        server, client = Server("server", context=context), Node("client", context=context)
        asked, warnings = list[str](), list[str]()

        def answer(name: str) -> Callable[[Any, Any], Any]:
            def carry_out(request: Any, response: Any) -> Any:
                if not request.data:
                    raise RuntimeError("no such value")
                asked.append(f"{name} in {threading.current_thread().name}")
                response.success = True
                return response

            return carry_out

        group = ByHand()
        services = {
            server.create_service(SetBool, name, print, callback_group=group): answer(name) for name in names
        }
        thread = ServiceThread(context, services, LoopCalls(), warnings.append)
        thread.start()
        try:
            yield client, asked, warnings
        finally:
            thread.close()
            client.destroy_node()
            server.destroy_node()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_answers_are_few_however_many_requests_come() -> None:
    """Each is followed by a pause, and the middleware drops what is too much."""
    with served("a", "b") as (client, asked, _):
        requests = client.create_client(SetBool, "a"), client.create_client(SetBool, "b")
        assert all(each.wait_for_service(timeout_sec=30.0) for each in requests)
        began = time.monotonic()
        for _ in range(2000):
            for each in requests:
                each.handle.send_request(SetBool.Request(data=True))
        sent = time.monotonic()
        wait_for(lambda: len(asked) > 10)
        in_flood = len(asked)
        assert in_flood <= 2 + (time.monotonic() - began) / PAUSE_S
        wait_for(lambda: time.monotonic() > sent + 100 * PAUSE_S)
        assert len(asked) - in_flood <= 4 * SERVICE_QOS.depth, "no backlog"
        assert {each.partition(" in ")[0] for each in asked} == {"a", "b"}, "none waits for the other"


def test_a_request_that_makes_no_sense_is_refused_and_the_next_one_answered() -> None:
    with served("a") as (client, asked, warnings):
        service = client.create_client(SetBool, "a")
        assert service.wait_for_service(timeout_sec=30.0)
        executor = SingleThreadedExecutor(context=client.context)
        executor.add_node(client)
        outcomes = []
        for data in (False, True):
            future = service.call_async(SetBool.Request(data=data))
            executor.spin_until_future_complete(future, timeout_sec=30.0)
            outcomes.append(future.result().success)
        executor.shutdown()
        assert outcomes == [False, True]
        assert asked == ["a in services"]
        assert "no such value" in warnings[0]


def answered_without_loop(service: Any, answer: Answer, calls: LoopCalls) -> bool:
    """Whether ``answer`` returns although no loop carries out ``calls``."""
    kind = service.srv_type

    def call() -> None:
        with suppress(CancelledError):
            answer(kind.Request(), kind.Response())

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(lambda: bool(calls.waiting) or not thread.is_alive())
    waits = bool(calls.waiting)
    calls.close()
    thread.join()
    return not waits


def test_the_loop_carries_out_what_changes_a_node_and_nothing_else(by_hand: Any) -> None:
    with by_hand.node("actuator") as node:
        names = [service.srv_name.rpartition("/")[2] for service in answers([node], LoopCalls())]
        alone = set()
        for number, name in enumerate(names):
            calls = LoopCalls()
            service, answer = list(answers([node], calls).items())[number]
            if answered_without_loop(service, answer, calls):
                alone.add(name)
        assert set(names) - alone == {
            "change_state",
            "set_parameters",
            "set_parameters_atomically",
            "get_type_description",
        }
