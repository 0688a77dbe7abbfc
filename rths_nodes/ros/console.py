"""The runner's ear: a small node that hears the state of the test, its progress and the final numbers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rclpy.node import Node

from rths_nodes import wire
from rths_nodes.ros import names
from rths_nodes.ros.composed import ros_context
from rths_nodes.ros.endpoints import ByHand, message_class, open_inbox, quality
from rths_nodes.ros.launching import NodeDescription, Processes
from rths_nodes.ros.names import ACTUATOR, CONSOLE, RECORDER
from rths_nodes.ros.results import Result
from rths_nodes.safety import State

GRACE_S = 0.6
"""Between the death of a node and the end of the others."""
LEAVING_S = 10.0
"""How long the nodes may take to leave after the first of them."""
INDEXING_S = 600.0
"""How long a recorder may take to index what it has written."""


class Console(Node):
    """Listens to the ``peers`` under the namespace of the rig."""

    def __init__(self, context: Any, namespace: str, peers: tuple[str, ...]) -> None:
        super().__init__(
            "console",
            context=context,
            namespace=namespace,
            start_parameter_services=False,
            enable_rosout=False,
        )
        self._inboxes = {}
        group = ByHand()
        for topic in names.heard_by(CONSOLE):
            speakers = [f"/{namespace}/{peer}" for peer in names.partners(topic, CONSOLE, peers, publishing=False)]
            self._inboxes[topic.name] = open_inbox(self, topic, group, speakers=speakers)
        self._trip: Any = None
        self.result = Result()
        self.heard_state = False
        self.problems: dict[str, str] = {}

    def listen(self) -> None:
        """Take what has come; a publisher that was there before the graph knew its node is asked for again.

        The test waits for the console's publisher: no message of a node is lost because its name is not known yet.
        """
        for inbox in self._inboxes.values():
            if not inbox.door.complete:
                inbox.door.look()
        if self._trip is None and all(inbox.door.complete for inbox in self._inboxes.values()):
            trip = names.TOPICS["trip"]
            self._trip = self.create_publisher(message_class(trip.type), trip.name, quality(trip))
        for name, inbox in self._inboxes.items():
            while (data := inbox.take()) is not None:
                with suppress(ValueError):  # a foreign message on our topic is not for us
                    self._hear(name, wire.decode(names.TOPICS[name].message, data))

    def _hear(self, name: str, values: dict[str, Any]) -> None:
        result = self.result
        if name == "summary":
            result.add(dict(zip(values["names"], values["values"], strict=True)))
        elif name == "test_state":
            self.heard_state = True
            result.state, result.reason = State(values["state"]), values["reason"]
            if result.state == State.ARMED:
                self._close_doors()
            result.sample = max(result.sample, values["sample"])
        elif name == "node_status":
            if values["problem"]:
                self.problems[values["node"]] = values["problem"]
        else:
            result.sample = max(result.sample, values["sample"])

    def _close_doors(self) -> None:
        """The test begins: from now on nobody else is listened to."""
        for inbox in self._inboxes.values():
            if inbox.door.complete:
                inbox.door.close()

    def trip(self, reason: str) -> None:
        """Make the rig go safe; where not everybody was found, nothing moves yet."""
        if self._trip is not None:
            self._trip.publish(
                wire.encode("Trip", {"stamp": time.time_ns(), "source": "runner", "reason": reason})
            )


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Result:
    """Start the nodes as processes, watch them to the end of the test, leave no process behind."""
    with Processes(descriptions) as processes, ros_context() as context:
        peers = tuple(description.peer for description in descriptions)
        console = Console(context, descriptions[0].namespace, peers)
        try:
            return _watch(console, processes, progress, interrupted)
        finally:
            console.destroy_node()


def _watch(
    console: Console,
    processes: Processes,
    progress: Callable[[int], None] | None,
    interrupted: Callable[[], bool] | None,
) -> Result:
    result, asked = console.result, False

    def idle() -> None:
        console.listen()
        if progress:
            progress(console.result.sample)
        time.sleep(0.01)

    while processes.alive():
        idle()
        if processes.dead():
            break
        result.interrupted = result.interrupted or bool(interrupted and interrupted())
        # a node that is still starting knows nothing of signals yet
        if result.interrupted and console.heard_state and not asked:
            asked = True
            processes.send(signal.SIGINT, ACTUATOR)
    dead = [process for process in processes.dead() if process.popen.returncode not in (2, 3)]
    if dead:
        _end_after(dead[0].death, dead[0].role, console, processes, idle)
    elif not processes.wait(LEAVING_S, (RECORDER,), idle):
        killed = processes.kill((RECORDER,))
        result.notes += [f"the {process.role} node did not end by itself" for process in killed]
    if result.state is State.IDLE:  # a recorder that has not found its peers does not hear that they have left
        processes.send(signal.SIGTERM, RECORDER)
    if not processes.wait(INDEXING_S, idle=idle):
        result.notes.append("the recorder did not finish: rths recover may help")
    console.listen()
    if dead:
        why = console.problems.get(dead[0].role) or dead[0].death
        result.reason = why if result.reason in ("", why) else f"{why}; {result.reason}"
    result.judge([process.popen.returncode for process in processes.running])
    return result


def _end_after(death: str, role: str, console: Console, processes: Processes, idle: Callable[[], None]) -> None:
    """A node has died: the rig goes safe, the recorder closes, everybody ends within ``GRACE_S``."""
    if role != ACTUATOR:
        console.trip(death)
    else:
        processes.send(signal.SIGTERM)
    if not processes.wait(GRACE_S, (RECORDER,), idle):
        processes.send(signal.SIGTERM)
        processes.wait(0.2, (RECORDER,), idle)
    processes.kill((RECORDER,))
    processes.send(signal.SIGTERM, RECORDER)
