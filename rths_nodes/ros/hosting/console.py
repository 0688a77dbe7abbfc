# SPDX-License-Identifier: Apache-2.0
"""Console of the runner: receives state, progress and results of the test."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from rclpy.context import Context
from rclpy.node import Node

from rths_nodes.core.data import Data
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.plain import encode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, CONSOLE, TEST_STATE
from rths_nodes.ros.nodes.handshake import Membership
from rths_nodes.ros.nodes.phase import UNDER_WAY
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.topics import NodeTopics
from rths_nodes.ros.transport.wiring import NodeLocation, endpoints

LOOK_S = 0.01


class Console(Node):
    def __init__(self, context: Context, namespace: str, peers: tuple[str, ...], run_id: str) -> None:
        super().__init__(
            "console", context=context, namespace=namespace, start_parameter_services=False, enable_rosout=False
        )
        self._topics = topics = NodeTopics(self)
        subscriptions = [
            endpoint
            for endpoint in endpoints(NodeLocation(CONSOLE, f"/{namespace}"), peers)
            if not endpoint.publishes
        ]
        topics.open(subscriptions, Codec(0, 0, 0))
        self._membership = Membership(
            None, topics.join, lambda: topics.guards[TEST_STATE], lambda: self._settled, self._refuse
        )
        self._settled = False
        self._trip: Any = None
        self.result = Result()
        self.state_received = False
        self.reported: set[str] = set()
        self._run_id = run_id
        self.problems: dict[str, str] = {}
        self._peers = peers
        self._ready: set[str] = set()

    @property
    def missing(self) -> dict[str, str]:
        return {peer: self.problems.get(peer, "") for peer in self._peers if peer not in self._ready}

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
            result.add(dict(zip(values["names"], values["values"], strict=True)))
        elif name == TEST_STATE:
            if values["run_id"] != self._run_id or not self._membership.counts(values):
                self._topics.guards[name].drop()  # before the test another node may have the name of a peer
                return
            self._receive_state(values)
        elif name == "node_status":
            self.problems[values["node"]] = values["problem"]  # a waiting node repeats its problem until ready
            self._ready |= {values["node"]} if values["ready"] else set()
        else:
            result.sample = max(result.sample, values["sample"])

    def _receive_state(self, test_state: Data) -> None:
        state, reason, result = State(test_state["state"]), test_state["reason"], self.result
        self.state_received = True
        self._settled = self._settled or state >= State.ARMED
        result.state, result.reason = state, reason
        if state == State.ARMED:  # earlier messages belong to another test
            result.numbers.clear()
            self.reported.clear()
            self._topics.close_guards()
        result.sample = max(result.sample, test_state["sample"])
        result.begun = result.begun or state in UNDER_WAY or result.sample > 0

    def _refuse(self, reason: str) -> None:
        self.problems[ACTUATOR] = reason

    def trip(self, reason: str) -> None:
        """Trip the rig. Do nothing until all nodes are discovered, because the rig does not move before then."""
        if self._trip is not None:
            header = {"stamp": time.time_ns(), "run": self._topics.run.mark}
            self._trip.publish(encode("Trip", header | {"source": "runner", "reason": reason}))
