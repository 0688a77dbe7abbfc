# SPDX-License-Identifier: Apache-2.0
"""Reader of MCAP files (https://mcap.dev/spec), including truncated or damaged files."""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from mcap.data_stream import ReadDataStream
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.records import Chunk, Footer, MetadataIndex
from mcap.stream_reader import get_chunk_data_stream

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import read_head, reason

MAGIC = b"\x89MCAP0\r\n"
ZSTD = b"\x28\xb5\x2f\xfd"
PACKED = "{0}: a compressed file cannot be read; unpack it with `unzstd {0}`"
LIBRARY = "rths_nodes"
INFORMATION = "rths_nodes"
"""Name of the metadata records with information about the test. Later records override earlier records."""
ROSBAG2 = "rosbag2"
RECORD = struct.Struct("<BQ")
MESSAGE = struct.Struct("<HIQQ")
"""Layout of a message header: channel, sequence number, log time and publish time."""
LARGEST_CHUNK = 1 << 28
_CHECKSUM = 4
"""Length of the checksum after the data, bytes. A value of zero means that the file has no checksum."""
_FOOTER = RECORD.pack(Opcode.FOOTER, 20)
_TAIL = len(_FOOTER) + 20 + len(MAGIC)


class RecordingError(RuntimeError):
    """Raised if a recording fails or cannot be read. The message contains the path and the reason."""


def recording(path: Path | str) -> Path:
    """Return the path of a recording's MCAP file. ``path`` is this file or its directory.

    Raises ConfigError if there is no readable MCAP file, or if the directory contains several.
    """
    path = Path(path)
    try:
        if path.is_dir():
            files = sorted(path.glob("*.mcap"))
            if not files and (packed := sorted(path.glob("*.mcap.zst*"))):
                raise ConfigError(PACKED.format(packed[0]))
            if not files:
                raise ConfigError(f"{path}: this directory contains no recording (.mcap file)")
            if len(files) > 1:
                raise ConfigError(
                    f"{path}: contains several .mcap files; specify one of {', '.join(f.name for f in files)}"
                )
            return recording(files[0])
        try:
            begin = read_head(path, len(MAGIC))
        except ValueError as error:
            raise ConfigError(f"{path}: is not a recording ({error})") from None
        if begin.startswith(ZSTD):
            raise ConfigError(PACKED.format(path))
        if begin != MAGIC:
            raise ConfigError(f"{path}: is not a recording (not an MCAP file)")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({reason(error)})") from error
    return path


def check_free(directory: Path) -> None:
    """Raise ConfigError if a recording cannot be created in ``directory``. No file is created."""
    try:
        if (directory / "metadata.yaml").exists() or any(directory.glob("*.mcap")):
            raise ConfigError(f"{directory}: already contains a recording; choose another directory")
        folder = directory
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
    except OSError as error:  # e.g. a name that is too long
        raise ConfigError(f"{directory}: a recording cannot be created there ({reason(error)})") from error
    if not folder.is_dir():
        raise ConfigError(f"{directory}: a recording cannot be created there ({folder} is not a directory)")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{directory}: a recording cannot be created there ({folder} is not writable)")


def locked(stream: IO[bytes]) -> bool:
    """Try to lock the file ``stream``. Return True if another process holds the lock."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system does not support locks
        return False
    return False


def footer_of(path: Path) -> Footer | None:
    """Return the footer of an indexed file, or None for a journal."""
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - _TAIL))
        tail = stream.read()
    if not (tail.startswith(_FOOTER) and tail.endswith(MAGIC)):
        return None
    return Footer(*struct.unpack_from("<QQI", tail, len(_FOOTER)))


class _Whole(ReadDataStream):  # type: ignore[misc]
    def read(self, length: int) -> bytes:
        data = bytes(super().read(length))
        if len(data) < length:
            raise EndOfFile
        return data


def parsed(record: Any, content: bytes) -> Any:
    try:
        return record.read(_Whole(BytesIO(content)))
    except Exception as error:  # e.g. struct.error, UnicodeDecodeError, EndOfFile
        raise ValueError(f"the {record.__name__} record is damaged ({error or type(error).__name__})") from error


def whole_records(stream: IO[bytes], size: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield opcode, content and end offset of each complete record in the first ``size`` bytes of ``stream``."""
    at = stream.tell()
    while len(head := stream.read(RECORD.size)) == RECORD.size:
        opcode, length = RECORD.unpack(head)
        at += RECORD.size + length
        if not opcode or at > size:
            return
        yield opcode, stream.read(length), at


def summary(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield opcode and content of index and metadata records. Raises RecordingError if the index is damaged."""
    footer = footer_of(path)
    with path.open("rb") as stream:
        size = stream.seek(0, 2) - _TAIL
        if footer is None or not len(MAGIC) <= footer.summary_start <= size:
            raise RecordingError("the index is missing, or its position is damaged")
        stream.seek(footer.summary_start)
        data = stream.read(size - footer.summary_start)
    begun = _FOOTER + struct.pack("<QQ", footer.summary_start, footer.summary_offset_start)
    if footer.summary_crc and zlib.crc32(begun, zlib.crc32(data)) != footer.summary_crc:
        raise RecordingError("the index is damaged")
    for opcode, content, _ in whole_records(BytesIO(data), len(data)):
        yield opcode, content
        if opcode == Opcode.METADATA_INDEX:
            yield Opcode.METADATA, _named(path, parsed(MetadataIndex, content))


def _named(path: Path, index: MetadataIndex) -> bytes:
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(min(index.offset, size))
        opcode, content, _ = next(whole_records(stream, size), (0, b"", 0))
    if opcode != Opcode.METADATA:
        raise RecordingError(f"there is no metadata at byte {index.offset}")
    return content


class Contents:
    """Iterates once over the records in the data section of an MCAP file, including the records in chunks.

    The iteration yields opcode and content of each record, up to the first incomplete record. Only the first
    ``size`` bytes of the file are read. Damaged parts are skipped if ``lenient`` is true, otherwise they raise
    RecordingError. After the iteration, ``damage`` describes the damaged parts, and ``end`` is the offset (bytes)
    after the last complete record. ``lost_bytes`` counts the bytes that were skipped or follow ``end``.
    """

    def __init__(self, stream: IO[bytes], size: int, lenient: bool = False) -> None:
        self._stream, self.size, self._lenient = stream, size, lenient
        self.damage: list[str] = []
        self.lost_bytes = 0
        self.end = len(MAGIC)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self._stream.seek(len(MAGIC))
        checksum = zlib.crc32(MAGIC)
        for opcode, content, end in whole_records(self._stream, self.size):
            if opcode == Opcode.DATA_END and len(content) == _CHECKSUM:  # a record of any other length is damaged
                self._check(checksum, int.from_bytes(content, "little"))
                return
            checksum = zlib.crc32(content, zlib.crc32(RECORD.pack(opcode, len(content)), checksum))
            if opcode == Opcode.CHUNK:
                yield from self._of_chunk(content, end)
            else:
                yield opcode, content
            self.end = end
        self.lost_bytes += self.size - self.end

    def taken(self, take: Callable[[int, bytes], None]) -> Iterator[tuple[int, bytes]]:
        """Pass each record to ``take``, and yield it unless ``take`` raises ValueError, which counts as damage."""
        refused = 0
        for opcode, content in self:
            try:
                take(opcode, content)
            except ValueError as error:
                if not refused:
                    self._tell(f"the file has invalid records, the first at or after byte {self.end} ({error})")
                refused += 1
                self.lost_bytes += len(content)
            else:
                yield opcode, content

    def _of_chunk(self, content: bytes, end: int) -> Iterator[tuple[int, bytes]]:
        try:
            data = _unpacked(content, end)
        except RecordingError as error:
            self._tell(str(error))
            self.lost_bytes += len(content)
            return
        yield from ((opcode, part) for opcode, part, _ in whole_records(BytesIO(data), len(data)))

    def _check(self, checksum: int, stored: int) -> None:
        if stored and stored != checksum and not self.damage:
            self._tell("wrong checksum: information about the test is damaged, or messages are missing")

    def _tell(self, problem: str) -> None:
        if not self._lenient:
            raise RecordingError(problem)
        self.damage.append(problem)


def _unpacked(content: bytes, end: int) -> bytes:
    try:
        chunk = parsed(Chunk, content)
        if chunk.uncompressed_size > LARGEST_CHUNK:
            raise ValueError(
                f"the uncompressed size is {chunk.uncompressed_size} bytes; must be <= {LARGEST_CHUNK}"
            )
        stream, length = get_chunk_data_stream(chunk, validate_crc=True)
    except Exception as error:  # the decompression library may raise any error
        raise RecordingError(f"the chunk that ends at byte {end} is damaged ({error})") from error
    return bytes(stream.read(length))
