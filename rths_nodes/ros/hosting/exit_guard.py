# SPDX-License-Identifier: Apache-2.0
"""The end of a process whose middleware hangs once the test is over.

Fast DDS can lock itself up while endpoints go, those of its own process or those of a peer (its issue 6502): from
the end of the test on, when the first peers leave. Only the process is still there then, and whoever waits for it.
A node that has told its Summary has done all that it is for; of a recorder that waits for the others the file is
left as it is, with all that has come, to be completed by ``rths recover``. The call that hangs holds the
interpreter's lock, so no Python code can end it: the C library does. ``faulthandler.dump_traceback_later`` could
do so, too, but always with exit code 1: a test that has finished would count as failed.

The end of the interpreter is no better place: it waits for threads that others have left, and what the middleware
has registered for the end of the process runs while its own threads still do. Who is done leaves it out.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from rths_nodes.loop.interrupts import ignore_stop_signals

LEAVING_S = 2.0
"""A process that has said its last word is gone by then, s, whatever its middleware does."""

_SIGEV_THREAD = 2
_CLOCK_MONOTONIC = 1


class _Event(ctypes.Structure):
    """``struct sigevent`` of Linux, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_size_t),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_byte * 32),
    )


class ExitGuard:
    """Ends this process with an exit code unless it is disarmed, or armed anew, in time."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self._code: int | None = None
        """The exit code of the timer that is there; None while there is none."""

    def arm(self, seconds: float, code: int) -> None:
        """End the process with the exit ``code`` after ``seconds``, s. Raises OSError where there is no timer."""
        if code != self._code:
            self.disarm()
            function = ctypes.cast(self._library._exit, ctypes.c_void_p).value
            event = _Event(value=code, notify=_SIGEV_THREAD, function=function)
            if self._library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
                raise OSError(ctypes.get_errno(), "no timer for the end of the process")
            self._code = code
        whole, part = divmod(round(seconds * 1e9), 1_000_000_000)
        times = (ctypes.c_long * 4)(0, 0, whole, part)  # struct itimerspec: once, and when
        self._library.timer_settime(self._timer, 0, times, None)

    def disarm(self) -> None:
        """The process may take its time again."""
        if self._code is not None:
            self._library.timer_delete(self._timer)
            self._code = None


@contextmanager
def exits_within(seconds: float, code: int) -> Iterator[None]:
    """End this process with the exit ``code`` if what is inside takes longer than ``seconds``, s.

    Raises OSError where the system has no such timer.
    """
    guard = ExitGuard()
    guard.arm(seconds, code)
    try:
        yield
    finally:
        guard.disarm()


def leave(code: int, closing: Callable[[], object] = lambda: None) -> NoReturn:
    """End this process with the exit ``code``, within ``LEAVING_S``: the one way in which a process of nodes ends.

    ``closing`` takes leave of the others. What Python has registered for its end is done, and nobody waited for.
    Raises OSError where the system has no timer.
    """
    ignore_stop_signals()
    ExitGuard().arm(LEAVING_S, code)
    for last in (closing, atexit._run_exitfuncs, lambda: sys.stdout.flush(), lambda: sys.stderr.flush()):
        with suppress(Exception):  # all is said, and written; an output that is closed is none
            last()
    os._exit(code)
