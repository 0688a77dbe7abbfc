"""The operator node: the acts of a procedure as one service, and where rig and procedure stand as topics.

    service  ~/act             rths_nodes/srv/Act            an act; answered once it is over
    topic    procedure_state   rths_nodes/msg/TestState      the state of the procedure, latched
    topic    rig_state         rths_nodes/msg/Measurement    the rig outside of runs, untared, by its own counter
    topic    emergency_stop    std_msgs/msg/Empty            heard: the act stop, whoever says so

A page, a robot or a script is an operator by these as well as somebody at a terminal: the acts are the same. The
node lives outside of every run: runs have their own nodes and topics. Anybody on the domain can call it; who may
do what is decided where the acts are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

import rclpy
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Empty

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.core.wire.acts import Answer, Request, of_message
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import Measurement as MeasurementMessage
from rths_nodes.msg import TestState
from rths_nodes.ros.names import OPERATOR, OPERATOR_TOPICS, TOPICS
from rths_nodes.ros.transport import middleware
from rths_nodes.ros.transport.endpoints import quality
from rths_nodes.ros.transport.greeting import address
from rths_nodes.srv import Act

EMERGENCY = Request("stop", ("reason",), ("emergency stop",))
"""In the motions of the procedure, and in runs in lockstep, no node of a run hears the topic."""

RIG_STATE_HZ = 10.0
"""Rate at which rig_state is published."""
DISCOVERY_S, LOOK_S = 1.0, 0.05
"""Time that another operator node is looked for before the first act, and between two looks."""
LAST_ANSWER_S = 0.3
"""The middleware has this time to hand over the last answer, that to finish: it tells nobody when it has."""
THREADS = 4
"""One for the act that lasts; others are refused or heard meanwhile."""


class Conducted(Protocol):
    """A procedure, which does acts for whoever asks. All of it may be called from any thread."""

    constants: Mapping[str, Any]
    """Fields of TestState that do not change."""

    @property
    def state(self) -> State: ...

    @property
    def reason(self) -> str:
        """Why the state was entered."""
        ...

    @property
    def resting(self) -> Measurement | None:
        """The last Measurement, with a counter of its own; None where no port is open, and during a run."""
        ...

    def answer(self, request: Request) -> Answer:
        """Do what is asked for; whatever goes wrong is in the answer."""
        ...


class OperatorNode:
    """Serves the acts of ``conducted`` in ``namespace``, in threads of its own, from start to close."""

    def __init__(self, conducted: Conducted, namespace: str) -> None:
        self._conducted = conducted
        self._context = middleware.started()
        with middleware.in_words():
            self._node: Any = Node(
                OPERATOR,
                namespace=namespace,
                context=self._context,
                use_global_arguments=False,
                enable_rosout=False,
            )
        self._executor: Any = MultiThreadedExecutor(THREADS, context=self._context)
        self._executor.add_node(self._node)
        self._publishers = {
            name: self._node.create_publisher(kind, name, quality(OPERATOR_TOPICS[name]))
            for name, kind in (("procedure_state", TestState), ("rig_state", MeasurementMessage))
        }
        self._node.create_service(Act, "~/act", self._serve, callback_group=ReentrantCallbackGroup())
        self._node.create_subscription(
            Empty,
            "emergency_stop",
            lambda _: self._conducted.answer(EMERGENCY),
            quality(TOPICS["emergency_stop"]),
            callback_group=ReentrantCallbackGroup(),
        )
        self._node.create_timer(
            1.0 / RIG_STATE_HZ, self._tell_rig, callback_group=MutuallyExclusiveCallbackGroup()
        )
        self._spinning = threading.Thread(target=self._spin, name="operator node", daemon=True)

    @property
    def service(self) -> str:
        """The full name of the service."""
        return f"{self._node.get_fully_qualified_name()}/act"

    @property
    def address(self) -> bytes:
        """The name of a socket beside the service, for processes of this machine."""
        return address(self._node.get_fully_qualified_name(), self._context.get_domain_id())

    def start(self) -> None:
        """From now on acts are done. Raises ConfigError where another operator node is in that namespace."""
        mine = (self._node.get_name(), self._node.get_namespace())
        end = time.monotonic() + DISCOVERY_S
        while time.monotonic() < end:
            if self._node.get_node_names_and_namespaces().count(mine) > 1:
                raise ConfigError(f"{self._node.get_fully_qualified_name()}: is there already: one test at a time")
            time.sleep(LOOK_S)
        self.tell_state(self._conducted.state, self._conducted.reason)
        self._spinning.start()

    def close(self) -> None:
        """Leave, once the acts that are under way are answered; may be called again."""
        if not self._context.ok():
            return
        self._executor.shutdown()
        if self._spinning.is_alive():
            self._spinning.join()
            time.sleep(LAST_ANSWER_S)
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return

    # -- topics -------------------------------------------------------------------------------------------

    def tell_state(self, state: State, reason: str) -> None:
        """Publish a state of the procedure, from any thread."""
        told = TestState(state=int(state), reason=reason, **self._conducted.constants)
        told.header.stamp = self._node.get_clock().now().to_msg()
        self._publishers["procedure_state"].publish(told)

    def _tell_rig(self) -> None:
        measured = self._conducted.resting
        if measured is None:
            return
        told = MeasurementMessage(
            sample=measured.sample,
            flags=measured.flags,
            hydraulics=measured.hydraulics,
            interlock=measured.interlock,
            control_mode=list(measured.control_mode),
            displacement=measured.displacement.tolist(),
            force=measured.force.tolist(),
            command=measured.command.tolist(),
            auxiliary=measured.auxiliary.tolist(),
        )
        told.header.stamp = self._node.get_clock().now().to_msg()
        self._publishers["rig_state"].publish(told)

    # -- acts ---------------------------------------------------------------------------------------------

    def _serve(self, request: Any, _: Any) -> Any:
        return Act.Response(**asdict(self._conducted.answer(of_message(Request, request))))
