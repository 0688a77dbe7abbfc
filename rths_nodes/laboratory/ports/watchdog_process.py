"""The process of the watchdog: ``python watchdog_process.py LIMIT``.

It reads beats from its standard input. When none comes for LIMIT s, it says so on both outputs and keeps the rig.
It imports nothing of the package, so it starts in milliseconds.
"""

from __future__ import annotations

import os
import select
import sys

BEAT, END, TAKEN = b".", b"x", b"!"


def main(limit: float) -> int:
    """The exit code: 0 where the test ended in order, 3 where the watchdog holds the rig."""
    if not os.read(0, 1):
        return 0  # no command was ever sent
    while select.select([0], [], [], limit)[0]:
        heard = os.read(0, 4096)
        if END in heard:
            return 0
        if not heard:
            _tell("its node is gone")
            return 3
    _tell(f"no command for {1e3 * limit:.0f} ms")
    os.write(1, TAKEN)
    while (heard := os.read(0, 4096)) and END not in heard:
        pass
    return 3


def _tell(reason: str) -> None:
    os.write(2, f"rths: port: the watchdog holds the rig: {reason}\n".encode())


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
