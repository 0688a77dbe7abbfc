# SPDX-License-Identifier: Apache-2.0
"""Stop requests to a process: Ctrl-C, SIGTERM, a closed terminal, or an exceeded CPU time limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)

REQUESTS: dict[int, str] = {
    signal.SIGTERM: "received SIGTERM: another program asked this process to terminate",
    signal.SIGHUP: "received SIGHUP: the terminal was closed",
    signal.SIGQUIT: "received SIGQUIT",
    signal.SIGXCPU: "received SIGXCPU: the process has reached its CPU time limit",
}

SAME_REQUEST_S = 1.0
"""Time within which repeated signals count as one request, s. Shells, launch and ``timeout`` can repeat the signal
that the terminal sends."""

TELLS = "RTHS_RUNNER_TELLS"
"""Environment variable with the file descriptor to which a node writes the reason for its exit, because an
unconfigured node has no topics. The runner prints this reason."""

Handler = Callable[[int], None]
_received: list[int] = []
"""Stop signals received by the installed handlers."""


def handle_stop_signals(action: Handler) -> dict[int, Any]:
    """Call ``action(number)`` for every stop signal. Return the previous handlers by signal number.

    An ignored SIGHUP (``nohup``) stays ignored. After any other SIGHUP, output to the closed terminal is discarded
    so that it cannot disturb the stop. Do nothing and return an empty dict outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    printed = [number for number in (1, 2) if os.isatty(number)]

    def handle(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for output in printed:
                os.dup2(nowhere, output)
            os.close(nowhere)
        _received.append(number)
        action(number)

    ignored = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else []
    return {number: signal.signal(number, handle) for number in STOPPING if number not in ignored}


@contextmanager
def stop_signals_handled(action: Handler) -> Iterator[None]:
    earlier, before = len(_received), handle_stop_signals(action)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if before:  # empty outside the main thread, where no handlers are installed
            del _received[earlier:]


@contextmanager
def orderly_stop(resend: bool = False) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a stop was requested. A second request raises KeyboardInterrupt.

    If ``resend`` is true, the first signal is raised again after the ``with`` block, for the previous handler.
    """
    asked: list[tuple[int, float]] = []

    def ask(number: int) -> None:
        now = time.monotonic()
        if asked and now - asked[0][1] > SAME_REQUEST_S:
            raise KeyboardInterrupt
        asked.append((number, now))

    with stop_signals_handled(ask):
        yield lambda: bool(asked)
    if asked and resend:
        signal.raise_signal(signal.Signals(asked[0][0]))


@contextmanager
def raised_at_once() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt on a new or earlier stop request. The yielded function repeats a lost exception."""
    if _received and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
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
def exit_at_once(code: int, reported: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Exit with ``code`` on a stop request during the ``with`` block, which imports modules.

    The exit code is 0 if ``reported()`` is true, because the parent process already has the reason.
    KeyboardInterrupt is not raised, because a module could replace this exception during its import.
    """

    def leave(_: int) -> None:
        if reported():
            os._exit(0)
        if TELLS not in os.environ:
            os.write(2, b"rths: interrupted\n")
        os._exit(code)

    with stop_signals_handled(leave):
        yield


def ignore_stop_signals() -> None:
    """Ignore stop signals, so that a signal just before the exit does not change the exit code."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def begun(work: Callable[[], T], name: str) -> Future[T]:
    """Start ``work`` in a thread with a copy of the caller's context variables, and return its Future."""
    from concurrent.futures import Future

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return future
