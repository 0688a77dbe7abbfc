# SPDX-License-Identifier: Apache-2.0
"""Tests of floods of service requests: the loop continues, and a stop reaches the rig within two samples."""

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
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.loop.options import run_options
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.executor import answers
from rths_nodes.ros.hosting.node_processes import describe
from rths_nodes.ros.names import STRANGER
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
"""Largest number of samples from the acceptance of a stop to the first braking sample."""


def record_accepted(calls: LoopCalls, rig: Any) -> list[int]:
    """Record the samples of the ``rig`` at which its stop requests are accepted."""
    accepted, call = list[int](), calls.call

    def recording(function: Callable[[], object]) -> object:
        accepted.append(rig.last_sample)
        return call(function)

    calls.call = recording  # type: ignore[method-assign]
    return accepted


def first_braking_sample(recording: Path) -> int:
    return int(np.flatnonzero(rths_nodes.read(recording).flags & FLAG_TRIPPED)[0])


@pytest.mark.parametrize("gone", [False, True], ids=["during a flood", "after its client has left"])
def test_stop_reaches_rig_within_two_samples(gone: bool, tmp_path: Path, patience: list[str]) -> None:
    """A client that leaves is worst: the middleware waits for it with each response that it will never take."""
    options = {"overrides": ["duration=60", *patience], "host": "composed", "pace": "realtime"}
    descriptions = describe(run_options({"scenario": "chen_ricles_2010", "record": tmp_path / "run"} | options))
    with composed.ros_context() as context, stranger() as operator, stranger("flood", str(REQUESTS)) as flood:
        test = composed.ComposedTest()
        for description in descriptions:
            test.add(description.role, hosts.open_writer, context, description.parameters).start()
        rig, moving = test.rig, threading.Event()
        accepted = record_accepted(rig._stop_calls, rig)

        def flood_and_stop() -> None:
            assert moving.wait(60.0)
            flood.ready()
            flood.go()
            if gone:
                flood.wait()
            assert operator.stop()

        thread = threading.Thread(target=flood_and_stop)
        thread.start()
        try:
            test.run(context, lambda: moving.set() if rig.rig.machine.state is State.RUNNING else None)
        finally:
            moving.set()
            thread.join()
            for node in test.nodes:
                node.destroy_node()
    assert "stop service" in test.result.reason
    assert 0 < first_braking_sample(tmp_path / "run") - accepted[0] <= SAMPLES


def test_stop_of_procedure_reaches_rig_within_two_samples(tmp_path: Path, patience: list[str]) -> None:
    """Nodes of the run answer services in the process of the procedure."""
    scenario = files.load("chen_ricles_2010", ["duration=60", *patience], rig="bench_simulated")
    record = ProcedureRecord("test", scenario.name, scenario.whole_hash(), operator="Ada", planned=["g"])
    runner = ProcedureRunner(Ladder(scenario, ["g"], 0.2, 2, realtime=True), record, tmp_path / "test")
    served, accepted = Served(runner, print), list[int]()

    def sample() -> int:
        rung = runner.session.rung
        assert rung is not None
        return rung.port._measured.sample - rung.port._zero if rung.port._begun else -1

    def stop(reason: str, by: str = STRANGER) -> None:
        accepted.append(sample())
        served.stop(reason, by)

    node = OperatorNode(runner.session, stop, served.hold, "rths")
    operator = Operator(Session(runner, served))
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
    assert 0 < first_braking_sample(recording) - accepted[0] <= SAMPLES


def test_operator_node_has_no_services_of_rclpy(tmp_path: Path) -> None:
    """Its executor would wait for clients that have left, with the interpreter lock of the loop."""
    with with_node(tmp_path), composed.ros_context() as context:
        client = Node("client", context=context)
        services = partial(client.get_service_names_and_types_by_node, "operator", "/rths_0")
        wait_for(lambda: "operator" in client.get_node_names())
        wait_for(lambda: len(services()) >= 3)
        assert sorted(name for name, _ in services()) == [
            "/rths_0/operator/hold",
            "/rths_0/operator/stop",
            "/rths_0/operator/stop_by_page",
        ]
        client.destroy_node()


class Server(FewRequests, Node):  # type: ignore[misc]
    """A node without a loop."""


@contextmanager
def served(*names: str) -> Iterator[tuple[Node, list[str], list[str]]]:
    """Return a client, the requests that a server's thread answers for services ``names``, and the warnings."""
    with composed.ros_context() as context:
        server, client = Server("server", context=context), Node("client", context=context)
        requests, warnings, group = list[str](), list[str](), ByHand()

        def answer(name: str, request: Any, response: Any) -> Any:
            if not request.data:
                raise RuntimeError("no such value")
            requests.append(f"{name} in {threading.current_thread().name}")
            response.success = True
            return response

        services = {
            server.create_service(SetBool, name, print, callback_group=group): partial(answer, name)
            for name in names
        }
        thread = ServiceThread(context, services, LoopCalls(), warnings.append)
        thread.start()
        try:
            yield client, requests, warnings
        finally:
            thread.close()
            client.destroy_node()
            server.destroy_node()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_flood_gets_few_answers() -> None:
    """A pause follows each answer, and the middleware drops excess requests."""
    with served("a", "b") as (node, requests, _):
        clients = node.create_client(SetBool, "a"), node.create_client(SetBool, "b")
        assert all(client.wait_for_service(timeout_sec=30.0) for client in clients)
        began = time.monotonic()
        for _ in range(2000):
            for client in clients:
                client.handle.send_request(SetBool.Request(data=True))
        sent = time.monotonic()
        wait_for(lambda: len(requests) > 10)
        in_flood = len(requests)
        assert in_flood <= 2 + (time.monotonic() - began) / PAUSE_S
        wait_for(lambda: time.monotonic() > sent + 100 * PAUSE_S)
        assert len(requests) - in_flood <= 4 * SERVICE_QOS.depth, "no backlog"
        assert {request.partition(" in ")[0] for request in requests} == {"a", "b"}, "neither waits for the other"


def test_failed_request_does_not_block_next_request() -> None:
    with served("a") as (node, requests, warnings):
        client = node.create_client(SetBool, "a")
        assert client.wait_for_service(timeout_sec=30.0)
        executor = SingleThreadedExecutor(context=node.context)
        executor.add_node(node)
        outcomes = []
        for data in (False, True):
            future = client.call_async(SetBool.Request(data=data))
            executor.spin_until_future_complete(future, timeout_sec=30.0)
            outcomes.append(future.result().success)
        executor.shutdown()
        assert outcomes == [False, True]
        assert requests == ["a in services"]
        assert "no such value" in warnings[0]


def needs_loop(service: Any, answer: Answer, calls: LoopCalls) -> bool:
    """Return whether ``answer`` waits for a loop to execute ``calls``."""

    def call() -> None:
        with suppress(CancelledError):
            answer(service.srv_type.Request(), service.srv_type.Response())

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(lambda: bool(calls.waiting) or not thread.is_alive())
    waits = bool(calls.waiting)
    calls.close()
    thread.join()
    return waits


def test_loop_executes_only_requests_that_change_node(by_hand: Any) -> None:
    with by_hand.node("actuator") as node:
        in_loop = set()
        for number in range(len(answers([node], LoopCalls()))):
            calls = LoopCalls()
            service, answer = list(answers([node], calls).items())[number]
            if needs_loop(service, answer, calls):
                in_loop.add(service.srv_name.rpartition("/")[2])
        assert in_loop == {"change_state", "set_parameters", "set_parameters_atomically", "get_type_description"}
