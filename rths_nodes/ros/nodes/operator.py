# SPDX-License-Identifier: Apache-2.0
"""Operator node: stops or holds a procedure and publishes the state of rig and procedure (doc/ros.md).

The services ``stop``, ``stop_by_page`` and ``hold`` and the topic ``trip`` act on the procedure. A stop is never
refused. ``rig_state``, with untared values, is published between runs, and also during runs if there is a watcher.
Other actions use the operator socket (``app/procedure/operator_socket.py``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol
from uuid import uuid4

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.qos import HistoryPolicy
from std_msgs.msg import Empty, Header
from std_srvs.srv import Trigger

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Measurement
from rths_nodes.core.wire import Codec
from rths_nodes.loop.indices.live_columns import MotionCurves
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.schema import Scenario, rig_kind
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import TestState, Trip
from rths_nodes.ros import names
from rths_nodes.ros.nodes.base import diagnostics_of
from rths_nodes.ros.nodes.monitor import curves_of, message_of
from rths_nodes.ros.transport.endpoints import ByHand, message_class, quality, reason_of
from rths_nodes.ros.transport.line import address
from rths_nodes.ros.transport.middleware import ThreadedNode
from rths_nodes.ros.transport.rclpy_private import publish_bytes
from rths_nodes.ros.transport.service_thread import SERVICE_QOS, LoopCalls, ServiceThread

RIG_STATE_HZ = 10.0
"""Rate of ``rig_state`` without a watcher, Hz."""
DISCOVERY_S, LOOK_S = 1.0, 0.05
"""Duration (``DISCOVERY_S``) and polling period (``LOOK_S``) of the search for another operator node, s."""
REQUESTS = 64
THREADS = 2
"""Number of threads that spin the node, so that a trip request does not wait for a timer."""
SILENT = (State.IDLE, State.RUNNING, State.STOPPING, State.FINISHED)
"""States in which ``rig_state`` needs a watcher, because the port is closed or a run has its own topics."""


class Drive(Protocol):
    measured: Measurement
    receivers: list[Callable[[Measurement], None]]
    """Functions that receive every Measurement, in the thread that drives the rig."""

    @property
    def port(self) -> Port: ...

    @property
    def curves(self) -> MotionCurves: ...


class Session(Protocol):
    """Parts of a procedure that the operator node reads: state, scenario, record and drive of the rig."""

    state: State
    reason: str
    scenario: Scenario
    record: ProcedureRecord

    @property
    def drive(self) -> Drive: ...


class OperatorNode(ThreadedNode):
    """Publishes the state of a procedure in ``namespace``, and stops or holds the procedure on request.

    ``stop(reason, by=...)`` stops the procedure. ``hold(reason)`` holds it, or raises ConfigError if no rung is
    running. ``watch_hz`` is the rate at which a watcher needs the state of the rig, Hz, or 0 without a watcher.
    """

    def __init__(
        self,
        session: Session,
        stop: Callable[..., None],
        hold: Callable[[str], None],
        namespace: str,
        watch_hz: float = 0.0,
    ) -> None:
        super().__init__(names.OPERATOR, namespace, THREADS)
        self._session, self._stop = session, stop
        scenario, record = session.scenario, session.record
        self._constants: Data = {
            "scenario": record.scenario,
            "scenario_hash": record.scenario_hash,
            "run_id": record.test_id,
            "servo_rate": scenario.servo_rate,
            "substeps": scenario.samples_per_step,
            "samples": scenario.samples,
            "transport_samples": scenario.transport_samples,
            "axis_names": list(scenario.axes),
            "auxiliary_names": list(session.drive.port.auxiliary_names),
        }
        self._publishers = {
            name: self._node.create_publisher(message_class(topic.type), name, quality(topic))
            for name, topic in names.OPERATOR_TOPICS.items()
        }
        row = names.DIAGNOSTICS
        self._diagnostics = self._node.create_publisher(DiagnosticArray, row.name, quality(row))
        self._send_rig_state = publish_bytes(self._publishers["rig_state"])
        self._ticks = 0
        self._motions = f"{names.MOTION}{uuid4().hex[:8]} "
        self._motion = 0
        self._codec = Codec(0, len(scenario.axes), 0, len(self._constants["auxiliary_names"]))
        self._every = max(1, round(scenario.servo_rate / watch_hz)) if watch_hz else 0
        self._threads = (
            self._thread(names.STOP, stop, first=True),
            self._thread(names.PAGE_STOP, partial(stop, by=names.PAGE), "the page", first=True),
            self._thread(names.HOLD, hold),
        )
        """One thread per service, so that a stop does not wait for a hold."""
        self._received = deque[tuple[int, str, str]](maxlen=REQUESTS)
        group = MutuallyExclusiveCallbackGroup()
        for row in names.TRIP_REQUESTS:
            qos = quality(row, history=HistoryPolicy.KEEP_ALL)
            self._node.create_subscription(Trip, row.name, self._trip, qos, callback_group=group)
        former = names.TOPICS[names.FORMER_TRIP]
        self._node.create_subscription(
            Empty, former.name, self._former_trip, quality(former), callback_group=group
        )
        self._node.create_timer(1.0 / RIG_STATE_HZ, self._tick, callback_group=MutuallyExclusiveCallbackGroup())

    @property
    def stop_service(self) -> str:
        return f"{self._node.get_fully_qualified_name()}/{names.STOP}"

    @property
    def address(self) -> bytes:
        return address(self._node.get_fully_qualified_name(), self._context.get_domain_id())

    def _thread(
        self, name: str, act: Callable[[str], None], by: str = names.STRANGER, first: bool = False
    ) -> ServiceThread:
        answer = partial(_serve, name, act, by)
        service = self._node.create_service(
            Trigger, f"~/{name}", answer, qos_profile=SERVICE_QOS, callback_group=ByHand()
        )
        warn = self._node.get_logger().warning
        return ServiceThread(self._context, {service: answer}, LoopCalls(), warn, first)

    def _trip(self, message: Trip, info: Data) -> None:
        reason = reason_of(message.run, message.source, message.reason)
        request = info["source_timestamp"], message.source, message.reason
        if reason is not None and request not in self._received:  # both subscriptions receive a latched request
            self._received.append(request)
            self._stop(_asked(names.STRANGER, reason))

    def _former_trip(self, _: Empty) -> None:
        self._stop(_asked(names.STRANGER, "trip requested"))
        self._node.get_logger().warning(names.renamed("topic"))

    def start(self) -> None:
        """Start the node. Raises ConfigError if the namespace has another operator node."""
        mine = (self._node.get_name(), self._node.get_namespace())
        end = time.monotonic() + DISCOVERY_S
        while time.monotonic() < end:
            if self._node.get_node_names_and_namespaces().count(mine) > 1:
                raise ConfigError(
                    f"{self._node.get_fully_qualified_name()}: is already running. A namespace can have only one "
                    "operator node"
                )
            time.sleep(LOOK_S)
        self.publish_state(self._session.state, self._session.reason)
        if self._every:
            self._session.drive.receivers.append(self._publish_to_watcher)
        for thread in self._threads:
            thread.start()
            self._owned.callback(thread.close)
        super().start()

    def close(self) -> None:
        self._end_pulse()
        super().close()

    def publish_state(self, state: State, reason: str) -> None:
        message = TestState(state=int(state), reason=reason, **self._constants)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publishers["procedure_state"].publish(message)

    def _tick(self) -> None:
        if self._ticks % RIG_STATE_HZ == 0:
            self._diagnose()
        self._ticks += 1
        if not self._every and self._session.state not in SILENT:
            self._publish_measurement(self._session.drive.measured)
        self._draw()

    def _publish_to_watcher(self, measured: Measurement) -> None:
        if measured.sample % self._every:
            return
        try:
            self._publish_measurement(measured)
        except Exception as error:
            # do not stop the rig here: the watcher does so, by ending its pulse
            self._end_pulse()
            self._node.get_logger().error(f"the watcher receives no more data ({type(error).__name__}: {error})")

    def _end_pulse(self) -> None:
        with suppress(ValueError):  # an error has already ended the pulse
            self._session.drive.receivers.remove(self._publish_to_watcher)

    def _diagnose(self) -> None:
        state = self._session.state
        level = DiagnosticStatus.ERROR if state is State.TRIPPED else DiagnosticStatus.OK
        name, rig = self._node.get_fully_qualified_name().lstrip("/"), self._node.get_namespace().strip("/")
        values = {"rig": rig_kind(self._session.scenario)}
        self._diagnostics.publish(diagnostics_of(name, rig, level, state.name.lower(), values, time.time_ns()))

    def _publish_measurement(self, measured: Measurement) -> None:
        self._send_rig_state(self._codec.pack_measurement(measured, time.time_ns()))

    def _draw(self) -> None:
        for number, per, first, values in self._session.drive.curves.take():
            header, motion = Header(stamp=self._node.get_clock().now().to_msg()), f"{self._motions}{number}"
            if number != self._motion:
                self._motion = number
                self._publishers["live_curves"].publish(curves_of(self._session.scenario, header, motion))
            self._publishers["live"].publish(message_of(header, motion, first, per, values))


def _asked(by: str, how: str) -> str:
    return f"requested by {by}: {how}"


def _serve(name: str, act: Callable[[str], None], by: str, *_: object) -> Trigger.Response:
    try:
        act(_asked(by, f"service {name}"))
    except ConfigError as error:
        return Trigger.Response(message=str(error))
    return Trigger.Response(success=True)
