# SPDX-License-Identifier: Apache-2.0
"""The process of ``test_remote_integrator.py``: an integrator of this package that is asked through a pipe.

It reads pickled requests from its standard input and answers each with a pickled message on its standard output.
"""

from __future__ import annotations

import pickle
import sys
import time
from typing import Any

STATE = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")


def state(integrator: Any) -> dict[str, Any]:
    """What the other side shows of the integrator."""
    return {name: getattr(integrator, name) for name in STATE}


def main() -> None:
    """Answer until the pipe is closed. The first request tells how to build, None resets, a force is a step."""
    delay, cls, *task = pickle.load(sys.stdin.buffer)
    integrator = cls(*task)
    while True:
        pickle.dump(state(integrator), sys.stdout.buffer)
        sys.stdout.buffer.flush()
        try:
            force = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if force is None:
            integrator.reset()
        else:
            time.sleep(delay)
            integrator.step(force)


if __name__ == "__main__":
    main()
