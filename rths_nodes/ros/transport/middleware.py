# SPDX-License-Identifier: Apache-2.0
"""Middleware settings, rclpy contexts, and nodes that belong to no run and have their own threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

import rclpy
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, ExternalShutdownException, MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import get_rmw_implementation_identifier

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import prefixes, resource
from rths_nodes.loop.options import checked_namespace
from rths_nodes.ros import environment
from rths_nodes.ros.environment import PEERS, PROFILES, RANGE
from rths_nodes.ros.transport.rclpy_private import RCLError, type_support_loaded

SETTINGS = {
    "libfastrtps.so": (PROFILES[1], ("fast_dds_2.xml", "fast_dds_2_local.xml")),
    "libfastdds.so": (PROFILES[0], ("fast_dds_3.xml", "fast_dds_3_local.xml")),
}
"""Key: library of Fast DDS 2 or 3. Value: environment variable that names a settings file, and two such files. The
second file restricts discovery to this machine."""
FOUND_S = 4.0
"""Time within which local nodes discover each other, s. The middleware announces names again every 3 s."""
OURS_AND_THEIRS = ("ROS_", "RMW_", "RCUTILS_", "RCL_", "FASTDDS_", "FASTRTPS_")


@cache
def unused() -> bool:
    """Return True if this process had no node at the first call. The first node fixes the middleware settings."""
    return not type_support_loaded()


@contextmanager
def ros_context(arguments: Sequence[str] = ()) -> Iterator[Context]:
    """Yield a private context without rclpy's signal handlers, which would end the context while the loop runs.

    Raises ConfigError if the settings are invalid (:func:`settle`), or if ROS 2 does not start.
    """
    settle()
    context = Context()
    with in_words():
        rclpy.init(args=list(arguments), context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        yield context
    finally:
        rclpy.shutdown(context=context)


@contextmanager
def in_words() -> Iterator[None]:
    """Convert ROS 2 errors to ConfigErrors that list the environment variables in use."""
    try:
        yield
    except RCLError as error:
        settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(OURS_AND_THEIRS)]
        reason = " ".join(str(error).split())
        raise ConfigError(f"ROS 2 does not start ({reason}). Environment: {', '.join(settings)}") from error


def settle() -> None:
    """Configure the middleware: by default local discovery, no shared memory, and quick repair of lost messages.

    The user's settings are kept. Only the discovery range can change in a process with earlier nodes. Raises
    ConfigError for settings that ROS 2 would misread, and for hosts outside the discovery range.
    """
    environment.check()
    wanted = os.environ[RANGE] = os.environ.get(RANGE) or "LOCALHOST"
    if not unused() or "fastrtps" not in get_rmw_implementation_identifier():
        return
    for library, (variable, names) in SETTINGS.items():
        if any((prefix / "lib" / library).exists() for prefix in prefixes()):
            wide, local = ours = [str(resource("config", "middleware", name)) for name in names]
            value = os.environ.get(variable)
            if value and value not in ours:
                return
            if wanted == "LOCALHOST":
                peers = os.environ.get(PEERS, "")
                if {*peers.split(";")} - {"", "localhost", "127.0.0.1"}:
                    raise ConfigError(
                        f"{PEERS}: {peers!r} names other machines, but discovery is restricted to this machine; "
                        f"set {RANGE}=SUBNET, or unset {PEERS}"
                    )
                # LOCALHOST would add the shared-memory transport
                os.environ |= {variable: local, RANGE: "SYSTEM_DEFAULT"}
            elif not (value and wanted == "SYSTEM_DEFAULT"):  # otherwise the parent process has set the variable
                os.environ[variable] = wide
            return


def check_reaches_others() -> None:
    wanted = os.environ.get(RANGE) or "LOCALHOST"
    if wanted in ("LOCALHOST", "OFF"):
        raise ConfigError(
            f"{RANGE}: {wanted!r} restricts discovery to this machine, but other machines run nodes of the test; "
            f"set {RANGE}=SUBNET on all machines"
        )


class ThreadedNode:
    """Runs the node ``name`` in a private context. ``threads`` is the number of threads that spin it.

    The node has none of the default services of rclpy. Raises ConfigError if ROS 2 does not start.
    """

    def __init__(self, name: str, namespace: str, threads: int) -> None:
        if namespace:
            checked_namespace(namespace)
        with ExitStack() as stack:
            self._context = stack.enter_context(ros_context())
            with in_words():
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
        self._executor: Executor = (  # a multi-threaded executor logs a warning for one thread
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
