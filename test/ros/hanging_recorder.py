# SPDX-License-Identifier: Apache-2.0
"""A recorder that comes to no end, in a process as ours: what it does in place of an end is said by RTHS_TEST_END.

    RTHS_TEST_END="tell hang" python hanging_recorder.py recorder --ros-args ...

``tell`` is when it says that it has everything, ``close`` while the file is indexed. Then it hangs as in a library
(``hang``), holding the interpreter's lock, is stopped by a signal (``stop``), or computes for 4 s (``work``).
"""

import ctypes
import os
import signal
import sys
import time

from rths_nodes.app.node import node_main
from rths_nodes.ros.hosting import own_process
from rths_nodes.ros.nodes.recorder import RecorderNode


def compute() -> None:
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        pass


WHERE, WHAT = os.environ["RTHS_TEST_END"].split()
ENDS = {
    "hang": ctypes.PyDLL(None).pause,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "work": compute,
}
METHOD = {"tell": "_publish_done", "close": "close"}[WHERE]
real = getattr(RecorderNode, METHOD)


def end(node, *arguments):
    if node.phase.ended:
        ENDS[WHAT]()
    return real(node, *arguments)


setattr(RecorderNode, METHOD, end)
own_process.TURN_S = 7.0  # longer than the actuator node waits for the recorder, as it is
node_main(sys.argv[1], sys.argv[2:])
