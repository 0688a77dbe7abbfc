# SPDX-License-Identifier: Apache-2.0
"""Client that behaves as OpenSees does, with numpy only, a test with a remote integrator, and its server."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rths_nodes.core import registry
from rths_nodes.core.opensees import PROGRAM
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

LENGTH = 256

MASSES = np.array([1000.0, 900.0, 800.0])
STORIES = np.array([1.0e6, 9.0e5, 8.0e5])
"""Masses (kg) and stiffnesses of the stories (N/m); the lowest spring is the specimen."""


def skip_without_opensees() -> None:
    """Skip if OpenSees cannot be imported, also because of missing system libraries."""
    done = subprocess.run([sys.executable, "-c", "import openseespy.opensees"], capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        pytest.skip(f"openseespy cannot be imported here ({why}): pip install openseespy")


def models_left(program: Path = PROGRAM) -> list[str]:
    """Running processes of models, run by ``program``, that this test process or a node has started."""
    worker = f"PYTEST_XDIST_WORKER={os.environ.get('PYTEST_XDIST_WORKER', '')}".encode()
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = worker in (path / "environ").read_bytes().split(b"\0") or worker.endswith(b"=")
            if ours and str(program).encode() in (path / "cmdline").read_bytes().split(b"\0"):
                processes.append(path.name)
    return processes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def connected(port: int, patience: float = 20.0) -> socket.socket:
    """Connect to the server once it listens."""
    until = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=patience)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.002)


def greeting(n: int = 1, length: int = LENGTH) -> bytes:
    return struct.pack("<11i", n, n, n, 0, 1, 0, 0, 0, n, 0, length)


def vector(*numbers: float, length: int = LENGTH) -> bytes:
    return np.concatenate([numbers, np.zeros(length - len(numbers))]).astype("<f8").tobytes()


class GenericClient:
    """Client with the protocol of the element genericClient, with one degree of freedom."""

    def __init__(self, port: int) -> None:
        self.socket = connected(port)
        self.socket.sendall(greeting())

    def trial(self, x: float, v: float, a: float, t: float) -> None:
        self.socket.sendall(vector(3, x, v, a, t))

    def commit(self) -> None:
        self.socket.sendall(vector(5))

    def die(self) -> None:
        self.socket.sendall(vector(99))
        self.socket.close()

    def ask(self, action: int) -> float:
        """Return the first number of the answer. Raises ConnectionError if there is none."""
        self.socket.sendall(vector(action))
        data = b""
        while len(data) < 8 * LENGTH:
            part = self.socket.recv(8 * LENGTH - len(data))
            if not part:
                raise ConnectionError("the server has closed the connection")
            data += part
        return float(np.frombuffer(data)[0])


def stiffness(first: float) -> Any:
    drifts = np.eye(3) - np.eye(3, k=-1)
    return drifts.T @ np.diag([first, *STORIES[1:]]) @ drifts


def newmark(steps: int, dt: float, gravity: float, force: Callable[[int, Any, Any], float], first: float) -> Any:
    """Displacements ``(steps, 3)`` (m) of the frame after a static stage, by the explicit Newmark method.

    ``force(step, x, v)`` is the force of the lowest spring if ``first``, its stiffness (N/m), is zero.
    """
    x = np.linalg.solve(stiffness(STORIES[0]), np.full(3, gravity))
    load = np.full(3, gravity)
    v, a, history = np.zeros(3), np.zeros(3), []
    for step in range(1, steps + 1):
        x = x + dt * v + 0.5 * dt**2 * a
        v = v + 0.5 * dt * a
        acting = load - MASSES * 2.0 * np.sin(9.0 * dt * step) - stiffness(first) @ x
        if not first:
            acting[0] -= force(step, x, v)
        a = acting / MASSES
        v = v + 0.5 * dt * a
        history.append(x)
    return np.array(history)


def analysis(port: int, steps: int, dt: float = 0.01, gravity: float = 3000.0) -> Any:
    """Analyse the frame, its lowest spring at ``port``: two steps of gravity, then ``steps`` time steps."""
    client = GenericClient(port)
    client.trial(0.0, 0.0, 0.0, 0.0)
    lowest = 3.0 * gravity / STORIES[0]
    for part in (0.5, 1.0):
        client.trial(part * lowest, 0.0, 0.0, part)
        assert abs(client.ask(10) - part * 3.0 * gravity) < 1e-6
        client.commit()

    def force(step: int, x: Any, v: Any) -> float:
        if step > 1:
            client.commit()
        client.trial(x[0], v[0], 0.0, step * dt)
        assert client.ask(14) == 0.0
        return client.ask(10)

    history = newmark(steps, dt, gravity, force, 0.0)
    client.commit()
    client.die()
    return history


@contextlib.contextmanager
def beside(action: Callable[..., Any], *arguments: Any) -> Iterator[list[Any]]:
    """Run ``action`` in a thread; yield a list that receives its result or its exception."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action(*arguments))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield results
    thread.join(30.0)
    assert not thread.is_alive()


def wait_for_listener(port: int, patience: float = 60.0) -> None:
    """Wait until a server listens at ``port``, without connecting: it would accept only this client."""
    until = time.monotonic() + patience
    mark = f":{port:04X} 00000000:0000 0A"
    while mark not in Path("/proc/net/tcp").read_text():
        assert time.monotonic() < until
        time.sleep(0.01)


STROKE = 0.05

SCENARIO = """
version: 1
name: remote
servo_rate: 1000.0
substeps: 10
duration: 1.0
integrator: {{type: remote, port: {port}, experimental_stiffness: [[1.0e6]], static_steps: 2, {more}}}
compensator: {{type: none}}
axes:
  story_1:
    actuator: {{type: pure_delay}}
    specimen: {{type: kelvin_voigt, stiffness: 1.0e6, damping: 0.0}}
    limits: {{stroke: {stroke}, velocity: 1.5, force: 1.0e6}}
"""


def scenario(port: int, *overrides: str, more: str = "connect_within: 20.0, answer_within: 2.0") -> Scenario:
    text = SCENARIO.format(port=port, more=more, stroke=STROKE)
    return files.load(files.from_text(text, "remote.yaml", Path()), overrides)


def server(more: dict[str, Any] | None = None, n: int = 1, dt: float = 0.01) -> Any:
    """Return the integrator, and the port on which it will listen."""
    cls = registry.load("integrator", "remote")
    port = free_port()
    parameters = {"port": port, "experimental_stiffness": np.eye(n).tolist(), "connect_within": 1.0} | (more or {})
    return cls(from_data(cls.Params, parameters, "integrator"), None, np.zeros((100, n)), dt), port


def welcome(remote: Any) -> None:
    """Open the server and wait for the first displacement, as a host does."""
    remote.open()
    while remote.missing():
        time.sleep(0.001)


def driven(steps: int, then: Callable[[GenericClient, float], Any]) -> Callable[[int], Any]:
    """Return a client that moves for ``steps`` steps and calls ``then(client, time)``."""

    def run(port: int) -> None:
        client = GenericClient(port)
        for _ in range(2):
            client.trial(0.0, 0.0, 0.0, 0.0)
            client.commit()
        for step in range(1, steps + 1):
            client.trial(1e-4 * step**2, 0.0, 0.0, 0.01 * step)
            client.ask(10)
            client.commit()
        with contextlib.suppress(ConnectionError):  # the server has closed the connection
            then(client, 0.01 * steps)
        client.socket.close()

    return run
