# SPDX-License-Identifier: Apache-2.0
"""Both ends of a connection of ``examples/hybrid_client``: its library, and misbehaving laboratories."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import module_of

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "examples" / "hybrid_client"
STRICT = (
    *("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow"),
    *("-Wdouble-promotion", "-Werror"),
)

OK, ARGUMENT, NOBODY, TIMEOUT, CLOSED, BROKEN, ORDER, GARBAGE, UNKNOWN, FULL = range(0, -10, -1)
FAILURES = {TIMEOUT, CLOSED, BROKEN, GARBAGE}


def compiler() -> str:
    """Return the C compiler; skip the test if none is installed."""
    names = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    return names[0] if names else pytest.skip("no C compiler here")


def python_client() -> Any:
    """Load the module ``rths_client.py``, which is in no package."""
    return module_of(CLIENT / "rths_client.py")


def library(folder: Path) -> Any:
    """Compile and load ``rths_client.c``."""
    built = folder / "rths_client.so"
    command = [compiler(), *STRICT, "-O2", "-shared", "-fPIC", CLIENT / "rths_client.c", "-o", built]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(built))
    real = ctypes.POINTER(ctypes.c_double)
    number, double = ctypes.c_int, ctypes.c_double
    loaded.rths_client_connect.argtypes = (ctypes.c_char_p, number, number, double, double)
    loaded.rths_client_trial.argtypes = (number, real, real, real, double)
    for name in ("force", "stiffness", "damping", "mass"):
        getattr(loaded, f"rths_client_{name}").argtypes = (number, real)
    loaded.rths_client_words.restype = ctypes.c_char_p
    return loaded


def talker(folder: Path, cc: str = "", *flags: str) -> Path:
    """Compile the program ``talker.c``."""
    built = folder / "talker"
    sources = [CLIENT / "rths_client.c", Path(__file__).with_name("talker.c")]
    command = [cc or compiler(), *STRICT, "-O1", "-g", *flags, f"-I{CLIENT}", *sources, "-o", built]
    subprocess.run(command, check=True)
    return built


def reals(*values: float) -> Any:
    return (ctypes.c_double * len(values))(*values)


# -- misbehaving laboratories


def _received(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def _answer(rng: np.random.Generator, length: int) -> tuple[bytes, float]:
    """Draw the bytes of an answer, and the delay of the rest, s; -1 if it never follows."""
    good = np.zeros(length, "<f8")
    good[0] = rng.normal()
    kind = rng.integers(8)
    if kind == 0:
        good[0] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == 1:
        return good.tobytes()[: int(rng.integers(8 * length))], -1.0
    elif kind == 2:
        return good.tobytes() + rng.bytes(int(rng.integers(1, 100))), 0.0
    elif kind == 3:
        return rng.bytes(int(rng.integers(1, 16 * length))), -1.0
    elif kind == 4:
        return b"", float(rng.choice([0.0, 0.4]))
    return good.tobytes(), 0.0


def _misbehave(line: socket.socket, rng: np.random.Generator) -> None:
    if rng.random() < 0.1:
        line.sendall(rng.bytes(int(rng.integers(1, 200))))
    if rng.random() < 0.1:
        return
    *_, length = struct.unpack("<11i", _received(line, 44))
    for _ in range(int(rng.integers(0, 12))):
        action = struct.unpack_from("<d", _received(line, 8 * length))[0]
        if action in (3.0, 5.0, 99.0):
            continue
        data, then = _answer(rng, length)
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            line.sendall(part)
        if then:
            time.sleep(abs(then) if then > 0.0 else 0.3)
            if rng.random() < 0.5:
                return


@contextlib.contextmanager
def laboratory(seed: int) -> Iterator[int]:
    """Run a laboratory that misbehaves to one client; yield its port."""
    rng = np.random.default_rng(seed)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20.0)

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.settimeout(5.0)
                if rng.random() < 0.3:  # close with a reset
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    _misbehave(line, rng)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30.0)
        assert not thread.is_alive()
