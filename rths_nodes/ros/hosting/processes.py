# SPDX-License-Identifier: Apache-2.0
"""Host ``processes``: each node runs in its own process, monitored by the runner."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rths_nodes.loop.outcomes import IN_ORDER, ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.console import Console
from rths_nodes.ros.hosting.descriptions import NodeDescription, starting_words
from rths_nodes.ros.hosting.node_processes import Process, Processes
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, RECORDER
from rths_nodes.ros.nodes.phase import UNDER_WAY
from rths_nodes.ros.transport.middleware import ros_context

GRACE_S = 0.6
"""Time for the other nodes to report after a node has died, s."""


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
) -> Result:
    """Start the nodes as processes, monitor them until the end of the test, and end all processes.

    Until the test begins, ``starting`` receives a text about nodes not yet ready. Raises ConfigError if the nodes
    or ROS 2 cannot start.
    """
    first = descriptions[0]
    peers = tuple(description.peer for description in descriptions)
    with Processes(descriptions) as processes, ros_context() as context, ExitStack() as leaving:
        console = Console(context, first.namespace, peers, first.parameters["run_id"])
        leaving.callback(console.destroy_node)
        result, requested = console.result, False
        leader = next(process for process in processes.running if process.role == ACTUATOR)

        def idle() -> None:
            console.wait()
            if progress:
                progress(result.sample)
            if starting and result.state is State.IDLE:
                starting(starting_words(console.missing))

        while leader.popen.poll() is None and not processes.dead():
            idle()
            leader.check_alive()  # the rig itself detects other silent nodes
            result.interrupted = result.interrupted or bool(interrupted and interrupted())
            # a starting node does not handle signals yet
            if result.interrupted and console.state_received and not requested:
                requested = True
                processes.send(signal.SIGINT, ACTUATOR)
        died = [process for process in processes.dead() if process.popen.returncode not in IN_ORDER]
        if died:
            _end_after(died[0], processes, console, idle)
        result.judge(exit_codes(processes, console, result, idle, died))
        return result


def _end_after(died: Process, processes: Processes, console: Console, idle: Callable[[], None]) -> None:
    if died.popen.returncode == ExitCode.REFUSED and console.result.state not in UNDER_WAY:
        processes.send(signal.SIGTERM)
        return
    console.trip(died.death)
    if died.role == ACTUATOR:  # no rig to trip, but the recorder needs the reason
        processes.send(signal.SIGTERM)
    if not processes.wait(GRACE_S, (RECORDER,), idle):
        processes.send(signal.SIGTERM)
        processes.wait(0.2, (RECORDER,), idle)
    processes.kill((RECORDER,))
    processes.send(signal.SIGTERM, RECORDER)


def exit_codes(
    processes: Processes,
    console: Console,
    result: Result,
    idle: Callable[[], None],
    died: Sequence[Process] = (),
) -> list[int]:
    """Wait until all processes have exited, complete ``result``, and return the exit codes for the outcome."""
    if not (died or result.received_by_all):
        processes.send(signal.SIGTERM)
    result.notes += processes.see_out(idle)
    console.listen()
    result.add(console.result.numbers)
    # if a node has died, the runner has ended the others: their exit codes do not count
    counted = [process for process in processes.counted(console.reported) if not (died and process.ended_by_us)]
    failed = [process for process in counted if process.popen.returncode not in IN_ORDER]
    for process in died[:1] or reversed(failed):  # the reason begins with the first failure
        result.blame(processes.why(process))
    return [process.popen.returncode for process in counted]
