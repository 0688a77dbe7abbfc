# SPDX-License-Identifier: Apache-2.0
"""The two ends of a conversation with ``examples/hybrid_client``: its library, and laboratories that misbehave."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "examples" / "hybrid_client"
STRICT = (
    *("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow"),
    *("-Wdouble-promotion", "-Werror"),
)

OK, ARGUMENT, NOBODY, TIMEOUT, CLOSED, BROKEN, ORDER, GARBAGE, UNKNOWN, FULL = range(0, -10, -1)
FAILURES = {TIMEOUT, CLOSED, BROKEN, GARBAGE}


def compiler() -> str:
    """The C compiler; skips where there is none."""
    found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if found is None:
        pytest.skip("no C compiler here")
    return found


def python_client() -> Any:
    """The module ``rths_client.py``, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("rths_client", CLIENT / "rths_client.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def library(folder: Path) -> Any:
    """``rths_client.c``, compiled and loaded."""
    built = folder / "rths_client.so"
    words = [compiler(), *STRICT, "-O2", "-shared", "-fPIC", CLIENT / "rths_client.c", "-o", built]
    subprocess.run(words, check=True)
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
    """The program ``talker.c``."""
    built = folder / "talker"
    sources = [CLIENT / "rths_client.c", Path(__file__).with_name("talker.c")]
    words = [cc or compiler(), *STRICT, "-O1", "-g", *flags, f"-I{CLIENT}", *sources, "-o", built]
    subprocess.run(words, check=True)
    return built


def reals(*values: float) -> Any:
    return (ctypes.c_double * len(values))(*values)


# -- laboratories that misbehave


def _whole(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            raise ConnectionError
        found += part
    return found


def _answer(rng: np.random.Generator, length: int) -> tuple[bytes, float]:
    """Bytes in place of an answer, and the rest that follows after so many s, or never (-1)."""
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
    *_, length = struct.unpack("<11i", _whole(line, 44))
    for _ in range(int(rng.integers(0, 12))):
        action = struct.unpack_from("<d", _whole(line, 8 * length))[0]
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
    """The port of one that takes a client and does anything to it; it has left in the end."""
    rng = np.random.default_rng(seed)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20.0)

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.settimeout(5.0)
                if rng.random() < 0.3:  # it leaves with a reset
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    _misbehave(line, rng)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30.0)
        assert not thread.is_alive()
