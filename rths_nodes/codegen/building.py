# SPDX-License-Identifier: Apache-2.0
"""Compile C sources with the machine's compiler, and store the libraries in the user's cache folder.

The file name of a library contains its hash and a key of its source, compiler, processor, flags and C library. A
library is loaded only if its hash matches.

The last bits of ``exp``, ``log``, ``pow``, ``sin``, ``cos`` and ``tanh`` depend on the C library. These functions
must return the stored results, which are valid for glibc 2.28 or later on x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rths_nodes.core.errors import ConfigError

COMPILERS = ("cc", "gcc", "clang")
"""Names of compilers, in order of preference. The environment variable CC takes precedence."""
ARGUMENTS = (0.1, 0.7, 1.3, 2.9, 7.7, 23.1, 101.3, 487.9)
EXPONENT = 1.7
RESULTS = {
    "exp": "0x1.1aec7b35a00d4p+0 0x1.01c2a61268987p+1 0x1.d5ab83615f8b4p+1 0x1.22c94ca7a81fep+4 "
    "0x1.140b22bfe1dacp+11 0x1.40f6164d942dep+33 0x1.1b118c46709eep+146 0x1.dab66b2a98274p+703",
    "log": "-0x1.26bb1bbb55515p+1 -0x1.6d3c324e13f50p-2 0x1.0ca937be1b9dcp-2 0x1.1090e20315212p+0 "
    "0x1.0546b52e30f62p+1 0x1.91e60903990e7p+1 0x1.278eba4e9c340p+2 0x1.8c2ac517681efp+2",
    "pow": "0x1.46e75df96dc9ap-6 0x1.1736b10d5852ep-1 0x1.8fe493556f45bp+0 0x1.8712659f1c24ap+2 "
    "0x1.011cf4b56099ep+5 0x1.a012e410c7415p+7 0x1.40f4d8156edc2p+11 0x1.225ed5f723deep+15",
    "sin": "0x1.98eaecb8bcb2cp-4 0x1.49d6e694619b8p-1 0x1.ed577f9c51e4bp-1 0x1.e9fb8d64830e3p-3 "
    "0x1.f9f12fcee5458p-1 -0x1.ca55ffa927dccp-1 0x1.6410ffbd9fe73p-1 -0x1.a166c5ddec65cp-1",
    "cos": "0x1.fd712f9a817c1p-1 0x1.87996529f9d93p-1 0x1.11eb3682a4c5fp-2 -0x1.f1216dba340c9p-1 "
    "0x1.3a1c134c1c59ep-3 -0x1.c862f5a04023cp-2 0x1.6fe9fc6aca920p-1 -0x1.28835b20273cep-1",
    "tanh": "0x1.983d7795f413ap-4 0x1.356fb17af2e92p-1 0x1.b933c726e9b3ap-1 0x1.fce8bd82660e8p-1 "
    "0x1.fffff23d39f08p-1 0x1.0000000000000p+0 0x1.0000000000000p+0 0x1.0000000000000p+0",
}
CALLS = "#include <math.h>\n" + "".join(
    f"double of_{name}(double x) {{ return {name}(x{f', {EXPONENT}' if name == 'pow' else ''}); }}\n"
    for name in RESULTS
)
# Except on x86-64, gcc or clang refuses -march=native. The last options make results bit-identical: a fused
# multiply-add rounds differently, gcc 12 rounds some statements differently when it vectorizes them, and constant
# folding may change the last bits.
FLAGS = (
    *("-std=c99", "-fPIC", "-O3", "-fno-math-errno"),
    *(("-march=native",) if platform.machine() == "x86_64" else ()),
    "-ffp-contract=off",
    "-fno-tree-slp-vectorize",
    *(f"-fno-builtin-{name}" for name in RESULTS),
)
LIBRARY, PROGRAM = ".so", ".bin"
KINDS = {LIBRARY: ("-shared",), PROGRAM: ("-pthread",)}
PRIVATE = 0o700
SMALLEST_ROOM = 1 << 20
"""Largest free space, bytes, at which a compiler failure is attributed to a full device."""


class Unbuilt(ConfigError):
    """Raised if a C source cannot be built. The message states the reason."""


Toolchain = tuple[str, str]
"""Path of a C compiler, and the properties that determine its output: version, processor, C library and flags."""


class Library(NamedTuple):
    """Loaded library, or program opened for reading.

    ``handle`` is the library, or the descriptor of the program. ``digest`` is the SHA-256 hash of the file.
    """

    handle: Any
    digest: str
    notes: tuple[str, ...] = ()


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rths_nodes" / "kernels"


def toolchain() -> Toolchain:
    return first_of((os.environ["CC"],) if os.environ.get("CC") else COMPILERS)


@cache
def first_of(names: tuple[str, ...]) -> Toolchain:
    for name in names:
        command = shutil.which(name)
        if command is None:
            continue
        done = _run(command, "--version")
        if done.returncode == 0:
            machine = platform.machine(), instructions(), *platform.libc_ver()
            return command, " ".join([done.stdout.partition("\n")[0], *machine, *FLAGS])
    raise Unbuilt(f"no C compiler was found ({', '.join(names)}). Install gcc (sudo apt install gcc)")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)


def instructions() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("flags")), "")


def key_of(text: str, tools: Toolchain) -> str:
    return hashlib.sha256(f"{tools[1]}\0{text}".encode()).hexdigest()[:32]


def kept(key: str, kind: str = LIBRARY) -> Library | None:
    with suppress(OSError):
        check_private(folder())
        for path in folder().glob(f"{key}-*{kind}"):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if path.stem == f"{key}-{digest}":
                return Library(_opened(path, kind), digest)
    return None


def _opened(path: Path, kind: str) -> object:
    return ctypes.CDLL(str(path)) if kind == LIBRARY else os.open(path, os.O_RDONLY)


def built(text: str, tools: Toolchain, kind: str = LIBRARY) -> Library:
    """Return the library or program of the C source ``text``, compiled unless the cache folder contains it.

    If the cache folder cannot be used, the binary is built in a temporary folder for this process only, and a
    note states the reason. Raises Unbuilt if the source cannot be compiled or loaded.
    """
    directory, key = folder(), key_of(text, tools)
    if library := kept(key, kind):
        return library
    try:
        directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        check_private(directory)
        with (directory / f"{key}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time builds a library
            if library := kept(key, kind):
                return library
            damaged = [*directory.glob(f"{key}-*{kind}")]
            for path in damaged:
                path.unlink()
            notes = (f"{directory}: a damaged library was rebuilt",) if damaged else ()
            return _made(directory, key, text, tools, kind)._replace(notes=notes)
    except OSError as error:
        note = f"{directory}: {error.strerror or error}. The compiled loop is not stored for later processes"
    with tempfile.TemporaryDirectory(prefix="rths_nodes_") as private:
        try:
            return _made(Path(private), key, text, tools, kind)._replace(notes=(note,))
        except OSError as error:
            raise Unbuilt(f"{private}: no compiled loop can be loaded ({error.strerror or error})") from error


def _made(directory: Path, key: str, text: str, tools: Toolchain, kind: str) -> Library:
    """Compile ``text`` to a library or program. Raises Unbuilt if the compiler fails or does not finish."""
    source, new = directory / f"{key}.c", directory / f"{key}.{os.getpid()}.new"
    try:
        source.write_text(text, encoding="utf-8")
        done = _run(tools[0], *FLAGS, *KINDS[kind], "-o", str(new), str(source), "-lm")
        system = os.statvfs(directory)
        if done.returncode != 0:
            if system.f_bavail * system.f_frsize <= SMALLEST_ROOM:
                raise OSError(errno.ENOSPC, "no space left on the device")
            first = (done.stderr or f"exit code {done.returncode}").strip().partition("\n")[0]
            first = f"the compiler was terminated by signal {-done.returncode}" if done.returncode < 0 else first
            raise Unbuilt(f"{tools[0]} cannot compile {source.name}: {first}")
        digest = hashlib.sha256(new.read_bytes()).hexdigest()
        if system.f_flag & os.ST_NOEXEC:
            raise OSError(errno.EACCES, "mounted noexec")
        handle = _opened(new, kind)
        new.replace(directory / f"{key}-{digest}{kind}")
    finally:
        new.unlink(missing_ok=True)
    return Library(handle, digest)


def check_private(directory: Path) -> None:
    """Raise OSError if other users could change the files in ``directory``."""
    state = directory.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise OSError(
            f"must be a folder of this user with the mode 0700, but belongs to the user {state.st_uid} and has "
            f"the mode {stat.S_IMODE(state.st_mode):04o}"
        )


@cache
def check_elementary(tools: Toolchain) -> None:
    """Raise Unbuilt if results of the C library's functions differ in any bit from the stored results."""
    library = built(CALLS, tools)
    for name, expected in RESULTS.items():
        function = getattr(library.handle, f"of_{name}")
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        for argument, result in zip(ARGUMENTS, map(float.fromhex, expected.split()), strict=True):
            if (computed := function(argument)) != result:
                raise Unbuilt(f"{name}({argument}) of this C library is {computed!r}: must be {result!r}")
