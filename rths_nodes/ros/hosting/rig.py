"""The nodes of a test in one process, as ``ros2 run rths_nodes rig`` and launch with ``composed:=true`` start it.

    ros2 run rths_nodes rig --ros-args --params-file test.yaml
    ros2 run rths_nodes rig integrator compensator actuator monitor --ros-args -p scenario:=chen_ricles_2010 ...

rclpy has no component container. Parameter files (of one node: ``/**/recorder:``), ``-p node:name:=value``,
``-r node:from:=to`` and ``-r __ns:=/lab`` reach each node as if it had a process of its own; ``-r __node:=x``
would name all of them x.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.loop.last_words import tell_launch
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import names
from rths_nodes.ros.hosting.composed import ComposedTest, in_namespace
from rths_nodes.ros.hosting.exit_guard import exits_within, leave
from rths_nodes.ros.hosting.node_processes import refused
from rths_nodes.ros.hosting.results import last_words
from rths_nodes.ros.hosting.single import FLUSHED_S, plain_words, start_if_wanted, stay, tell
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.writers import OpenWriter


def run(arguments: Sequence[str], open_writer: OpenWriter) -> NoReturn:
    """Run the nodes that ``arguments`` name beside those for ROS, by default all of a test.

    The process ends with the exit code of the test.
    """
    try:
        peers = plain_words(names.RIG, arguments) or list(names.NODES)
        for peer in peers:
            if peer not in names.NODES and not names.axis_of(peer):
                raise unknown(names.RIG, "node", peer, (*names.NODES, names.axis_node("AXIS")))
        if names.ACTUATOR not in peers:
            raise ConfigError(f"{names.RIG}: must have the actuator node, which leads the test")
    except ConfigError as error:
        leave(refused(error))
    stay(HostedTest(peers, arguments), arguments, open_writer)


class HostedTest:
    """The nodes ``peers`` of a test, together in this process, which has the ROS ``arguments``."""

    def __init__(self, peers: Sequence[str], arguments: Sequence[str]) -> None:
        self._peers = peers
        self._arguments = arguments
        self._test = ComposedTest()

    @property
    def nodes(self) -> list[RthsNode]:
        """The nodes that have been made."""
        return self._test.nodes

    def make(self, open_writer: OpenWriter, context: Any) -> None:
        """Make the nodes, with the parameters of the process; those of axes below the namespace of the others."""
        for role in (peer for peer in self._peers if not names.axis_of(peer)):
            self._test.add(role, open_writer, context, cli_args=self._parameters_of(role))
        for axis in filter(None, map(names.axis_of, self._peers)):
            arguments = in_namespace(f"{self._test.rig.place.rig}/{axis}")
            self._test.add(names.AXIS, open_writer, context, cli_args=arguments)

    def _parameters_of(self, role: str) -> list[str]:
        """Those that are given as ``-p role:name:=value``: ROS finds them in the root namespace only."""
        pairs = zip(self._arguments, self._arguments[1:], strict=False)
        words = [word for flag, word in pairs if flag in ("-p", "--param") and word.startswith(f"{role}:")]
        own = [part for word in words for part in ("-p", word.removeprefix(f"{role}:"))]
        return ["--ros-args", *own] if own else []

    def run(self, context: Any) -> int:
        """Until every node is done; the exit code of the test, which is told in one line.

        It is 0 where the last words are left for launch.
        """
        for node in self.nodes:
            start_if_wanted(node)
            if node.phase.gone:
                code, problem = node.phase.exit_code, f"{node.identity}: {node.phase.problem}"
                left = tell_launch(last_words(code, problem, None, {}))
                tell(node, left)
                return ExitCode.FINISHED if left else code
        result = self._test.run(context)
        result.interrupted = self._test.rig.shutdown.interrupted
        result.judge([node.phase.exit_code for node in self.nodes])
        left = tell_launch(last_words(result.exit_code, result.reason, result, result.numbers))
        code = ExitCode.FINISHED if left else result.exit_code
        with exits_within(FLUSHED_S, code):
            for node in self.nodes:
                node.flush()
        if not left:
            print(f"rths: {result.ending}", flush=True)
        for note in result.notes:
            print(f"rths: {note}", file=sys.stderr)
        return code
