# SPDX-License-Identifier: Apache-2.0
"""The key of the operators of a rig: 32 random bytes in a file that its owner alone can read.

It is handed on as such a file, and never in an argument, a variable of the environment, a parameter, a log or a
recording.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from rths_nodes.core.errors import ConfigError

KEY_BYTES = 32
OWNER_ALONE = 0o600
_LONGEST = 1024


def default_path() -> Path:
    """Where the key stands unless said otherwise: in the user's configuration."""
    return (
        Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "rths_nodes" / "operator.key"
    )


def read(path: str | os.PathLike[str]) -> bytes:
    """The key in a file, (32,) bytes. Raises ConfigError where others may read it, and where it holds none."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _check(os.fstat(file.fileno()), path)
            text = file.read(_LONGEST)
    except OSError as error:
        raise ConfigError(f"key {str(path)!r}: cannot be read ({error.strerror})") from None
    with suppress(ValueError):
        if len(key := bytes.fromhex(text.decode().strip())) == KEY_BYTES:
            return key
    raise ConfigError(f"key {str(path)!r}: must hold {2 * KEY_BYTES} hexadecimal digits")


def _check(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"key {str(path)!r}: is not a regular file")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"key {str(path)!r}: belongs to user {found.st_uid}, must belong to user {os.geteuid()}")
    if (mode := stat.S_IMODE(found.st_mode)) & ~OWNER_ALONE:
        raise ConfigError(
            f"key {str(path)!r}: has mode {mode:04o}, must be {OWNER_ALONE:04o}: others may have read it; make a "
            "new one where they could"
        )


def create(path: str | os.PathLike[str]) -> None:
    """Draw a key into a new file. Raises ConfigError where it cannot be written, FileExistsError where one is."""
    folder = Path(path).parent
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ALONE)
        with open(made, "w", encoding="utf-8") as file:
            file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.is_dir():
            raise
        raise ConfigError(f"key {str(path)!r}: cannot be written ({error.strerror})") from None
