# SPDX-License-Identifier: Apache-2.0
"""Timed exit of a process whose middleware hangs after a test.

Fast DDS can deadlock while endpoints are removed (Fast DDS issue 6502). The hanging call holds the interpreter
lock, so a timer of the C library terminates the process. ``faulthandler.dump_traceback_later`` would exit with
code 1. A normal exit of the interpreter waits for threads, and exit handlers of the middleware race with its
threads.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from rths_nodes.loop.interrupts import ignore_stop_signals

LEAVING_S = 2.0
"""Timeout for a process to exit after its report, s."""
_SIGEV_THREAD = 2


class ExitGuard:
    """Terminates this process after a delay, unless the guard is disarmed or armed again before then."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self._code: int | None = None

    def arm(self, seconds: float, code: int) -> None:
        """Terminate the process with ``code`` after ``seconds``. Raises OSError if no timer is available."""
        if code != self._code:
            self.disarm()
            function = ctypes.cast(self._library._exit, ctypes.c_void_p).value
            event = struct.pack("@NiiPP32x", code, 0, _SIGEV_THREAD, function, 0)  # struct sigevent
            if self._library.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(self._timer)):
                raise OSError(ctypes.get_errno(), "no timer is available to end the process")
            self._code = code
        full_seconds, part = divmod(round(seconds * 1e9), 1_000_000_000)
        times = (ctypes.c_long * 4)(0, 0, full_seconds, part)  # struct itimerspec without repetition
        self._library.timer_settime(self._timer, 0, times, None)

    def disarm(self) -> None:
        if self._code is not None:
            self._library.timer_delete(self._timer)
            self._code = None


def leave(code: int, closing: Callable[[], object] = lambda: None) -> NoReturn:
    """Call ``closing`` and the exit handlers. Exit with ``code`` within ``LEAVING_S`` even if a call hangs."""
    ignore_stop_signals()
    ExitGuard().arm(LEAVING_S, code)
    for last in (closing, atexit._run_exitfuncs, lambda: sys.stdout.flush(), lambda: sys.stderr.flush()):
        with suppress(Exception):  # all output is written; stdout may be closed
            last()
    os._exit(code)
