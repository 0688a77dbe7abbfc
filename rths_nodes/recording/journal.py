# SPDX-License-Identifier: Apache-2.0
"""Conversion of a journal to a recording for rosbag2 tools, after a normal stop or a crash.

A journal is an append-only MCAP file (https://mcap.dev/spec) without chunks, index or footer. All complete records
can be read, wherever the recorder stopped. :func:`index` copies them into an indexed file, writes
``metadata.yaml`` (rosbag2, version 9) and finally replaces the journal with the copy. A crash before the
replacement leaves the journal unchanged. A damaged indexed file is rebuilt in the same way; the original is kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import IO

import attrs
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Metadata, Schema, Statistics
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import reason
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.recording.records import (
    INFORMATION,
    LIBRARY,
    MESSAGE,
    ROSBAG2,
    Contents,
    RecordingError,
    footer_of,
    parsed,
    summary,
)


class Inventory:
    """Collects the contents of a file from its records.

    ``counts`` are the numbers of messages by channel number; ``stated`` are these numbers according to the index.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, Schema] = {
            0: Schema(id=0, data=b"", encoding="", name="")
        }  # 0 is for channels without a schema
        self.channels: dict[int, Channel] = {}
        self.counts: dict[int, int] = {}
        self.stated: dict[int, int] | None = None
        self.information: dict[str, str] = {}
        self.distribution = ""
        self.bag_metadata = ""
        """Text of ``metadata.yaml`` without its top-level key, as stored in an indexed file."""

    def add(self, opcode: int, content: bytes) -> None:
        """Read a record. Raises ValueError if the record is damaged or belongs to an unknown channel."""
        if opcode == Opcode.MESSAGE:
            if len(content) < MESSAGE.size:
                raise ValueError("a message has no header")
            number = MESSAGE.unpack_from(content)[0]
            if number not in self.channels:
                raise ValueError(f"a message belongs to the unknown channel {number}")
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
            raise ValueError(f"channel {channel.topic}: the type of its messages is missing")
        self.channels[channel.id] = channel
        self.counts.setdefault(channel.id, 0)

    def schema_of(self, channel: Channel) -> Schema:
        return self.schemas[channel.schema_id]

    def _add_metadata(self, record: Metadata) -> None:
        if record.name == ROSBAG2:
            self.distribution = record.metadata.get("ROS_DISTRO", self.distribution)
            self.bag_metadata = record.metadata.get("serialized_metadata", self.bag_metadata)
        elif record.name == INFORMATION:
            self.information.update(record.metadata)


@lru_cache(maxsize=64)
def offered(text: str) -> list[dict[str, object]]:
    try:
        profiles = parse(text, "offered_qos_profiles")
    except ConfigError:
        return []
    return profiles if isinstance(profiles, list) and all(isinstance(entry, dict) for entry in profiles) else []


METADATA_VERSION = 9
METADATA, BAG = "metadata.yaml", "rosbag2_bagfile_information"
_CHUNK_SIZE = 1 << 17
"""Size of a chunk, bytes: 0.1 s at 1024 Hz. A damaged byte makes its chunk unreadable."""
_PART, _DAMAGED = ".part", ".damaged"
_TORN = 1 << 16
"""Largest number of bytes that an interrupted write can leave after the last complete record."""


@attrs.frozen
class Recovered:
    messages: int
    lost_bytes: int
    was_complete: bool
    path: Path
    notes: tuple[str, ...] = ()


def _compression() -> CompressionType:
    for module, kind in (("zstandard", CompressionType.ZSTD), ("lz4", CompressionType.LZ4)):
        if find_spec(module):
            return kind
    return CompressionType.NONE


class _Copy:
    def __init__(self, out: IO[bytes]) -> None:
        self._writer = McapWriter(out, chunk_size=_CHUNK_SIZE, compression=_compression(), enable_data_crcs=True)
        self._writer.start(profile="ros2", library=LIBRARY)
        self._found = Inventory()
        self._schemas: dict[int, int] = {0: 0}
        self._channels: dict[int, int] = {}
        self._first, self._last = 2**63, 0

    @property
    def messages(self) -> int:
        return sum(self._found.counts.values())

    @property
    def information(self) -> dict[str, str]:
        return self._found.information

    def add(self, opcode: int, content: bytes) -> None:
        self._found.add(opcode, content)
        if opcode == Opcode.MESSAGE:
            number, sequence, stamp, published = MESSAGE.unpack_from(content)
            data = content[MESSAGE.size :]
            self._writer.add_message(self._channels[number], stamp, data, published, sequence)
            self._first, self._last = min(stamp, self._first), max(stamp, self._last)
        elif opcode == Opcode.CHANNEL:
            for number, channel in self._found.channels.items():
                if number not in self._channels:
                    self._channels[number] = self._register(channel)
        elif opcode == Opcode.METADATA and (record := parsed(Metadata, content)).name == INFORMATION:
            self._writer.add_metadata(INFORMATION, record.metadata)

    def _register(self, channel: Channel) -> int:
        schema = self._found.schema_of(channel)
        if schema.id not in self._schemas:
            self._schemas[schema.id] = self._writer.register_schema(schema.name, schema.encoding, schema.data)
        number: int = self._writer.register_channel(
            channel.topic, channel.message_encoding, self._schemas[schema.id], channel.metadata
        )
        return number

    def inform(self, information: Mapping[str, str]) -> None:
        self.information.update(information)
        self._writer.add_metadata(INFORMATION, dict(information))

    def finish(self, file_name: str) -> str:
        bag = self._bag_metadata(file_name)
        distribution = self._found.distribution
        self._writer.add_metadata(ROSBAG2, {"serialized_metadata": dump(bag), "ROS_DISTRO": distribution})
        self._writer.finish()
        return dump({BAG: bag})

    def _bag_metadata(self, file_name: str) -> dict[str, object]:
        topics = [
            {
                "topic_metadata": _topic_metadata(channel, self._found.schema_of(channel).name),
                "message_count": self._found.counts[number],
            }
            for number, channel in self._found.channels.items()
        ]
        return {
            "version": METADATA_VERSION,
            "storage_identifier": "mcap",
            **self._span(),
            "topics_with_message_count": topics,
            "compression_format": "",
            "compression_mode": "",
            "relative_file_paths": [file_name],
            "files": [{"path": file_name, **self._span()}],
            "custom_data": dict(self.information) or None,
            "ros_distro": self._found.distribution,
        }

    def _span(self) -> dict[str, object]:
        start = self._first if self.messages else 0
        return {
            "duration": {"nanoseconds": self._last - start},
            "starting_time": {"nanoseconds_since_epoch": start},
            "message_count": self.messages,
        }


def _topic_metadata(channel: Channel, kind: str) -> dict[str, object]:
    return {
        "name": channel.topic,
        "type": kind,
        "serialization_format": channel.message_encoding,
        "offered_qos_profiles": offered(channel.metadata.get("offered_qos_profiles", "")),
        "type_description_hash": channel.metadata.get("topic_type_hash", ""),
    }


def index(path: Path, target: Path | None = None, recovering: bool = False) -> Recovered:
    """Copy the complete records of ``path`` to an indexed file: ``target`` or, by default, ``path`` itself.

    If ``recovering`` is true, the new file lists the losses. The copy needs constant memory, and additional disk
    space. Raises RecordingError if the copy fails; ``path`` is then unchanged.
    """
    target = target or path
    part = target.with_name(target.name + _PART)
    try:
        with path.open("rb") as source, part.open("wb") as out:
            copy, contents = _Copy(out), Contents(source, source.seek(0, 2), lenient=True)
            stated = _from_index(path, copy)
            for _ in contents.taken(copy.add):
                pass
            if missing := {key: description for key, description in stated.items() if key not in copy.information}:
                copy.inform(missing)
            lost, description = contents.lost_bytes, _description(contents)
            if recovering:
                copy.inform({"recovered": "; ".join(description)})
            text = copy.finish(target.name)
            out.flush()
            os.fsync(out.fileno())
        write_metadata(target.with_name(METADATA), text)
        notes = contents.damage + (_kept(path) if target == path and (contents.damage or lost > _TORN) else [])
        part.replace(target)
    except (OSError, McapError, RecordingError) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise RecordingError(
            f"{path}: could not be indexed in {target.parent} ({reason(error)}). Try again, or use another disk "
            f"with rths recover {path.parent} --out DIR"
        ) from error
    return Recovered(copy.messages, lost, False, target if target == path else target.parent, tuple(notes))


def _from_index(path: Path, copy: _Copy) -> dict[str, str]:
    if footer_of(path) is None:
        return {}
    inventory = Inventory()
    with contextlib.suppress(RecordingError, ValueError):
        for opcode, content in summary(path):
            inventory.add(opcode, content)
            if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                copy.add(opcode, content)
    return inventory.information


def _description(contents: Contents) -> list[str]:
    lost = f"{contents.lost_bytes} bytes"
    if not contents.damage and contents.lost_bytes <= _TORN:
        return [f"{lost} lost from an unfinished record"]
    return [f"{lost} lost", *contents.damage]


def _kept(path: Path) -> list[str]:
    names = (path.with_name(f"{path.name}{_DAMAGED}{number or ''}") for number in count())
    kept = next(name for name in names if not name.exists())
    try:
        os.link(path, kept)
    except OSError:  # the file system does not support links
        path.replace(kept)
    return [f"the damaged file was saved as {kept.name}"]


def write_metadata(path: Path, text: str) -> None:
    part = path.with_name(path.name + _PART)
    part.write_text(text, encoding="utf-8")
    part.replace(path)
