# SPDX-License-Identifier: Apache-2.0
"""Watchdog of a simulated port: a separate process, like a servo-controller on its own machine.

The port sends a beat with each command. If no beat arrives within the limit, the watchdog takes over the rig and
reports the cause. A node that recovers later cannot drive the rig again. The process runs this file (``python
watchdog.py LIMIT``) without imports from the package, so that it starts within milliseconds.
"""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
from contextlib import suppress

BEAT, END, TAKEN = b".", b"x", b"!"


class Watchdog:
    """Expects beats at most ``limit`` s apart after the first beat. Raises OSError if its process cannot start."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._taken = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, f"{limit:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C must not interrupt the watchdog
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._there, self._back = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self._there, self._back):
            fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)

    def beat(self) -> str:
        """Send a beat. Return the reason why no further command may be sent, or an empty string."""
        if not self._taken:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._there, BEAT)
            with suppress(BlockingIOError):
                self._taken = os.read(self._back, 1) in (TAKEN, b"")
        if not self._taken:
            return ""
        return f"port.watchdog: no command was sent for {self._limit:g} s, and the port has taken over the rig"

    def end(self) -> None:
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._there, END)
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        self._process.wait()


def main(limit: float) -> int:
    """Watch the beats on stdin. Return exit code 3 if the watchdog has taken over the rig, otherwise 0."""
    if os.read(0, 1) != BEAT:
        return 0  # the port has sent no command
    while select.select([0], [], [], limit)[0]:
        message = os.read(0, 4096)
        if END in message:
            return 0
        if not message:
            _report("the node has ended")
            return 3
    _report(f"no command was sent for {1e3 * limit:.0f} ms")
    os.write(1, TAKEN)
    while (message := os.read(0, 4096)) and END not in message:
        pass
    return 3


def _report(reason: str) -> None:
    if select.select([], [2], [], 0.0)[1]:  # a full pipe or a stopped terminal must not block the watchdog
        os.write(2, f"rths: port: the watchdog holds the rig, because {reason}\n".encode())


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
