# SPDX-License-Identifier: Apache-2.0
"""Requests of the operator to stop: Ctrl-C, SIGTERM, a terminal that is closed, a limit of processor time.

Light to import: processes that still load their modules listen to these requests, too.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)

SAME_REQUEST_S = 1.0
"""Signals within this time are one request: a shell, launch or ``timeout`` may hand on what the terminal sends."""

Handler = Callable[[int], None]


def handle_stop_signals(action: Handler) -> dict[int, Any]:
    """Call ``action(number)`` at each signal that asks this process to stop; the handlers before this, by signal.

    Where the end of the terminal is ignored (``nohup``) it stays so. Once the terminal is closed, what is printed
    there would raise OSError: it goes nowhere then, so that the test still ends in order. Signals reach the main
    thread only: for another one nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    printed = [number for number in (1, 2) if os.isatty(number)]

    def handle(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for each in printed:
                os.dup2(nowhere, each)
            os.close(nowhere)
        action(number)

    numbers = [each for each in STOPPING if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    return {number: signal.signal(number, handle) for number in numbers}


@contextmanager
def stop_signals_handled(action: Handler) -> Iterator[None]:
    """As :func:`handle_stop_signals`, while inside."""
    before = handle_stop_signals(action)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def orderly_stop(resend: bool = False) -> Iterator[Callable[[], bool]]:
    """Yields what tells that the operator wants to stop; a second request raises KeyboardInterrupt at once.

    With ``resend`` the signal has, behind it, the effect that it would have had without this: of Ctrl-C,
    KeyboardInterrupt.
    """
    asked: list[int] = []
    asked_at = 0.0

    def ask(number: int) -> None:
        nonlocal asked_at
        if asked and time.monotonic() - asked_at > SAME_REQUEST_S:
            raise KeyboardInterrupt
        if not asked:
            asked_at = time.monotonic()
            asked.append(number)

    with stop_signals_handled(ask):
        yield lambda: bool(asked)
    if asked and resend:
        signal.raise_signal(signal.Signals(asked[0]))


@contextmanager
def raised_at_once() -> Iterator[Callable[[], None]]:
    """A request to stop raises KeyboardInterrupt wherever the main thread is.

    Where that is swallowed, in a finaliser or a callback of a library, the call that is yielded raises it again.
    """
    asked = False

    def ask(_: int) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    with stop_signals_handled(ask):
        yield check


@contextmanager
def exit_at_once(code: int, told: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """A request to stop ends the process with ``code`` while inside: modules are loaded, nothing has begun.

    Where ``told()`` says it to whoever has started the process, that ends with 0.

    An exception could strike anywhere in the code of a module, which may turn it into another one.
    """

    def leave(_: int) -> None:
        if told():
            os._exit(0)
        os.write(2, b"rths: interrupted\n")
        os._exit(code)

    with stop_signals_handled(leave):
        yield


def ignore_stop_signals() -> None:
    """A late request must not spoil the exit code of a process that has done its work.

    When the interpreter ends it restores every handler of Python, and a signal then ends the process; one that is
    ignored does not.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
