"""Requests of the operator to stop: Ctrl-C, SIGTERM, and a terminal that is closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_stop_signals(action: Callable[[], None]) -> dict[int, Any]:
    """Call ``action`` at each signal that asks this process to stop; the handlers before this, by signal.

    Where the end of the terminal is ignored (``nohup``) it stays so. Once the terminal is closed, what is printed
    there would raise OSError: it goes nowhere then, so that the test still ends in order.
    """
    printed = [number for number in (1, 2) if os.isatty(number)]

    def handle(number: int, _: Any) -> None:
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for each in printed:
                os.dup2(nowhere, each)
        action()

    numbers = [each for each in STOPPING if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    return {number: signal.signal(number, handle) for number in numbers}


@contextmanager
def stop_signals_handled(action: Callable[[], None]) -> Iterator[None]:
    """As :func:`handle_stop_signals`, while inside."""
    before = handle_stop_signals(action)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_stop_signals() -> None:
    """A late request must not spoil the exit code of a process that has done its work.

    When the interpreter ends it restores every handler of Python, and a signal then ends the process; one that is
    ignored does not.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
