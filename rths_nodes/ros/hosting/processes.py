# SPDX-License-Identifier: Apache-2.0
"""Host ``processes``: each node runs in its own process, monitored by the runner."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from rths_nodes.loop.outcomes import IN_ORDER, ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.composed import ros_context
from rths_nodes.ros.hosting.console import Console
from rths_nodes.ros.hosting.descriptions import NodeDescription, starting_words
from rths_nodes.ros.hosting.node_processes import Process, Processes
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, RECORDER
from rths_nodes.ros.nodes.phase import UNDER_WAY

GRACE_S = 0.6


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
) -> Result:
    """Start the nodes as processes, monitor them until the end of the test, and end all processes.

    Until the test begins, ``starting`` receives a text on missing nodes. Raises ConfigError.
    """
    first = descriptions[0]
    with Processes(descriptions) as processes, ros_context() as context:
        peers = tuple(description.peer for description in descriptions)
        console = Console(context, first.namespace, peers, first.parameters["run_id"])
        try:
            return _Watch(console, processes, progress, interrupted, starting).result()
        finally:
            console.destroy_node()


class _Watch:
    def __init__(
        self,
        console: Console,
        processes: Processes,
        progress: Callable[[int], None] | None,
        interrupted: Callable[[], bool] | None,
        starting: Callable[[str], None] | None,
    ) -> None:
        self._console, self._processes = console, processes
        self._progress, self._interrupted, self._starting = progress, interrupted, starting
        self._asked = False

    def result(self) -> Result:
        console, processes, result = self._console, self._processes, self._console.result
        self._wait_for_the_first()
        died = [process for process in processes.dead() if process.popen.returncode not in IN_ORDER]
        if died:
            self._end_after(died[0])
        elif not result.heard_by_all:
            processes.send(signal.SIGTERM)
        result.notes += processes.see_out(self._idle)
        console.listen()
        # after a death, this runner ends the other nodes: their exit codes do not count
        counted = [
            node_process
            for node_process in processes.counted(console.reported)
            if not (died and node_process.ended_by_us)
        ]
        blamed = died or [
            node_process for node_process in counted if node_process.popen.returncode not in IN_ORDER
        ]
        if blamed:
            result.blame(processes.why(blamed[0]))
        result.judge([process.popen.returncode for process in counted])
        return result

    def _idle(self) -> None:
        self._console.listen()
        if self._progress:
            self._progress(self._console.result.sample)
        if self._starting and self._console.result.state is State.IDLE:
            self._starting(starting_words(self._console.missing))
        time.sleep(0.01)

    def _wait_for_the_first(self) -> None:
        console, processes, result = self._console, self._processes, self._console.result
        leader = next(process for process in processes.running if process.role == ACTUATOR)
        while leader.popen.poll() is None and not processes.dead():
            self._idle()
            leader.check_alive()  # the rig itself detects other silent nodes
            result.interrupted = result.interrupted or bool(self._interrupted and self._interrupted())
            # a starting node does not handle signals yet
            if result.interrupted and console.heard_state and not self._asked:
                self._asked = True
                processes.send(signal.SIGINT, ACTUATOR)

    def _end_after(self, died: Process) -> None:
        """Trip the rig after a death, and end all nodes within ``GRACE_S``.

        A node refuses before any motion: then the other nodes are stopped immediately.
        """
        processes = self._processes
        if died.popen.returncode == ExitCode.REFUSED and self._console.result.state not in UNDER_WAY:
            processes.send(signal.SIGTERM)
            return
        self._console.trip(died.death)
        if died.role == ACTUATOR:  # no rig to trip, but the recorder needs the reason
            processes.send(signal.SIGTERM)
        if not processes.wait(GRACE_S, (RECORDER,), self._idle):
            processes.send(signal.SIGTERM)
            processes.wait(0.2, (RECORDER,), self._idle)
        processes.kill((RECORDER,))
        processes.send(signal.SIGTERM, RECORDER)
