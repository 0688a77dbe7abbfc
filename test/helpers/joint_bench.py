# SPDX-License-Identifier: Apache-2.0
"""Receiver of ``examples/rths_controller`` without ROS, with emulated joints and a local socket.

A test calls each tick, so that results do not depend on time.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from emulated_bench import free_port

from rths_nodes.core.samples import EMPTY
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE, TARGET = ROOT / "examples" / "rths_controller", ROOT / "examples" / "udp_target"
SOURCES = [EXAMPLE / "src" / f"{name}.cpp" for name in ("settings", "line", "receiver")]
RIG = ROOT / "test" / "helpers" / "rths_controller_rig.cpp"
RATE = 1024.0
DT = 976562e-9
"""Period of 1024 Hz in whole nanoseconds, as in the datagrams, s."""
STROKE, VELOCITY, ACCELERATION, FORCE, ERROR = 0.25, 1.2, 20.0, 1.8e6, 0.05
BRIDGED, WATCHDOG, PERSISTENCE = 10, 60, 5
SESSION = 77

Eight = ctypes.c_double * 8


def library(folder: Path) -> Any:
    """Compile the sources of the example in ``folder``, without warnings and without ROS."""
    if not (shutil.which("g++") and shutil.which("gcc")):
        pytest.skip("no C++ compiler is installed here: apt install g++")
    target, built = folder / "rths_target.o", folder / "rig.so"
    plain = ["-O2", "-fPIC", "-ffp-contract=off", f"-I{TARGET}"]
    subprocess.run(["gcc", "-std=c99", *plain, "-c", TARGET / "rths_target.c", "-o", target], check=True)
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    command = ["g++", *strict, *plain, f"-I{EXAMPLE / 'include'}", "-shared", "-o", built, *SOURCES, RIG, target]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(built))
    for name in ("objections", "open", "begin", "report", "reason"):
        getattr(loaded, f"rig_{name}").restype = ctypes.c_char_p
    loaded.rig_memory.restype = ctypes.c_ulong
    return loaded


class Bench:
    """Joints that follow their commands, and a test computer whose datagrams a test sends explicitly."""

    def __init__(self, library: Any, axes: int = 1, stiffness: float = 0.0, **settings: Any) -> None:
        self.library, self.axes, self.stiffness = library, axes, stiffness
        self.port = free_port()
        self.position, self.force, self.command = Eight(), Eight(), Eight()
        self.interlock = 0
        self.history: list[list[float]] = []
        self._received: list[bytes] = []
        self.settings(**settings)
        self.line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.line.bind(("127.0.0.1", 0))
        self.line.setblocking(False)

    def settings(
        self,
        address: str = "127.0.0.1",
        port: int | None = None,
        rate: float = RATE,
        bridged: int = BRIDGED,
        watchdog: int = WATCHDOG,
        persistence: int = PERSISTENCE,
        limits: tuple[float, ...] = (STROKE, VELOCITY, ACCELERATION, math.inf, FORCE, ERROR),
        groups: tuple[int, ...] = (0,) * 8,
        scale: float = 1.0,
        sign: int = 1,
        force_scale: float = 1.0,
        force_sign: int = 1,
        names: tuple[str, ...] = tuple("abcdefghi"),
    ) -> None:
        if port is None:
            port = self.port
        rate, scale, force_scale = map(ctypes.c_double, (rate, scale, force_scale))  # type: ignore[assignment]
        self.library.rig_settings(address.encode(), port, rate, bridged, watchdog, persistence, 1)
        for i in range(self.axes):
            numbers = (ctypes.c_double * 6)(*limits)
            name = names[i].encode()
            self.library.rig_axis(name, numbers, groups[i], scale, sign, force_scale, force_sign)

    def objections(self) -> list[str]:
        return list(self.library.rig_objections().decode().splitlines())

    def open(self) -> str:
        return str(self.library.rig_open().decode())

    def begin(self, *position: float) -> str:
        """Activate the controller at ``position``, in units of the joints."""
        self.position[: len(position)] = position
        return str(self.library.rig_begin(self.position).decode())

    def tick(self) -> None:
        self.library.rig_tick(self.position, self.force, self.interlock, self.command)
        self.position[:] = self.command[:]
        self.force[:] = [self.stiffness * position for position in self.position]
        self.history.append(list(self.command[: self.axes]))
        self._received += self._waiting()

    def head(self, kind: int, counter: int = 0) -> Head:
        flags = datagrams.EMULATOR
        return Head(kind, self.axes, SESSION, counter, period=round(DT * 1e9), flags=flags, transport=1)

    def send(self, head: Head, rows: bytes = b"", line: socket.socket | None = None) -> None:
        (line or self.line).sendto(datagrams.packed(head, rows), ("127.0.0.1", self.port))

    def points(self, counter: int, points: list[float], slopes: list[float]) -> None:
        self.send(self.head(datagrams.COMMAND, counter), datagrams.command_rows(points, slopes, EMPTY))

    def _waiting(self) -> list[bytes]:
        datagrams_waiting = []
        with suppress(BlockingIOError):
            while True:
                datagrams_waiting.append(self.line.recv(1024))
        return datagrams_waiting

    def received(self) -> list[bytes]:
        """Return the datagrams received since the last call."""
        result, self._received = [*self._received, *self._waiting()], []
        return result

    def state(self) -> datagrams.RigState:
        """Return the last state received."""
        data = self.received()[-1]
        head = datagrams.head_of(data)
        assert head.kind == datagrams.STATE
        return datagrams.state_of(data, head)

    def session(self, *position: float) -> None:
        """Open the socket, activate, and begin a session up to state 0."""
        assert self.open() == ""
        assert self.begin(*position) == ""
        self.send(self.head(datagrams.OPEN))
        self.tick()
        (data,) = self.received()
        assert datagrams.head_of(data).reason == 0
        self.send(self.head(datagrams.BEGIN))
        self.tick()
        assert self.state_head().counter == 0

    def state_head(self) -> Head:
        return datagrams.head_of(self.received()[-1])

    def run(self, speeds: list[float], samples: int, first: int = 1) -> None:
        """Send a Command along straight lines of ``speeds``, m/s, before each tick."""
        for k in range(first, first + samples):
            self.points(k, [v * k * DT for v in speeds], speeds)
            self.tick()

    def report(self) -> str:
        return str(self.library.rig_report().decode())
