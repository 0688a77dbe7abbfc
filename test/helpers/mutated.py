# SPDX-License-Identifier: Apache-2.0
"""Mutations of a file's bytes, and a child process in which a mutated file is read."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.bag import RecordingError

MEMORY = 1 << 30
"""Address space beyond that of the loaded parent, bytes."""
CPU_S = 10
LONGEST_S = 90.0
"""Timeout of the child, s: the machine may be busy."""
LONGEST_MESSAGE = 4000
_WORD = re.compile(rb"[-+]?[\w.]+")
WORDS = (
    *(b"", b"-1", b"0", b"1e999", b"nan", b"9" * 30, b"1_0", b"1,5", b"\xff\xfe"),
    *(b"{", b"[" * 50, b"&a *a", b"../x"),
)
NUMBERS = (b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0" * 4, b"\xff" * 8, b"\0\0\0\0\0\0\0\x40", b"\x01\0\0\0")


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return ``data`` with one to three changes."""
    for _ in range(rng.integers(1, 4)):
        data = MUTATIONS[rng.integers(len(MUTATIONS))](bytearray(data), rng)
    return data


def _position(data: bytearray, rng: np.random.Generator) -> int:
    """Draw a position; half of them are in the first 512 bytes, the header."""
    return int(rng.integers(min(len(data), 512) if rng.random() < 0.5 else len(data))) if data else 0


def _flip(data: bytearray, rng: np.random.Generator) -> bytes:
    for _ in range(rng.integers(1, 9)):
        if data:
            data[_position(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(data)


def _overwrite(data: bytearray, rng: np.random.Generator) -> bytes:
    at, value = _position(data, rng), NUMBERS[rng.integers(len(NUMBERS))]
    at -= at % 4 if rng.random() < 0.7 else 0
    data[at : at + len(value)] = value
    return bytes(data)


def _cut(data: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(data[: rng.integers(len(data) + 1)])


def _remove(data: bytearray, rng: np.random.Generator) -> bytes:
    at = _position(data, rng)
    del data[at : at + int(rng.integers(1, 200))]
    return bytes(data)


def _repeat(data: bytearray, rng: np.random.Generator) -> bytes:
    at, count = _position(data, rng), int(rng.integers(1, 200))
    data[at:at] = data[at : at + count] * int(rng.integers(1, 20))
    return bytes(data)


def _insert(data: bytearray, rng: np.random.Generator) -> bytes:
    at = _position(data, rng)
    data[at:at] = rng.bytes(int(rng.integers(1, 20)))
    return bytes(data)


def _word(data: bytearray, rng: np.random.Generator) -> bytes:
    matches = list(_WORD.finditer(data[: 1 << 16]))
    if matches:
        match = matches[rng.integers(len(matches))]
        data[match.start() : match.end()] = WORDS[rng.integers(len(WORDS))]
    return bytes(data)


MUTATIONS = (_flip, _overwrite, _cut, _remove, _repeat, _insert, _word, _word)


class Opened:
    """Files that Python opens for reading or writing, outside of some folders."""

    def __init__(self, allowed: Sequence[Path]) -> None:
        self._allowed = tuple(str(path.resolve()) for path in allowed)
        self.paths: list[str] = []
        sys.addaudithook(self._receive)

    def _receive(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(self._allowed):
                self.paths.append(path)


def trouble(read: Callable[[], object], allowed: Sequence[Path]) -> str:
    """Return the failure of ``read`` in a child of 1 GB; empty if it returned or raised a clear error."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        os.write(writes, _in_child(read, allowed).encode()[-LONGEST_MESSAGE:])
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as results:
        ready, _, _ = select.select([results], [], [], LONGEST_S)
        if not ready:
            os.kill(child, signal.SIGKILL)
        failure = results.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if not ready:
        return f"it waited for {LONGEST_S:g} s"
    return failure or (f"ended by {signal.Signals(status & 0x7F).name}" if status else "")


def _in_child(read: Callable[[], object], allowed: Sequence[Path]) -> str:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    spent = int(sum(os.times()[:2])) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_S, spent + CPU_S + 5))
    for number, flags in ((1, os.O_WRONLY), (2, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, flags), number)
    tempfile.tempdir = str(allowed[0])
    opened = Opened([*allowed, *map(Path, ("/dev/null", "/dev/urandom", "/proc", "/sys", "/usr", "/lib", "/etc"))])
    try:
        read()
    except (ConfigError, RecordingError) as error:
        problems = getattr(error, "problems", (str(error),))
        if not all(problem and "\n" not in problem and len(problem) < LONGEST_MESSAGE for problem in problems):
            return f"no sentence: {error}"
    except BaseException:
        return traceback.format_exc()
    return f"read outside: {', '.join(opened.paths)}" if opened.paths else ""
