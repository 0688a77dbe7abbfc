# SPDX-License-Identifier: Apache-2.0
"""Nodes that are configured, shut down or interrupted at an awkward moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_TRIPPED, Measurement
from rths_nodes.core.wire.layout import mark_of
from rths_nodes.core.wire.plain import encode
from rths_nodes.loop.interrupts import STOPPING
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed, exit_guard, node_processes, own_process
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.nodes import compensator as compensator_node
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.endpoints import message_class, quality

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000_000


def run_with(action, tmp_path, **options):
    """Nodes in one process; ``action(nodes by role)`` is called at sample 100 of the test."""
    descriptions = launching.describe(
        run_options({"scenario": "chen_ricles_2010", "host": "composed", "record": tmp_path / "run"} | options)
    )
    with composed.ros_context() as context:
        nodes = {
            d.role: composed.make_node(d.role, hosts.open_writer, context, d.parameters) for d in descriptions
        }
        for node in nodes.values():
            node.start()
        called = []

        def idle() -> None:
            if nodes["actuator"].rig.sample > 100 and not called:
                called.append(action(nodes))

        executor = composed.LoopExecutor(list(nodes.values()), context, idle)
        executor.run()
        nodes["recorder"].close()
        assert called == [TransitionCallbackReturn.SUCCESS], nodes["actuator"].rig.machine.reason
        machine = nodes["actuator"].rig.machine
        for node in nodes.values():
            node.destroy_node()
    return machine, rths_nodes.read(tmp_path / "run")


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
def test_a_node_that_is_shut_down_under_way_stops_the_test(role, state, tmp_path):
    machine, run = run_with(lambda nodes: nodes[role].trigger_shutdown(), tmp_path)
    assert machine.state.name == state
    assert mentions(machine.reason, role, "node")
    assert run.information["gaps"] == "0"
    assert run.flags[-1] & FLAG_TRIPPED, "the safe stop is in the recording"


def test_a_rig_that_moves_is_not_cleaned_up(tmp_path):
    def action(nodes):
        nodes["actuator"].trigger_deactivate()
        assert nodes["actuator"].running
        assert nodes["actuator"].trigger_cleanup() == TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    machine, _ = run_with(action, tmp_path)
    assert machine.state.name == "HELD"


def test_transitions_that_make_no_sense_under_way_are_refused(tmp_path):
    """Until the end of the test, also while the actuator node waits for the others."""
    refused = []

    def action(nodes):
        rig, others = nodes["actuator"], [node for role, node in nodes.items() if role != "actuator"]
        refused.extend(node.trigger_deactivate() for node in others)
        assert rig.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
        announce = rig.phase.follow

        def follow(test):
            announce(test)
            refused.append(rig.trigger_cleanup())

        rig.phase.follow = follow
        return TransitionCallbackReturn.SUCCESS

    machine, run = run_with(action, tmp_path)
    assert len(refused) >= 5, "four nodes, and the rig at its end"
    assert set(refused) == {TransitionCallbackReturn.FAILURE}
    assert (machine.state.name, run.outcome, run.information["gaps"]) == ("HELD", "held", "0")


def test_peers_are_waited_for_from_the_activation_on(clock):
    with composed.ros_context() as context:
        values = {"scenario": "chen_ricles_2010"}
        node = composed.make_node("actuator", hosts.open_writer, context, values, clock=clock)
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
        node.destroy_node()


def test_a_section_that_two_nodes_need_is_not_changed_in_one_of_them():
    descriptions = launching.describe(run_options({"scenario": "chen_ricles_2010"}))
    for description in descriptions:
        if description.role == "integrator":
            description.parameters["structure.damping_ratio"] = 0.05
    result = composed.run(descriptions, hosts.open_writer)
    assert (result.outcome, result.exit_code) == ("refused", 2)
    assert mentions(result.reason, "structure", "values")


def test_an_operator_is_told_why_a_node_is_not_configured(capfd):
    with composed.ros_context() as context:
        values = {"scenario": "chen_ricles_2010", "autostart": False, "compensator.alpha_es": 0.5}
        node = composed.make_node("compensator", hosts.open_writer, context, values)
        assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
        node.destroy_node()
    assert mentions(capfd.readouterr().err, "compensator.alpha_es", "0.5", ">= 1")


def test_a_recording_that_cannot_be_made_is_refused_in_words(tmp_path):
    (tmp_path / "file").touch()
    options = ["-p", "scenario:=chen_ricles_2010", "-p", f"record:={tmp_path}/file/run"]
    words = [sys.executable, "-m", "rths_nodes.app.node", "recorder", "--ros-args", *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert mentions(done.stderr, "recording", "cannot be created")
    assert "Traceback" not in done.stderr


def test_a_late_signal_does_not_spoil_the_exit_code(monkeypatch):
    class Node:
        def destroy_node(self) -> None:
            for number in before:
                os.kill(os.getpid(), number)
            handlers.extend(signal.getsignal(number) for number in before)

    before = {number: signal.getsignal(number) for number in STOPPING}
    handlers: list[object] = []
    monkeypatch.setattr(own_process, "ros_context", lambda _: nullcontext())
    monkeypatch.setattr(own_process, "make_node", lambda *_, **__: Node())
    monkeypatch.setattr(own_process.HostedNode, "run", lambda *_: 0)
    monkeypatch.setattr(exit_guard.ExitGuard, "arm", lambda *_: None)
    monkeypatch.setattr(exit_guard.atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(exit_guard.os, "_exit", sys.exit)
    try:
        with pytest.raises(SystemExit) as ended:
            own_process.run("monitor", [], hosts.open_writer)
        assert ended.value.code == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert handlers == [signal.SIG_IGN] * len(STOPPING)


@pytest.mark.parametrize("role", names.NODES)
def test_a_node_that_nobody_has_configured_leaves(role):
    with composed.ros_context() as context:
        values = {"autostart": False}
        node = composed.make_node(role, hosts.open_writer, context, values, own_process=True)
        node.flush()
        assert (node.phase.gone, node.phase.exit_code, node.phase.problem) == (False, 0, "")
        node.destroy_node()


@pytest.mark.parametrize("role", names.NODES)
def test_a_node_in_a_process_of_its_own_refuses_a_wrong_scenario_in_one_line(role):
    words = [sys.executable, "-m", "rths_nodes.app.node", role, "--ros-args", "-p", "scenario:=chen_rikles_2010"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if line.startswith("rths: ")]
    assert len(told) == 1
    assert mentions(told[0], "chen_ricles_2010")
    assert "Traceback" not in done.stderr


def test_a_node_whose_lead_leaves_without_a_word_does_not_wait_for_ever():
    """As where the last message of the actuator node does not arrive."""
    topic = names.TOPICS["test_state"]
    values = {"scenario": "chen_ricles_2010", "peers": ["actuator", "compensator"]}
    with composed.ros_context() as context:
        lead = Node("actuator", context=context, namespace=names.NAMESPACE)
        states = lead.create_publisher(message_class(topic.type), topic.name, quality(topic))
        node = composed.make_node("compensator", hosts.open_writer, context, values)
        node.start()

        run = {"run": mark_of("one"), "scenario_hash": node.settings.hash, "stamp": time.time_ns()}

        def idle() -> None:
            if node.under_way:
                lead.destroy_publisher(states)
            else:
                states.publish(encode(topic.message, run | {"state": int(State.ARMED)}))

        executor = composed.LoopExecutor([node], context, idle)
        executor.run()
        node.destroy_node()
        lead.destroy_node()
    assert node.phase.exit_code == 1
    assert mentions(node.phase.problem, "actuator", "left")
    assert node.shutdown.reported, "what it knows is told to the recorder"


@pytest.mark.parametrize(
    ("code", "told_by_runner", "words"),
    [(0, False, False), (1, True, True), (2, True, True), (3, True, False), (3, False, True)],
)
def test_a_node_says_what_nobody_else_says(code, told_by_runner, words, monkeypatch, capsys):
    phase = SimpleNamespace(exit_code=code, problem="story_1: too far", note="")
    node = SimpleNamespace(identity="actuator", phase=phase, shutdown=SimpleNamespace(summary={}))

    read, write = os.pipe()
    os.set_blocking(read, False)
    if told_by_runner:
        monkeypatch.setenv(node_processes.TELLS, str(write))
    else:
        monkeypatch.delenv(node_processes.TELLS, raising=False)
    own_process.print_problems(node)
    os.close(write)
    assert ("rths: actuator: story_1: too far" in capsys.readouterr().err) == words
    assert os.read(read, 100) == (b"story_1: too far" if told_by_runner and code != 3 else b"")
    os.close(read)


def test_what_was_kept_for_the_recorder_does_not_outlive_the_test():
    with composed.ros_context() as context:
        node = composed.make_node(
            "compensator",
            hosts.open_writer,
            context,
            launching.describe(run_options({"scenario": "chen_ricles_2010"}))[1].parameters,
        )
        node.start()
        for sample in range(3):
            node.deferred.put("compensator_state", node.topics.codec.pack_state, node.stage.state, sample, 0, 0)
        for transition in (node.trigger_deactivate, node.trigger_cleanup, node.trigger_configure):
            assert transition() == TransitionCallbackReturn.SUCCESS
        node.deferred.send()
        assert node.topics.sent["compensator_state"] == 0
        node.destroy_node()


def stopped_before_its_target(by_hand, node):
    """A compensator with Measurement 0, whose Target 1 has not come, and the first sample of a safe stop."""
    substructure = NumericalStage(Assembly(node.scenario))
    zero = np.zeros(1)
    first, second = Measurement(0, zero, zero, zero), Measurement(1, zero, zero, zero, flags=FLAG_TRIPPED)
    node.topics.inboxes["target"].put(node.topics.codec.pack_target(substructure.first(), 0))
    node.topics.inboxes["measurement"].put(node.topics.codec.pack_measurement(first, 0))
    node.topics.inboxes["measurement"].put(node.topics.codec.pack_measurement(second, 0))
    while node.work():
        pass
    by_hand.put_state(node, State.TRIPPED, 1)
    return node.topics.codec.pack_target(substructure.next(first), 0)


def work(node):
    while node.work():
        pass
    return node.shutdown.summary.get("sent.command"), node.shutdown.summary.get("sent.compensator_state")


@pytest.fixture
def compensator(by_hand):
    with by_hand.node("compensator") as node:
        yield node


def test_a_late_target_is_answered_before_the_last_words(by_hand, compensator, monkeypatch):
    monkeypatch.setattr(Shutdown, "abandoned", False)
    late = stopped_before_its_target(by_hand, compensator)
    assert work(compensator) == (None, None)
    compensator.topics.inboxes["target"].put(late)
    assert work(compensator) == (1, 1)


def test_what_is_sent_after_the_last_words_is_told_again(by_hand, compensator, monkeypatch):
    monkeypatch.setattr(Shutdown, "abandoned", False)
    monkeypatch.setattr(compensator_node, "QUIET_NS", -1)
    late = stopped_before_its_target(by_hand, compensator)
    assert work(compensator) == (0, 0)
    compensator.topics.inboxes["target"].put(late)
    assert work(compensator) == (1, 1)
