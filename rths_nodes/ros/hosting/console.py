"""The runner's ear: a small node that hears the state of the test, its progress and the final numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rclpy.node import Node

from rths_nodes.core.wire.plain import decode, encode
from rths_nodes.core.wire.run_mark import RunMark
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, CONSOLE, TEST_STATE
from rths_nodes.ros.nodes.phase import UNDER_WAY
from rths_nodes.ros.transport.endpoints import ByHand, Inbox, message_class, open_inbox, quality
from rths_nodes.ros.transport.joining import Joining


class Console(Node):
    """Listens to the ``peers`` under the namespace of the rig, and takes in what belongs to the run ``run_id``.

    ``reported`` are the peers whose Summary was heard: what they had to say about the test is said.
    """

    def __init__(self, context: Any, namespace: str, peers: tuple[str, ...], run_id: str) -> None:
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
            None,
            self._join,
            lambda: self._inboxes[TEST_STATE].guard,
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
        self.reported: set[str] = set()
        self._run_id = run_id
        self.problems: dict[str, str] = {}
        self._peers = peers
        self._ready: set[str] = set()

    @property
    def missing(self) -> dict[str, str]:
        """The nodes that are not ready for the test, each with what it has said about it."""
        return {peer: self.problems.get(peer, "") for peer in self._peers if peer not in self._ready}

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
        for told in self._joining.cleared():
            self._hear_state(told)

    def _hear(self, name: str, values: dict[str, Any]) -> None:
        result = self.result
        if name == "summary":
            self.reported.add(values["node"])
            result.add(dict(zip(values["names"], values["values"], strict=True)))
        elif name == TEST_STATE:
            if values["run_id"] != self._run_id or not self._joining.counts(values):
                self._inboxes[name].guard.drop()  # before the test another node may have the name of a peer
                return
            self._hear_state(values)
        elif name == "node_status":
            self.problems[values["node"]] = values["problem"]  # who waits for others does so until it is ready
            self._ready |= {values["node"]} if values["ready"] else set()
        else:
            result.sample = max(result.sample, values["sample"])

    def _hear_state(self, told: Mapping[str, Any]) -> None:
        state, reason, result = State(told["state"]), told["reason"], self.result
        self.heard_state = True
        self._settled = self._settled or state >= State.ARMED
        result.state, result.reason = state, reason
        if state == State.ARMED:  # what was told before is not of this test
            result.numbers.clear()
            self.reported.clear()
            self._close_guards()
        result.sample = max(result.sample, told["sample"])
        result.begun = result.begun or state in UNDER_WAY or result.sample > 0

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
