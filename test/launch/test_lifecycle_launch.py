# SPDX-License-Identifier: Apache-2.0
"""Our nodes as lifecycle nodes of somebody else's launch: walked by events, managed, killed and respawned.

A respawned or reactivated node never moves a rig.
"""

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
"""So long a manager waits for the bond of a node."""


def transition(number: int) -> ChangeState.Request:
    request = ChangeState.Request()
    request.transition.id = number
    return request


class Bystander:
    """Somebody in the graph who hears a test, and may call services of its nodes."""

    def __init__(self, context: Any) -> None:
        self.node = Node("bystander", context=context)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self.node)
        self._ears = {
            name: Ear(self.node, message_class(TOPICS[name].type), f"/rths/{name}", quality(TOPICS[name]))
            for name in ("test_state", "command", "measurement")
        }

    def __getattr__(self, topic: str) -> list[Any]:
        listener = self._ears[topic]
        listener.listen()
        return listener.heard

    @property
    def states(self) -> list[State]:
        return [State(message.state) for message in self.test_state]

    def call(self, kind: Any, name: str, request: Any) -> Any:
        client = self.node.create_client(kind, name)
        assert client.wait_for_service(timeout_sec=60.0), name
        asked = client.call_async(request)
        self._executor.spin_until_future_complete(asked, timeout_sec=30.0)
        self.node.destroy_client(client)
        return asked.result()

    def change(self, role: str, number: int) -> bool:
        return bool(self.call(ChangeState, f"/rths/{role}/change_state", transition(number)).success)

    def state_of(self, role: str) -> str:
        return str(self.call(GetState, f"/rths/{role}/get_state", GetState.Request()).current_state.label)


@pytest.fixture
def bystander() -> Iterator[Bystander]:
    with composed.ros_context() as context:
        found = Bystander(context)
        yield found
        found.node.destroy_node()


def starts(run: Any, role: str) -> int:
    """How often launch has started the process of ``role``."""
    return len(re.findall(rf"\[{role}-\d+\]: process started", run.output))


def kill_under_way(run: Any, bystander: Bystander, role: str) -> None:
    """Kill the node once its test is under way; afterwards launch has respawned it."""
    run.wait_for_samples()
    run.wait_for(lambda: State.RUNNING in bystander.states)
    os.kill(run.pids()[role], signal.SIGKILL)
    run.wait_for(lambda: starts(run, role) >= 2)


def test_events_of_launch_walk_the_nodes_through_their_lifecycle(launch, tmp_path):
    run = launch("overrides:=duration=2", "manage:=true", "autostart:=false", file=FILE)
    assert run.end() == 0, run.output
    assert run.clean() == set(NODES)
    told = rths_nodes.read(tmp_path / "run")
    assert (told.outcome, told.information["gaps"]) == ("finished", "0")
    reference = rths_nodes.run("chen_ricles_2010", ["duration=2"]).arrays()
    assert np.array_equal(told.arrays()["displacement"], reference["displacement"])


@pytest.mark.parametrize("role", ["integrator", "compensator", "monitor"])
def test_a_respawned_node_never_moves_the_rig(launch, bystander, tmp_path, role):
    """The rig comes to rest by itself, and stays there: whatever the new node says is of no run."""
    run = launch(LONG, f"respawn:={role}", file=FILE)
    kill_under_way(run, bystander, role)
    run.wait_for(lambda: State.TRIPPED in bystander.states, 60.0)
    last = bystander.measurement[-1]
    assert last.flags & FLAG_TRIPPED
    run.wait_for(lambda: {"actuator", "recorder"} <= run.clean() | {name for name, _ in run.errors()}, 60.0)
    commands, measured = len(bystander.command), len(bystander.measurement)
    run.wait_for(lambda: starts(run, role) >= 3, 60.0)  # its process leaves with the test, and comes again
    time.sleep(2.0)
    assert (len(bystander.command), len(bystander.measurement)) == (commands, measured)
    assert [state for state in bystander.states if state > State.POSITIONED].count(State.RUNNING) == 1
    os.killpg(run.popen.pid, signal.SIGINT)
    run.end()
    told = rths_nodes.read(tmp_path / "run")
    assert told.outcome == "tripped"
    assert len(told.flags) == last.sample + 1, "no Command after the trip was applied"
    assert told.flags[-1] & FLAG_TRIPPED
    command = told.arrays()["command"]
    assert np.array_equal(command[-1], command[-2]), "the rig is held"


def test_a_respawned_actuator_node_does_not_go_on_with_the_test(launch, bystander, tmp_path):
    """The rig is at the port of a new process, which holds it at its start: nobody else is of its run."""
    run = launch(LONG, "respawn:=actuator", file=FILE)
    kill_under_way(run, bystander, "actuator")
    before = {message.run for message in bystander.test_state}
    run.wait_for(lambda: {message.run for message in bystander.test_state} > before, 60.0)
    measured = len(bystander.measurement)
    time.sleep(3.0)
    later = [State(told.state) for told in bystander.test_state if told.run not in before]
    assert later
    assert max(later) <= State.POSITIONED, "never armed"
    assert len(bystander.measurement) == measured
    os.killpg(run.popen.pid, signal.SIGINT)
    run.end()


def test_a_reactivated_node_never_moves_the_rig(launch, bystander, tmp_path):
    """Deactivated under way the actuator node brings the rig to rest; activated again it stays there."""
    run = launch(LONG, file=FILE)
    run.wait_for_samples()
    assert bystander.change("actuator", DEACTIVATE)
    run.wait_for(lambda: State.HELD in bystander.states, 60.0)
    rest = bystander.measurement[-1].sample
    again = bystander.node.create_client(ChangeState, "/rths/actuator/change_state")
    again.call_async(transition(ACTIVATE))  # the node may have left before it answers
    assert run.end() == 0, run.output
    assert bystander.measurement[-1].sample == rest
    assert bystander.states[-1] is State.HELD
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


def managed(bystander: Bystander, bonds: bool) -> bool:
    """What the lifecycle manager of Nav2 does to bring nodes up: whether it has.

    It configures all, then activates one after the other. With bonds it waits for that of each, and gives up
    where there is none.
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


def test_a_manager_without_bonds_brings_a_test_up(launch, bystander, tmp_path):
    run = launch("overrides:=duration=2", "autostart:=false", file=FILE)
    assert managed(bystander, bonds=False)
    assert run.end() == 0, run.output
    assert rths_nodes.read(tmp_path / "run").outcome == "finished"


def test_a_manager_that_wants_bonds_gives_up_before_anything_moves(launch, bystander):
    run = launch("overrides:=duration=2", "autostart:=false", file=FILE)
    assert not managed(bystander, bonds=True)
    assert [bystander.state_of(role) for role in NODES] == ["active", *["inactive"] * (len(NODES) - 1)]
    assert bystander.measurement == []
    assert max(bystander.states, default=State.IDLE) <= State.POSITIONED
    assert bystander.change(NODES[0], DEACTIVATE)
    assert all(bystander.change(role, CLEANUP) for role in NODES)
    os.killpg(run.popen.pid, signal.SIGINT)
    run.end()
    assert bystander.measurement == []
    assert names.ACTUATOR in run.pids()
