# SPDX-License-Identifier: Apache-2.0
"""A test with a remote integrator, and the server without a test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from generic_client import GenericClient, free_port

from rths_nodes.core import registry
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

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
