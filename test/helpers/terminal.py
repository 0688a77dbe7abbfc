# SPDX-License-Identifier: Apache-2.0
"""A person at a terminal: starts a program, waits for texts, types lines."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from forked import at_a_terminal

PATIENCE_S = 60.0
"""Timeout of a text on a busy machine, s."""
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The terminal of the program ``command``; ``shown`` is its output without styles."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        columns: int = 160,
        patience: float = PATIENCE_S,
    ) -> None:
        self._leader, follower = pty.openpty()
        self.program = subprocess.Popen(
            list(command),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env={**environment, "TERM": "xterm", "COLUMNS": f"{columns}", "LINES": "50"},
            preexec_fn=at_a_terminal,
        )
        os.close(follower)
        self.shown = ""
        self._read, self._patience = 0, patience

    def wait_for(self, words: str) -> str:
        """Wait until the pattern ``words`` is shown after the last match; return the text up to its end."""
        deadline = time.monotonic() + self._patience
        while not (match := re.compile(words).search(self.shown, self._read)):
            assert self._look(deadline), f"{words!r} is not shown:\n{self.shown[self._read :]}"
        before = self.shown[self._read : match.end()]
        self._read = match.end()
        return before

    def _look(self, deadline: float) -> bool:
        """Read the output; return false at the end of the program, or at the deadline."""
        left = deadline - time.monotonic()
        if left <= 0.0 or not select.select([self._leader], [], [], left)[0]:
            return False
        try:
            part = os.read(self._leader, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += STYLES.sub("", part.decode(errors="replace"))
        return bool(part)

    def type(self, line: str) -> None:
        os.write(self._leader, f"{line}\n".encode())

    def answer(self, question: str, line: str) -> str:
        """Wait for the pattern ``question`` and type a ``line``; return the text up to the question."""
        shown = self.wait_for(question)
        self.type(line)
        return shown

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        os.write(self._leader, b"\x03")

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self._leader)
        self._leader = -1

    def end(self) -> int:
        """Wait for the end of the program; return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._leader >= 0 and self._look(deadline):
            pass
        return self.program.wait(timeout=PATIENCE_S)

    def close(self) -> None:
        """Kill the program if it still runs, and close the terminal."""
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait(timeout=PATIENCE_S)
        if self._leader >= 0:
            os.close(self._leader)
