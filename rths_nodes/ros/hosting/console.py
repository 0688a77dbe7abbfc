"""The runner's ear: a small node that hears the state of the test, its progress and the final numbers."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from rclpy.node import Node

from rths_nodes.core.wire.plain import decode, encode
from rths_nodes.core.wire.run_mark import RunMark
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, CONSOLE, TEST_STATE
from rths_nodes.ros.transport.endpoints import ByHand, Inbox, message_class, open_inbox, quality
from rths_nodes.ros.transport.joining import Joining


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
        self._inboxes: dict[str, Inbox] = {}
        self._run = RunMark()
        self._joining = Joining(
            self._run,
            None,
            self._join,
            lambda: self._inboxes[TEST_STATE].guard.certain,
            lambda: self._settled,
            self._refuse,
        )
        self._settled = False
        group = ByHand()
        for topic in names.heard_by(CONSOLE):
            speakers = [f"/{namespace}/{peer}" for peer in names.partners(topic, CONSOLE, peers, publishing=False)]
            self._inboxes[topic.name] = open_inbox(self, topic, group, self._run, speakers=speakers)
        self._trip: Any = None
        self.result = Result()
        self.heard_state = False
        self.problems: dict[str, str] = {}

    def listen(self) -> None:
        """Take what has come; a publisher that was there before the graph knew its node is asked for again.

        The test waits for the console's publisher: no message of a node is lost because its name is not known yet.
        """
        for inbox in self._inboxes.values():
            if not inbox.guard.complete:
                inbox.guard.look()
        if self._trip is None and all(inbox.guard.complete for inbox in self._inboxes.values()):
            trip = names.TOPICS["trip"]
            self._trip = self.create_publisher(message_class(trip.type), trip.name, quality(trip))
        for name, inbox in self._inboxes.items():
            while (data := inbox.take()) is not None:
                with suppress(ValueError):  # a foreign message on our topic is not for us
                    self._hear(name, decode(names.TOPICS[name].message, data))

    def _hear(self, name: str, values: dict[str, Any]) -> None:
        result = self.result
        if name == "summary":
            result.add(dict(zip(values["names"], values["values"], strict=True)))
        elif name == TEST_STATE:
            if not self._joining.counts(values):
                self._inboxes[name].guard.drop()
                return
            self.heard_state = True
            self._settled = self._settled or values["state"] >= State.ARMED
            result.state, result.reason = State(values["state"]), values["reason"]
            if result.state == State.ARMED:
                self._close_guards()
            result.sample = max(result.sample, values["sample"])
        elif name == "node_status":
            self.problems[values["node"]] = values["problem"]  # who waits for others does so until it is ready
        else:
            result.sample = max(result.sample, values["sample"])

    def _join(self, frame_id: str) -> None:
        self._run.become(frame_id)
        for inbox in self._inboxes.values():
            inbox.guard.learn()

    def _refuse(self, reason: str) -> None:
        self.problems[ACTUATOR] = reason

    def _close_guards(self) -> None:
        """The test begins: from now on nobody else is listened to."""
        for inbox in self._inboxes.values():
            if inbox.guard.complete:
                inbox.guard.close()

    def trip(self, reason: str) -> None:
        """Make the rig go safe; where not everybody was found, nothing moves yet."""
        if self._trip is not None:
            header = {"stamp": time.time_ns(), "frame_id": self._run.frame_id}
            self._trip.publish(encode("Trip", header | {"source": "runner", "reason": reason}))
