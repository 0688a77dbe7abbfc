# SPDX-License-Identifier: Apache-2.0
"""Start a model process, exchange messages with it, and report why it exited."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rths_nodes.core.errors import ConfigError

STARTER = Path(__file__).with_name("child_program.py")

LEAVING_S = 2.0
"""Time limit for a model process to exit by itself after its last message or after disconnection, s."""

ENDING_S = 6.0

LOOK_S = 1.0
"""Interval at which the deadline of an answer is checked, s."""

LAST_WORDS = 2000

LINES_BEFORE = 3

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Environment variables for single-threaded libraries, so that results do not depend on the machine."""


class ChildProcess:
    """Runs the Python file ``program`` in a child process, with ``task`` as its argument in JSON.

    A guard (``child_program.py``) kills all processes of the model when the calling process exits. ``who`` is the
    name of the model's program in error messages. If the process fails, its last printed line is reported as the
    reason. Lines in ``farewells``, which the model prints at every exit, are ignored. If the last line contains
    the phrase ``points_back``, the preceding line replaces this phrase.
    """

    farewells: tuple[str, ...] = ()
    points_back: str = ""

    def __init__(self, name: str, who: str, program: Path, task: Mapping[str, object]) -> None:
        self.name, self.who = name, who
        self._program, self._task = program, dict(task)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.computes = False
        """True while an answer of the model is pending. A computing model does not notice a closed connection."""

    def start(self, pass_fds: Sequence[int] = (), **more: object) -> None:
        self._shares = False
        self._number, theirs = os.pipe()
        task = self._task | {"parent": os.getpid(), "number": theirs} | more
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (close() closes it)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-uPB", STARTER, self._program, json.dumps(task)],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                env=os.environ | ONE_THREAD,
                pass_fds=(*pass_fds, theirs),
                start_new_session=True,  # Ctrl-C must reach only the test, which stops the rig first
            )
        except OSError as error:
            os.close(self._number)
            raise ConfigError(f"cannot start {sys.executable}: {error}") from error
        finally:
            os.close(theirs)

    def connect(self, within: float, **more: object) -> None:
        """Start the process with ``more`` added to its task. Its first message is due within ``within`` s."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        with theirs:
            self.start((theirs.fileno(),), channel=theirs.fileno(), **more)
        self._expect(within)

    @property
    def is_connected(self) -> bool:
        return self._channel is not None

    def send(self, message: bytes, within: float) -> None:
        """Send a message. The answer is due within ``within`` s. Raises RuntimeError if the process has exited."""
        assert self._channel is not None
        try:
            self._channel.send(message)
        except OSError as error:
            raise RuntimeError(self._reason(str(error))) from error
        self._expect(within)

    def _expect(self, within: float) -> None:
        self.computes = True
        self._within, self._due = within, time.monotonic() + within

    def receive(self, size: int, wait: float = 0.0) -> bytes | None:
        """Return a message of ``size`` bytes, or None if none arrives within ``wait`` s.

        Raises RuntimeError if the deadline of the answer has passed or the process has exited.
        """
        assert self._channel is not None
        if wait:
            select.select([self._channel], [], [], max(0.0, min(wait, self._due - time.monotonic())))
        try:
            message = self._channel.recv(size + 1)
        except BlockingIOError:
            if time.monotonic() >= self._due:
                raise RuntimeError(f"{self.who} has not answered in {self._within:g} s") from None
            return None
        except OSError as error:
            raise RuntimeError(self._reason(str(error))) from error
        if len(message) != size:
            raise RuntimeError(self._reason(f"{self.who} process has closed the connection"))
        self.computes = False
        return message

    def wait(self, size: int) -> bytes:
        while (message := self.receive(size, LOOK_S)) is None:
            pass
        return message

    def _reason(self, otherwise: str) -> str:
        return self.end(LEAVING_S) or f"{self.who} has ended: {otherwise}"

    def share_scheduling(self) -> None:
        """Give the model process the real-time policy of this process, with the next lower priority.

        Without this policy, other processes could delay the model. The model may use any processor, because the
        nodes of the loop have a higher priority. Only the first call has an effect. System errors are ignored.
        """
        if self._process is None or self._shares:
            return
        self._shares, number = True, int.from_bytes(os.read(self._number, 4), "little")
        with suppress(OSError):
            if number and (policy := os.sched_getscheduler(0)) in (os.SCHED_FIFO, os.SCHED_RR):
                priority = max(1, os.sched_getparam(0).sched_priority - 1)
                os.sched_setscheduler(number, policy, os.sched_param(priority))

    @property
    def failed(self) -> bool:
        return self._process is not None and bool(self._process.poll())

    def end(self, within: float = 0.0) -> str:
        """Wait up to ``within`` s for the exit. Return the reason for a failure, or an empty string."""
        if self._process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within)
        code = self._process.returncode
        if not code:
            return ""
        if code < 0:
            return f"{self.who} was ended by {signal.Signals(-code).name}"
        problem = self._last_words()
        return f"{self.who} has ended with code {code}" + (f": {problem}" if problem else "")

    def line_with(self, phrase: str) -> str:
        file = self._printed.fileno()
        # pread, because the process writes at the shared file position
        printed = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
        return next((line.strip() for line in printed.splitlines() if phrase in line), "")

    def _last_words(self) -> str:
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - LAST_WORDS))
        lines = [line.strip() for line in self._printed.read().decode(errors="replace").splitlines()]
        *before, last = ["", *(line for line in lines if line and line not in self.farewells)]
        if before and self.points_back and self.points_back in last:
            last = last.replace(self.points_back, before.pop())
        more = [line for line in before[-LINES_BEFORE:] if line and line not in last]
        return last + (f" (printed before: {' / '.join(more)})" if more else "")

    def close(self, patience: float = 0.0) -> None:
        """Wait up to ``patience`` s for the exit, then terminate the process. Repeated calls have no effect."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        self._process.kill()
        self._process.wait()
        self._printed.close()
        os.close(self._number)
        self._process = None
