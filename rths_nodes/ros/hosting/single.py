"""One node in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from rclpy.executors import ExternalShutdownException
from rclpy.utilities import remove_ros_args

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.realtime import real_time, share_processors
from rths_nodes.ros import names
from rths_nodes.ros.hosting.composed import make_node, ros_context
from rths_nodes.ros.hosting.descriptions import QUIET_S, TELLS, die_with_parent
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.hosting.exit_guard import exits_within
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.findings import dropped
from rths_nodes.ros.nodes.recorder import OpenWriter, RecorderNode

LEAVING_S = 5.0
"""A node that has not left by then, hangs."""


def run(role: str, arguments: Sequence[str], open_writer: OpenWriter) -> int:
    """Run the node ``role`` with ROS ``arguments`` until the test is over; its exit code."""
    try:
        _check(role, arguments)
        return _stay(role, arguments, open_writer)
    except ConfigError as error:
        print(f"rths: {error}", file=sys.stderr)
        return 2


def _check(role: str, arguments: Sequence[str]) -> None:
    try:
        unknown = remove_ros_args(list(arguments))
    except RuntimeError as error:
        raise ConfigError(f"{role}: ROS arguments that are not understood: {error}") from error
    if role not in names.ROLES or unknown:
        raise ConfigError(f"usage: {role} --ros-args ...; nodes: {', '.join(names.ROLES)}")


def _stay(role: str, arguments: Sequence[str], open_writer: OpenWriter) -> int:
    nodes: list[RthsNode] = []
    stop: list[int] = []

    def handle(number: int, _: Any) -> None:
        stop.append(number)
        for node in nodes:
            node.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    die_with_parent()
    with ExitStack() as leaving, ros_context(arguments) as context:
        node = make_node(role, open_writer, context)
        node.own_process = True
        nodes.append(node)
        if stop:
            node.interrupt()
        code = 1
        try:
            code = _run(node, context)
        except (KeyboardInterrupt, ExternalShutdownException):
            code = 0
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # a late one must not spoil the exit code
                signal.signal(number, signal.SIG_IGN)
            leaving.enter_context(exits_within(LEAVING_S, code))
            time.sleep(QUIET_S)
            node.destroy_node()
            time.sleep(QUIET_S)
    return code


def _run(node: RthsNode, context: Any) -> int:
    with ExitStack() as stack:

        def prepare() -> None:
            """Once, however often the node is configured."""
            node.prepare = lambda: None
            _prepare(node, stack)

        node.prepare = prepare
        if node.autostart:
            node.try_to_start()
        LoopExecutor([node], context).run()
    if isinstance(node, RecorderNode):
        node.safely(node.close)
    node.flush_publishers()
    _tell(node)
    return node.exit_code


def _tell(node: RthsNode) -> None:
    """What the user should know. Our runner itself tells of trips and gaps; launch and ros2 run have only us."""
    told = TELLS in os.environ
    if node.problem and (node.exit_code in (1, 2) or (node.exit_code == 3 and not told)):
        print(f"rths: {node.identity}: {node.problem}", file=sys.stderr)
    for note in filter(None, (node.note, dropped(node.summary))):
        if not told:
            print(f"rths: {node.identity}: {note}", file=sys.stderr)


def _prepare(node: RthsNode, stack: ExitStack) -> None:
    """Real-time scheduling of the loop's processes, until ``stack`` is unwound.

    Not before the endpoints are matched: the middleware's discovery waits actively for locks that processes share,
    and under real-time scheduling that can be for ever.
    """
    if node.lockstep:
        return
    in_loop = node.role in (*names.LOOP, names.AXIS)
    if node.role != names.AXIS:  # the axes work at the same time, the others one after another
        stack.enter_context(share_processors(in_loop))
    for words in stack.enter_context(real_time(in_loop)):
        node.get_logger().info(words)
