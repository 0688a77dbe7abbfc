# SPDX-License-Identifier: Apache-2.0
"""Run nodes in this process. Used by the host ``composed``, and by ``ros2 run``, launch and the runner.

In the host ``composed``, all nodes share the process of the runner (:func:`run`). Subscribers in other processes
receive the same messages. :func:`run_process` runs one or several nodes in a separate process:

    ros2 run rths_nodes recorder --ros-args --params-file test.yaml
    ros2 run rths_nodes rig --ros-args --params-file test.yaml
    ros2 run rths_nodes rig integrator compensator actuator monitor --ros-args -p scenario:=chen_ricles_2010 ...

Parameter files (``/**/recorder:`` for one node), ``-p node:name:=value``, ``-r node:from:=to`` and ``-r
__ns:=/lab`` apply to each node of a rig; ``-r __node:=x`` would rename all nodes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NoReturn

from rclpy.context import Context
from rclpy.executors import ExternalShutdownException
from rclpy.logging import LoggingSeverity, set_logger_level
from rclpy.utilities import remove_ros_args

from rths_nodes.core.child_program import end_with
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.protocols import Port
from rths_nodes.loop.interrupts import TELLS, handle_stop_signals
from rths_nodes.loop.outcomes import IN_ORDER, ExitCode, LastWords, report_to_launch
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.realtime import real_time, share_processors
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.recorded import RecordedPort, RecordedTargets
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.hosting.exit_guard import LEAVING_S, ExitGuard, leave
from rths_nodes.ros.hosting.fault_injection import interpose
from rths_nodes.ros.hosting.node_processes import QUIET_S, NodeDescription, Processes
from rths_nodes.ros.hosting.processes import GRACE_S, Console, Result, dropped_messages, exit_codes
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
        if role == names.RECORDER:
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
    """Run a test and return its result. Each node whose role is in ``separate`` runs in its own process.

    The test stops once ``interrupted()`` returns true. ``port`` replaces the port of the scenario. Raises
    ConfigError if a node cannot be configured.
    """
    beside = [description for description in descriptions if description.role in separate]
    with Processes(beside) as processes, ros_context() as context, ExitStack() as leaving:
        console = Console(context, descriptions) if beside else None
        if console:
            leaving.callback(console.destroy_node)
        test = ComposedTest(handed=port)
        # log only warnings, because the runner reports progress
        set_logger_level(names.logger_of(descriptions[0].namespace), LoggingSeverity.WARN)

        def watch() -> None:
            rig = test.rig
            if progress:
                progress(rig.last_sample)
            if starting and rig.rig.machine.state is State.IDLE:
                here = {node.identity: node.phase.now >= Phase.READY for node in test.nodes}
                missing = {peer: "" for peer, ready in here.items() if not ready}
                elsewhere = console.missing.items() if console else ()
                missing |= {peer: problem for peer, problem in elsewhere if peer not in here}
                starting(node_processes.starting_words(missing))
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
    """Runs the nodes of a test in one process. ``handed`` is an open port that replaces the scenario's port."""

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
        if role == names.ACTUATOR:
            options |= {"prepare": self._prepare, "handed": self._handed}
        if isinstance(self._handed, FollowedPort):
            options |= {"rig": FollowedRig, "follows": True}
            options |= {"numerical": self._handed.numerical, "commands": self._handed.commands}
        elif isinstance(self._handed, RecordedPort) and (targets := self._handed.targets):

            def recorded(assembly: Assembly) -> RecordedTargets:
                return RecordedTargets(deque(targets), assembly.scenario.samples_per_step)

            options["numerical"] = recorded
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
            self._refuse_without_peer()
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

    def _refuse_without_peer(self) -> None:
        rig = self.rig
        if rig.rig is None or rig.phase.gone or rig.rig.machine.state >= State.ARMED:
            return
        for phase in (node.phase for node in self.nodes):
            if phase.gone and phase.exit_code not in IN_ORDER:
                rig.refuse(phase.problem or "another actuator node in this namespace has refused its test")
                return

    def make(
        self, peers: Sequence[str], arguments: Sequence[str], open_writer: OpenWriter, context: Context
    ) -> None:
        """Add the nodes ``peers``. The ROS ``arguments`` contain their parameters (``node:name:=value``)."""
        parameters = [word for flag, word in pairwise(arguments) if flag in ("-p", "--param")]
        for role in (peer for peer in peers if not names.axis_of(peer)):
            overrides = [word.removeprefix(f"{role}:") for word in parameters if word.startswith(f"{role}:")]
            cli_args = ["--ros-args", *(part for word in overrides for part in ("-p", word))]
            self.add(role, open_writer, context, cli_args=cli_args)
        for axis in filter(None, map(names.axis_of, peers)):
            self.add(names.AXIS, open_writer, context, cli_args=in_namespace(f"{self.rig.location.rig}/{axis}"))

    def main(self, context: Context) -> int:
        """Run the nodes and return the exit code of this process."""
        for node in self.nodes:
            start_if_wanted(node)
            if node.phase.gone:
                problem = f"{node.identity}: {node.phase.problem}"
                code, left = _report((), node.phase.exit_code, problem, None, {})
                print_problems(node, left)
                return code
        result = self.run(context)
        result.interrupted = self.rig.shutdown.interrupted
        result.judge([node.phase.exit_code for node in self.nodes])
        code, left = _report(self.nodes, result.exit_code, result.reason, result, result.numbers)
        if not left:
            print(f"rths: {result.ending}", flush=True)
        for note in result.notes:
            print(f"rths: {note}", file=sys.stderr)
        return code

    def _prepare(self) -> None:
        """Start real-time scheduling once, after discovery.

        During discovery, threads busy-wait for shared locks. At real-time priority, the wait may never end.
        """
        if self._prepared or self.rig.settings.lockstep:
            return
        self._prepared = True
        if set(self.rig.settings.peers) - {node.identity for node in self.nodes}:
            self._leaving.enter_context(share_processors(True))
        self.result.notes += self._leaving.enter_context(real_time(True))


TOLD_S = 5.0
"""Time after its Summary at which a hanging actuator node is terminated, s."""
TURN_S = 30.0
"""Time after the end of the test at which a hanging node is terminated, s. Long enough for a slow disk."""
FLUSHED_S = 10.0
"""Timeout for a node to deliver its last messages, or to detect that its peers have left, s."""


def run_process(role: str, arguments: Sequence[str], open_writer: OpenWriter) -> NoReturn:
    """Run the node ``role``, or for role ``rig`` the nodes in ``arguments``, then exit with an ExitCode."""
    hosted: HostedNode | ComposedTest = ComposedTest() if role == names.RIG else HostedNode()
    asked: list[int] = []

    def interrupt(number: int) -> None:
        asked.append(number)
        for node in hosted.nodes:
            node.shutdown.interrupt()

    handle_stop_signals(interrupt)
    try:
        peers = _peers(role, arguments)
    except ConfigError as error:
        leave(node_processes.refused(error))
    if parent := os.environ.get(node_processes.PARENT):
        end_with(int(parent), signal.SIGTERM)
    ros = ExitStack()
    code: int = ExitCode.FAILED
    try:
        context = ros.enter_context(ros_context(arguments))
        hosted.make(peers, arguments, open_writer, context)
        if asked:
            interrupt(asked[0])
        code = hosted.main(context)
    except ConfigError as error:
        code = node_processes.refused(error)
    except ExternalShutdownException:
        print("rths: ROS 2 was shut down in this process during the test", file=sys.stderr)
    except Exception as error:  # unexpected error; the other nodes must still be informed
        reason = f"{type(error).__name__}: {error}"
        print(f"rths: {reason}", file=sys.stderr)
        node_processes.report_to_runner(reason)

    def close() -> None:
        with ros:
            time.sleep(QUIET_S)
            for node in hosted.nodes:
                node.destroy_node()
            time.sleep(QUIET_S)

    leave(code, close)


def _peers(role: str, arguments: Sequence[str]) -> Sequence[str]:
    """Return the nodes that this process runs. Raises ConfigError for invalid ``arguments``."""
    try:
        arguments_left = list(remove_ros_args(list(arguments)))
    except RuntimeError as error:
        raise ConfigError(f"{role}: invalid ROS arguments: {error}") from error
    if role != names.RIG:
        if arguments_left or role not in names.ROLES:
            raise ConfigError(f"usage: {role} --ros-args ...; nodes: {', '.join(names.ROLES)}")
        return [role]
    peers = arguments_left or names.NODES
    for peer in peers:
        if peer not in names.NODES and not names.axis_of(peer):
            raise unknown(names.RIG, "node", peer, (*names.NODES, names.axis_node("AXIS")))
    if names.ACTUATOR not in peers:
        raise ConfigError(f"{names.RIG}: must include the actuator node, which leads the test")
    return peers


class HostedNode:
    def __init__(self) -> None:
        self._leaving = ExitStack()
        self._guard = ExitGuard()
        self._prepared = False
        self.nodes: list[RthsNode] = []

    def make(
        self, peers: Sequence[str], arguments: Sequence[str], open_writer: OpenWriter, context: Context
    ) -> None:
        (role,) = peers
        called: dict[str, Any] = {"prepare": self._prepare, "on_ended": self._watch}
        self.nodes.append(make_node(role, open_writer, context, own_process=True, **called))

    def main(self, context: Context) -> int:
        """Run the node. Return 0 if launch has the report, otherwise the exit code of the test or of the node."""
        (node,) = self.nodes
        with self._leaving:
            self._leaving.callback(self._guard.disarm)
            start_if_wanted(node)
            LoopExecutor([node], context, self._watch).run()
        if isinstance(node, RecorderNode):
            node.safely(node.close)
        code, test = node.phase.exit_code, _of_test(node)
        speaks = test is not None and (isinstance(node, ActuatorNode) or node.settings.speaks_here)
        code = test.exit_code if test is not None and speaks else code
        code, left = _report(self.nodes, code, node.phase.problem, test, node.shutdown.summary)
        print_problems(node, left)
        if test is not None and speaks and not left and TELLS not in os.environ:
            print(f"rths: {test.ending}", flush=True)
        return code

    def _watch(self) -> None:
        (node,) = self.nodes
        phase = node.phase
        if phase.now >= Phase.REPORTED and node.role != names.RECORDER:  # everything is reported: exit quickly
            self._guard.arm(TOLD_S if isinstance(node, ActuatorNode) else LEAVING_S, phase.exit_code)
        elif phase.ended or node.shutdown.leader_lost:  # a Summary or the end of a recording is missing
            self._guard.arm(TURN_S, phase.exit_code or ExitCode.FAILED)
        else:
            self._guard.disarm()

    def _prepare(self) -> None:
        (node,) = self.nodes
        if self._prepared or node.settings.lockstep:
            return
        self._prepared = True
        in_loop = node.role in (*names.LOOP, names.AXIS)
        if node.role != names.AXIS:  # axis nodes work in parallel, other nodes in sequence
            self._leaving.enter_context(share_processors(node.role in (names.COMPENSATOR, names.ACTUATOR)))
        for warning in self._leaving.enter_context(real_time(in_loop)):
            node.get_logger().info(warning)


def _report(
    nodes: Sequence[RthsNode], code: int, problem: str, test: Result | None, numbers: Mapping[str, float]
) -> tuple[int, bool]:
    indices = {name: value for name, value in numbers.items() if name.startswith("metrics.")}
    outcome = (test.exit_code, test.ending, indices, test.counted) if test else (None, "", indices)
    left = report_to_launch(LastWords(code, problem, *outcome))
    code = ExitCode.FINISHED if left else code
    guard = ExitGuard()
    guard.arm(FLUSHED_S, code)  # the report is written, so nothing is lost if the middleware hangs
    try:
        for node in nodes:
            node.flush()
    finally:
        guard.disarm()
    return code, left


def _of_test(node: RthsNode) -> Result | None:
    phase, test = node.phase, node.phase.test
    if isinstance(node, ActuatorNode):
        if node.rig is None and not node.shutdown.interrupted:
            return None
        # an incomplete test without an error was stopped by the operator
        result = Result(interrupted=phase.exit_code == ExitCode.FINISHED)
        result.take_state(node)
    elif phase.begun:
        result = Result(test.state, test.reason, max(test.sample, 0), node.late)
        result.judged = not {names.ACTUATOR, names.MONITOR}.isdisjoint(node.settings.here or names.NODES)
        result.counted = f"{node.late.bridged} samples bridged" if node.late.bridged else ""
    else:
        return None
    code, why = node.judged or (ExitCode.FINISHED, phase.problem)
    result.judge([phase.exit_code, code])
    result.reason = why or result.reason
    return result


def start_if_wanted(node: RthsNode) -> None:
    if node.settings.value("autostart"):
        try:
            node.start()
        except (ConfigError, KeyboardInterrupt):
            node.phase.to(Phase.GONE)


def print_problems(node: RthsNode, left: bool = False) -> None:
    reported = TELLS in os.environ
    code, problem = node.phase.exit_code, node.phase.problem
    if code not in IN_ORDER:
        node_processes.report_to_runner(problem)
    failed = code in (ExitCode.FAILED, ExitCode.REFUSED)
    if problem and not left and (failed or (code == ExitCode.TRIPPED and not reported)):
        print(f"rths: {node.identity}: {problem}", file=sys.stderr)
    if reported:
        return
    for note in filter(None, (node.phase.note, dropped_messages(node.shutdown.summary))):
        print(f"rths: {node.identity}: {note}", file=sys.stderr)
