"""The composed host: all nodes in one process, over real topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.signals import SignalHandlerOptions

from rths_nodes.ros.actuator_node import ActuatorNode
from rths_nodes.ros.compensator_node import CompensatorNode
from rths_nodes.ros.integrator_node import IntegratorNode
from rths_nodes.ros.loop_executor import LoopExecutor
from rths_nodes.ros.monitor_node import MonitorNode
from rths_nodes.ros.names import RECORDER
from rths_nodes.ros.pacing import real_time
from rths_nodes.ros.recorder_node import OpenWriter, RecorderNode
from rths_nodes.ros.results import Result
from rths_nodes.ros.shell import Refused, Shell

KINDS: dict[str, type[Shell]] = {
    kind.role: kind for kind in (IntegratorNode, CompensatorNode, ActuatorNode, MonitorNode)
}


def make_node(role: str, open_writer: OpenWriter, context: Any = None, values: Mapping[str, Any] | None = None) -> Shell:
    """The node ``role``."""
    if role == RECORDER:
        return RecorderNode(open_writer, context, values)
    return KINDS[role](context, values)


@contextmanager
def ros_context(args: Sequence[str] | None = None) -> Any:
    """A context of its own, without rclpy's signal handlers: they would shut it down under the loop."""
    context = Context()
    rclpy.init(args=list(args or []), context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        yield context
    finally:
        rclpy.shutdown(context=context)


def run(
    roles: Sequence[str],
    values: Mapping[str, Any],
    open_writer: OpenWriter,
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Result:
    """Run the nodes ``roles`` with the parameters ``values`` to the end of the test. Raises Refused."""
    with ros_context() as context:
        nodes: list[Shell] = []
        try:
            for role in roles:
                own = {name: value for name, value in values.items() if name not in ("record", "host")}
                nodes.append(make_node(role, open_writer, context, dict(values) if role == RECORDER else own))
                nodes[-1].start()
            return _run(nodes, context, progress, interrupted)
        finally:
            for node in nodes:
                node.destroy_node()


def _run(
    nodes: list[Shell],
    context: Any,
    progress: Callable[[int], None] | None,
    interrupted: Callable[[], bool] | None,
) -> Result:
    rig = next(node for node in nodes if isinstance(node, ActuatorNode))

    def idle() -> None:
        if progress:
            progress(rig.rig.sample)
        if interrupted and interrupted():
            for node in nodes:
                node.interrupt()

    executor = LoopExecutor(nodes, context, idle)
    with real_time(not rig.lockstep) as refused:
        try:
            executor.run()
        finally:
            executor.close()
    result = Result(rig.rig.machine.state, rig.rig.machine.reason, rig.rig.sample, notes=list(refused))
    for node in nodes:
        result.add(node.summary)
        result.exit_code = max(result.exit_code, 0) or node.exit_code
        if isinstance(node, RecorderNode):
            node.safely(node.close)
            result.exit_code = result.exit_code or node.exit_code
        if node.problem and not result.reason:
            result.reason = node.problem
    return result


__all__ = ["Refused", "make_node", "ros_context", "run"]
