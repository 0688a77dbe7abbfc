"""The host processes: each node in a process of its own, watched by the runner."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.composed import ros_context
from rths_nodes.ros.hosting.console import Console
from rths_nodes.ros.hosting.descriptions import INDEXING_S, LEAVING_S, NodeDescription, Processes
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.names import ACTUATOR, RECORDER

GRACE_S = 0.6
"""Between the death of a node and the end of the others."""


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Result:
    """Start the nodes as processes, watch them to the end of the test, leave no process behind."""
    with Processes(descriptions) as processes, ros_context() as context:
        peers = tuple(description.peer for description in descriptions)
        console = Console(context, descriptions[0].namespace, peers)
        try:
            return _watch(console, processes, progress, interrupted)
        finally:
            console.destroy_node()


def _watch(
    console: Console,
    processes: Processes,
    progress: Callable[[int], None] | None,
    interrupted: Callable[[], bool] | None,
) -> Result:
    result, asked = console.result, False

    def idle() -> None:
        console.listen()
        if progress:
            progress(console.result.sample)
        time.sleep(0.01)

    while processes.alive():
        idle()
        if processes.dead():
            break
        result.interrupted = result.interrupted or bool(interrupted and interrupted())
        # a node that is still starting knows nothing of signals yet
        if result.interrupted and console.heard_state and not asked:
            asked = True
            processes.send(signal.SIGINT, ACTUATOR)
    dead = [process for process in processes.dead() if process.popen.returncode not in (2, 3)]
    if dead:
        _end_after(dead[0].death, dead[0].role, console, processes, idle)
    elif not processes.wait(LEAVING_S, (RECORDER,), idle):
        killed = processes.kill((RECORDER,))
        result.notes += [f"the {process.role} node did not end by itself" for process in killed]
    if result.state is State.IDLE:  # a recorder that has not found its peers does not hear that they have left
        processes.send(signal.SIGTERM, RECORDER)
    if not processes.wait(INDEXING_S, idle=idle):
        result.notes.append("the recorder did not finish: rths recover may help")
    console.listen()
    if dead:
        why = console.problems.get(dead[0].role) or dead[0].death
        result.reason = why if result.reason in ("", why) else f"{why}; {result.reason}"
    result.judge([process.popen.returncode for process in processes.running])
    return result


def _end_after(death: str, role: str, console: Console, processes: Processes, idle: Callable[[], None]) -> None:
    """A node has died: the rig goes safe, the recorder closes, everybody ends within ``GRACE_S``."""
    if role != ACTUATOR:
        console.trip(death)
    else:
        processes.send(signal.SIGTERM)
    if not processes.wait(GRACE_S, (RECORDER,), idle):
        processes.send(signal.SIGTERM)
        processes.wait(0.2, (RECORDER,), idle)
    processes.kill((RECORDER,))
    processes.send(signal.SIGTERM, RECORDER)
