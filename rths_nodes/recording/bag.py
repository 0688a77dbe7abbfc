# SPDX-License-Identifier: Apache-2.0
"""Recordings: rosbag2 directories (MCAP and ``metadata.yaml``), written and read without ROS.

:class:`Writer` appends to a journal during a test, and flushes it to the operating system every 0.1 s. A journal
is an append-only MCAP file (https://mcap.dev/spec) without chunks, index or footer. If the recorder is killed, at
most the last 0.1 s is lost, and all complete records can be read.

:func:`index` copies the records into an indexed file, writes ``metadata.yaml`` (rosbag2, version 9) and finally
replaces the journal with the copy. :func:`index` is called by ``close`` and, after a crash, by :func:`recover`. A
crash before the replacement leaves the journal unchanged. A damaged indexed file is rebuilt in the same way, and
the original is kept. :func:`read` reads journals and indexed files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from io import FileIO
from itertools import count
from pathlib import Path
from time import monotonic
from typing import IO

import attrs
from mcap.data_stream import RecordBuilder
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Header, Metadata, Schema, Statistics
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

from rths_nodes.core import text_files, wire
from rths_nodes.core.errors import ConfigError, quoted
from rths_nodes.core.resources import PACKAGE, prefixes, resource
from rths_nodes.core.text_files import read_text, reason
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.recording.records import (
    INFORMATION,
    LIBRARY,
    MAGIC,
    MESSAGE,
    RECORD,
    ROSBAG2,
    Contents,
    footer_of,
    locked,
    parsed,
    recording,
    summary,
)
from rths_nodes.recording.records import RecordingError as RecordingError
from rths_nodes.recording.records import check_free as check_free

FLUSH_INTERVAL = 0.1
"""Flush interval, s. Messages of at most one interval are lost if the recorder is killed."""

MESSAGE_RECORD = struct.Struct(RECORD.format + MESSAGE.format[1:])
_FOREVER = {"sec": 9223372036, "nsec": 854775807}
METADATA_VERSION = 9
METADATA, BAG = "metadata.yaml", "rosbag2_bagfile_information"
_CHUNK_SIZE = 1 << 17
"""Chunk size, bytes: about 0.1 s of data at 1024 Hz. A damaged byte makes the whole chunk unreadable."""
_PART, _DAMAGED = ".part", ".damaged"
_TORN = 1 << 16
"""Largest number of bytes that an interrupted write can leave after the last complete record."""


_WITHOUT_ROS = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec\n",
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id\n",
}
_TYPE = re.compile(r"(\w+)/(?:msg/)?(\w+)")
_NESTED = re.compile(r"^\s*(?P<type>(?:[a-z]\w*/)?[A-Z]\w*)(?:\[[^\]]*\])?\s+\w+", re.MULTILINE)


def definition(kind: str) -> str:
    """Return the definition of a message type and its nested types, in the MCAP format ``ros2msg``.

    Raises ConfigError if a type is invalid or not installed.
    """
    texts: dict[str, str] = {}
    waiting = [kind]
    while waiting:
        package, name = _split(waiting.pop(0))
        key = f"{package}/{name}"
        if key not in texts:
            texts[key] = _text(package, name)
            nested = (match["type"] for match in _NESTED.finditer(texts[key]))
            waiting += [
                nested_type if "/" in nested_type else f"{package}/{nested_type}" for nested_type in nested
            ]
    (_, first), *further = texts.items()
    return "".join([first, *(f"\n{wire.SEPARATOR}\nMSG: {key}\n{text}" for key, text in further)])


def type_hash(kind: str) -> str:
    """Return the hash of a message type (``RIHS01_...``), or an empty string if the type is not installed."""
    package, name = _split(kind)
    file = _installed(package, f"{name}.json")
    hashes = json.loads(file.read_text(encoding="utf-8"))["type_hashes"] if file else []
    return next((str(entry["hash_string"]) for entry in hashes if entry["type_name"] == kind), "")


def _split(kind: str) -> tuple[str, str]:
    match = _TYPE.fullmatch(kind)
    if not match:
        raise ConfigError(f"{kind}: must be a message type like {PACKAGE}/msg/Measurement")
    return match[1], match[2]


def _text(package: str, name: str) -> str:
    if file := _installed(package, f"{name}.msg"):
        return file.read_text(encoding="utf-8")
    if text := _WITHOUT_ROS.get(f"{package}/{name}"):
        return text
    raise ConfigError(f"{package}/msg/{name}: is not installed; source the workspace that contains {package}")


def _installed(package: str, file: str) -> Path | None:
    if package == PACKAGE:
        with contextlib.suppress(FileNotFoundError):
            return resource("msg", file)
        return None
    places = (prefix / "share" / package / "msg" / file for prefix in prefixes())
    return next((path for path in places if path.is_file()), None)


def offered_qos(reliability: str = "reliable", durability: str = "volatile", depth: int = 10) -> dict[str, object]:
    """Return a QoS profile in the form of rosbag2 (metadata version 9): keep last ``depth``, no deadline."""
    return {
        "history": "keep_last",
        "depth": depth,
        "reliability": reliability,
        "durability": durability,
        "deadline": dict(_FOREVER),
        "lifespan": dict(_FOREVER),
        "liveliness": "automatic",
        "liveliness_lease_duration": dict(_FOREVER),
        "avoid_ros_namespace_conventions": False,
    }


@attrs.frozen
class Topic:
    """Recorded topic: full name, type (e.g. ``rths_nodes/msg/Measurement``) and offered QoS."""

    name: str
    type: str
    qos: Mapping[str, object] = attrs.field(factory=offered_qos)

    @property
    def of_test(self) -> bool:
        return self.type.startswith(f"{PACKAGE}/")


def _records(*records: Header | Schema | Channel | Metadata) -> bytes:
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    return bytes(builder.end())


def _create(directory: Path, head: bytes) -> tuple[Path, FileIO]:
    check_free(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{directory.resolve().name}_0.mcap"
        file = FileIO(path, "xb")
    except OSError as error:
        raise ConfigError(f"{directory}: a recording cannot be created there ({reason(error)})") from error
    try:
        with contextlib.suppress(OSError):  # some file systems do not support locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(file, head)
    except OSError as error:
        file.close()
        path.unlink()
        raise ConfigError(f"{directory}: a recording cannot be created there ({reason(error)})") from error
    return path, file


def _write_all(file: FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _in_place(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


class Writer:
    """Writes a recording into ``directory``, which is created if needed. Not thread-safe.

    The constructor writes ``information`` about the test (scenario, run id, versions). Raises ConfigError if the
    directory contains a recording or cannot be written, or if a message type is not installed.
    """

    def __init__(self, directory: Path | str, topics: Sequence[Topic], information: Mapping[str, str]) -> None:
        self._channels: dict[str, list[int]] = {}
        """Channel number and message count, by topic."""
        self._schemas: dict[str, int] = {}
        head = MAGIC + _records(Header(profile="ros2", library=LIBRARY))
        head += b"".join(map(self._declared, topics))
        distribution = Metadata(ROSBAG2, {"ROS_DISTRO": os.environ.get("ROS_DISTRO", "")})
        head += _records(distribution, Metadata(INFORMATION, dict(information)))
        self.path, self._file = _create(Path(directory), head)
        self._pending: list[bytes] = []
        self._failure = ""
        self._due = monotonic() + FLUSH_INTERVAL

    @property
    def counts(self) -> dict[str, int]:
        return {name: count for name, (_, count) in self._channels.items()}

    def add(self, topic: str, kind: str, reliable: bool, latched: bool) -> None:
        """Add a topic with messages of type ``kind``. Raises ConfigError if the type is not installed."""
        qos = offered_qos("reliable" if reliable else "best_effort", "transient_local" if latched else "volatile")
        self._pending.append(self._declared(Topic(topic, kind, qos)))

    def _declared(self, topic: Topic) -> bytes:
        number, records = len(self._channels) + 1, list[Schema | Channel]()
        if topic.type not in self._schemas:
            records.append(Schema(number, definition(topic.type).encode(), "ros2msg", topic.type))
            self._schemas[topic.type] = number
        metadata = {"offered_qos_profiles": dump([dict(topic.qos)]), "topic_type_hash": type_hash(topic.type)}
        records.append(Channel(number, topic.name, "cdr", metadata, self._schemas[topic.type]))
        self._channels[topic.name] = [number, 0]
        return _records(*records)

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        """Append a message of ``topic``, given as CDR bytes. ``stamp_ns`` is its time in ns since the epoch.

        Raises KeyError for an unknown topic, and RecordingError like :meth:`flush`.
        """
        channel = self._channels[topic]
        channel[1] += 1
        length = MESSAGE.size + len(data)
        head = MESSAGE_RECORD.pack(Opcode.MESSAGE, length, channel[0], channel[1], stamp_ns, stamp_ns)
        self._pending += (head, data)
        if monotonic() >= self._due:
            self.flush()

    def flush_if_due(self) -> None:
        if monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Pass pending messages to the operating system, so that they survive if this process is killed.

        Raises RecordingError if the disk is full or the file was moved.
        """
        self._due = 0.0 if self._failure else monotonic() + FLUSH_INTERVAL
        data = b"".join(self._pending)
        self._pending.clear()
        if self._failure:
            raise RecordingError(self._failure)
        try:
            _write_all(self._file, data)
            if data and not _in_place(self.path, self._file):
                raise FileNotFoundError(errno.ENOENT, "the file was deleted or moved")
        except OSError as error:
            self._failure = f"{self.path}: the recording was aborted ({reason(error)})"
            self._due = 0.0  # each further write raises the error
            raise RecordingError(self._failure) from error

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self, information: Mapping[str, str]) -> None:
        """Write the final ``information`` (outcome, reason, number of samples) and index the file.

        Further calls have no effect. Raises RecordingError on failure; :func:`recover` can then recover the data
        written so far.
        """
        if self._file.closed:
            return
        try:
            self._pending.append(_records(Metadata(INFORMATION, dict(information))))
            self.flush()
            index(self.path)
        finally:
            self._file.close()


class Inventory:
    """Collects the contents of a file from its records.

    ``counts`` holds the number of messages read in each channel, ``stated`` these numbers according to the index.
    """

    def __init__(self) -> None:
        # schema 0 belongs to channels without a schema
        self.schemas: dict[int, Schema] = {0: Schema(id=0, data=b"", encoding="", name="")}
        self.channels: dict[int, Channel] = {}
        self.counts: dict[int, int] = {}
        self.stated: dict[int, int] | None = None
        self.information: dict[str, str] = {}
        self.distribution = ""
        self.bag_metadata = ""
        """Text of ``metadata.yaml`` in an indexed file, without its top-level key."""

    def add(self, opcode: int, content: bytes) -> None:
        """Add a record. Raises ValueError if the record is damaged or belongs to an unknown channel."""
        if opcode == Opcode.MESSAGE:
            if len(content) < MESSAGE.size:
                raise ValueError("a message is too short for its header")
            number = MESSAGE.unpack_from(content)[0]
            if number not in self.channels:
                raise ValueError(f"a message belongs to the unknown channel {number}")
            self.counts[number] += 1
        elif opcode == Opcode.SCHEMA:
            schema = parsed(Schema, content)
            self.schemas.setdefault(schema.id, schema)
        elif opcode == Opcode.CHANNEL:
            self.add_channel(parsed(Channel, content))
        elif opcode == Opcode.METADATA:
            self.add_metadata(parsed(Metadata, content))
        elif opcode == Opcode.STATISTICS:
            self.stated = parsed(Statistics, content).channel_message_counts

    def add_channel(self, channel: Channel) -> None:
        if channel.id in self.channels:
            return
        if channel.schema_id not in self.schemas:
            raise ValueError(f"channel {channel.topic}: the definition of its message type is missing")
        self.channels[channel.id] = channel
        self.counts.setdefault(channel.id, 0)

    @property
    def messages(self) -> int:
        return sum(self.counts.values())

    @property
    def expected(self) -> dict[int, int]:
        return self.counts if self.stated is None else self.stated

    def add_metadata(self, record: Metadata) -> None:
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


@attrs.frozen
class Recovered:
    messages: int
    lost_bytes: int
    was_complete: bool
    path: Path
    notes: tuple[str, ...] = ()


class _Copy(Inventory):
    def __init__(self, out: IO[bytes]) -> None:
        super().__init__()
        zstd = CompressionType.ZSTD  # a dependency of the package mcap
        self._writer = McapWriter(out, chunk_size=_CHUNK_SIZE, compression=zstd, enable_data_crcs=True)
        self._writer.start(profile="ros2", library=LIBRARY)
        self._schemas: dict[int, int] = {0: 0}
        self._channels: dict[int, int] = {}
        self._first, self._last = 2**63, 0

    def add(self, opcode: int, content: bytes) -> None:
        super().add(opcode, content)
        if opcode == Opcode.MESSAGE:
            number, sequence, stamp, published = MESSAGE.unpack_from(content)
            data = content[MESSAGE.size :]
            self._writer.add_message(self._channels[number], stamp, data, published, sequence)
            self._first, self._last = min(stamp, self._first), max(stamp, self._last)

    def add_channel(self, channel: Channel) -> None:
        super().add_channel(channel)
        if channel.id in self._channels:
            return
        schema = self.schemas[channel.schema_id]
        if schema.id not in self._schemas:
            self._schemas[schema.id] = self._writer.register_schema(schema.name, schema.encoding, schema.data)
        self._channels[channel.id] = self._writer.register_channel(
            channel.topic, channel.message_encoding, self._schemas[schema.id], channel.metadata
        )

    def add_metadata(self, record: Metadata) -> None:
        super().add_metadata(record)
        if record.name == INFORMATION:
            self._writer.add_metadata(INFORMATION, record.metadata)

    def finish(self, file_name: str) -> str:
        topics = [
            {"topic_metadata": self._topic_metadata(channel), "message_count": self.counts[number]}
            for number, channel in self.channels.items()
        ]
        bag = {
            "version": METADATA_VERSION,
            "storage_identifier": "mcap",
            **self._span(),
            "topics_with_message_count": topics,
            "compression_format": "",
            "compression_mode": "",
            "relative_file_paths": [file_name],
            "files": [{"path": file_name, **self._span()}],
            "custom_data": dict(self.information) or None,
            "ros_distro": self.distribution,
        }
        self._writer.add_metadata(ROSBAG2, {"serialized_metadata": dump(bag), "ROS_DISTRO": self.distribution})
        self._writer.finish()
        return dump({BAG: bag})

    def _span(self) -> dict[str, object]:
        start = self._first if self.messages else 0
        return {
            "duration": {"nanoseconds": self._last - start},
            "starting_time": {"nanoseconds_since_epoch": start},
            "message_count": self.messages,
        }

    def _topic_metadata(self, channel: Channel) -> dict[str, object]:
        return {
            "name": channel.topic,
            "type": self.schemas[channel.schema_id].name,
            "serialization_format": channel.message_encoding,
            "offered_qos_profiles": offered(channel.metadata.get("offered_qos_profiles", "")),
            "type_description_hash": channel.metadata.get("topic_type_hash", ""),
        }


def index(path: Path, target: Path | None = None, recovering: bool = False) -> Recovered:
    """Copy the complete records of ``path`` to an indexed file: ``target`` or, by default, ``path`` itself.

    If ``recovering`` is true, the new file describes the lost data. Memory use does not depend on the file size,
    but the copy needs disk space. Raises RecordingError if the copy fails; ``path`` is then unchanged.
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
                copy.add_metadata(Metadata(INFORMATION, missing))
            lost, description = contents.lost_bytes, _description(contents)
            if recovering:
                copy.add_metadata(Metadata(INFORMATION, {"recovered": "; ".join(description)}))
            text = copy.finish(target.name)
            out.flush()
            os.fsync(out.fileno())
        text_files.write(target.with_name(METADATA), text.encode())
        notes = contents.damage + (_kept(path) if target == path and (contents.damage or lost > _TORN) else [])
        part.replace(target)
    except (OSError, McapError, RecordingError) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise RecordingError(
            f"{path}: could not be indexed in {target.parent} ({reason(error)}). Try again, or use another disk "
            f"with rths recover {quoted(path.parent)} --out DIR"
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


@attrs.frozen
class Bag:
    """Recording opened for reading: its messages, and the information about the test.

    ``notes`` describe an unfinished journal and its lost data. ``size`` is the number of bytes to read.
    """

    path: Path
    information: dict[str, str]
    topics: dict[str, Topic]
    counts: dict[str, int]
    definitions: dict[str, str]
    size: int
    notes: tuple[str, ...] = ()

    def messages(self) -> Iterator[tuple[str, bytes, int]]:
        """Yield topic, CDR bytes and stamp (ns) of each message, in the order in which they were written.

        Raises RecordingError for a damaged indexed file. Damaged messages of a journal are skipped.
        """
        inventory = Inventory()
        unfinished = bool(self.notes)
        with self.path.open("rb") as stream:
            contents = Contents(stream, self.size, lenient=unfinished)
            try:
                for opcode, content in contents.taken(inventory.add):
                    if opcode == Opcode.MESSAGE:
                        number, _, stamp, _ = MESSAGE.unpack_from(content)
                        yield inventory.channels[number].topic, content[MESSAGE.size :], stamp
            except RecordingError as error:
                raise RecordingError(f"{self.path}: {error}") from error
        count, stated = inventory.messages, sum(self.counts.values())
        if count != stated or (contents.lost_bytes and not unfinished):
            raise RecordingError(f"{self.path}: is damaged; only {count} of {stated} messages can be read")


def read(path: Path | str) -> Bag:
    """Open the recording at ``path``.

    The file is scanned completely if it has no index, or an index without message counts or metadata. Raises
    ConfigError if the file is unreadable, or if an indexed recording is damaged.
    """
    file = recording(path)
    inventory = Inventory()
    try:
        if footer_of(file) is None:
            return _unfinished(file, path)
        _read_index(file, inventory)
        incomplete = inventory.stated is None or not inventory.information  # all parts of an index are optional
        if incomplete and _scanned(file, inventory).lost_bytes:
            raise RecordingError("the messages are damaged")
    except (RecordingError, ValueError) as error:
        raise ConfigError(f"{file}: {error}. Save the undamaged part with rths recover {quoted(path)}") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({reason(error)})") from error
    return _bag(file, inventory, inventory.expected, file.stat().st_size)


def _read_index(file: Path, inventory: Inventory) -> None:
    if (footer := footer_of(file)) is not None and footer.summary_start:
        for opcode, content in summary(file):
            inventory.add(opcode, content)


def _scanned(file: Path, inventory: Inventory, lenient: bool = False) -> Contents:
    with file.open("rb") as stream:
        contents = Contents(stream, stream.seek(0, 2), lenient)
        for _ in contents.taken(inventory.add):
            pass
    return contents


def _unfinished(file: Path, path: Path | str) -> Bag:
    inventory = Inventory()
    contents = _scanned(file, inventory, lenient=True)
    lost = f" (lost bytes: {contents.lost_bytes})" if contents.lost_bytes else ""
    state, hint = "was not finished by its recorder", f". Finish the recording with rths recover {quoted(path)}"
    with file.open("rb") as stream:
        if locked(stream):
            state, hint = "is being recorded or recovered now", ""
    notes = [f"{state}; only the complete part is read{lost}{hint}", *contents.damage]
    return _bag(file, inventory, inventory.counts, contents.size, tuple(f"{path}: {note}" for note in notes))


def _bag(
    file: Path, inventory: Inventory, counts: Mapping[int, int], size: int, notes: tuple[str, ...] = ()
) -> Bag:
    topics, texts = {}, {}
    numbers: dict[str, int] = {}
    for channel in inventory.channels.values():
        schema, name = inventory.schemas[channel.schema_id], channel.topic
        qos = offered(channel.metadata.get("offered_qos_profiles", ""))
        topics[name] = Topic(name, schema.name, (qos or [{}])[0])
        texts[name] = schema.data.decode(errors="replace")
        numbers[name] = numbers.get(name, 0) + counts.get(channel.id, 0)
    return Bag(file, inventory.information, topics, numbers, texts, size, notes)


def recover(directory: Path | str, out: Path | str | None = None) -> Recovered:
    """Index the journal of a killed recorder. ``directory`` may also be the journal file itself.

    If the recording is complete, at most ``metadata.yaml`` is rewritten. Damaged parts are omitted and reported.
    If ``out`` is given, the result is created in this directory and the original is not changed. Raises
    ConfigError if the recording is missing, in use or from another recorder. With ``out``, it is also raised if
    the recording is complete or ``out`` contains a recording. Raises RecordingError if writing fails.
    """
    path = recording(directory)
    if out is not None:
        check_free(Path(out))
    try:
        if footer_of(path) is not None and (inventory := _undamaged(path)) is not None:
            if out is not None:
                raise ConfigError(f"{directory}: is complete; copy it instead of recovering it in {out}")
            notes = _restored_metadata(path, inventory) if Path(directory).is_dir() else ()
            return Recovered(inventory.messages, 0, True, Path(directory), notes)
        with path.open("rb") as stream:
            _check_own(path, stream)
            if locked(stream):
                raise ConfigError(f"{path}: is being recorded or recovered now")
            return index(path, recovering=True) if out is None else _recovered_in(path, Path(out))
    except OSError as error:
        raise RecordingError(f"{path}: {reason(error)}") from error


def _check_own(path: Path, stream: IO[bytes]) -> None:
    stated = None
    with contextlib.suppress(RecordingError, ValueError):
        opcode, content = next(iter(Contents(stream, path.stat().st_size)), (0, b""))
        stated = parsed(Header, content).library if opcode == Opcode.HEADER else None
    if stated is None:
        raise ConfigError(f"{path}: the beginning of the recording is damaged or missing")
    if not stated.startswith(LIBRARY):
        raise ConfigError(f"{path}: was recorded by {stated!r}, not by rths_nodes; try `mcap recover`")


def _undamaged(path: Path) -> Inventory | None:
    """Return the contents of an indexed file, or None if it is damaged or differs from its index."""
    inventory = Inventory()
    try:
        _read_index(path, inventory)
        lost_bytes = _scanned(path, inventory).lost_bytes
    except (RecordingError, ValueError):
        return None
    return None if lost_bytes or inventory.messages != sum(inventory.expected.values()) else inventory


def _recovered_in(path: Path, directory: Path) -> Recovered:
    new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{directory}: a recording cannot be created there ({reason(error)})") from error
    try:
        return index(path, directory / f"{directory.resolve().name}_0.mcap", recovering=True)
    except RecordingError:
        if new:
            with contextlib.suppress(OSError):
                directory.rmdir()
        raise


def _restored_metadata(path: Path, inventory: Inventory) -> tuple[str, ...]:
    file = path.with_name(METADATA)
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        if path.name in parse(read_text(file), file.name)[BAG]["relative_file_paths"]:
            return ()
    try:
        bag = parse(inventory.bag_metadata, file.name)
    except ConfigError:
        bag = None
    if not isinstance(bag, dict) or bag.get("message_count") != inventory.messages:
        return ()  # another program wrote this file, or it has no metadata of rosbag2
    bag["relative_file_paths"] = [path.name]  # the file may have been renamed
    bag["files"] = [{**entry, "path": path.name} for entry in bag.get("files") or ()]
    text_files.write(file, dump({BAG: bag}).encode())
    return (f"{file.name} was missing or damaged and has been rewritten",)
