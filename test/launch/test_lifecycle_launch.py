# SPDX-License-Identifier: Apache-2.0
"""Tests of our nodes as lifecycle nodes of another launch file: started by events, managed, killed, respawned."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch_testing", reason="ROS 2's launch is not installed here")
pytest.importorskip("launch_ros", reason="ROS 2's launch is not installed here")

import numpy as np
from ear import Ear
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

import rths_nodes
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import NODES, TOPICS
from rths_nodes.ros.transport.endpoints import message_class, quality

FILE = str(Path(__file__).with_name("lifecycle.launch.py"))
LONG = "overrides:=duration=2000 port.longest_wait=1"
CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE = 1, 2, 3, 4
BOND_S = 2.0
"""Timeout of a manager for the bond of a node, s."""


def transition(number: int) -> ChangeState.Request:
    request = ChangeState.Request()
    request.transition.id = number
    return request


class Bystander:
    """A node that subscribes to the topics of a test, and calls services of its nodes."""

    def __init__(self, context: Any) -> None:
        self.node = Node("bystander", context=context)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self.node)
        self._ears = {
            name: Ear(self.node, message_class(TOPICS[name].type), f"/rths/{name}", quality(TOPICS[name]))
            for name in ("test_state", "command", "measurement")
        }

    def __getattr__(self, topic: str) -> list[Any]:
        ear = self._ears[topic]
        ear.listen()
        return ear.heard

    @property
    def states(self) -> list[State]:
        return [State(message.state) for message in self.test_state]

    def call(self, kind: Any, name: str, request: Any) -> Any:
        client = self.node.create_client(kind, name)
        assert client.wait_for_service(timeout_sec=60.0), name
        future = client.call_async(request)
        self._executor.spin_until_future_complete(future, timeout_sec=30.0)
        self.node.destroy_client(client)
        return future.result()

    def change(self, role: str, number: int) -> bool:
        return bool(self.call(ChangeState, f"/rths/{role}/change_state", transition(number)).success)

    def state_of(self, role: str) -> str:
        return str(self.call(GetState, f"/rths/{role}/get_state", GetState.Request()).current_state.label)


@pytest.fixture
def bystander() -> Iterator[Bystander]:
    with composed.ros_context() as context:
        bystander = Bystander(context)
        yield bystander
        bystander.node.destroy_node()


def starts(run: Any, role: str) -> int:
    """Return how often launch has started the process of ``role``."""
    return len(re.findall(rf"\[{role}-\d+\]: process started", run.output))


def interrupt(run: Any) -> None:
    os.killpg(run.popen.pid, signal.SIGINT)
    run.end()


def kill_running(run: Any, bystander: Bystander, role: str) -> None:
    """Kill the node while its test runs, and wait until launch has respawned it."""
    run.wait_for_samples()
    run.wait_for(lambda: State.RUNNING in bystander.states)
    os.kill(run.pids()[role], signal.SIGKILL)
    run.wait_for(lambda: starts(run, role) >= 2)


def test_launch_events_start_nodes(launch, tmp_path):
    run = launch("overrides:=duration=2", "manage:=true", "autostart:=false", file=FILE)
    assert run.end() == 0, run.output
    assert run.clean() == set(NODES)
    recorded = rths_nodes.read(tmp_path / "run")
    assert (recorded.outcome, recorded.information["gaps"]) == ("finished", "0")
    reference = rths_nodes.run("chen_ricles_2010", ["duration=2"])
    assert np.array_equal(recorded.displacement, reference.displacement)


@pytest.mark.parametrize("role", ["integrator", "compensator", "monitor"])
def test_respawned_node_never_moves_rig(launch, bystander, tmp_path, role):
    """The rig comes to rest and stays there: messages of the new node belong to no run."""
    run = launch(LONG, f"respawn:={role}", file=FILE)
    kill_running(run, bystander, role)
    run.wait_for(lambda: State.TRIPPED in bystander.states, 60.0)
    last = bystander.measurement[-1]
    assert last.flags & FLAG_TRIPPED
    run.wait_for(lambda: {"actuator", "recorder"} <= run.clean() | {name for name, _ in run.errors()}, 60.0)
    commands, measured = len(bystander.command), len(bystander.measurement)
    run.wait_for(lambda: starts(run, role) >= 3, 60.0)  # its process ends with the test, and is respawned
    time.sleep(2.0)
    assert (len(bystander.command), len(bystander.measurement)) == (commands, measured)
    assert [state for state in bystander.states if state > State.POSITIONED].count(State.RUNNING) == 1
    interrupt(run)
    recorded = rths_nodes.read(tmp_path / "run")
    assert recorded.outcome == "tripped"
    assert len(recorded.flags) == last.sample + 1, "no Command after the trip was applied"
    assert recorded.flags[-1] & FLAG_TRIPPED
    assert np.array_equal(recorded.command[-1], recorded.command[-2]), "the rig is held"


def test_respawned_actuator_node_does_not_continue_test(launch, bystander):
    """A new process holds the rig at its start, because no other node belongs to its run."""
    run = launch(LONG, "respawn:=actuator", file=FILE)
    kill_running(run, bystander, "actuator")
    before = {message.run for message in bystander.test_state}
    run.wait_for(lambda: {message.run for message in bystander.test_state} > before, 60.0)
    measured = len(bystander.measurement)
    time.sleep(3.0)
    later = [State(message.state) for message in bystander.test_state if message.run not in before]
    assert later
    assert max(later) <= State.POSITIONED, "never armed"
    assert len(bystander.measurement) == measured
    interrupt(run)


def test_reactivated_node_never_moves_rig(launch, bystander, tmp_path):
    """Deactivated while the test runs, the actuator node stops the rig; activated again, it leaves it at rest."""
    run = launch(LONG, file=FILE)
    run.wait_for_samples()
    assert bystander.change("actuator", DEACTIVATE)
    run.wait_for(lambda: State.HELD in bystander.states, 60.0)
    rest = bystander.measurement[-1].sample
    client = bystander.node.create_client(ChangeState, "/rths/actuator/change_state")
    client.call_async(transition(ACTIVATE))  # the node may end before it answers
    assert run.end() == 0, run.output
    assert bystander.measurement[-1].sample == rest
    assert bystander.states[-1] is State.HELD
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


def managed(bystander: Bystander, bonds: bool) -> bool:
    """Start the nodes like the lifecycle manager of Nav2; return whether it succeeds.

    It configures all nodes, then activates one after the other. With bonds it gives up at a node without one.
    """
    for role in NODES:
        assert bystander.change(role, CONFIGURE)
    for role in NODES:
        assert bystander.change(role, ACTIVATE)
        end = time.monotonic() + BOND_S
        while bonds and not bystander.node.count_publishers("/bond"):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
    return True


def test_manager_without_bonds_starts_test(launch, bystander, tmp_path):
    run = launch("overrides:=duration=2", "autostart:=false", file=FILE)
    assert managed(bystander, bonds=False)
    assert run.end() == 0, run.output
    assert rths_nodes.read(tmp_path / "run").outcome == "finished"


def test_manager_with_bonds_gives_up_before_motion(launch, bystander):
    run = launch("overrides:=duration=2", "autostart:=false", file=FILE)
    assert not managed(bystander, bonds=True)
    assert [bystander.state_of(role) for role in NODES] == ["active", *["inactive"] * (len(NODES) - 1)]
    assert bystander.measurement == []
    assert max(bystander.states, default=State.IDLE) <= State.POSITIONED
    assert bystander.change(NODES[0], DEACTIVATE)
    assert all(bystander.change(role, CLEANUP) for role in NODES)
    interrupt(run)
    assert bystander.measurement == []
    assert names.ACTUATOR in run.pids()
