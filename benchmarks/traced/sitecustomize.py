# SPDX-License-Identifier: Apache-2.0
"""Trace of the messages that the nodes of a run send and receive, installed in every Python process.

``chain.py`` puts this folder first in PYTHONPATH. Each row is the time (monotonic, ns), the index of the stream in
STREAMS, and 0 for sent or 1 for received. Rows go to a memory-mapped file, which survives a crash of the process.
"""

import os
import sys

STREAMS = ("measurement", "target", "command")
ROWS = 2_000_000


def install() -> None:
    """Insert the trace between nodes and their endpoints."""
    from time import monotonic_ns

    import numpy as np

    from rths_nodes.ros.transport.topics import Interposer

    role = sys.argv[1]
    path = os.path.join(os.environ["RTHS_TRACE"], f"{role}.dat")
    rows = memoryview(np.memmap(path, np.int64, "w+", shape=(ROWS, 3)))
    count = 0

    def add(stream: int, received: int) -> None:
        nonlocal count
        rows[count, 0], rows[count, 1], rows[count, 2] = monotonic_ns(), stream, received
        count += 1

    def sender(self: object, topic: str, send: object) -> object:
        if topic not in STREAMS:
            return send
        stream = STREAMS.index(topic)

        def traced(data: bytes) -> None:
            send(data)  # type: ignore[operator]
            add(stream, 0)

        return traced

    class TracedInbox:
        def __init__(self, inbox: object, stream: int) -> None:
            self._inbox, self._stream = inbox, stream

        def __getattr__(self, name: str) -> object:
            return getattr(self._inbox, name)

        def take(self) -> object:
            message = self._inbox.take()  # type: ignore[attr-defined]
            if message is not None:
                add(self._stream, 1)
            return message

    def inbox(self: object, topic: str, inbox: object) -> object:
        return TracedInbox(inbox, STREAMS.index(topic)) if topic in STREAMS else inbox

    Interposer.sender, Interposer.inbox = sender, inbox  # type: ignore[assignment,method-assign]


if "RTHS_TRACE" in os.environ and len(sys.argv) > 1:
    install()
