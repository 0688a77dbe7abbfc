# SPDX-License-Identifier: Apache-2.0
"""Standard output and error that take whatever is printed: what fails there decides nothing about a test.

A reader that has left, a full disk, a terminal that is gone, an output that was closed from the start: what is
printed is dropped then. A character that the encoding of the terminal lacks is written in others (``PLAIN``). What
the parts of a test log while it goes on is shown on standard error (:func:`show_log`).
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

PLAIN = {
    **{"µ": "u", "–": "-", "−": "-", "±": "+-", "°": " deg", "√": "sqrt ", "×": "x"},
    **{"α": "a", "Δ": "D", "ω": "w", "θ": "t"},
}
"""Replacements of characters of ours that the encoding lacks; in tables as wide as they are."""
IN_PLAIN = "rths_plain"
"""Name under which Python knows the error handler that writes them."""
NAMES = {1: "standard output", 2: "standard error"}


@contextmanager
def unfailing_output() -> Iterator[None]:
    """Whatever is printed inside, to ``sys.stdout`` and ``sys.stderr``, raises nothing."""
    _fill_descriptors()
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdin or io.StringIO()  # it was closed: there is nothing to read
    sys.stdout, sys.stderr = _unfailing(sys.stdout), _unfailing(sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def _fill_descriptors() -> None:
    """Put nothing where an output was closed: the next file that is opened, a recording, would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(nowhere := os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)  # those that we start have the same outputs
            if nowhere != number:
                os.close(nowhere)


def _unfailing(stream: Any) -> Any:
    """A stream in place of ``stream``; itself where it is none of a file, and nothing can fail."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    try:
        raw = _Unfailing(stream.fileno())
    except (OSError, ValueError):
        return stream
    stream.flush()
    through = bool(getattr(stream, "write_through", False))
    lines = bool(getattr(stream, "line_buffering", False)) or through
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, IN_PLAIN, line_buffering=lines)


class _Unfailing(io.RawIOBase):
    """The open file ``number``: from the first write that fails on it takes everything, and keeps nothing."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._failed = False

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        length = len(rest)
        while rest and not self._failed:
            try:
                rest = rest[os.write(self._number, rest) :]
            except BlockingIOError:  # whoever has the other end made it so
                select.select([], [self._number], [])
            except OSError as error:
                self._failed = True
                self._tell(error)
        return length

    def _tell(self, error: OSError) -> None:
        """A reader that has left, as ``head`` does, wants no more; everything else is told once."""
        if self._number in NAMES and error.errno != errno.EPIPE:
            words = f"rths: {NAMES[self._number]}: {error.strerror}: what is printed from here on is lost\n"
            with suppress(OSError):
                os.write(2, words.encode())


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    """Replace the characters that an encoding lacks: by ``PLAIN``, a letter without its accent, or else ``?``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return PLAIN.get(character) or bare or "?"


class _OnStandardError(logging.Handler):
    """Writes to what standard error is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"rths: {record.getMessage()}", file=sys.stderr, flush=True)


def show_log() -> None:
    """Show what the package logs, from INFO on; what others log stays as it is."""
    log = logging.getLogger("rths_nodes")
    if not log.handlers:
        log.addHandler(_OnStandardError())
        log.setLevel(logging.INFO)


codecs.register_error(IN_PLAIN, _in_plain)
