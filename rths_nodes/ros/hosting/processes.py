# SPDX-License-Identifier: Apache-2.0
"""The host processes: each node in a process of its own, watched by the runner."""

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
"""Between the death of a node and the end of the others."""


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
) -> Result:
    """Start the nodes as processes, watch them to the end of the test, leave no process behind.

    ``starting`` gets what the test waits for, in words, until it begins.
    Raises ConfigError where there is no room for the nodes.
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
    """Leads the ``processes`` of a test, whose nodes ``console`` hears, from their start to their end."""

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
        """Wait until no node is there any more, and return how the test ended."""
        console, processes, result = self._console, self._processes, self._console.result
        self._wait_for_the_first()
        died = [process for process in processes.dead() if process.popen.returncode not in IN_ORDER]
        if died:
            self._end_after(died[0])
        elif not result.heard_by_all:
            processes.send(signal.SIGTERM)
        result.notes += processes.see_out(self._idle)
        console.listen()
        # where a node has died, what this runner then did to the others says nothing about the test
        counted = [each for each in processes.counted(console.reported) if not (died and each.ended_by_us)]
        blamed = died or [each for each in counted if each.popen.returncode not in IN_ORDER]
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
        """Until a node has ended with an error, or the one that leads the test has ended."""
        console, processes, result = self._console, self._processes, self._console.result
        leader = next(process for process in processes.running if process.role == ACTUATOR)
        while leader.popen.poll() is None and not processes.dead():
            self._idle()
            leader.check_alive()  # of the others the rig itself notices that they are silent
            result.interrupted = result.interrupted or bool(self._interrupted and self._interrupted())
            # a node that is still starting knows nothing of signals yet
            if result.interrupted and console.heard_state and not self._asked:
                self._asked = True
                processes.send(signal.SIGINT, ACTUATOR)

    def _end_after(self, died: Process) -> None:
        """A node has died: the rig goes safe, the recorder closes, everybody ends within ``GRACE_S``.

        One that was refused has died before anything moved: the others are told to leave, as soon as they can.
        """
        processes = self._processes
        if died.popen.returncode == ExitCode.REFUSED and self._console.result.state not in UNDER_WAY:
            processes.send(signal.SIGTERM)
            return
        self._console.trip(died.death)
        if died.role == ACTUATOR:  # no rig is there to trip, but the recorder hears why
            processes.send(signal.SIGTERM)
        if not processes.wait(GRACE_S, (RECORDER,), self._idle):
            processes.send(signal.SIGTERM)
            processes.wait(0.2, (RECORDER,), self._idle)
        processes.kill((RECORDER,))
        processes.send(signal.SIGTERM, RECORDER)
