# SPDX-License-Identifier: Apache-2.0
"""All ways in which a test may end, with their exit codes and causes."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from rths_nodes.loop.interrupts import STOPPING
from rths_nodes.loop.outcomes import ExitCode

NAME = "chen_ricles_2010"
UNDER_WAY = 200
"""Sample at which a test is disturbed."""
LONG = "duration=600"
SIGNALS = tuple(number.name for number in STOPPING)

WAYS = {
    "finished": ExitCode.FINISHED,
    "limit": ExitCode.TRIPPED,
    "monitor": ExitCode.TRIPPED,
    "refused": ExitCode.REFUSED,
    "disk full": ExitCode.FAILED,
    "node killed": ExitCode.FAILED,
    "actuator killed": ExitCode.FAILED,
    "actuator hangs": ExitCode.FAILED,
    "actuator told to stop": ExitCode.HELD,
    "stop service": ExitCode.HELD,
    "trip service": ExitCode.TRIPPED,
    "deactivated": ExitCode.HELD,
    **dict.fromkeys(SIGNALS, ExitCode.HELD),
}
OVERRIDES = {
    "finished": ["duration=0.5"],
    "limit": ["duration=6", "axes.story_1.limits.stroke=5e-6"],
    "monitor": ["duration=6", "monitor.tracking_indicator_rate=1e-12"],
    "node killed": [LONG, "port.longest_wait=1"],
}
FAULTS = {"node killed": ["kill@0.2:compensator"], "actuator killed": ["kill@0.2:actuator"]}
FILE_SIZES = {"refused": 8_000, "disk full": 200_000}
"""Limit of the file size, bytes: too small for the beginning of a recording, and for a whole recording."""
SERVICES = {
    "stop service": ("stop", "std_srvs/srv/Trigger"),
    "trip service": ("trip", "std_srvs/srv/Trigger"),
    "deactivated": ("change_state", "lifecycle_msgs/srv/ChangeState"),
}
OF_PROCESSES = {"actuator hangs": signal.SIGSTOP, "actuator told to stop": signal.SIGTERM}
"""Signals to the process of the actuator node."""


@contextmanager
def largest_file(size: int | None) -> Iterator[None]:
    """Limit the files of this process and its children to ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:  # Python 3.11 keeps a compiled module that was cut off
        with patch.object(sys, "dont_write_bytecode", True), patch.dict(os.environ, PYTHONDONTWRITEBYTECODE="1"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def called(way: str) -> Iterator[Callable[[], None]]:
    """Yield a function that calls the service of ``way`` once, in a thread."""
    import rclpy
    from lifecycle_msgs.srv import ChangeState
    from rclpy.context import Context
    from rclpy.node import Node
    from std_srvs.srv import Trigger

    name, kind = SERVICES[way]
    context = Context()
    rclpy.init(context=context)
    node = Node("operator", context=context)
    if kind.endswith("Trigger"):
        client, request = node.create_client(Trigger, f"/rths/actuator/{name}"), Trigger.Request()
    else:
        client, request = node.create_client(ChangeState, f"/rths/actuator/{name}"), ChangeState.Request()
        request.transition.id = 4  # deactivate

    def call() -> None:
        if client.wait_for_service(timeout_sec=60.0):
            client.call_async(request)  # its answer may be lost: the client is newly discovered

    caller = threading.Thread(target=call)
    try:
        yield caller.start
    finally:
        caller.join(timeout=60.0)
        node.destroy_node()
        rclpy.shutdown(context=context)
