# SPDX-License-Identifier: Apache-2.0
"""Node processes that are forked from a process that has loaded everything, for thousands of short runs."""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import reduction
from typing import Any

from rths_nodes.app import commands
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.hosting.node_processes import PARENT, TELLS

FORKING = multiprocessing.get_context("forkserver")
LOADED = ["__main__", "rths_nodes.ros.hosting.own_process", "rths_nodes.ros.hosting.composed"]
LOADED += [f"{commands.__name__}.{module.name}" for module in pkgutil.iter_modules(commands.__path__)]


class Forked:
    """The process in which ``target`` runs, a child of the one that has loaded ``LOADED``; as subprocess.Popen."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        FORKING.set_forkserver_preload(LOADED)
        self._process = FORKING.Process(target=target, args=arguments)
        self._process.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, negative the signal that has ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end; the exit code, None where ``timeout`` (s) is over first."""
        self._process.join(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it is there."""
        with suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


@contextmanager
def forked_nodes() -> Iterator[None]:
    """While this lasts, the host ``processes`` forks its nodes instead of starting Python for each."""
    started: Any = node_processes
    before, started._popen = started._popen, _forked
    try:
        yield
    finally:
        started._popen = before


def _forked(command: Sequence[str], environment: Mapping[str, str], told: int) -> Forked:
    words = list(command[command.index("rths_nodes.app.node") + 1 :])
    return Forked(_node, words, dict(environment), reduction.DupFd(told))


def _node(words: list[str], environment: dict[str, str], told: Any) -> None:
    from rths_nodes.app.node import node_main

    os.setsid()
    os.environ |= environment | {PARENT: str(os.getppid()), TELLS: str(told.detach())}
    sys.argv = ["rths_nodes.app.node", *words]
    node_main(words[0], words[1:])
