# SPDX-License-Identifier: Apache-2.0
"""Every lifecycle transition in every state of every node, requested by another process: no error ends a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
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
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.hosting.executor import LoopExecutor

LONG = "duration=60"
BY_NUMBER = [(number, "") for number in (*range(9), 10, 11, 12, 30, 60, 61, 62, 255)]
BY_LABEL = [(0, label) for label in ("configure", "cleanup", "activate", "deactivate", "transition_error", "a")]
REQUESTS = [*BY_NUMBER, *BY_LABEL]
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
"""Transitions that are not refused while no test is under way, beside the shutdown of the state."""
STOPS = [(Transition.TRANSITION_DEACTIVATE, ""), (0, "deactivate")]
"""Transitions of the actuator node and of the nodes of axes that bring the rig to rest, beside the shutdown."""


def refused(state: str, role: str) -> list[tuple[int, str]]:
    """Requests to the node ``role`` in ``state`` that must be answered with success=false."""
    allowed = [*ALLOWED[state], (SHUTDOWN[state], ""), *(STOPS if role == names.ACTUATOR else [])]
    return [request for request in REQUESTS if request not in allowed]


def all_refused(client: Stranger, state: str, roles: Sequence[str] = names.NODES) -> None:
    """Request what must be refused in ``state`` of the ``roles``, which stay in that state."""
    rows = [[(role, *request) for request in refused(state, role)] for role in roles]
    for column in zip_longest(*rows):
        answers = client.change(*filter(None, column))
        assert set(answers) == {(False, state)}, f"{column}: {answers}"


def change(client: Stranger, number: int, state: str, roles: Sequence[str] = names.NODES) -> None:
    answers = client.change(*((role, number, "") for role in roles))
    assert [now for _, now in answers] == [state] * len(roles), answers


@contextmanager
def conversation(talk: Callable[[], None]) -> Iterator[Future[None]]:
    """``talk`` in a thread of its own while inside; what it raises is raised at the end."""
    talked: Future[None] = Future()

    def run() -> None:
        try:
            talk()
            talked.set_result(None)
        except BaseException as error:
            talked.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield talked
    finally:
        thread.join()
    talked.result()


def test_no_transition_ends_a_test_but_those_that_stop_the_rig(tmp_path: Path, patience: list[str]) -> None:
    chosen = {"overrides": [LONG, *patience], "host": "composed", "pace": "realtime", "record": tmp_path / "run"}
    descriptions = launching.describe(run_options({"scenario": "chen_ricles_2010"} | chosen))
    with composed.ros_context() as context, stranger() as client:
        nodes: dict[str, Any] = {
            each.role: composed.make_node(
                each.role, hosts.open_writer, context, each.parameters | {"autostart": False}
            )
            for each in descriptions
        }
        rig, samples = nodes["actuator"], list[int]()
        moving = threading.Event()

        def talk() -> None:
            all_refused(client, "unconfigured")
            change(client, Transition.TRANSITION_CONFIGURE, "inactive")
            all_refused(client, "inactive")
            others = names.NODES[:-1]  # the recorder would find its own recording
            change(client, Transition.TRANSITION_CLEANUP, "unconfigured", others)
            change(client, Transition.TRANSITION_CONFIGURE, "inactive", others)
            change(client, Transition.TRANSITION_ACTIVATE, "active")
            assert moving.wait(30.0)
            samples.append(rig.last_sample)
            all_refused(client, "active")
            samples.append(rig.last_sample)
            assert rig.rig.machine.state is State.RUNNING, rig.rig.machine.reason
            client.change(("actuator", Transition.TRANSITION_DEACTIVATE, ""))

        def idle() -> None:
            if rig.rig is not None and rig.rig.machine.state is State.RUNNING:
                moving.set()
            if talked.done() and not rig.phase.ended:
                for node in nodes.values():
                    node.shutdown.interrupt()

        with conversation(talk) as talked:
            LoopExecutor(list(nodes.values()), context, idle).run()
        nodes["recorder"].close()
        machine = rig.rig.machine
        for node in nodes.values():
            node.destroy_node()
    assert machine.state is State.HELD
    assert mentions(machine.reason, "actuator", "node")
    assert samples[1] > samples[0], "the test went on"
    assert rths_nodes.read(tmp_path / "run").information["gaps"] == "0"


def test_an_actuator_node_is_not_activated_again_while_its_rig_brakes(by_hand: Any, clock: Any) -> None:
    with by_hand.node("actuator", clock=clock) as node:
        node.rig.machine.to(State.ARMED)
        node.work()
        assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
        assert node.running
        assert node.trigger_activate() == TransitionCallbackReturn.FAILURE
        assert not node.phase.active


def test_no_process_of_a_test_ends_by_a_transition_that_is_refused(tmp_path: Path, patience: list[str]) -> None:
    with stranger() as client:
        begun = threading.Event()

        def talk() -> None:
            assert begun.wait(60.0)
            all_refused(client, "active", names.NODES[:-1])

        def progress(sample: int, _: int) -> None:
            if sample > 0:
                begun.set()

        with conversation(talk) as talked:
            done = hosts.run(
                "chen_ricles_2010",
                [LONG, *patience],
                host="processes",
                pace="realtime",
                progress=progress,
                interrupted=lambda: talked.done(),
            )
    assert (done.outcome, done.exit_code) == ("held", 130), done.reason
