# SPDX-License-Identifier: Apache-2.0
"""A page beside a run or a test: a process of its own, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rths_nodes.core.errors import ConfigError

PORT = 8085
"""Default TCP port of a page."""
PATIENCE_S = 5.0
"""The page gets this time to end."""


@contextmanager
def page_beside(namespace: str, say: Callable[[str], None], words: Sequence[str] = ()) -> Iterator[int]:
    """Serve the page of ``namespace`` while inside, and yield its process (pid); ``say`` prints its output.

    ``words`` are further arguments of ``rths page``. Raises ConfigError where there can be no page.
    """
    serving = _started([*words, "--namespace", namespace])
    first = serving.stdout.readline() if serving.stdout else ""
    if not first:
        _, why = serving.communicate()
        raise ConfigError(why.strip().removeprefix("rths: ") or "page: has ended at once")
    say(first.strip())
    telling = threading.Thread(target=_tell, args=(serving, say), name="page", daemon=True)
    telling.start()
    try:
        yield serving.pid
    finally:
        with suppress(ProcessLookupError):
            serving.send_signal(signal.SIGINT)
        try:
            serving.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.wait()
        telling.join(PATIENCE_S)


def _started(words: Sequence[str]) -> subprocess.Popen[str]:
    """The process, in a session of its own: a Ctrl-C at the terminal is for the test."""
    program = [sys.executable, "-m", "rths_nodes.app.cli", "page", *words]
    return subprocess.Popen(
        [*program, "--parent", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )


def _tell(serving: subprocess.Popen[str], say: Callable[[str], None]) -> None:
    for line in serving.stdout or ():
        say(line.strip())
