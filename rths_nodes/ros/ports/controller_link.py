# SPDX-License-Identifier: Apache-2.0
"""Link to a forward_command_controller and a joint_state_broadcaster, checked before any command is sent."""

from __future__ import annotations

import os
import secrets
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.topic_endpoint_info import TopicEndpointInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, String

from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.transport import middleware
from rths_nodes.ros.transport.rclpy_private import take_bytes

STAND_IN = "rths_stand_in"
"""Name of the parameter that marks a controller that moves no hardware."""
DESCRIPTION = "/robot_description"
LOOK_S = 0.02
LISTENED_S = {True: 0.0, False: middleware.FOUND_S}
"""Time to discover other publishers before the test, s. Key: true for a stand-in, false for real hardware."""
NAMED_S = 2.0
"""Timeout for learning the name of a discovered node, s."""
UNNAMED = "_UNKNOWN_"
"""Text in the name of a discovered node while the real name is unknown."""
KEPT = 1000


class ControllerLink(middleware.ThreadedNode):
    """Exchanges commands and joint states with a controller until :meth:`close`.

    ``params`` are the parameters of the port. ``controller`` is the full name of the controller's node. ``joints``
    are in the order of the axes, with the counter last. Raises ConfigError for an unsuitable controller.
    """

    def __init__(self, params: Any, controller: str, joints: tuple[str, ...]) -> None:
        super().__init__(f"rths_port_{os.getpid()}_{secrets.token_hex(3)}", "", 1)
        self._params, self._controller, self._joints = params, controller, joints
        self._commands = f"{controller}/commands"
        self._begun = time.monotonic()
        self._end = self._begun + params.connect_within
        self._waiting: list[JointState] = []
        try:
            with middleware.in_words():
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        params, commands = self._params, self._commands
        ours = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        self._publisher = self._node.create_publisher(Float64MultiArray, commands, ours)
        listening = f"no subscription on {commands}; load and activate the controller"
        if self._until(self._listener, listening).qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL:
            raise ConfigError(
                f"{commands}: the subscription of {self._controller} has the durability transient_local, but must "
                "be volatile. Otherwise commands sent before the activation would move the rig"
            )
        no_states = f"no publisher of joint states on {params.states}"
        self._until(lambda: self._publishers(params.states), no_states)
        self._order = self._check_controller()
        self._check_joint_types()
        # a publisher that appears later opens the interlock
        while time.monotonic() < self._begun + LISTENED_S[params.stand_in]:
            self._executor.spin_once(timeout_sec=LOOK_S)
        if self.intruder():
            self._receive_names()
            if intruder := self.intruder():
                raise ConfigError(intruder)
        broadcasters = self._until(lambda: self._publishers(params.states), no_states)
        # a subscription with stricter reliability than the publisher would not match
        wanted = QoSProfile(depth=KEPT, reliability=broadcasters[0].qos_profile.reliability)
        self._subscription = self._node.create_subscription(
            JointState, params.states, self._waiting.append, wanted
        )

    def _until(self, condition: Callable[[], Any], missing: str) -> Any:
        while not (result := condition()):
            if time.monotonic() > self._end:
                raise ConfigError(f"cannot connect within {self._params.connect_within:g} s: {missing}")
            self._executor.spin_once(timeout_sec=LOOK_S)
        return result

    def _listener(self) -> Any:
        for subscription in self._node.get_subscriptions_info_by_topic(self._commands):
            if _full_name(subscription) == self._controller:
                return subscription
        return None

    def _publishers(self, topic: str) -> list[TopicEndpointInfo]:
        mine, publishers = self._node.get_fully_qualified_name(), self._node.get_publishers_info_by_topic(topic)
        return [publisher for publisher in publishers if _full_name(publisher) != mine]

    def _receive_names(self) -> None:
        end = min(self._end, time.monotonic() + NAMED_S)
        topics = (self._commands, self._params.states)
        while time.monotonic() < end and any(
            UNNAMED in publisher.node_name for topic in topics for publisher in self._publishers(topic)
        ):
            self._executor.spin_once(timeout_sec=LOOK_S)

    def intruder(self) -> str:
        """Return a description of foreign publishers or of a missing controller, otherwise an empty string."""
        params, commands = self._params, self._commands
        if publishers := self._publishers(commands):
            return f"{_names(publishers)} also publishes on {commands}, but only one program may drive the rig"
        states = self._publishers(params.states)
        if len(states) > 1:
            return (
                f"{params.states}: has {len(states)} publishers ({_names(states)}), but must have one broadcaster"
            )
        if self._listener() is None:
            return f"the controller {self._controller} is no longer subscribed to {commands}"
        return ""

    def _check_controller(self) -> list[int]:
        params = self._params
        client = self._node.create_client(GetParameters, f"{self._controller}/get_parameters")
        self._until(client.service_is_ready, f"{self._controller} has no parameter services")
        joints = self._asked(client, "joints")
        if joints is None or joints.type != ParameterType.PARAMETER_STRING_ARRAY:
            raise ConfigError(
                f"{self._controller}: must be a forward_command_controller with the parameter joints"
            )
        theirs = list(joints.string_array_value)
        if sorted(theirs) != sorted(self._joints):
            raise ConfigError(
                f"port.joints: {', '.join(self._joints)}: must be the joints of {self._controller} "
                f"({', '.join(theirs)})"
            )
        interface = self._asked(client, "interface_name")
        interface_name = interface.string_value if interface else ""
        if interface_name != "position":
            raise ConfigError(
                f"{self._controller}: interface_name = {interface_name!r}: must be 'position', because commands "
                "are displacements"
            )
        mark = self._asked(client, STAND_IN)
        is_stand_in = bool(mark and mark.bool_value)
        if is_stand_in != params.stand_in:
            there = "moves no hardware" if is_stand_in else "may move a real rig"
            is_set = f"its parameter {STAND_IN} is {str(is_stand_in).lower()}"
            why = is_set if mark else f"it has no parameter {STAND_IN}"
            raise ConfigError(
                f"port.stand_in = {str(params.stand_in).lower()}: the controller {self._controller} {there}: {why}"
            )
        self._node.destroy_client(client)
        return [self._joints.index(joint) for joint in theirs]

    def _asked(self, client: Client, name: str) -> ParameterValue | None:
        asked = client.call_async(GetParameters.Request(names=[name]))  # an unknown name fails the whole request
        self._until(asked.done, f"{self._controller} does not answer a request for the parameter {name}")
        values = asked.result().values
        return values[0] if values and values[0].type != ParameterType.PARAMETER_NOT_SET else None

    def _check_joint_types(self) -> None:
        if not self._node.count_publishers(DESCRIPTION):
            return
        messages: list[String] = []
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        subscription = self._node.create_subscription(String, DESCRIPTION, messages.append, latched)
        self._until(lambda: messages, f"{DESCRIPTION} has a publisher but no message")
        self._node.destroy_subscription(subscription)
        check_joint_types(messages[0].data, self._joints, self._params.joint_type)

    def send(self, values: list[float]) -> None:
        self._publisher.publish(Float64MultiArray(data=[values[index] for index in self._order]))

    def wait(self, seconds: float) -> None:
        self._executor.spin_once(timeout_sec=seconds)

    def received(self) -> list[JointState]:
        take = take_bytes(self._subscription)
        while (message := take(JointState, False)) is not None:
            self._waiting.append(message[0])
        samples = self._waiting[:]
        self._waiting.clear()
        return samples


def check_joint_types(description: str, joints: tuple[str, ...], wanted: str) -> None:
    """Raise ConfigError if the type of one of ``joints`` in ``description`` (URDF) is not ``wanted``."""
    try:
        root = ElementTree.fromstring(description)
    except ElementTree.ParseError:
        return  # a description in another format has no joint types
    for joint in root.iter("joint"):
        name, kind = joint.get("name"), joint.get("type")
        if name in joints and kind is not None and kind != wanted:
            unit = {"prismatic": "m and N", "revolute": "rad and N m", "continuous": "rad and N m"}.get(kind, "")
            has = f" ({unit})" if unit else ""
            raise ConfigError(f"port.joint_type = {wanted!r}: joint {name!r} is {kind}{has} in {DESCRIPTION}")


def _full_name(endpoint: TopicEndpointInfo) -> str:
    return f"{endpoint.node_namespace.rstrip('/')}/{endpoint.node_name}"


def _names(endpoints: list[TopicEndpointInfo]) -> str:
    return ", ".join(sorted({_full_name(endpoint) for endpoint in endpoints}))
