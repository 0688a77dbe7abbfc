"""The composed host: all nodes in one process; who else listens to their topics hears the same."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.signals import SignalHandlerOptions

from rths_nodes.loop.realtime import real_time, share_processors
from rths_nodes.loop.supervision.states import ENDED
from rths_nodes.ros.hosting.console import Console
from rths_nodes.ros.hosting.descriptions import INDEXING_S, LEAVING_S, QUIET_S, NodeDescription, Processes
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import RECORDER
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.axis import AxisNode
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.compensator import CompensatorNode
from rths_nodes.ros.nodes.integrator import IntegratorNode
from rths_nodes.ros.nodes.monitor import MonitorNode
from rths_nodes.ros.nodes.recorder import OpenWriter, RecorderNode
from rths_nodes.ros.transport import middleware

GRACE_S = 0.6
"""Between the end of a test in which a node has died and that of the others, who wait for its last words."""

KINDS: dict[str, type[RthsNode]] = {
    kind.role: kind for kind in (IntegratorNode, CompensatorNode, ActuatorNode, AxisNode, MonitorNode)
}


def make_node(
    role: str,
    open_writer: OpenWriter,
    context: Any = None,
    values: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> RthsNode:
    """The node ``role`` with the parameter ``values``."""
    if role == RECORDER:
        return RecorderNode(open_writer, context, values, **kwargs)
    return KINDS[role](context, values, **kwargs)


@contextmanager
def ros_context(args: Sequence[str] | None = None) -> Any:
    """A context of its own, without rclpy's signal handlers: they would shut it down under the loop."""
    middleware.settle()
    context = Context()
    rclpy.init(args=list(args or []), context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        yield context
    finally:
        rclpy.shutdown(context=context)


def run(
    descriptions: Sequence[NodeDescription],
    open_writer: OpenWriter,
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    apart: Sequence[str] = (),
) -> Result:
    """Run the nodes to the end of the test; the roles ``apart`` in processes of their own. Raises Refused."""
    with Processes([each for each in descriptions if each.role in apart]) as processes, ros_context() as context:
        nodes: list[RthsNode] = []
        namespace, peers = descriptions[0].namespace, tuple(each.peer for each in descriptions)
        console = Console(context, namespace, peers) if processes.running else None

        def look_beside(rig: ActuatorNode) -> None:
            if console:
                console.listen()
            for process in processes.dead():
                rig.trip(process.death)

        try:
            for each in descriptions:
                if each.role not in apart:
                    arguments = ["--ros-args", "-r", f"__ns:=/{each.namespace}"]
                    nodes.append(make_node(each.role, open_writer, context, each.parameters, cli_args=arguments))
                    nodes[-1].start()
            result = _run(nodes, context, progress, interrupted, look_beside if console else None)
            if console:
                for node in nodes:
                    node.flush_publishers()
                time.sleep(QUIET_S)
        finally:
            for node in nodes:
                node.destroy_node()
        if console:
            _wait_for(processes, console, result)
            console.destroy_node()
    result.judge([each.exit_code for each in nodes] + [each.popen.returncode for each in processes.running])
    return result


def _wait_for(processes: Processes, console: Console, result: Result) -> None:
    """Until the nodes ``apart`` have written all, and left; what they said in the end."""

    def listen() -> None:
        console.listen()
        time.sleep(0.01)

    if result.state not in ENDED:  # who has not found the actuator does not see that it has left
        processes.send(signal.SIGTERM)
    if not processes.wait(INDEXING_S, idle=listen):
        killed = ", ".join(process.role for process in processes.kill())
        processes.wait(LEAVING_S)
        result.notes.append(f"{killed} did not end by itself: rths recover may help")
    console.listen()
    result.add(console.result.numbers)


def _run(
    nodes: list[RthsNode],
    context: Any,
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    look_beside: Callable[[ActuatorNode], None] | None = None,
) -> Result:
    rig = next(node for node in nodes if isinstance(node, ActuatorNode))
    ended_at = 0.0

    def idle() -> None:
        if progress:
            progress(rig.rig.sample)
        if not result.interrupted and interrupted and interrupted():
            rig.interrupt()
            result.interrupted = True
        if look_beside:
            look_beside(rig)
        if rig.ended and any(node.died for node in nodes):
            hurry()

    def hurry() -> None:
        nonlocal ended_at
        ended_at = ended_at or time.monotonic()
        if time.monotonic() - ended_at > GRACE_S:
            for node in nodes:
                node.interrupt()

    result = Result()
    executor = LoopExecutor(nodes, context, idle)
    with ExitStack() as stack:

        def prepare() -> None:
            """Once, however often the rig is configured."""
            rig.prepare = lambda: None
            if look_beside and not rig.lockstep:
                stack.enter_context(share_processors(True))
            result.notes += stack.enter_context(real_time(not rig.lockstep))

        if look_beside:  # not before other processes are found, see single.py
            rig.prepare = prepare
        else:
            prepare()
        executor.run()
    machine = rig.rig.machine
    result.state, result.reason, result.sample = machine.state, machine.reason, rig.rig.sample
    for node in nodes:
        if isinstance(node, RecorderNode):
            node.safely(node.close)
        result.add(node.summary)
        if node.died:
            result.reason = "; ".join(filter(None, (node.problem, result.reason)))
        result.reason = result.reason or node.problem
    return result
