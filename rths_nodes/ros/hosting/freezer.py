# SPDX-License-Identifier: Apache-2.0
"""Suspend the process PID for SECONDS after receiving a byte: ``freezer.py PID SECONDS``, run by path.

A frozen process cannot resume itself. This one ends with the process that it freezes.
"""

import os
import select
import signal
import sys
from contextlib import suppress


def main(pid: int, seconds: float) -> None:
    if os.read(0, 1):
        os.kill(pid, signal.SIGSTOP)
        select.select([0], [], [], seconds)
        with suppress(ProcessLookupError, BrokenPipeError):  # the frozen process may have been killed
            os.kill(pid, signal.SIGCONT)
            os.write(1, b".")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
