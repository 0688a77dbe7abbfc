# SPDX-License-Identifier: Apache-2.0
"""Complete what a killed recorder left, and make anew what is damaged: without a loss of what is whole."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import IO

from mcap.opcode import Opcode
from mcap.records import Header

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import read_text
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.recording.journal import BAG, METADATA, Inventory, Recovered, index, write_metadata
from rths_nodes.recording.records import (
    LIBRARY,
    Contents,
    RecordingError,
    check_free,
    is_indexed,
    parsed,
    reason,
    recording,
    summary,
)


def recover(directory: Path | str, out: Path | str | None = None) -> Recovered:
    """Index the journal that a killed recorder left, in ``directory`` or as a file; a whole recording stays.

    What is damaged is left out, and said. With ``out`` the recording is made in that directory, and what was there
    before is not touched. Raises ConfigError where there is no recording, where it is still being made, where
    another recorder made it, or ``out`` is taken; RecordingError when the disk does not allow it.
    """
    path = recording(directory)
    if out is not None:
        check_free(Path(out))
    try:
        if is_indexed(path):
            messages, damage = _examined(path)
            if not damage:
                notes = _restored_metadata(path) if Path(directory).is_dir() and out is None else ()
                return Recovered(messages, 0, True, Path(directory), notes)
        with path.open("rb") as stream:
            _check_own(path, stream)
            if _locked(stream):
                raise ConfigError(f"{path}: is being recorded, or recovered, at this moment")
            return index(path, recovering=True) if out is None else _recovered_in(path, Path(out))
    except OSError as error:
        raise RecordingError(f"{path}: {reason(error)}") from error


def _check_own(path: Path, stream: IO[bytes]) -> None:
    stated = None
    with contextlib.suppress(RecordingError, ValueError):
        opcode, content = next(iter(Contents(stream, path.stat().st_size)), (0, b""))
        stated = parsed(Header, content).library if opcode == Opcode.HEADER else None
    if stated is None:
        raise ConfigError(f"{path}: not even the beginning of a recording is there")
    if not stated.startswith(LIBRARY):
        raise ConfigError(f"{path}: recorded by {stated!r}, not by rths_nodes: try `mcap recover`")


def in_use(path: Path) -> bool:
    """True where a recorder, or another recovery, has the file open for itself."""
    with path.open("rb") as stream:
        return _locked(stream)


def _locked(stream: IO[bytes]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False


def _examined(path: Path) -> tuple[int, list[str]]:
    """Return how many messages an indexed file has, and what of it is damaged, in words."""
    found = Inventory()
    try:
        for opcode, content in summary(path):
            found.add(opcode, content)
        with path.open("rb") as stream:
            contents = Contents(stream, stream.seek(0, 2))
            for _ in contents.taken(found.add):
                pass
    except (RecordingError, ValueError) as error:
        return 0, [str(error)]
    messages = sum(found.counts.values())
    if contents.lost_bytes or found.stated is None or messages != sum(found.stated.values()):
        return messages, ["the index is not that of the messages"]
    return messages, []


def _recovered_in(path: Path, directory: Path) -> Recovered:
    """The recording of ``path`` made in a directory of its own; nothing is left there where that fails."""
    new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot record there ({reason(error)})") from error
    try:
        return index(path, directory / f"{directory.resolve().name}_0.mcap", recovering=True)
    except RecordingError:
        if new:
            with contextlib.suppress(OSError):
                directory.rmdir()
        raise


def _restored_metadata(path: Path) -> tuple[str, ...]:
    file = path.with_name(METADATA)
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        if isinstance(parse(read_text(file), file.name)[BAG], dict):
            return ()
    found = Inventory()
    for opcode, content in summary(path):
        found.add(opcode, content)
    try:
        bag = parse(found.bag_metadata, file.name)
    except ConfigError:
        bag = None
    if not isinstance(bag, dict):
        return ()  # made by another recorder, or without rosbag2
    write_metadata(file, dump({BAG: bag}))
    return (f"{file.name} was missing or damaged: written anew",)
