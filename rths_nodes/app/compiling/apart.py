# SPDX-License-Identifier: Apache-2.0
"""Work in a child of this process, whose memory ends with it: a compiler holds 300 MB that it never gives back."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from rths_nodes.core.child_program import end_with

COLLECTED = 20_000
"""New objects after which Python's collector looks for cycles: those of a compiler live as long as it."""

LOOKED_AFTER = 0.01
"""s between two looks at the child: a waitpid that waits is not ended by a Ctrl-C of just before it."""


class Watch(threading.Thread):
    """A thread that sleeps and looks, and never holds a lock for which a forked child could wait."""


def done_apart(work: Callable[[], None]) -> bool:
    """Do ``work`` in a forked child and return whether it came to its end there; what it raises is not told.

    Nothing is forked where this process has other threads than a ``Watch``: the child could wait for their locks.
    """
    others = set(threading.enumerate()) - {threading.current_thread()}
    if not all(isinstance(each, Watch) for each in others):
        return False
    parent, child = os.getpid(), 0
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it is known whom a Ctrl-C has to end
    try:
        child = _forked()
        if not child:
            _do_and_exit(work, parent, heard)
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            time.sleep(LOOKED_AFTER)
        return ended[1] == 0
    except BaseException:  # Ctrl-C, above all
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        if child:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        raise


def _forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for any thread
        return os.fork()


def _do_and_exit(work: Callable[[], None], parent: int, heard: set[int | signal.Signals]) -> None:
    """Exit without what the parent does at its end: its handlers, what it has not written yet."""
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        end_with(parent)
        gc.freeze()  # the collector need not look at what is the parent's
        gc.set_threshold(COLLECTED)
        work()
        status = 0
    finally:
        os._exit(status)
