# SPDX-License-Identifier: Apache-2.0
"""FMU as an untrusted zip archive, checked before any file is written.

An archive is refused if it is damaged, if it would fill the disk, or if the name of a member leads out of the
target folder. Only the description, the binary of this platform and the resources are unpacked.
"""

from __future__ import annotations

import lzma
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import reason, size_of

DESCRIPTION = "modelDescription.xml"
RESOURCES = "resources/"

LARGEST_UNPACKED = 1 << 30
LARGEST_DESCRIPTION = 64 << 20
"""Largest size of the description, bytes. A hundred thousand variables take about 20 MB."""
MOST_MEMBERS = 20_000
LARGEST_DIRECTORY = 16 << 20
"""Largest size of the directory at the end of the archive, bytes. A member takes a few hundred bytes."""
HIGHEST_RATIO = 100
"""Largest mean compression ratio. Text reaches 20, and deflated zeros reach 1032."""
SMALL = 64 << 20
LARGEST_SHARE = 0.5

DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError, ValueError)

END, LOCATOR, END_64 = 22, 20, 56
"""Sizes of the end record of an archive without comment, and of the two zip64 records before it, bytes."""
TAIL = END_64 + LOCATOR + END + (1 << 16)


def directory_size(tail: bytes) -> int:
    """Return the size of the directory from the last TAIL bytes of an archive; 0 if they have no end record."""
    plain = tail[-END:].startswith(b"PK\5\6") and tail.endswith(b"\0\0")
    end = len(tail) - END if plain else tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) < end + END:
        return 0
    size = int.from_bytes(tail[end + 12 : end + 16], "little")
    large = end - LOCATOR - END_64
    if large >= 0 and tail[end - LOCATOR :].startswith(b"PK\6\7"):
        size = max(size if size != 0xFFFFFFFF else 0, int.from_bytes(tail[large + 40 : large + 48], "little"))
    return size


class Archive:
    """Reads the members of an FMU from the directory of the archive.

    Raises ConfigError for an FMU that must not be unpacked.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._check_directory()
        with self._opened() as opened:
            members = opened.infolist()
        if len(members) > MOST_MEMBERS:
            raise ConfigError(f"the archive has {len(members)} members: must be <= {MOST_MEMBERS}")
        size = sum(member.file_size for member in members)
        packed = sum(member.compress_size for member in members)
        if size > LARGEST_UNPACKED or size > max(SMALL, HIGHEST_RATIO * packed):
            raise ConfigError(
                f"the archive would unpack from {size_of(packed)} to {size_of(size)}: must be <= "
                f"{size_of(LARGEST_UNPACKED)} and, above {size_of(SMALL)}, <= {HIGHEST_RATIO} times the packed "
                "size"
            )
        self._whole = size
        self._members = [(_checked(member.orig_filename), member) for member in members]
        self.names: Sequence[str] = [name for name, _ in self._members]
        if len({name.rstrip("/") for name in self.names}) < len(self.names):
            raise ConfigError("the archive has two members of the same name")
        if DESCRIPTION not in self.names:
            raise ConfigError(f"the file is not an FMU, because it has no {DESCRIPTION}")

    def _check_directory(self) -> None:
        try:
            with Path(self.path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                directory = directory_size(file.read(TAIL))
        except OSError as error:
            raise ConfigError(f"the file cannot be read ({reason(error)})") from error
        if directory > LARGEST_DIRECTORY:
            raise ConfigError(
                f"the archive has a directory of {size_of(directory)}: must be <= {size_of(LARGEST_DIRECTORY)}"
            )

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as opened:
                yield opened
        except ConfigError:
            raise
        except OSError as error:
            raise ConfigError(f"the file cannot be read ({reason(error)})") from error
        except DAMAGED as error:
            raise ConfigError(f"the archive cannot be unpacked ({error})") from error

    def description(self) -> bytes:
        with self._opened() as opened:
            member = dict(self._members)[DESCRIPTION]
            if (size := member.file_size) > LARGEST_DESCRIPTION:
                raise ConfigError(f"{DESCRIPTION} has {size_of(size)}: must be <= {size_of(LARGEST_DESCRIPTION)}")
            return opened.read(member)

    def unpack(self, folder: Path, binaries: str) -> None:
        """Write description, resources and the files below ``binaries`` to ``folder``.

        Raises ConfigError if the archive is damaged or too large for the disk.
        """
        free = shutil.disk_usage(folder).free
        if self._whole > LARGEST_SHARE * free:
            raise ConfigError(
                f"the archive would unpack {size_of(self._whole)} into {folder.parent}: must be <= "
                f"{size_of(int(LARGEST_SHARE * free))}, which is half of the free space there"
            )
        with self._opened() as opened:
            for name, member in self._members:
                if member.is_dir() or not (name == DESCRIPTION or name.startswith((RESOURCES, f"{binaries}/"))):
                    continue
                target = folder.joinpath(*PurePosixPath(name).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with (
                    opened.open(member) as source,
                    target.open("xb") as written,
                ):  # a symbolic link is written as a text file
                    shutil.copyfileobj(source, written)
        (folder / RESOURCES).mkdir(exist_ok=True)  # an FMU receives this path even if it has no resources


def _checked(name: str) -> str:
    name = name.removeprefix("./")
    parts = name.rstrip("/").split("/")
    if "\\" in name or ":" in name or "\0" in name or not all(part not in ("", ".", "..") for part in parts):
        raise ConfigError(
            f"the archive has a member {name!r}, which must be in the folder of the archive or below"
        )
    return name
