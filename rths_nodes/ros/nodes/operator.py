# SPDX-License-Identifier: Apache-2.0
"""The operator node: the acts of a procedure as a service and an action, and where rig and procedure stand.

    service  ~/act             rths_nodes/srv/Act            an act that takes no time; the empty one only tells
    action   ~/act             rths_nodes/action/Act         any act; a cancel is the act stop, whoever asks for it
    topic    procedure_state   rths_nodes/msg/TestState      the state of the procedure, latched
    topic    rig_state         rths_nodes/msg/Measurement    the rig, untared, by its own counter: outside of
                                                             runs, and for a watcher in runs, too
    topic    live              rths_nodes/msg/Live           curves of the motions of the procedure, as of a run
    topic    live_curves       rths_nodes/msg/LiveCurves     their names, latched
    topic    emergency_stop    std_msgs/msg/Empty            heard: the act stop, whoever says so

A page, a robot or a script is an operator by these as well as somebody at a terminal: the acts are the same. The
node lives outside of every run: runs have their own nodes and topics. Anybody on the domain can call it; who may
do what is decided where the acts are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol
from uuid import uuid4

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from std_msgs.msg import Empty, Header

from rths_nodes.action import Act as LastingAct
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.core.wire.acts import PROGRAM_LEFT, Answer, Request, of_message
from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import Live, LiveCurves, TestState
from rths_nodes.msg import Measurement as MeasurementMessage
from rths_nodes.ros.names import MOTION, OPERATOR, OPERATOR_TOPICS, TOPICS
from rths_nodes.ros.nodes.live_curves import curves_of, message_of
from rths_nodes.ros.transport.endpoints import quality
from rths_nodes.ros.transport.greeting import address
from rths_nodes.ros.transport.threaded_node import ThreadedNode
from rths_nodes.srv import Act

EMERGENCY = Request("stop", ("reason",), ("emergency stop",))
"""In the motions of the procedure, and in runs in lockstep, no node of a run hears the topic."""
CANCELLED = Request("stop", ("reason",), ("the action was cancelled",))
LEFT = Request("stop", ("reason",), (PROGRAM_LEFT,))

RIG_STATE_HZ = 10.0
"""Rate at which rig_state, where nobody watches, and the feedback of an action are published."""
DISCOVERY_S, LOOK_S = 1.0, 0.05
"""Time that another operator node is looked for before the first act, and between two looks."""
LAST_ANSWER_S = 0.3
"""The middleware has this time to hand over the last answer, that to finish: it tells nobody when it has."""
RESULT_KEPT_S = 10
"""A client may ask for this time for the result of an act that is over; clients ask when the act begins."""
UNSEEN_S = 10.0
"""A client that the middleware has not shown for so long since its act began has left."""
CANCELLING_S = 1.0
"""rclpy marks a goal within this time as cancelled once its cancel was taken."""
THREADS = 4
"""One for the act that lasts; others are refused or heard meanwhile."""
KINDS = {"procedure_state": TestState, "rig_state": MeasurementMessage, "live": Live, "live_curves": LiveCurves}
"""Types of the topics."""


class Conducted(Protocol):
    """A procedure, which does acts for whoever asks. All of it may be called from any thread."""

    told_hz: float
    """Rate at which a watcher has to hear where the rig is, Hz; 0 where there is none."""

    constants: Data
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

    @property
    def progress(self) -> tuple[int, int]:
        """Sample of the rung that is under way, and its samples; zeros where none is."""
        ...

    @property
    def scenario(self) -> Scenario: ...

    def tell(self, told: Callable[[Measurement], None] | None) -> None:
        """Give every Measurement of the rig to ``told``, from the thread that drives it; None: not any more."""
        ...

    def curves(self) -> list[tuple[int, int, int, Array]]:
        """By motion its number, samples in a column, first sample and columns of what has come since."""
        ...

    def answer(self, request: Request, lasting: bool = False) -> Answer:
        """Do what is asked for; whatever goes wrong is in the answer. Acts that take time need ``lasting``."""
        ...


class OperatorNode(ThreadedNode):
    """Serves the acts of ``conducted`` in ``namespace``, in threads of its own, from start to close."""

    def __init__(self, conducted: Conducted, namespace: str) -> None:
        super().__init__(OPERATOR, namespace, THREADS)
        self._conducted = conducted
        self._publishers = {
            name: self._node.create_publisher(kind, name, quality(OPERATOR_TOPICS[name]))
            for name, kind in KINDS.items()
        }
        self._motions = f"{MOTION}{uuid4().hex[:8]} "
        """Beginning of the marks of its motions, which are not those of another procedure."""
        self._motion = 0
        """Number of the last motion that was drawn."""
        constants = conducted.constants
        n_axes, n_auxiliary = len(constants["axis_names"]), len(constants["auxiliary_names"])
        self._codec = Codec(0, n_axes, 0, n_auxiliary)
        self._every = max(1, round(constants["servo_rate"] / conducted.told_hz)) if conducted.told_hz else 0
        """Samples of the rig between two that a watcher hears of; 0 where there is none."""
        self._node.create_service(Act, "~/act", self._serve, callback_group=ReentrantCallbackGroup())
        self._goals: list[ServerGoalHandle] = []
        self._cancelled: set[bytes] = set()
        self._followers: set[bytes] = set()
        """Endpoints of the programs that heard the feedback when the act began."""
        self._alone_since = 0.0
        """When an act began, or its last follower left, s."""
        self._closing = False
        actions: ActionServer = ActionServer(
            self._node,
            LastingAct,
            "~/act",
            self._perform,
            callback_group=ReentrantCallbackGroup(),
            goal_callback=lambda _: GoalResponse.REJECT if self._closing else GoalResponse.ACCEPT,
            cancel_callback=self._cancel,
            result_timeout=RESULT_KEPT_S,
        )
        self._owned.callback(actions.destroy)
        self._node.create_subscription(
            Empty,
            "emergency_stop",
            lambda _: self._conducted.answer(EMERGENCY),
            quality(TOPICS["emergency_stop"]),
            callback_group=ReentrantCallbackGroup(),
        )
        self._node.create_timer(1.0 / RIG_STATE_HZ, self._tick, callback_group=MutuallyExclusiveCallbackGroup())

    @property
    def service(self) -> str:
        """The full name of service and action."""
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
        if self._every:
            self._conducted.tell(self._tell_watcher)
        super().start()

    def close(self) -> None:
        """Leave, once the acts that are under way are answered; may be called again."""
        self._closing = True  # the executor is needed for the results of what is under way
        while self._goals and self._spinning.is_alive():
            time.sleep(LOOK_S)
        if self._spinning.is_alive():
            time.sleep(LAST_ANSWER_S)
        self._conducted.tell(None)
        super().close()

    # -- topics -------------------------------------------------------------------------------------------

    def tell_state(self, state: State, reason: str) -> None:
        """Publish a state of the procedure, from any thread."""
        told = TestState(state=int(state), reason=reason, **self._conducted.constants)
        told.header.stamp = self._node.get_clock().now().to_msg()
        self._publishers["procedure_state"].publish(told)
        self._tell_goals()

    def _tick(self) -> None:
        self._tell_rig()
        self._draw()
        self._tell_goals()
        self._look_for_clients()

    def _tell_watcher(self, measured: Measurement) -> None:
        """Publish where the rig is, from the thread that drives it: where that stands still, nothing is said."""
        if measured.sample % self._every:
            return
        try:
            self._publishers["rig_state"].handle.publish_raw(
                self._codec.pack_measurement(measured, time.time_ns())
            )
        except Exception as error:
            self._conducted.tell(None)  # the rig is not stopped for it: the watcher ends its pulse
            self._node.get_logger().error(f"a watcher hears no more: {type(error).__name__}: {error}")

    def _tell_rig(self) -> None:
        measured = None if self._every else self._conducted.resting
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

    def _draw(self) -> None:
        """Publish the curves of the motions of the procedure."""
        for number, per, first, values in self._conducted.curves():
            header = Header(frame_id=f"{self._motions}{number}", stamp=self._node.get_clock().now().to_msg())
            if number != self._motion:
                self._motion = number
                self._publishers["live_curves"].publish(curves_of(self._conducted.scenario, header))
            self._publishers["live"].publish(message_of(header, first, per, values))

    # -- acts ---------------------------------------------------------------------------------------------

    def _serve(self, request: object, _: object) -> object:
        return Act.Response(**asdict(self._conducted.answer(of_message(Request, request))))

    def _perform(self, goal: ServerGoalHandle) -> object:
        """Do the act of a ``goal``: succeeded where it was done, cancelled where a cancel has stopped it."""
        if not self._goals:
            self._followers, self._alone_since = self._listeners(), time.monotonic()
        self._goals.append(goal)
        name = bytes(goal.goal_id.uuid)
        try:
            told = Answer(reason="was cancelled before it began")
            if name not in self._cancelled:
                told = self._conducted.answer(of_message(Request, goal.request), lasting=True)
            self._await_cancel(goal)
            (goal.canceled if goal.is_cancel_requested else goal.succeed if told.done else goal.abort)()
        finally:
            self._goals.remove(goal)
            self._cancelled.discard(name)
        return LastingAct.Result(**asdict(told))

    def _await_cancel(self, goal: ServerGoalHandle) -> None:
        """Wait until rclpy knows of a cancel what the rig knows already: else the goal would end as aborted."""
        end = time.monotonic() + CANCELLING_S
        while bytes(goal.goal_id.uuid) in self._cancelled and time.monotonic() < end:
            if goal.is_cancel_requested:
                return
            time.sleep(1e-3)

    def _cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        """Stop at once; the goal ends by itself, once the rig rests."""
        self._cancelled.add(bytes(goal.goal_id.uuid))
        self._conducted.answer(CANCELLED)
        return CancelResponse.ACCEPT

    def _tell_goals(self) -> None:
        """Publish the feedback of the goals that are under way."""
        sample, samples = self._conducted.progress
        told = LastingAct.Feedback(
            state=int(self._conducted.state), reason=self._conducted.reason, sample=sample, samples=samples
        )
        for goal in list(self._goals):
            goal.publish_feedback(told)

    def _look_for_clients(self) -> None:
        """Stop an act whose client has ended without a cancel.

        The middleware does not tell whose goal it is: of several programs that follow it, each one counts.
        """
        if not self._goals:
            return
        here, now = self._listeners(), time.monotonic()
        left = not self._followers <= here
        self._followers = self._followers & here or here
        if left or (not here and now - self._alone_since > UNSEEN_S):
            self._alone_since = now
            self._conducted.answer(LEFT)

    def _listeners(self) -> set[bytes]:
        """The endpoints that hear the feedback: every client of an action has one."""
        endpoints = self._node.get_subscriptions_info_by_topic(f"{self.service}/_action/feedback")
        return {bytes(each.endpoint_gid) for each in endpoints}
