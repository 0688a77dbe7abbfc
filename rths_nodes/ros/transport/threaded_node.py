# SPDX-License-Identifier: Apache-2.0
"""Node that belongs to no run and is spun by its own threads."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, ExternalShutdownException, MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter

from rths_nodes.loop.options import checked_namespace
from rths_nodes.ros.transport import middleware


class ThreadedNode:
    """Runs the node ``name`` in a private context. ``threads`` threads spin the node from start to close.

    The node has none of the default services of rclpy. Raises ConfigError if ROS 2 does not start.
    """

    def __init__(self, name: str, namespace: str, threads: int) -> None:
        if namespace:
            checked_namespace(namespace)
        with ExitStack() as stack:
            self._context = stack.enter_context(middleware.ros_context())
            with middleware.in_words():
                self._node: Node = Node(
                    name,
                    namespace=namespace,
                    context=self._context,
                    use_global_arguments=False,
                    enable_rosout=False,
                    start_parameter_services=False,
                    parameter_overrides=[Parameter("start_type_description_service", value=False)],
                )
            stack.callback(self._node.destroy_node)
            self._owned = stack.pop_all()
            """Parts to close with the node, the last one first."""
        self._executor: Executor = (  # with one thread, a multi-threaded executor warns
            SingleThreadedExecutor(context=self._context)
            if threads == 1
            else MultiThreadedExecutor(threads, context=self._context)
        )
        self._executor.add_node(self._node)
        self._leaving = threading.Event()
        self._spinning = threading.Thread(target=self._spin, name=f"{name} node", daemon=True)

    def start(self) -> None:
        self._spinning.start()

    def close(self) -> None:
        if not self._context.ok():
            return
        self._leaving.set()
        self._executor.shutdown()
        if self._spinning.is_alive():
            self._spinning.join()
        self._owned.close()

    def _take_turn(self) -> None:
        self._executor.spin()

    def _spin(self) -> None:
        while self._context.ok() and not self._leaving.is_set():
            try:
                self._take_turn()
            except ExternalShutdownException:
                return
            except InvalidHandle:  # a subscription was destroyed while the executor used it
                continue
            except Exception as error:
                self._node.get_logger().warning(f"a message was dropped ({type(error).__name__}: {error})")
