# SPDX-License-Identifier: Apache-2.0
"""Guard of a model process: ``python child_program.py PROGRAM TASK``, with the task as JSON.

The guard forks, and the child runs the Python file ``PROGRAM``. Processes of the model become children of the
guard when their parent exits, whatever their session (``PR_SET_CHILD_SUBREAPER``). The guard kills these processes
when the model exits, when the parent of the guard exits, or on SIGTERM. Then the guard exits with the status of
the model. This file imports nothing from the package.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HEARD = {signal.SIGTERM, signal.SIGCHLD}
KILLING_S = 5.0
"""Time limit for killing the model's processes, s. A model may keep forking new processes."""
ROUND_S = 0.01


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value)


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        raise SystemExit(1)


def descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    processes = children.get(os.getpid(), [])
    for process in processes:  # the list grows during the loop
        processes += children.get(process, [])
    return processes


def reap() -> dict[int, int]:
    ended: dict[int, int] = {}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not process:
            return ended
        ended[process] = status


def kill_descendants() -> None:
    """Stop all descendants of this process, so that none can fork, then kill them."""
    until = time.monotonic() + KILLING_S
    while (processes := descendants()) and time.monotonic() < until:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    continue
        reap()
        time.sleep(ROUND_S)
    reap()


def guard(model: int) -> int:
    """Wait until the process ``model`` exits or SIGTERM arrives, then kill all processes of the model.

    Return the wait status of ``model``; after SIGTERM, return the status of a killed process.
    """
    status: int | None = None
    while status is None and signal.sigwait(HEARD) == signal.SIGCHLD:
        status = reap().get(model)
    kill_descendants()
    return signal.SIGKILL if status is None else status


def main(task: dict[str, object]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    end_with(int(str(task["parent"])), signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    process_id = os.getpid()
    if not (model := os.fork()):
        end_with(process_id)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        os.close(int(str(task["number"])))
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    os.write(int(str(task["number"])), model.to_bytes(4, "little"))
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # only the model may hold its connection open
    status = guard(model)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(process_id, number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(json.loads(sys.argv[2]))
