# SPDX-License-Identifier: Apache-2.0
"""Wrappers of standard output and standard error that never fail, so that printing cannot affect a test.

After a failed write, all further output is dropped.
"""

from __future__ import annotations

import codecs
import errno
import io
import logging
import os
import select
import sys
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

PLAIN = {
    **{"µ": "u", "–": "-", "−": "-", "±": "+-", "°": " deg", "√": "sqrt ", "×": "x"},
    **{"α": "a", "Δ": "D", "ω": "w", "θ": "t"},
}
"""Replacements for characters that the output encoding cannot represent."""
IN_PLAIN = "rths_plain"
NAMES = {1: "standard output", 2: "standard error"}


@contextmanager
def unfailing_output() -> Iterator[None]:
    _fill_descriptors()
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdin or io.StringIO()  # replace a closed stdin with empty input
    sys.stdout, sys.stderr = _unfailing(sys.stdout), _unfailing(sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def _fill_descriptors() -> None:
    """Open /dev/null on each closed descriptor from 0 to 2, so that no recording is opened on it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(nowhere := os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)  # child processes inherit the descriptor
            if nowhere != number:
                os.close(nowhere)


def _unfailing(stream: Any) -> Any:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    try:
        raw = _Unfailing(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError):
        return stream
    stream.flush()
    lines = any(getattr(stream, name, False) for name in ("line_buffering", "write_through"))
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, IN_PLAIN, line_buffering=lines)


class _Unfailing(io.FileIO):
    _failed = False

    def write(self, data: Any) -> int:
        number, rest = self.fileno(), memoryview(data).cast("B")
        length = len(rest)
        while rest and not self._failed:
            try:
                rest = rest[os.write(number, rest) :]
            except BlockingIOError:  # the process at the other end has set O_NONBLOCK
                select.select([], [number], [])
            except OSError as error:
                self._failed = True
                if number in NAMES and error.errno != errno.EPIPE:
                    text = f"rths: {NAMES[number]}: {error.strerror}; further output is lost\n"
                    with suppress(OSError):
                        os.write(2, text.encode())
        return length


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    bare = [unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() for letter in text]
    plain = (PLAIN.get(letter) or other or "?" for letter, other in zip(text, bare, strict=True))
    return "".join(plain), error.end


class Printer:
    """Prints in a thread, so that a blocked terminal or pipe cannot delay a stop of the rig."""

    def __init__(self, show: Callable[[Any], None] | None = None) -> None:
        self._show = show or partial(print, flush=True)
        self._queue: SimpleQueue[tuple[object, Future[None]]] = SimpleQueue()
        Thread(target=self._print, name="printer", daemon=True).start()

    def say(self, shown: object) -> Future[None]:
        """Queue an object for printing. The returned future raises any error of the output except OSError."""
        self._queue.put((shown, printed := Future[None]()))
        return printed

    def wait(self, seconds: float | None = None) -> None:
        wait([self.say(None)], seconds)

    def _print(self) -> None:
        while True:
            shown, printed = self._queue.get()
            try:
                with suppress(OSError):  # the output may be closed
                    if shown is not None:
                        self._show(shown)
                printed.set_result(None)
            except BaseException as error:
                printed.set_exception(error)


class _OnStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"rths: {record.getMessage()}", file=sys.stderr, flush=True)


def show_log() -> None:
    log = logging.getLogger("rths_nodes")
    if not log.handlers:
        log.addHandler(_OnStandardError())
        log.setLevel(logging.INFO)


codecs.register_error(IN_PLAIN, _in_plain)
