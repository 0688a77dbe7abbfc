# SPDX-License-Identifier: Apache-2.0
"""Host ``composed``: all nodes in one process. Subscribers in other processes receive the same messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from rclpy.context import Context
from rclpy.logging import LoggingSeverity, set_logger_level

from rths_nodes.core.durations import SECOND
from rths_nodes.core.protocols import Port
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.realtime import real_time, share_processors
from rths_nodes.loop.stages.recorded import RecordedPort, RecordedTargets
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.hosting.fault_injection import interpose
from rths_nodes.ros.hosting.node_processes import QUIET_S, NodeDescription, Processes, starting_words
from rths_nodes.ros.hosting.processes import GRACE_S, Console, Result, exit_codes
from rths_nodes.ros.names import ACTUATOR, RECORDER, logger_of
from rths_nodes.ros.nodes.actuator import ActuatorNode, AxisNode
from rths_nodes.ros.nodes.base import Host, OpenWriter, RthsNode
from rths_nodes.ros.nodes.followed import FollowedPort, FollowedRig
from rths_nodes.ros.nodes.monitor import MonitorNode
from rths_nodes.ros.nodes.numerical import CompensatorNode, IntegratorNode
from rths_nodes.ros.nodes.participation import Phase
from rths_nodes.ros.nodes.recorder import RecorderNode
from rths_nodes.ros.transport import middleware
from rths_nodes.ros.transport.middleware import ros_context

KINDS: dict[str, type[RthsNode]] = {
    kind.role: kind for kind in (IntegratorNode, CompensatorNode, ActuatorNode, AxisNode, MonitorNode)
}


def make_node(
    role: str,
    open_writer: OpenWriter,
    context: Context | None = None,
    values: Mapping[str, object] | None = None,
    cli_args: Sequence[str] | None = None,
    **hosted: Any,
) -> RthsNode:
    host = Host(**{"interpose": interpose} | hosted)
    with middleware.in_words():
        if role == RECORDER:
            return RecorderNode(open_writer, host=host, context=context, values=values, cli_args=cli_args)
        return KINDS[role](host, context, values, cli_args=cli_args)


def in_namespace(namespace: str) -> list[str]:
    return ["--ros-args", "-r", f"__ns:={namespace}"]


def run(
    descriptions: Sequence[NodeDescription],
    open_writer: OpenWriter,
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
    separate: Sequence[str] = (),
    port: Port | None = None,
) -> Result:
    """Run the nodes, ``separate`` roles as processes, to the end of the test. Raises NodeRefused."""
    beside = [description for description in descriptions if description.role in separate]
    with Processes(beside) as processes, ros_context() as context, ExitStack() as leaving:
        console = Console(context, descriptions) if beside else None
        if console:
            leaving.callback(console.destroy_node)
        test = ComposedTest(handed=port)
        set_logger_level(logger_of(descriptions[0].namespace), LoggingSeverity.WARN)  # the runner reports progress

        def watch() -> None:
            rig = test.rig
            if progress:
                progress(rig.last_sample)
            if starting and rig.rig.machine.state is State.IDLE:
                here = {node.location.peer: node.phase.now >= Phase.READY for node in test.nodes}
                absent = {peer: "" for peer, ready in here.items() if not ready}
                missing = console.missing if console else {}
                starting(starting_words(absent | {peer: missing[peer] for peer in missing if peer not in here}))
            if not test.result.interrupted and interrupted and interrupted():
                rig.shutdown.interrupt()
                test.result.interrupted = True
            if console:
                console.listen()
            for died in processes.dead():
                if not rig.phase.gone:
                    refused = died.popen.returncode == ExitCode.REFUSED and rig.rig.machine.state < State.ARMED
                    (rig.refuse if refused else rig.trip)(died.death)

        try:
            for description in descriptions:
                if description not in beside:
                    parameters = description.parameters, in_namespace(f"/{description.namespace}")
                    scenario = description.scenario
                    test.add(description.role, open_writer, context, *parameters, scenario=scenario).start()
            result = test.run(context, watch)
            if console:
                for node in test.nodes:
                    node.flush()
                time.sleep(QUIET_S)
        finally:
            for node in test.nodes:
                node.destroy_node()
        codes = [node.phase.exit_code for node in test.nodes]
        if console:
            codes += exit_codes(processes, console, result, console.wait)
    result.judge(codes)
    return result


class ComposedTest:
    """Runs nodes of a test in one process. ``handed`` is an open port that replaces the scenario's port."""

    def __init__(
        self, nodes: Sequence[RthsNode] = (), clock: Clock = SYSTEM_CLOCK, handed: Port | None = None
    ) -> None:
        self.nodes = list(nodes)
        self._handed = handed
        self.result = Result()
        self._clock = clock
        self._leaving = ExitStack()
        self._prepared = False

    def add(self, role: str, open_writer: OpenWriter, context: Context, *values: Any, **options: Any) -> RthsNode:
        if role == ACTUATOR:
            options |= {"prepare": self._prepare, "handed": self._handed}
        if isinstance(self._handed, FollowedPort):
            options |= {"rig": FollowedRig, "follows": True}
            options |= {"numerical": self._handed.numerical, "commands": self._handed.commands}
        elif isinstance(self._handed, RecordedPort) and (targets := self._handed.targets):
            options |= {"numerical": lambda assembly: RecordedTargets(targets, assembly.scenario.samples_per_step)}
        self.nodes.append(make_node(role, open_writer, context, *values, clock=self._clock, **options))
        return self.nodes[-1]

    @property
    def rig(self) -> ActuatorNode:
        return next(node for node in self.nodes if isinstance(node, ActuatorNode))

    def run(self, context: Context, watch: Callable[[], None] | None = None) -> Result:
        ended_at = 0

        def idle() -> None:
            nonlocal ended_at
            if watch:
                watch()
            if self.rig.phase.ended and any(node.phase.silent for node in self.nodes):
                now = self._clock.monotonic_ns()
                ended_at = ended_at or now
                if now - ended_at > GRACE_S * SECOND:
                    for node in self.nodes:
                        node.shutdown.interrupt()

        with self._leaving:
            LoopExecutor(self.nodes, context, idle, self._clock).run()
        result = self.result
        result.take_state(self.rig)
        for node in self.nodes:
            if isinstance(node, RecorderNode):
                node.safely(node.close)
            result.numbers |= node.shutdown.summary
            if node.phase.silent:
                result.blame(node.phase.problem)
            result.reason = result.reason or node.phase.problem
        return result

    def _prepare(self) -> None:
        """Start real-time scheduling once, after discovery.

        During discovery, threads busy-wait for locks that processes share. With real-time priority they may wait
        forever.
        """
        if self._prepared or self.rig.settings.lockstep:
            return
        self._prepared = True
        if set(self.rig.settings.peers) - {node.identity for node in self.nodes}:
            self._leaving.enter_context(share_processors(True))
        self.result.notes += self._leaving.enter_context(real_time(True))
