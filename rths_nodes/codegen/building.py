# SPDX-License-Identifier: Apache-2.0
"""Build C texts with the machine's compiler, and keep the libraries in a folder of the user.

A library is stored under a key of its text, compiler, flags and C library, next to its text and a file with its
hash. It is loaded only if the hash is right. If nothing can be kept, it is built in a private folder that ends
with the process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rths_nodes.core.errors import ConfigError

COMPILERS = ("cc", "gcc", "clang")
"""Names of compilers, in the order of preference; the variable CC comes before them."""
ELEMENTARY = ("exp", "log", "pow", "sin", "cos", "tanh")
FLAGS = (
    *("-std=c99", "-shared", "-fPIC", "-O3", "-fno-math-errno"),
    *(("-march=native",) if platform.machine() == "x86_64" else ()),  # on others gcc or clang refuses it
    "-ffp-contract=off",  # a fused product and sum has other bits
    *(f"-fno-builtin-{name}" for name in ELEMENTARY),  # a compiler may fold literals with other bits
)
PRIVATE = 0o700
SMALLEST_ROOM = 1 << 20
"""Free bytes of a file system up to which a failed compiler counts as a full device."""


class Unbuilt(ConfigError):
    """A text without a library: the reason, for a user."""


class Toolchain(NamedTuple):
    """A C compiler and the identity of its output: version, processor, C library and flags."""

    compiler: str
    identity: str


class Library(NamedTuple):
    """A loaded library, its SHA-256, and notes for the user."""

    handle: ctypes.CDLL
    digest: str
    notes: tuple[str, ...] = ()


def folder() -> Path:
    """Return the folder of libraries: below ``XDG_CACHE_HOME``, or ``.cache`` in the home of the user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rths_nodes" / "kernels"


def toolchain(named: str = "") -> Toolchain:
    """Return the compiler of this machine. Raises Unbuilt if there is none that works."""
    chosen = named or os.environ.get("CC", "")
    return first_of((chosen,) if chosen else COMPILERS)


@cache
def first_of(names: tuple[str, ...]) -> Toolchain:
    """Return the first compiler of these that works. Raises Unbuilt if none does."""
    for name in names:
        command = shutil.which(name)
        if command is None:
            continue
        done = subprocess.run(
            [command, "--version"], capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
        )
        if done.returncode == 0:
            library = " ".join(part for part in platform.libc_ver() if part)
            parts = done.stdout.partition("\n")[0], platform.machine(), instructions(), library, *FLAGS
            return Toolchain(command, " ".join(parts))
    raise Unbuilt(f"no C compiler ({', '.join(names)}): install gcc (sudo apt install gcc)")


def instructions() -> str:
    """Return the instruction sets of this processor as Linux lists them; empty if it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("flags")), "")


def key_of(text: str, tools: Toolchain) -> str:
    """Return the name under which the library of a C text is kept."""
    return hashlib.sha256(f"{tools.identity}\0{text}".encode()).hexdigest()[:32]


def kept(key: str) -> Library | None:
    """Load the library that is kept under ``key``; None if there is none, or if it is not as it was written."""
    directory = folder()
    try:
        check_private(directory)
        digest = json.loads((directory / f"{key}.json").read_text(encoding="utf-8"))["sha256"]
        path = directory / f"{key}.so"
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return None
        return Library(ctypes.CDLL(str(path)), digest)
    except (OSError, ValueError, KeyError, TypeError, Unbuilt):
        return None


def built(text: str, tools: Toolchain) -> Library:
    """Return the library of a C ``text``, from the folder if it is there. Raises Unbuilt.

    If the folder cannot keep it, a note says why, and the library is built for this process alone.
    """
    directory, key = folder(), key_of(text, tools)
    if library := kept(key):
        return library
    try:
        make_private(directory)
        with (directory / f"{key}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process builds a library
            if library := kept(key):
                return library
            damaged = (directory / f"{key}.so").exists()
            notes = (f"{directory}: a library there was damaged; it was built again",) if damaged else ()
            return _made(directory, key, text, tools)._replace(notes=notes)
    except (OSError, Unbuilt) as error:
        if isinstance(error, Refused):
            raise
        reason = str(error.strerror or error) if isinstance(error, OSError) else str(error)
        note = f"{directory}: {reason}; the compiled loop is not kept for the next process"
    with tempfile.TemporaryDirectory(prefix="rths_nodes_") as private:
        try:
            return _made(Path(private), key, text, tools)._replace(notes=(note,))
        except OSError as error:
            raise Unbuilt(f"{private}: {error.strerror or error}: no compiled loop can be loaded") from error


class Refused(Unbuilt):
    """A text that the compiler refuses, or that it did not finish."""


def _made(directory: Path, key: str, text: str, tools: Toolchain) -> Library:
    source, library, record = (directory / f"{key}.{kind}" for kind in ("c", "so", "json"))
    new, written = (directory / f"{key}.{os.getpid()}.{kind}" for kind in ("new", "facts"))
    try:
        source.write_text(text, encoding="utf-8")
        command = [tools.compiler, *FLAGS, "-o", str(new), str(source), "-lm"]
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
        )
        system = os.statvfs(directory)
        if done.returncode != 0:
            if system.f_bavail * system.f_frsize <= SMALLEST_ROOM:
                raise OSError(errno.ENOSPC, "no space left on the device")
            code = done.returncode
            first = (done.stderr or f"exit code {code}").strip().partition("\n")[0]
            first = f"ended by signal {-code}" if code < 0 else first
            raise Refused(f"{tools.compiler} does not compile {source.name}: {first}")
        digest = hashlib.sha256(new.read_bytes()).hexdigest()
        if system.f_flag & os.ST_NOEXEC:
            raise OSError(errno.EACCES, "mounted noexec")
        handle = ctypes.CDLL(str(new))
        written.write_text(json.dumps({"sha256": digest}), encoding="utf-8")
        new.replace(library)
        written.replace(record)
    finally:
        for left in (new, written):
            left.unlink(missing_ok=True)
    return Library(handle, digest)


def make_private(directory: Path) -> None:
    """Make a folder for its owner alone. Raises OSError, and Unbuilt if it belongs to others."""
    directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Raises Unbuilt unless ``directory`` is a folder that only this user may read and write."""
    state = directory.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise Unbuilt(
            f"not a folder of mode 0700 that belongs to this user (user {state.st_uid}, mode "
            f"{stat.S_IMODE(state.st_mode):04o})"
        )
