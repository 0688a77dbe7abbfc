# SPDX-License-Identifier: Apache-2.0
"""Recordings with changed or missing messages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from rths_nodes.core.wire import decode
from rths_nodes.recording import bag


def rewritten(original: Path, target: Path, change: Callable[[str, bytes], list[bytes]]) -> Path:
    """Write the messages that ``change`` makes of topic and bytes of each message of ``original``."""
    read = bag.read(original)
    writer = bag.Writer(target, list(read.topics.values()), read.information)
    for topic, data, stamp in read.messages():
        for changed in change(topic, data):
            writer.write(topic, changed, stamp)
    writer.close({})
    return target


def without(original: Path, target: Path, streams: Collection[str], samples: Collection[int]) -> Path:
    """Write ``original`` without the messages of ``streams`` that have one of the numbers ``samples``."""
    read = bag.read(original)

    def change(topic: str, data: bytes) -> list[bytes]:
        if topic.rpartition("/")[2] not in streams:
            return [data]
        message = decode(read.topics[topic].type.rpartition("/")[2], data, read.definitions[topic])
        return [] if message["sample"] in samples else [data]

    return rewritten(original, target, change)
