# SPDX-License-Identifier: Apache-2.0
"""Inventory of a recording from its records, beside the messages: types, topics, information, counts."""

from __future__ import annotations

from functools import lru_cache

import attrs
from mcap.opcode import Opcode
from mcap.records import Channel, Metadata, Schema, Statistics

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import parse
from rths_nodes.recording.records import INFORMATION, MESSAGE, ROSBAG2, parsed


@attrs.frozen
class Described:
    """A channel with the type of its messages and its offered QoS."""

    channel: Channel
    schema: Schema
    qos: list[dict[str, object]]


class Inventory:
    """Takes the records of a file one by one, those of its index as well as those between the messages.

    Schemas and channels stand in a file several times; the first of a number counts. ``counts`` are those of the
    messages taken, by the number of the channel; ``stated`` those of the index.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, Schema] = {}
        self.channels: dict[int, Described] = {}
        self.counts: dict[int, int] = {}
        self.stated: dict[int, int] | None = None
        self.information: dict[str, str] = {}
        self.distribution = ""
        self.bag_metadata = ""
        """Text of ``metadata.yaml`` without its head, as an indexed file keeps it."""

    def add(self, opcode: int, content: bytes) -> None:
        """Take a record in. Raises ValueError where it is damaged, or belongs to a channel that is not there."""
        if opcode == Opcode.MESSAGE:
            if len(content) < MESSAGE.size:
                raise ValueError("message without its head")
            number = MESSAGE.unpack_from(content)[0]
            if number not in self.channels:
                raise ValueError(f"message on the unknown channel {number}")
            self.counts[number] += 1
        elif opcode == Opcode.SCHEMA:
            schema = parsed(Schema, content)
            self.schemas.setdefault(schema.id, schema)
        elif opcode == Opcode.CHANNEL:
            self._add_channel(parsed(Channel, content))
        elif opcode == Opcode.METADATA:
            self._add_metadata(parsed(Metadata, content))
        elif opcode == Opcode.STATISTICS:
            self.stated = parsed(Statistics, content).channel_message_counts

    def _add_channel(self, channel: Channel) -> None:
        if channel.id in self.channels:
            return
        if channel.schema_id not in self.schemas:
            raise ValueError(f"channel {channel.topic} without the type of its messages")
        qos = _offered(channel.metadata.get("offered_qos_profiles", ""))
        self.channels[channel.id] = Described(channel, self.schemas[channel.schema_id], qos)
        self.counts.setdefault(channel.id, 0)

    def _add_metadata(self, record: Metadata) -> None:
        if record.name == ROSBAG2:
            self.distribution = record.metadata.get("ROS_DISTRO", self.distribution)
            self.bag_metadata = record.metadata.get("serialized_metadata", self.bag_metadata)
        elif record.name == INFORMATION:
            self.information.update(record.metadata)


@lru_cache(maxsize=64)
def _offered(text: str) -> list[dict[str, object]]:
    """The QoS profiles of a channel; none where they cannot be read: the messages can be all the same."""
    try:
        found = parse(text, "offered_qos_profiles")
    except ConfigError:
        return []
    return found if isinstance(found, list) and all(isinstance(entry, dict) for entry in found) else []
