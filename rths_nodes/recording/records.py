"""The records of an MCAP file (https://mcap.dev/spec), as far as they are whole: finished or torn off."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Chunk
from mcap.stream_reader import get_chunk_data_stream

from rths_nodes.core.errors import ConfigError

MAGIC = b"\x89MCAP0\r\n"
LIBRARY = "rths_nodes"
INFORMATION = "rths_nodes"
"""Name of the metadata records with the information of a recording; the later ones complete the first."""
ROSBAG2 = "rosbag2"
"""Name of the metadata record that rosbag2 reads."""
RECORD = struct.Struct("<BQ")
"""Opcode and length, before the content of each record."""
MESSAGE = struct.Struct("<HIQQ")
"""Channel, sequence, log time and publish time, before the data of a message."""
_FOOTER = RECORD.pack(Opcode.FOOTER, 20)
_TAIL = len(_FOOTER) + 20 + len(MAGIC)


class RecordingError(RuntimeError):
    """A recording that cannot go on or cannot be read: path and reason."""


def reason(error: OSError) -> str:
    """The reason of an error of the operating system, without the path."""
    return error.strerror or str(error)


def recording(path: Path | str) -> Path:
    """The MCAP file of a recording, given that file or its directory; ConfigError where there is none."""
    path = Path(path)
    try:
        if path.is_dir():
            found = sorted(path.glob("*.mcap"))
            if not found:
                raise ConfigError(f"{path}: no recording (no .mcap file) in this directory")
            if len(found) > 1:
                raise ConfigError(f"{path}: several .mcap files, name one: {', '.join(f.name for f in found)}")
            return recording(found[0])
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise ConfigError(f"{path}: not a recording (no MCAP file)")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({reason(error)})") from error
    return path


def is_indexed(path: Path) -> bool:
    """True for an MCAP file with its footer, false for a journal."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL))
        tail = stream.read()
    return tail.startswith(_FOOTER) and tail.endswith(MAGIC)


def parsed(record: Any, content: bytes) -> Any:
    """The record of a class of ``mcap.records`` from its content."""
    return record.read(ReadDataStream(BytesIO(content)))


def whole_records(stream: IO[bytes], size: int) -> Iterator[tuple[int, bytes, int]]:
    """Opcode, content and end of the records of ``stream`` (``size`` bytes), as long as they are whole."""
    at = stream.tell()
    while len(head := stream.read(RECORD.size)) == RECORD.size:
        opcode, length = RECORD.unpack(head)
        at += RECORD.size + length
        if not opcode or at > size:
            return
        yield opcode, stream.read(length), at


def contents(stream: IO[bytes], size: int) -> Iterator[tuple[int, bytes, int]]:
    """The records of the data section of an MCAP file, those in chunks included, up to where it is whole."""
    stream.seek(len(MAGIC))
    for opcode, content, end in whole_records(stream, size):
        if opcode == Opcode.DATA_END:
            return
        if opcode != Opcode.CHUNK:
            yield opcode, content, end
            continue
        data = _unpacked(content, end)
        for inner, part, _ in whole_records(BytesIO(data), len(data)):
            yield inner, part, end


def _unpacked(content: bytes, end: int) -> bytes:
    try:
        stream, length = get_chunk_data_stream(parsed(Chunk, content), validate_crc=True)
    except Exception as error:  # whatever the decompression library raises for damaged data
        raise RecordingError(f"the chunk that ends at byte {end} is damaged ({error})") from error
    return bytes(stream.read(length))
