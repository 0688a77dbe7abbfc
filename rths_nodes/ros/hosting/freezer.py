# SPDX-License-Identifier: Apache-2.0
"""Stops the process PID for SECONDS as soon as a byte comes: run by path, as ``freezer.py PID SECONDS``.

A frozen process cannot wake itself. This one ends when the process that it is to freeze does.
"""

import os
import select
import signal
import sys
from contextlib import suppress


def main(pid: int, seconds: float) -> None:
    """Wait for the byte, freeze, wake, and answer."""
    if os.read(0, 1):
        os.kill(pid, signal.SIGSTOP)
        select.select([0], [], [], seconds)
        with suppress(ProcessLookupError, BrokenPipeError):  # who was frozen may have been killed meanwhile
            os.kill(pid, signal.SIGCONT)
            os.write(1, b".")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
