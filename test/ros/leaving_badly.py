# SPDX-License-Identifier: Apache-2.0
"""Nodes in a process whose end something keeps up: as the middleware does, or a package of the user's.

    RTHS_TEST_END=spin python leaving_badly.py rig --ros-args ...

What the end of the interpreter would wait for, or run into: a thread that nobody ends (``thread``), a function for
that end which never returns (``spin``) or holds the lock of the interpreter (``hang``), a node that cannot be
destroyed (``node``), a middleware that cannot be shut down (``middleware``).
"""

import atexit
import ctypes
import os
import sys
import threading

from rths_nodes.app.node import node_main


def spin(*_: object) -> None:
    while True:
        pass


def in_library(*_: object, **__: object) -> None:
    ctypes.PyDLL(None).pause()


def start_thread() -> None:
    threading.Thread(target=spin).start()


def keep_node() -> None:
    from rths_nodes.ros.nodes.base import RthsNode

    RthsNode.destroy_node = in_library


def keep_middleware() -> None:
    import rclpy

    rclpy.shutdown = in_library


WAYS = {
    "thread": start_thread,
    "spin": lambda: atexit.register(spin),
    "hang": lambda: atexit.register(in_library),
    "node": keep_node,
    "middleware": keep_middleware,
}
WAYS[os.environ["RTHS_TEST_END"]]()
node_main(sys.argv[1], sys.argv[2:])
