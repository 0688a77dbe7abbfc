# SPDX-License-Identifier: Apache-2.0
"""The C side of the UDP port as a Python port: the session of a scenario runs through the C code."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.codegen.building import toolchain
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY, Command, Measurement
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.laboratory.receiver import COMPILER_OPTIONS, Receiver, ReceiverLimits, sources
from rths_nodes.loop.executive import near

FOLDER = Path(near.__file__).parent
STRICT = ("-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror")
SOURCES = (f"-I{FOLDER}", f"-I{sources()[0].parent}", str(FOLDER / "near.c"))


class Measured(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double * 8) for name in ("displacement", "force", "command")),
        ("auxiliary", ctypes.c_double * 9),
        ("sample", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("mode", ctypes.c_uint8 * 8),
        ("hydraulics", ctypes.c_uint8),
        ("interlock", ctypes.c_uint8),
    )


class Asked(ctypes.Structure):
    _fields_ = (
        ("command", ctypes.c_double * 8),
        ("input", ctypes.c_double * 8),
        ("mode", ctypes.c_uint8 * 8),
        ("trigger", ctypes.c_uint8),
        ("warning", ctypes.c_uint8),
    )


@cache
def library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        built = Path(folder) / "near.so"
        command = [toolchain()[0], *COMPILER_OPTIONS, *STRICT, *SOURCES, "-lm", "-o", str(built)]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(built))
    loaded.near_size.restype = ctypes.c_size_t
    loaded.near_wait.argtypes = ctypes.c_void_p, ctypes.c_uint64
    return loaded


class NearPort(UdpPort):
    """UDP port whose datagrams are made and read by the C code."""

    def __init__(self, params: Any, *arguments: Any) -> None:
        super().__init__(params, *arguments)
        self._params = params
        self._c, self._session = library(), ctypes.create_string_buffer(library().near_size())

    @property
    def report(self) -> near.Report:
        report = near.Report()
        self._c.near_look(self._session, ctypes.byref(report))
        return report

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._pacer, self.sample = pacer, 0
        terms = near.terms_of(self, self._params, pacer is None)
        result = -self._c.near_open(self._session, ctypes.byref(terms))
        try:
            near.agree(self, self._params, result or self._c.near_connect(self._session, None), self.report)
        except ConfigError:
            self._c.near_close(self._session)
            raise

    def begin(self) -> None:
        self._c.near_begin(self._session)

    def wait_tick(self) -> int:
        self.sample += 1
        self._c.near_next(self._session)
        return self.sample

    def write(self, command: Command) -> None:
        asked = Asked(tuple(command.command), tuple(command.auxiliary), tuple(command.control_mode))
        asked.trigger, asked.warning = self.trigger.high, self.warning
        self._c.near_write(self._session, ctypes.byref(asked))

    def drop_heartbeat(self) -> None:
        self._c.near_drop(self._session)

    def ready(self) -> bool:
        return bool(self._c.near_ready(self._session))

    def wait(self, seconds: float) -> None:
        self._c.near_wait(self._session, round(1e9 * max(seconds, 0.0)))

    def read(self) -> Measurement:
        while not self.ready():
            self.wait(0.02)
        measured = Measured()
        self._c.near_read(self._session, ctypes.byref(measured))
        report, n, channels = self.report, len(self.axes), len(self.auxiliary_names)
        self.interlock = near.stopped(self, self._params, report)
        silent = self.interlock.startswith("port.silence")
        moved, force, command = (
            np.array(row[:n]) for row in (measured.displacement, measured.force, measured.command)
        )
        auxiliary = np.array(measured.auxiliary[:channels]) if channels else EMPTY
        modes = b"" if silent else bytes(measured.mode[:n])
        end = measured.flags, modes, measured.hydraulics, measured.interlock
        return Measurement(measured.sample, moved, force, command, auxiliary, *end)

    def numbers(self) -> dict[str, float]:
        return near.numbers(self, self.report)

    def safe(self) -> None:
        self._c.near_safe(self._session)

    def close(self) -> None:
        self._c.near_close(self._session)


class Rig:
    """Rig at a socket; a test composes its states. Records the received datagrams."""

    def __init__(self, limits: list[ReceiverLimits], dt: float, inputs: int, channels: int, flags: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(60.0)
        self.number = int(self.socket.getsockname()[1])
        self.strangers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for stranger, address in zip(self.strangers, ("127.0.0.2", "127.0.0.1"), strict=True):
            stranger.bind((address, 0))
        self.far: Any = None
        self.heard: list[bytes] = []
        self._receiver = Receiver(limits, dt, 5, 50, flags, inputs, channels)
        self._answers = threading.Thread(target=self._answer, daemon=True)

    def opened(self, port: UdpPort) -> None:
        """Open and begin the session of ``port``, by the clock of the rig."""
        self._answers.start()
        port.open(lambda: 0)
        port.begin()
        self._answers.join(10.0)

    def _answer(self) -> None:
        while self.next()[6] != datagrams.BEGIN:
            self._receiver.receive(self.heard[-1], 1)
            self._receiver.state()
            self.socket.sendto(self._receiver.reply(), self.far)

    def next(self) -> bytes:
        """Return the next datagram that is not a repetition."""
        while True:
            data, self.far = self.socket.recvfrom(2048)
            if data not in self.heard[-1:]:
                self.heard.append(data)
                return data

    def close(self) -> None:
        for line in (self.socket, *self.strangers):
            line.close()
