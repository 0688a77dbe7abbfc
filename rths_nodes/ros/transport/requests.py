# SPDX-License-Identifier: Apache-2.0
"""Requests to a service and its responses, without the interpreter lock.

The middleware waits up to 0.1 s for a client that has left before it gives up a response. rclpy holds the
interpreter lock meanwhile, and with it every loop of the process. Here only the conversion of a message holds it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from rclpy.service import Service

from rths_nodes.core.kernels import Function

INFO_BYTES, ID_AT = 256, 16
"""Room for rmw_service_info_t, and the offset of its request_id, behind two stamps of 8 bytes."""
OK, GONE, NOTHING = 0, 2, 601
"""RCL_RET_OK, RCL_RET_TIMEOUT (the client has left), RCL_RET_SERVICE_TAKE_FAILED."""

_POINTER = ctypes.c_void_p
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(_POINTER, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@cache
def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name)


def _function(capsule: object, result: object, *arguments: object) -> Function:
    """The C function in a capsule of a message class; it is called with the interpreter lock."""
    return ctypes.PYFUNCTYPE(result, *arguments)(  # type: ignore[arg-type]
        _pointer(capsule, _name(capsule))
    )


class _Kind:
    """C functions of a message class."""

    def __init__(self, message: Any) -> None:
        self.create = _function(message._CREATE_ROS_MESSAGE, _POINTER)
        self.destroy = _function(message._DESTROY_ROS_MESSAGE, None, _POINTER)
        self.to_python = _function(message._CONVERT_TO_PY, ctypes.py_object, _POINTER)
        self.from_python = _function(message._CONVERT_FROM_PY, ctypes.c_bool, ctypes.py_object, _POINTER)


class RequestQueue:
    """Requests to one ``service`` that no executor serves. One thread may use it at a time."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._pointer = _POINTER(service.handle.pointer)
        self._request, self._response = map(_Kind, (service.srv_type.Request, service.srv_type.Response))
        self._take = _library("librcl.so").rcl_take_request_with_info
        self._send = _library("librcl.so").rcl_send_response
        self._info = ctypes.create_string_buffer(INFO_BYTES)

    def take(self) -> object:
        """The next request; None if there is none. Raises RuntimeError for one that cannot be read."""
        message = _POINTER(self._request.create())
        try:
            with self.service.handle:
                code = self._take(self._pointer, self._info, message)
            self._check(code, "request")
            return None if code == NOTHING else self._request.to_python(message)
        finally:
            self._request.destroy(message)

    def respond(self, response: object) -> None:
        """Send the ``response`` to the last request. Nothing is sent if its client has left."""
        message = _POINTER(self._response.create())
        try:
            if not self._response.from_python(response, message):
                raise RuntimeError(f"{self.service.srv_name}: response cannot be converted")
            with self.service.handle:
                self._check(self._send(self._pointer, ctypes.byref(self._info, ID_AT), message), "response")
        finally:
            self._response.destroy(message)

    def _check(self, code: int, what: str) -> None:
        if code != OK:
            _library("librcutils.so").rcutils_reset_error()
        if code not in (OK, GONE, NOTHING):
            raise RuntimeError(f"{self.service.srv_name}: {what} lost (code {code} of rcl)")
