# SPDX-License-Identifier: Apache-2.0
"""A port of another package, found by its entry point, with a real socket to its rig."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.core import yaml_text
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[2]
REQUEST, ANSWER = struct.Struct("<Id"), struct.Struct("<Idd")
STIFFNESS = 1e6

PACKAGE = '''
import socket
import struct

import numpy as np

from rths_nodes.core import EMPTY, Measurement, integer, number, params, text


class Bench:
    """A test bench of one axis behind a socket."""

    @params
    class Params:
        host: str = text("address of the bench", "127.0.0.1")
        port: int = integer("TCP port", at_least=1, at_most=65535)
        transport_samples: int = integer("samples after which a command acts", default=0, at_least=0)
        longest_wait: float = number("patience", "s", 5.0, more_than=0.0)

    external = True
    simulated = SIMULATED
    auxiliary_names = auxiliary_inputs = ()
    interlock = partial_stop = ""

    def __init__(self, params, axes, dt, seed, rig=None):
        self.transport_samples = params.transport_samples
        self._where = (params.host, params.port)
        self.address = f"{params.host}:{params.port}"
        self._socket = None
        self.sample, self._command = 0, np.zeros(len(axes))

    def open(self, pacer=None):
        self._pacer = pacer
        self._socket = socket.create_connection(self._where, timeout=5.0)

    def begin(self):
        self._ask()

    def arm_watchdog(self): ...

    def disarm_watchdog(self): ...

    def wait_tick(self):
        if self._pacer:
            self._pacer()
        self.sample += 1
        return self.sample

    def write(self, command):
        self._command = command.command.copy()
        self._ask()

    def _ask(self):
        self._socket.sendall(struct.pack("<Id", self.sample, self._command[0]))

    def ready(self):
        return True

    def read(self):
        data = b""
        while len(data) < 20:
            more = self._socket.recv(20 - len(data))
            if not more:
                raise ConnectionResetError("the bench has closed the connection")
            data += more
        sample, displacement, force = struct.unpack("<Idd", data)
        return Measurement(sample, np.array([displacement]), np.array([force]), self._command, EMPTY, 0)

    def truth(self):
        return None

    def safe(self): ...

    def close(self):
        if self._socket is not None:
            self._socket.close()
'''

Rths = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rths(tmp_path: Path) -> Rths:
    """Runs the command line where the package ``some_laboratory`` with its two ports is installed."""
    site = tmp_path / "site"
    for name, simulated in (("some_laboratory", "True"), ("real_laboratory", "False")):
        (site / f"{name}-1.0.dist-info").mkdir(parents=True)
        (site / f"{name}.py").write_text(PACKAGE.replace("SIMULATED", simulated))
        (site / f"{name}-1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
    points = {
        "some_laboratory": "bench = some_laboratory:Bench\nhalf = some_laboratory:Half\n"
        "broken = some_laboratory:Broken\n",
        "real_laboratory": "real_bench = real_laboratory:Bench\n",
    }
    for name, lines in points.items():
        (site / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(f"[rths_nodes.port]\n{lines}")
    with (site / "some_laboratory.py").open("a") as file:
        file.write("\n\nclass Half:\n    Params = params(type('Params', (Bench.Params,), {}))\n")
        file.write("    def __init__(self, *given): ...\n")
        file.write("\n\nclass Broken(Bench):\n    Params = params(type('Params', (Bench.Params,), {}))\n")
        file.write("    def __init__(self, *given):\n        raise KeyError('axis table')\n")
    environment = os.environ | {"PYTHONPATH": f"{site}:{ROOT}"}

    def rths(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rths_nodes.app.cli", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return rths


class Bench:
    """The rig: a spring that follows at once, and closes the connection after ``lives`` answers."""

    def __init__(self, lives: int = 10**9) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.answered, self._lives = 0, lives
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        with connection:
            while (
                self.answered < self._lives
                and len(data := connection.recv(REQUEST.size, socket.MSG_WAITALL)) == 12
            ):
                sample, command = REQUEST.unpack(data)
                connection.sendall(ANSWER.pack(sample, command, STIFFNESS * command))
                self.answered += 1

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**given: Any) -> Bench:
        made.append(Bench(**given))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., str]:
    """A file for a rig at a TCP port; no axis has a simulated actuator or specimen."""

    def scenario(port: int, kind: str = "bench") -> str:
        data = files.load("predefined_sine", ["duration=0.5"]).data()
        data["port"] = {"type": kind, "port": port}
        for axis in data["axes"].values():
            del axis["actuator"], axis["specimen"]
        path = tmp_path / "mine.yaml"
        path.write_text(yaml_text.dump(data))
        return str(path)

    return scenario


@pytest.fixture
def nobody() -> int:
    """A TCP port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


HOSTS = [
    "embedded",
    pytest.param("composed", marks=[pytest.mark.nodes, pytest.mark.soak]),
    pytest.param("processes", marks=pytest.mark.nodes),
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_test_without_simulated_actuators_runs(
    rths: Rths, bench: Any, scenario: Any, host: str, tmp_path: Path
) -> None:
    rig = bench()
    mine = scenario(rig.port)
    checked = rths("check", mine)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "fits together" in checked.stdout
    assert rig.answered == 0
    done = rths("run", mine, "--host", host, "--record", "run")
    assert done.returncode == 0, done.stderr
    assert "finished after 512 samples" in done.stdout
    assert not mentions(done.stdout + done.stderr, "complete"), "a rig tells no true states"
    assert rig.answered == 513
    assert np.isnan(rths_nodes.read(tmp_path / "run").true_displacement).all()


@pytest.mark.parametrize("host", HOSTS)
def test_a_rig_that_is_not_there_is_refused_with_name_address_and_what_was_tried(
    rths: Rths, scenario: Any, nobody: int, host: str
) -> None:
    done = rths("run", scenario(nobody), "--host", host, "--no-record")
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert mentions(said, "bench", "127.0.0.1", nobody)
    assert "Traceback" not in said


@pytest.mark.parametrize("host", HOSTS)
def test_a_rig_that_leaves_under_way_fails_with_the_same(rths: Rths, bench: Any, scenario: Any, host: str) -> None:
    rig = bench(lives=100)
    done = rths("run", scenario(rig.port), "--host", host, "--no-record")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert f"port 'bench' at 127.0.0.1:{rig.port}: " in said
    assert mentions(said, "bench", "connection") or mentions(said, "Connection", "reset")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("real_bench", ("port.type", "real_bench")),
        ("half", ("port.type", "half", "arm_watchdog", "auxiliary_inputs", "auxiliary_names")),
        ("broken", ("port.type", "broken", "KeyError", "axis table")),
    ],
)
def test_check_refuses_what_run_refuses_with_the_same_words(
    rths: Rths, bench: Any, scenario: Any, kind: str, words: tuple[str, ...]
) -> None:
    rig = bench()
    mine = scenario(rig.port, kind)
    checked, run = rths("check", mine), rths("run", mine)
    assert (checked.returncode, run.returncode) == (2, 2)
    assert checked.stderr == run.stderr
    assert mentions(checked.stderr, "rths", *words)
    assert rig.answered == 0


def test_what_needs_a_model_of_the_axis_says_so(rths: Rths, bench: Any, tmp_path: Path) -> None:
    data = files.load("chen_ricles_2010").data()
    data["port"] = {"type": "bench", "port": bench().port}
    del data["axes"]["story_1"]["actuator"], data["axes"]["story_1"]["specimen"], data["cases"]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml_text.dump(data))
    done = rths("stability", str(path))
    assert done.returncode == 2
    assert mentions(done.stderr, "rths", "axes.story_1.specimen", "missing")


def test_the_simulator_still_needs_an_actuator_and_a_specimen() -> None:
    data = files.load("predefined_sine").data()
    del data["axes"]["axis_1"]["actuator"]
    with pytest.raises(ValueError, match=naming("axes.axis_1.actuator", "missing", "rig")):
        files.from_text(yaml_text.dump(data), "mine")
