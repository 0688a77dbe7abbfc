# SPDX-License-Identifier: Apache-2.0
"""Start of a process of a model: ``python child_program.py PROGRAM TASK``, with the task as JSON.

It sees to it that the process ends with its parent, and runs the Python file ``PROGRAM``. Neither imports anything
of the package.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import sys


def end_with(parent: int) -> None:
    """Let the system end this process with its parent: a model that computes heeds nothing else."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


if __name__ == "__main__":
    end_with(json.loads(sys.argv[2])["parent"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a model that crashes leaves no picture of its memory
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
