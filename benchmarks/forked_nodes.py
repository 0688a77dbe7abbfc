# SPDX-License-Identifier: Apache-2.0
"""Node processes forked from a server that has imported the package, for thousands of short runs."""

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
LOADED = ["__main__", "rths_nodes.ros.hosting.composed"]
LOADED += [f"{commands.__name__}.{module.name}" for module in pkgutil.iter_modules(commands.__path__)]


class Forked:
    """Process that runs ``target``, forked from a server with the modules ``LOADED``; interface of Popen."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        FORKING.set_forkserver_preload(LOADED)
        self._process = FORKING.Process(target=target, args=arguments)
        self._process.start()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, or the negative signal number; None while the process runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end and return the exit code; None if ``timeout`` (s) expires first."""
        self._process.join(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it still runs."""
        with suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@contextmanager
def forked_nodes() -> Iterator[None]:
    """Let the host ``processes`` fork its nodes, without starting Python for each, in the ``with`` block."""
    module: Any = node_processes
    before, module._started = module._started, _forked
    try:
        yield
    finally:
        module._started = before


def _forked(peer: str, command: Sequence[str], environment: Mapping[str, str]) -> node_processes.Process:
    file = open(os.memfd_create("report"), "r+b", buffering=0)  # noqa: SIM115
    arguments = list(command[command.index("rths_nodes.app.node") + 1 :])
    forked: Any = Forked(_node, arguments, dict(environment), reduction.DupFd(file.fileno()))
    return node_processes.Process(peer, forked, file)


def _node(arguments: list[str], environment: dict[str, str], file: Any) -> None:
    from rths_nodes.app.node import node_main

    os.setsid()
    os.environ |= environment | {PARENT: str(os.getppid()), TELLS: str(file.detach())}
    sys.argv = ["rths_nodes.app.node", *arguments]
    node_main(arguments[0], arguments[1:])
