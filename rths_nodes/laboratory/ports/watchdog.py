"""The watchdog of a simulated port: a process of its own, as a servo-controller is a machine of its own.

It hears a beat with every command. When they stay away for longer than its limit, because the node is dead, frozen
or late, it takes the rig over, says so, and gives it back to nobody: a node that comes back finds it taken.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import suppress

BEAT, END, TAKEN = b".", b"x", b"!"

_PROGRAM = """
import os, select, sys
limit = float(sys.argv[1])
if not os.read(0, 1):
    sys.exit()
while select.select([0], [], [], limit)[0]:
    heard = os.read(0, 4096)
    if b"x" in heard:
        sys.exit()
    if not heard:
        os.write(2, b"rths: port: the watchdog holds the rig: its node is gone\\n")
        sys.exit(3)
os.write(2, b"rths: port: the watchdog holds the rig: no command for %d ms\\n" % round(1e3 * limit))
os.write(1, b"!")
while (heard := os.read(0, 4096)) and b"x" not in heard:
    pass
sys.exit(3)
"""


class Watchdog:
    """Expects a beat at least every ``limit`` s from the first one on. Raises OSError where it cannot start."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._taken = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, f"{limit:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is not meant for it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._there, self._back = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self._there, self._back):
            fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)

    def beat(self) -> str:
        """A command is about to be sent; why it must not be, empty when it may."""
        if not self._taken:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._there, BEAT)
            with suppress(BlockingIOError):
                self._taken = os.read(self._back, 1) in (TAKEN, b"")
        if not self._taken:
            return ""
        return f"port.watchdog: no command for {self._limit:g} s: the port has taken the rig over"

    def end(self) -> None:
        """No more commands, in order."""
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._there, END)
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        self._process.wait()
