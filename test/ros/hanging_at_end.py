# SPDX-License-Identifier: Apache-2.0
"""Nodes in a process that hangs at its end, as the environment variable RTHS_TEST_END says.

    RTHS_TEST_END=spin python hanging_at_end.py rig --ros-args ...

While the interpreter exits: a thread that never ends (``thread``), an exit function that never returns (``spin``)
or holds the interpreter's lock (``hang``), a node that cannot be destroyed (``node``), a middleware that cannot be
shut down (``middleware``).

A recorder when it reports that it has all messages (``tell``), or while it indexes its file (``close``): it holds
the interpreter's lock as a library may (``hang``), is suspended (``stop``), or computes for 4 s (``work``), as in
``RTHS_TEST_END="tell hang"``.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time

from rths_nodes.app.node import node_main


def spin(*_: object) -> None:
    while True:
        pass


def hold_lock(*_: object, **__: object) -> None:
    ctypes.PyDLL(None).pause()


def keep_node() -> None:
    from rths_nodes.ros.nodes.base import RthsNode

    RthsNode.destroy_node = hold_lock


def keep_middleware() -> None:
    import rclpy

    rclpy.shutdown = hold_lock


def compute() -> None:
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        pass


def keep_recorder(method: str, action: str) -> None:
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.nodes.recorder import RecorderNode

    real = getattr(RecorderNode, method)

    def end(node, *arguments):
        if node.phase.ended:
            {"hang": hold_lock, "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP), "work": compute}[action]()
        return real(node, *arguments)

    setattr(RecorderNode, method, end)
    composed.TURN_S = 7.0  # longer than the actuator node waits for the recorder


ENDS = {
    "thread": lambda: threading.Thread(target=spin).start(),
    "spin": lambda: atexit.register(spin),
    "hang": lambda: atexit.register(hold_lock),
    "node": keep_node,
    "middleware": keep_middleware,
    "tell": lambda action: keep_recorder("_publish_done", action),
    "close": lambda action: keep_recorder("close", action),
}
end, *action = os.environ["RTHS_TEST_END"].split()
ENDS[end](*action)
node_main(sys.argv[1], sys.argv[2:])
