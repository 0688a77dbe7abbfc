# SPDX-License-Identifier: Apache-2.0
"""Tests of all lifecycle transitions in all states of all nodes, requested by another process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from lifecycle_msgs.msg import Transition
from messages import mentions
from rclpy.lifecycle import TransitionCallbackReturn
from stranger import Stranger, stranger

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.loop.options import run_options
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.descriptions import describe
from rths_nodes.ros.hosting.executor import LoopExecutor

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
