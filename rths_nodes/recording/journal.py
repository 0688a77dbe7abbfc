"""From a journal to a recording that every rosbag2 tool opens; after a clean stop and after a crash.

A journal is an MCAP file (https://mcap.dev/spec) that is only ever appended to: no chunks, no index, no
footer. All its whole records can be read whenever the recorder died. :func:`index` copies them into a file
with chunks, index and footer beside it, writes ``metadata.yaml`` (rosbag2, version 9) and puts the copy in
the journal's place in the end: a crash on the way leaves the journal as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import attrs
import yaml
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Channel, Header, Metadata, Schema
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.records import (
    INFORMATION,
    LIBRARY,
    MAGIC,
    MESSAGE,
    ROSBAG2,
    RecordingError,
    contents,
    is_indexed,
    parsed,
    reason,
    recording,
)

METADATA_VERSION = 9
"""Of ``metadata.yaml``, as rosbag2 numbers it."""
_CHUNK_SIZE = 1 << 20
_PART = ".part"
"""Ending of a file that is being written."""


@attrs.frozen
class Recovered:
    """What :func:`recover` found: whole messages, bytes behind them, and whether there was nothing to do."""

    messages: int
    lost_bytes: int
    was_complete: bool


def _compression() -> CompressionType:
    for module, kind in (("zstandard", CompressionType.ZSTD), ("lz4", CompressionType.LZ4)):
        if find_spec(module):
            return kind
    return CompressionType.NONE


class _Copy:
    """An indexed MCAP file in the making: takes the records of a journal one by one."""

    def __init__(self, out: IO[bytes]) -> None:
        self._writer = McapWriter(out, chunk_size=_CHUNK_SIZE, compression=_compression())
        self._writer.start(profile="ros2", library=LIBRARY)
        self._schemas: dict[int, int] = {}
        self._channels: dict[int, int] = {}
        self._topics: dict[int, dict[str, Any]] = {}
        self._types: dict[int, str] = {}
        self._counts: dict[int, int] = {}
        self._first, self._last = 2**63, 0
        self._distribution = ""
        self.information: dict[str, str] = {}

    @property
    def messages(self) -> int:
        return sum(self._counts.values())

    def add(self, opcode: int, content: bytes) -> bool:
        """Copy one record; false when it makes no sense, which is where the journal was torn."""
        try:
            if opcode == Opcode.MESSAGE:
                self._add_message(content)
            elif opcode == Opcode.SCHEMA:
                self._add_schema(parsed(Schema, content))
            elif opcode == Opcode.CHANNEL:
                self._add_channel(parsed(Channel, content))
            elif opcode == Opcode.METADATA:
                self._add_metadata(parsed(Metadata, content))
        except (KeyError, ValueError, McapError, struct.error):
            return False
        return True

    def _add_message(self, content: bytes) -> None:
        channel, sequence, stamp, published = MESSAGE.unpack_from(content)
        self._writer.add_message(self._channels[channel], stamp, content[MESSAGE.size :], published, sequence)
        self._counts[channel] += 1
        self._first, self._last = min(stamp, self._first), max(stamp, self._last)

    def _add_schema(self, schema: Schema) -> None:
        if schema.id not in self._schemas:
            self._schemas[schema.id] = self._writer.register_schema(schema.name, schema.encoding, schema.data)
            self._types[schema.id] = schema.name

    def _add_channel(self, channel: Channel) -> None:
        if channel.id in self._channels:
            return
        self._channels[channel.id] = self._writer.register_channel(
            channel.topic, channel.message_encoding, self._schemas[channel.schema_id], channel.metadata
        )
        self._counts[channel.id] = 0
        self._topics[channel.id] = {
            "name": channel.topic,
            "type": self._types[channel.schema_id],
            "serialization_format": channel.message_encoding,
            "offered_qos_profiles": yaml.safe_load(channel.metadata["offered_qos_profiles"]),
            "type_description_hash": channel.metadata["topic_type_hash"],
        }

    def _add_metadata(self, record: Metadata) -> None:
        if record.name == ROSBAG2:
            self._distribution = record.metadata.get("ROS_DISTRO", "")
        elif record.name == INFORMATION:
            self.inform(record.metadata)

    def inform(self, information: Mapping[str, str]) -> None:
        """Add to the information of the recording."""
        self.information.update(information)
        self._writer.add_metadata(INFORMATION, dict(information))

    def finish(self, file_name: str) -> str:
        """Complete the file, which will be called ``file_name``; the text of ``metadata.yaml``."""
        bag = self._bag_metadata(file_name)
        text = yaml.safe_dump(bag, sort_keys=False)
        self._writer.add_metadata(ROSBAG2, {"serialized_metadata": text, "ROS_DISTRO": self._distribution})
        self._writer.finish()
        return yaml.safe_dump({"rosbag2_bagfile_information": bag}, sort_keys=False)

    def _bag_metadata(self, file_name: str) -> dict[str, Any]:
        topics = [
            {"topic_metadata": topic, "message_count": self._counts[key]} for key, topic in self._topics.items()
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
            "ros_distro": self._distribution,
        }

    def _span(self) -> dict[str, Any]:
        start = self._first if self.messages else 0
        return {
            "duration": {"nanoseconds": self._last - start},
            "starting_time": {"nanoseconds_since_epoch": start},
            "message_count": self.messages,
        }


def _copied(source: IO[bytes], size: int, copy: _Copy) -> int:
    """Copy the whole records; the number of bytes behind the last one."""
    whole = len(MAGIC)
    for opcode, content, end in contents(source, size):
        if not copy.add(opcode, content):
            break
        whole = end
    return size - whole


def index(path: Path, recovering: bool = False) -> Recovered:
    """Make the journal ``path`` an indexed recording; ``recovering`` notes what was lost in its information.

    Needs constant memory, and room for the copy. Raises RecordingError; the journal is then what it was.
    """
    part = path.with_name(path.name + _PART)
    try:
        with path.open("rb") as source, part.open("wb") as out:
            copy = _Copy(out)
            lost = _copied(source, path.stat().st_size, copy)
            if recovering:
                copy.inform({"recovered": f"{lost} bytes of an unfinished record lost"})
            text = copy.finish(path.name)
            out.flush()
            os.fsync(out.fileno())
        _write_metadata(path.with_name("metadata.yaml"), text)
        part.replace(path)
    except (OSError, McapError, RecordingError) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise RecordingError(
            f"{path}: could not be indexed ({why}); try again: rths recover {path.parent}"
        ) from error
    return Recovered(copy.messages, lost, was_complete=False)


def _write_metadata(path: Path, text: str) -> None:
    part = path.with_name(path.name + _PART)
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _check_own(path: Path, stream: IO[bytes]) -> None:
    """Refuse what this module would not copy in full: files of other recorders."""
    opcode, content, _ = next(contents(stream, path.stat().st_size), (0, b"", 0))
    if opcode != Opcode.HEADER:
        raise ConfigError(f"{path}: not even the beginning of a recording is there")
    library = parsed(Header, content).library
    if not library.startswith(LIBRARY):
        raise ConfigError(f"{path}: recorded by {library!r}, not by rths_nodes: try `mcap recover`")


def _check_at_rest(path: Path, stream: IO[bytes]) -> None:
    """Refuse a journal whose recorder lives: it would go on writing into a file without a name."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(f"{path}: is being recorded, or recovered, at this moment") from error
    except OSError:
        return  # a file system without locks


def _message_count(path: Path) -> int:
    with path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    return int(summary.statistics.message_count) if summary and summary.statistics else 0


def recover(directory: Path | str) -> Recovered:
    """Index the journal that a killed recorder left, in ``directory`` or as a file; a whole recording stays.

    Reads up to the first record that is not whole. Raises ConfigError where there is no recording, where it
    is still being made, or where another recorder made it; RecordingError when the disk does not allow it.
    """
    path = recording(directory)
    if is_indexed(path):
        return Recovered(_message_count(path), 0, was_complete=True)
    with path.open("rb") as stream:
        _check_own(path, stream)
        _check_at_rest(path, stream)
        return index(path, recovering=True)
