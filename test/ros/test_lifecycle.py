# SPDX-License-Identifier: Apache-2.0
"""Transitions, shutdown and interruption of nodes at unusual times, and their last messages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from lifecycle_msgs.msg import Transition
from messages import mentions
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from stranger import Stranger, stranger

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import FLAG_TRIPPED, Measurement
from rths_nodes.core.wire import decode, encode, mark_of
from rths_nodes.loop import interrupts
from rths_nodes.loop.interrupts import STOPPING
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed, exit_guard, node_processes
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.hosting.node_processes import describe
from rths_nodes.ros.nodes import numerical as compensator_node
from rths_nodes.ros.nodes.participation import Phase, Shutdown, StateOfTest
from rths_nodes.ros.transport.endpoints import message_class, quality

ROOT = Path(__file__).resolve().parents[2]
NAME = "chen_ricles_2010"
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@pytest.mark.parametrize(
    ("role", "state"),
    [
        ("integrator", "TRIPPED"),
        ("compensator", "TRIPPED"),
        ("actuator", "HELD"),
        ("monitor", "TRIPPED"),
        ("recorder", "TRIPPED"),
    ],
)
def test_node_shutdown_stops_the_test(role, state, act_during_run):
    test = act_during_run(lambda nodes: nodes[role].trigger_shutdown(), NAME)
    assert test.result == SUCCESS
    assert test.machine.state.name == state
    assert mentions(test.machine.reason, role, "node")
    assert test.run.information["gaps"] == "0"
    assert test.run.flags[-1] & FLAG_TRIPPED, "the safe stop is not recorded"


@pytest.mark.parametrize(("role", "axes"), [("actuator", ()), ("story_1/axis", ("story_1", "story_2", "story_3"))])
def test_port_that_fails_even_at_its_safe_state_trips_the_test(role, axes, act_during_run):
    def action(nodes):
        port = (nodes[role].stage if axes else nodes[role].rig).port
        port.safe = port.write = lambda *_: 1 / 0

    test = act_during_run(action, "three_independent_axes", axes=axes)
    assert test.machine.state is State.TRIPPED
    assert mentions(test.machine.reason, role, "ZeroDivisionError")
    assert test.run.outcome == "tripped"


def test_moving_rig_is_not_cleaned_up(act_during_run):
    def action(nodes):
        nodes["actuator"].trigger_deactivate()
        assert nodes["actuator"].running
        return nodes["actuator"].trigger_cleanup()

    test = act_during_run(action, NAME)
    assert (test.result, test.machine.state.name) == (FAILURE, "HELD")


def test_other_transitions_are_refused_until_the_end_of_the_test(act_during_run):
    """The end includes the time in which the actuator node waits for the others."""
    results = []

    def action(nodes):
        rig = nodes["actuator"]
        results.extend(node.trigger_deactivate() for role, node in nodes.items() if role != "actuator")
        announce = rig.phase.follow

        def follow(test):
            announce(test)
            results.append(rig.trigger_cleanup())

        result = rig.trigger_deactivate()
        rig.phase.follow = follow
        return result

    test = act_during_run(action, NAME)
    assert test.result == SUCCESS
    assert len(results) >= 5, "four nodes, and the rig at its end"
    assert set(results) == {FAILURE}
    run = test.run
    assert (test.machine.state.name, run.outcome, run.information["gaps"]) == ("HELD", "held", "0")


@pytest.fixture
def make_node():
    """Creates a node of any role, with its parameters."""
    with composed.ros_context() as context:
        nodes = []

        def make_node(role, options=None, **parameters):
            values = {"scenario": NAME} | parameters
            nodes.append(composed.make_node(role, hosts.open_writer, context, values, **(options or {})))
            return nodes[-1]

        yield make_node
        for node in nodes:
            node.destroy_node()


def test_peer_timeout_begins_at_activation(clock, make_node):
    node = make_node("actuator", {"clock": clock})
    node.trigger_configure()
    clock.now += 100 * SECOND
    node.trigger_activate()
    clock.now += 29 * SECOND
    node.work()
    assert not node.phase.gone
    clock.now += 2 * SECOND
    node.work()
    assert node.phase.gone
    assert mentions(node.phase.problem, "ready", "30 s")


def test_different_sections_of_two_nodes_are_refused():
    nodes = node_processes.describe(run_options({"scenario": NAME}))
    next(node for node in nodes if node.role == "integrator").parameters["structure.damping_ratio"] = 0.05
    result = composed.run(nodes, hosts.open_writer)
    assert (result.outcome, result.exit_code) == ("refused", 2)
    assert mentions(result.reason, "structure", "values")


def test_failed_configuration_logs_the_reason(capfd, make_node):
    node = make_node("compensator", autostart=False, **{"compensator.alpha_es": 0.5})
    assert node.trigger_configure() == FAILURE
    assert mentions(capfd.readouterr().err, "compensator.alpha_es", "0.5", ">= 1")


def test_deactivated_node_is_not_ready(by_hand):
    """Otherwise the test would begin without it."""
    with by_hand.node("monitor") as node:
        node.phase.to(Phase.READY)
        for transition in (node.trigger_deactivate, node.trigger_activate):
            assert transition() == SUCCESS
        statuses = [decode("NodeStatus", data)["ready"] for data in node.interposer.sent["node_status"]]
        assert statuses == [False, False, True]


def test_cleanup_and_destruction_close_the_recording(make_node, tmp_path):
    node = make_node("recorder", record=str(tmp_path / "first"), autostart=False)
    assert node.trigger_configure() == SUCCESS
    node.phase.follow(StateOfTest(State.TRIPPED, 40, "too large"))
    assert node.trigger_cleanup() == SUCCESS
    information = bag.read(tmp_path / "first").information
    assert (information["outcome"], information["reason"]) == ("tripped", "too large")
    assert node.set_parameters([Parameter("record", value=str(tmp_path / "second"))])[0].successful
    assert node.trigger_configure() == SUCCESS
    node.destroy_node()
    assert bag.read(tmp_path / "second").information["outcome"] == "failed"


def test_failed_configuration_leaves_nothing_open(make_node, monkeypatch):
    """The port of a rig is opened before the endpoints."""
    node, closed = make_node("actuator", autostart=False), []
    monkeypatch.setattr(RigStage, "close", lambda rig: closed.append(rig))
    monkeypatch.setattr(node.topics, "open", lambda *_: 1 / 0)
    assert node.trigger_configure() == FAILURE
    assert closed == [node.rig]


def refusal_of_process(role, *parameters):
    """Return the standard error of a node process that is refused."""
    arguments = [part for parameter in parameters for part in ("-p", parameter)]
    command = [sys.executable, "-m", "rths_nodes.app.node", role, "--ros-args", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_impossible_recording_is_refused(tmp_path):
    (tmp_path / "file").touch()
    errors = refusal_of_process("recorder", f"scenario:={NAME}", f"record:={tmp_path}/file/run")
    assert mentions(errors, "recording", "cannot be created")


@pytest.mark.parametrize("role", names.NODES)
def test_node_process_refuses_unknown_scenario_in_one_line(role):
    errors = refusal_of_process(role, "scenario:=chen_rikles_2010")
    (line,) = [line for line in errors.splitlines() if line.startswith("rths: ")]
    assert mentions(line, NAME)


def test_late_signal_does_not_change_the_exit_code(monkeypatch):
    class Node:
        def destroy_node(self) -> None:
            for number in before:
                os.kill(os.getpid(), number)
            handlers.extend(signal.getsignal(number) for number in before)

    before = {number: signal.getsignal(number) for number in STOPPING}
    handlers: list[object] = []
    monkeypatch.setattr(composed, "ros_context", lambda _: nullcontext())
    monkeypatch.setattr(composed, "make_node", lambda *_, **__: Node())
    monkeypatch.setattr(composed.HostedNode, "main", lambda *_: 0)
    monkeypatch.setattr(exit_guard.ExitGuard, "arm", lambda *_: None)
    monkeypatch.setattr(exit_guard.atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(exit_guard.os, "_exit", sys.exit)
    try:
        with pytest.raises(SystemExit) as ended:
            composed.run_process("monitor", [], hosts.open_writer)
        assert ended.value.code == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert handlers == [signal.SIG_IGN] * len(STOPPING)


@pytest.mark.parametrize("role", names.NODES)
def test_unconfigured_node_can_be_closed(role, make_node):
    node = make_node(role, {"own_process": True}, scenario="", autostart=False)
    node.flush()
    assert (node.phase.gone, node.phase.exit_code, node.phase.problem) == (False, 0, "")


def test_node_exits_when_its_lead_disappears(make_node):
    """The last message of the actuator node may be lost."""
    topic = names.TOPICS["test_state"]
    node = make_node("compensator", peers=["actuator", "compensator"])
    lead = Node("actuator", context=node.context, namespace=names.NAMESPACE)
    states = lead.create_publisher(message_class(topic.type), topic.name, quality(topic))
    node.start()
    run = {"run": mark_of("one"), "scenario_hash": node.settings.hash, "stamp": time.time_ns()}

    def idle() -> None:
        if node.under_way:
            lead.destroy_publisher(states)
        else:
            states.publish(encode(topic.message, run | {"state": int(State.ARMED)}))

    composed.LoopExecutor([node], node.context, idle).run()
    lead.destroy_node()
    assert node.phase.exit_code == 1
    assert mentions(node.phase.problem, "actuator", "left")
    assert node.shutdown.reported, "the recorder has no Summary of it"


@pytest.mark.parametrize(
    ("code", "runner_reports", "printed"),
    [(0, False, False), (1, True, True), (2, True, True), (3, True, False), (3, False, True)],
)
def test_node_prints_problems_that_no_runner_reports(code, runner_reports, printed, monkeypatch, capsys):
    phase = SimpleNamespace(exit_code=code, problem="story_1: too far", note="")
    node = SimpleNamespace(identity="actuator", phase=phase, shutdown=SimpleNamespace(summary={}))
    read, write = os.pipe()
    os.set_blocking(read, False)
    if runner_reports:
        monkeypatch.setenv(interrupts.TELLS, str(write))
    else:
        monkeypatch.delenv(interrupts.TELLS, raising=False)
    composed.print_problems(node)
    os.close(write)
    assert ("rths: actuator: story_1: too far" in capsys.readouterr().err) == printed
    assert os.read(read, 100) == (b"story_1: too far" if runner_reports and code != 3 else b"")
    os.close(read)


def test_deferred_messages_are_discarded_at_cleanup(make_node):
    node = make_node("compensator", **node_processes.describe(run_options({"scenario": NAME}))[1].parameters)
    node.start()
    for sample in range(3):
        node.deferred.put("compensator_state", node.topics.codec.pack_state, node.stage.state, sample, 0, 0)
    for transition in (node.trigger_deactivate, node.trigger_cleanup, node.trigger_configure):
        assert transition() == SUCCESS
    node.deferred.send()
    assert node.topics.outlets["compensator_state"].sent == 0


# Compensator that receives its last Target after a safe stop has begun


def stop_before_target(by_hand, node):
    """Let a compensator without Target 1 receive a safe stop; return this Target."""
    integrator = NumericalStage(Assembly(node.scenario))
    zero = np.zeros(1)
    first, second = Measurement(0, zero, zero, zero), Measurement(1, zero, zero, zero, flags=FLAG_TRIPPED)
    by_hand.put_sample(node, "target", integrator.first())
    by_hand.put_sample(node, "measurement", first)
    by_hand.put_sample(node, "measurement", second)
    by_hand.work(node)
    by_hand.put_state(node, State.TRIPPED, 1)
    return integrator.next(first)


@pytest.mark.parametrize(("quiet_ns", "before"), [(compensator_node.QUIET_NS, (None, None)), (-1, (0, 0))])
def test_late_target_is_answered_and_reported(quiet_ns, before, by_hand, monkeypatch):
    """A Target that arrives after the Summary causes a second Summary."""
    monkeypatch.setattr(Shutdown, "abandoned", False)
    monkeypatch.setattr(compensator_node, "QUIET_NS", quiet_ns)
    with by_hand.node("compensator") as node:

        def sent():
            by_hand.work(node)
            summary = node.shutdown.summary
            return summary.get("sent.command"), summary.get("sent.compensator_state")

        late = stop_before_target(by_hand, node)
        assert sent() == before
        by_hand.put_sample(node, "target", late)
        assert sent() == (1, 1)


# All lifecycle transitions in all states of all nodes, requested by another process

LONG = "duration=60"
REQUESTS = [(number, "") for number in (*range(9), 10, 11, 12, 30, 60, 61, 62, 255)]
REQUESTS += [(0, label) for label in ("configure", "cleanup", "activate", "deactivate", "transition_error", "a")]
SHUTDOWN = {
    "unconfigured": Transition.TRANSITION_UNCONFIGURED_SHUTDOWN,
    "inactive": Transition.TRANSITION_INACTIVE_SHUTDOWN,
    "active": Transition.TRANSITION_ACTIVE_SHUTDOWN,
}
ALLOWED = {
    "unconfigured": [(Transition.TRANSITION_CONFIGURE, ""), (0, "configure")],
    "inactive": [
        (Transition.TRANSITION_ACTIVATE, ""),
        (Transition.TRANSITION_CLEANUP, ""),
        (0, "activate"),
        (0, "cleanup"),
    ],
    "active": [],
}
"""Transitions, in addition to the shutdown of the state, that are allowed while no test is under way."""
STOPS = [(Transition.TRANSITION_DEACTIVATE, ""), (0, "deactivate")]
"""Transitions, in addition to the shutdown, by which the actuator node and axis nodes bring the rig to rest."""


def refused(state: str, role: str) -> list[tuple[int, str]]:
    """Return the requests to the node ``role`` in ``state`` that must be answered with success=false."""
    allowed = [*ALLOWED[state], (SHUTDOWN[state], ""), *(STOPS if role == names.ACTUATOR else [])]
    return [request for request in REQUESTS if request not in allowed]


def check_refusals(client: Stranger, state: str, roles: Sequence[str] = names.NODES) -> None:
    """Request all refused transitions in ``state`` of the ``roles``; check that they remain in that state."""
    rows = [[(role, *request) for request in refused(state, role)] for role in roles]
    for column in zip_longest(*rows):
        answers = client.change(*filter(None, column))
        assert set(answers) == {(False, state)}, f"{column}: {answers}"


def change(client: Stranger, number: int, state: str, roles: Sequence[str] = names.NODES) -> None:
    """Request an allowed transition of the ``roles`` to ``state``."""
    answers = client.change(*((role, number, "") for role in roles))
    assert [now for _, now in answers] == [state] * len(roles), answers


def test_only_stops_of_rig_end_test(tmp_path: Path, patience: list[str]) -> None:
    options = {"overrides": [LONG, *patience], "host": "composed", "pace": "realtime", "record": tmp_path / "run"}
    with composed.ros_context() as context, stranger() as client:
        nodes: dict[str, Any] = {
            description.role: composed.make_node(
                description.role, hosts.open_writer, context, description.parameters | {"autostart": False}
            )
            for description in describe(run_options({"scenario": "chen_ricles_2010"} | options))
        }
        rig, samples = nodes["actuator"], list[int]()
        moving = threading.Event()

        def request_transitions() -> None:
            check_refusals(client, "unconfigured")
            change(client, Transition.TRANSITION_CONFIGURE, "inactive")
            check_refusals(client, "inactive")
            reconfigured = names.NODES[:-1]  # the recorder would refuse its own recording
            change(client, Transition.TRANSITION_CLEANUP, "unconfigured", reconfigured)
            change(client, Transition.TRANSITION_CONFIGURE, "inactive", reconfigured)
            change(client, Transition.TRANSITION_ACTIVATE, "active")
            assert moving.wait(30.0)
            samples.append(rig.last_sample)
            check_refusals(client, "active")
            samples.append(rig.last_sample)
            assert rig.rig.machine.state is State.RUNNING, rig.rig.machine.reason
            client.change(("actuator", Transition.TRANSITION_DEACTIVATE, ""))

        def idle() -> None:
            if rig.rig is not None and rig.rig.machine.state is State.RUNNING:
                moving.set()
            if requests.done() and not rig.phase.ended:
                for node in nodes.values():
                    node.shutdown.interrupt()

        with ThreadPoolExecutor() as pool:
            requests = pool.submit(request_transitions)
            LoopExecutor(list(nodes.values()), context, idle).run()
        requests.result()
        nodes["recorder"].close()
        machine = rig.rig.machine
        for node in nodes.values():
            node.destroy_node()
    assert machine.state is State.HELD
    assert mentions(machine.reason, "actuator", "node")
    assert samples[1] > samples[0], "the test continued"
    assert rths_nodes.read(tmp_path / "run").information["gaps"] == "0"


def test_actuator_node_cannot_be_activated_while_rig_brakes(by_hand: Any, clock: Any) -> None:
    with by_hand.node("actuator", clock=clock) as node:
        node.rig.machine.to(State.ARMED)
        node.work()
        assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
        assert node.running
        assert node.trigger_activate() == TransitionCallbackReturn.FAILURE
        assert not node.phase.active


def test_refused_transition_ends_no_process(patience: list[str]) -> None:
    with stranger() as client:
        begun = threading.Event()

        def request_transitions() -> None:
            assert begun.wait(60.0)
            check_refusals(client, "active", names.NODES[:-1])

        def progress(sample: int, _: int) -> None:
            if sample > 0:
                begun.set()

        with ThreadPoolExecutor() as pool:
            requests = pool.submit(request_transitions)
            report = hosts.run(
                "chen_ricles_2010",
                [LONG, *patience],
                host="processes",
                pace="realtime",
                progress=progress,
                interrupted=requests.done,
            )
        requests.result()
    assert (report.outcome, report.exit_code) == ("held", 130), report.reason
