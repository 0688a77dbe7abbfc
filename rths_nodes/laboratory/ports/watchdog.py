"""The watchdog of a simulated port: a process of its own, as a servo-controller is a machine of its own.

Every command is a beat. When the beats stay away for longer than the limit, because the node is dead, frozen or
late, the watchdog takes the rig over, says so, and keeps it: a node that comes back cannot drive it any more.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rths_nodes.laboratory.ports.watchdog_process import BEAT, END, TAKEN

_PROGRAM = Path(__file__).with_name("watchdog_process.py")


class Watchdog:
    """Expects a beat at least every ``limit`` s from the first one on. Raises OSError where it cannot start."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._taken = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), f"{limit:g}"],
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
