# SPDX-License-Identifier: Apache-2.0
"""Adapter to the names of rclpy, rosidl and rcl that are not part of their public interfaces.

All names exist in Jazzy and Kilted. Messages are received and published as bytes, without the lock of rclpy, which
a polled node does not need.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rcl_interfaces.msg import ParameterEvent
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.service import Service
from rclpy.subscription import Subscription

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function

MEMBERS = {
    "GuardCondition": ("trigger_guard_condition",),
    "LifecycleStateMachine": ("destroy_when_not_in_use",),
    "Publisher": ("publish_raw",),
    "RCLError": ("args",),
    "Service": ("pointer",),
    "Subscription": ("take_message",),
    "WaitSet": (
        *("add_guard_condition", "add_service", "add_subscription"),
        *("clear_entities", "get_ready_entities", "wait"),
    ),
}
_TO_AND_FROM_C = ("_CONVERT_FROM_PY", "_CONVERT_TO_PY", "_CREATE_ROS_MESSAGE", "_DESTROY_ROS_MESSAGE")
OF_MESSAGES = (*_TO_AND_FROM_C, "_TYPE_SUPPORT")


def missing(module: Mapping[str, object], metaclass: type) -> list[str]:
    names = [(name, member) for name, members in MEMBERS.items() for member in members]
    absent = [f"{name}.{member}" for name, member in names if member not in dir(module.get(name))]
    return absent + [f"message.{name}" for name in OF_MESSAGES if name not in dir(metaclass)]


if absent := missing(vars(_rclpy), type(ParameterEvent)):
    raise ConfigError(f"this version of rclpy lacks {', '.join(absent)}; use ROS 2 Jazzy or Kilted")

GuardCondition, RCLError, WaitSet = _rclpy.GuardCondition, _rclpy.RCLError, _rclpy.WaitSet
Logger = RcutilsLogger


def take_bytes(subscription: Subscription) -> Callable[[type, bool], tuple[Any, Data] | None]:
    """Return ``take(type, raw)``, which returns a message (bytes if ``raw``) and its information, or None."""
    return subscription.handle.take_message  # type: ignore[no-any-return]


def publish_bytes(publisher: Publisher) -> Callable[[bytes], None]:
    return publisher.handle.publish_raw  # type: ignore[no-any-return]


def type_support_loaded() -> bool:
    """Return True if this process has had a node. Each node loads the type support of parameter events."""
    return type(ParameterEvent)._TYPE_SUPPORT is not None


def parameter_overrides(node: Node) -> dict[str, Parameter]:
    return node._parameter_overrides  # type: ignore[no-any-return]


def declared_parameters(node: Node) -> list[str]:
    return list(node._parameters)


def remove_from_graph(node: LifecycleNode) -> None:
    """Remove the name of a destroyed node from the graph, by destroying the state machine that rclpy keeps."""
    node._state_machine.destroy_when_not_in_use()


INFO_BYTES, ID_AT = 256, 16
"""``INFO_BYTES``: size of the buffer for rmw_service_info_t. ``ID_AT``: offset of request_id, after two stamps."""
OK, GONE, NOTHING = 0, 2, 601
"""RCL_RET_OK, RCL_RET_TIMEOUT (the client has left) and RCL_RET_SERVICE_TAKE_FAILED (no request)."""
_POINTER = ctypes.c_void_p
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(_POINTER, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


_library = cache(ctypes.CDLL)


def _function(capsule: object, result: object, *arguments: object) -> Function:
    return ctypes.PYFUNCTYPE(result, *arguments)(_pointer(capsule, _name(capsule)))  # type: ignore[arg-type]


class _Kind:
    def __init__(self, message: Any) -> None:
        self.create = _function(message._CREATE_ROS_MESSAGE, _POINTER)
        self.destroy = _function(message._DESTROY_ROS_MESSAGE, None, _POINTER)
        self.to_python = _function(message._CONVERT_TO_PY, ctypes.py_object, _POINTER)
        self.from_python = _function(message._CONVERT_FROM_PY, ctypes.c_bool, ctypes.py_object, _POINTER)


class RequestQueue:
    """Receives and answers requests to one ``service`` without an executor. Not thread-safe.

    rclpy holds the interpreter lock while the middleware waits up to 0.1 s for a client that has left. This class
    holds the lock only during the conversion of a message.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._pointer = _POINTER(service.handle.pointer)
        self._request, self._response = map(_Kind, (service.srv_type.Request, service.srv_type.Response))
        self._take = _library("librcl.so").rcl_take_request_with_info
        self._send = _library("librcl.so").rcl_send_response
        self._info = ctypes.create_string_buffer(INFO_BYTES)

    def take(self) -> object:
        """Return the next request, or None. Raises RuntimeError if the request is unreadable."""
        message = _POINTER(self._request.create())
        try:
            with self.service.handle:
                code = self._take(self._pointer, self._info, message)
            self._check(code, "request")
            return None if code == NOTHING else self._request.to_python(message)
        finally:
            self._request.destroy(message)

    def respond(self, response: object) -> None:
        message = _POINTER(self._response.create())
        try:
            if not self._response.from_python(response, message):
                raise RuntimeError(f"{self.service.srv_name}: the response cannot be converted")
            with self.service.handle:
                self._check(self._send(self._pointer, ctypes.byref(self._info, ID_AT), message), "response")
        finally:
            self._response.destroy(message)

    def _check(self, code: int, kind: str) -> None:
        if code != OK:
            _library("librcutils.so").rcutils_reset_error()
        if code not in (OK, GONE, NOTHING):
            raise RuntimeError(f"{self.service.srv_name}: the {kind} was lost (code {code} from rcl)")
