# SPDX-License-Identifier: Apache-2.0
"""A network between two network namespaces that delays, jitters, loses and reorders: python relay.py A B 5 1 0.0

Each end is an Ethernet device ``cable`` of its namespace. The delay of each frame is drawn between DELAY - JITTER
and DELAY + JITTER ms, so that frames may overtake others; a share LOST of them is dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, TAP, NO_HEAD = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
LONGEST_FRAME = 65536


def cable(namespace: str) -> int:
    """Create the device in a ``namespace``; return its file."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as entered:
        if libc.setns(entered.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"namespace {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"cable", TAP | NO_HEAD))
    return device


def main(first: str, second: str, delay_ms: float, jitter_ms: float, lost: float) -> None:
    ends = [cable(first), cable(second)]
    other = dict(zip(ends, reversed(ends), strict=True))
    drawn = random.Random(1)
    under_way: list[tuple[float, int, int, bytes]] = []
    number = 0
    print("ready", flush=True)
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            frame, now = os.read(end, LONGEST_FRAME), time.monotonic()
            if drawn.random() >= lost:
                due = now + 1e-3 * drawn.uniform(delay_ms - jitter_ms, delay_ms + jitter_ms)
                heapq.heappush(under_way, (due, number := number + 1, other[end], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(under_way)
            with contextlib.suppress(OSError):  # the other end is down
                os.write(end, frame)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6]))
