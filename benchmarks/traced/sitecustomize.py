# SPDX-License-Identifier: Apache-2.0
"""In every Python process of a traced run: writes down when a node sends and takes messages of the streams.

``chain.py`` puts this folder in front of PYTHONPATH. Rows are the time (monotonic, ns), the stream's number in
STREAMS, and 0 for sent or 1 for taken; they go into a file that the kernel keeps, however the process ends.
"""

import os
import sys

STREAMS = ("measurement", "target", "command")
ROWS = 2_000_000


def install() -> None:
    """Put the trace between nodes and their endpoints, where nothing stands by default."""
    from time import monotonic_ns

    import numpy as np

    from rths_nodes.ros.transport.topics import Interposer

    role = sys.argv[1]
    path = os.path.join(os.environ["RTHS_TRACE"], f"{role}.dat")
    rows = memoryview(np.memmap(path, np.int64, "w+", shape=(ROWS, 3)))
    place = [0]

    def note(stream: int, taken: int) -> None:
        at = place[0]
        rows[at, 0], rows[at, 1], rows[at, 2] = monotonic_ns(), stream, taken
        place[0] = at + 1

    def sender(self: object, topic: str, send: object) -> object:
        if topic not in STREAMS:
            return send
        stream = STREAMS.index(topic)

        def traced(data: bytes) -> None:
            send(data)  # type: ignore[operator]
            note(stream, 0)

        return traced

    class Taken:
        def __init__(self, inbox: object, stream: int) -> None:
            self._inbox, self._stream = inbox, stream

        def __getattr__(self, name: str) -> object:
            return getattr(self._inbox, name)

        def take(self) -> object:
            found = self._inbox.take()  # type: ignore[attr-defined]
            if found is not None:
                note(self._stream, 1)
            return found

    def inbox(self: object, topic: str, inbox: object) -> object:
        return Taken(inbox, STREAMS.index(topic)) if topic in STREAMS else inbox

    Interposer.sender, Interposer.inbox = sender, inbox  # type: ignore[assignment,method-assign]


if "RTHS_TRACE" in os.environ and len(sys.argv) > 1:
    install()
