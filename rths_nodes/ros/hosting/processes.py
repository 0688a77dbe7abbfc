# SPDX-License-Identifier: Apache-2.0
"""Host ``processes``: each node runs in its own process, monitored by the runner."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rclpy.context import Context
from rclpy.node import Node

from rths_nodes.core.data import Data
from rths_nodes.core.wire import Codec, encode
from rths_nodes.loop.outcomes import IN_ORDER, ExitCode
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.ros import names
from rths_nodes.ros.hosting.descriptions import NodeDescription, starting_words
from rths_nodes.ros.hosting.node_processes import Process, Processes
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, CONSOLE, RECORDER, TEST_STATE
from rths_nodes.ros.nodes.handshake import Membership
from rths_nodes.ros.nodes.phase import UNDER_WAY
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.middleware import ros_context
from rths_nodes.ros.transport.topics import NodeTopics
from rths_nodes.ros.transport.wiring import NodeLocation, endpoints

GRACE_S = 0.6
"""Time for the other nodes to report after a node has died, s."""
LOOK_S = 0.01


class Console(Node):
    """Console of the runner: receives state, progress and results of the test that ``descriptions`` describe."""

    def __init__(self, context: Context, descriptions: Sequence[NodeDescription]) -> None:
        first = descriptions[0]
        silent = {"start_parameter_services": False, "enable_rosout": False}
        super().__init__("console", context=context, namespace=first.namespace, **silent)
        self._run_id = first.parameters["run_id"]
        self._topics = topics = NodeTopics(self)
        peers = [description.peer for description in descriptions]
        wanted = endpoints(NodeLocation(CONSOLE, f"/{first.namespace}"), peers)
        topics.open([endpoint for endpoint in wanted if not endpoint.publishes], Codec(0, 0, 0))
        self._settled = False
        self._membership = Membership(
            None, topics.join, lambda: topics.guards[TEST_STATE], lambda: self._settled, self._refuse
        )
        self._trip: Any = None
        self.result = Result()
        self.state_received = False
        self.reported: set[str] = set()
        self.missing = dict.fromkeys(peers, "")
        """Nodes that are not ready, with their problems."""

    def listen(self) -> None:
        guards = self._topics.guards.values()
        for guard in guards:
            if not guard.complete:
                guard.look()
        if self._trip is None and all(guard.complete for guard in guards):
            trip = names.TOPICS["trip"]
            self._trip = self.create_publisher(message_class(trip.type), trip.name, quality(trip))
        for name in self._topics.inboxes:
            for values in self._topics.received(name):
                with suppress(ValueError):  # ignore a foreign message on this topic
                    self._receive(name, values)
        for state in self._membership.cleared():
            self._receive_state(state)

    def wait(self) -> None:
        self.listen()
        time.sleep(LOOK_S)

    def _receive(self, name: str, values: Data) -> None:
        result = self.result
        if name == "summary":
            self.reported.add(values["node"])
            result.numbers |= dict(zip(values["names"], values["values"], strict=True))
        elif name == TEST_STATE:
            if values["run_id"] == self._run_id and self._membership.counts(values):
                self._receive_state(values)
            else:
                self._topics.guards[name].drop()  # before the test another node may have the name of a peer
        elif name == "node_status":
            if values["ready"]:
                self.missing.pop(values["node"], None)
            elif values["node"] in self.missing:
                self.missing[values["node"]] = values["problem"]  # a waiting node repeats its problem until ready
        else:
            result.sample = max(result.sample, values["sample"])

    def _receive_state(self, test_state: Data) -> None:
        state, result = State(test_state["state"]), self.result
        self.state_received = True
        self._settled = self._settled or state >= State.ARMED
        result.state, result.reason = state, test_state["reason"]
        if state == State.ARMED:  # earlier messages belong to another test
            result.numbers.clear()
            self.reported.clear()
            self._topics.close_guards()
        result.sample = max(result.sample, test_state["sample"])
        result.begun = result.begun or state in UNDER_WAY or result.sample > 0

    def _refuse(self, reason: str) -> None:
        if ACTUATOR in self.missing:
            self.missing[ACTUATOR] = reason

    def trip(self, reason: str) -> None:
        """Trip the rig. Do nothing until all nodes are discovered, because the rig does not move before then."""
        if self._trip is not None:
            header = {"stamp": time.time_ns(), "run": self._topics.run.mark}
            self._trip.publish(encode("Trip", header | {"source": "runner", "reason": reason}))


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
) -> Result:
    """Start the nodes as processes, monitor them until the end of the test, and end all processes.

    Until the test begins, ``starting`` receives a text about nodes not yet ready. Raises ConfigError if the nodes
    or ROS 2 cannot start.
    """
    with Processes(descriptions) as processes, ros_context() as context:
        console = Console(context, descriptions)
        result, requested = console.result, False
        leader = next(process for process in processes.running if process.role == ACTUATOR)

        def idle() -> None:
            console.wait()
            if progress:
                progress(result.sample)
            if starting and result.state is State.IDLE:
                starting(starting_words(console.missing))

        try:
            while leader.popen.poll() is None and not processes.dead():
                idle()
                leader.check()  # the rig itself detects other silent nodes
                result.interrupted = result.interrupted or bool(interrupted and interrupted())
                # a starting node does not handle signals yet
                if result.interrupted and console.state_received and not requested:
                    requested = True
                    processes.send(signal.SIGINT, ACTUATOR)
            died = [process for process in processes.dead() if process.popen.returncode not in IN_ORDER]
            if died:
                _end_after(died[0], processes, console, idle)
            result.judge(exit_codes(processes, console, result, idle, died))
        finally:
            console.destroy_node()
        return result


def _end_after(died: Process, processes: Processes, console: Console, idle: Callable[[], None]) -> None:
    if died.popen.returncode == ExitCode.REFUSED and console.result.state not in UNDER_WAY:
        processes.send(signal.SIGTERM)
        return
    console.trip(died.death)
    if died.role == ACTUATOR:  # no rig to trip, but the recorder needs the reason
        processes.send(signal.SIGTERM)
    if not processes.wait(GRACE_S, (RECORDER,), idle):
        processes.send(signal.SIGTERM)
        processes.wait(0.2, (RECORDER,), idle)
    processes.kill(RECORDER)
    processes.send(signal.SIGTERM, RECORDER)


def exit_codes(
    processes: Processes,
    console: Console,
    result: Result,
    idle: Callable[[], None],
    died: Sequence[Process] = (),
) -> list[int]:
    """Wait until all processes have exited, complete ``result``, and return the exit codes for the outcome."""
    if not (died or (result.begun and result.state in ENDED)):  # otherwise the nodes know the outcome
        processes.send(signal.SIGTERM)
    result.notes += processes.see_out(idle)
    console.listen()
    result.numbers |= console.result.numbers
    # if a node has died, the runner has ended the others: their exit codes do not count
    counted = [process for process in processes.counted(console.reported) if not (died and process.ended_by_us)]
    failed = [process for process in counted if process.popen.returncode not in IN_ORDER]
    for process in died[:1] or reversed(failed):  # the reason begins with the first failure
        result.blame(processes.why(process))
    return [process.popen.returncode for process in counted]
