# SPDX-License-Identifier: Apache-2.0
"""Components and ports of installed packages, through the command line."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming
from programs import RTHS, child_environment, settings, write_metadata

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands.new import TRIED, trial
from rths_nodes.core import registry, yaml_text
from rths_nodes.loop.scenario import files

NAME = "of_mine"
PAPER = "chen_ricles_2010"

Rths = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def rths(tmp_path: Path) -> Rths:
    """Runs ``rths`` in a process that finds the packages in ``tmp_path / "site"``."""

    def rths(*words: str) -> subprocess.CompletedProcess[str]:
        environment = child_environment(tmp_path / "site")
        return subprocess.run(
            [*RTHS, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return rths


# Components with a kernel

COMPILED = [kind for kind in TRIED if kind not in ("port", "reduction", "force_controller", "quantity")]
"""Families whose tests have a loop over kernels."""


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_entry_point(site: Path, family: str) -> None:
    write_metadata(site, NAME, f"[rths_nodes.{family}]\n{NAME} = {NAME}.component:OfMine\n")


def test_every_family_has_a_template() -> None:
    assert {*TRIED} == {*registry.FAMILIES}


@pytest.mark.usefixtures("private_cache")
@pytest.mark.parametrize("family", [*COMPILED, *sorted({*TRIED} - {*COMPILED, "port"})])
def test_new_component_runs(family: str, tmp_path: Path, rths: Rths, different: Any) -> None:
    """If it has a kernel, both engines record the same bits."""
    scenario, overrides = trial(family, NAME)
    assert main(["new", family, NAME, str(tmp_path / "site")]) == 0
    write_entry_point(tmp_path / "site", family)
    run = ["run", scenario, *settings("duration=2", *overrides)]
    if family not in COMPILED:
        result = rths(*run)
        assert result.returncode == 0, result.stderr
        return
    for engine in ("python", "compiled"):
        result = rths(*run, "--engine", engine, "--record", engine, "--json")
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert (report["engine"], report["outcome"], report["notes"]) == (engine, "finished", [])
    assert different(rths_nodes.read(tmp_path / "python"), rths_nodes.read(tmp_path / "compiled")) == []


PLAIN = '''
"""A compensator without a kernel."""
from rths_nodes.core import number, params


class OfMine:
    @params
    class Params:
        delay: float = number("delay", "s", 0.027, at_least=0.0)

    state_names = ()

    def __init__(self, params, dt, n_axes):
        self.delay = params.delay

    def step(self, target, measured):
        return target.displacement + self.delay * target.velocity

    def state(self):
        return ()

    def reset(self):
        pass
'''
STUDY = f"""
version: 1
name: short
scenario: {PAPER}
set: {{duration: 0.5, servo_rate: 512.0}}
factors:
  law: {{settings: {{none: {{compensator: {{type: none}}}}, mine: {{compensator: {{type: {NAME}}}}}}}}}
"""
SHORT = ["--set", "duration=0.5", "--set", "servo_rate=512"]
MANY: dict[str, list[str]] = {
    "study": ["study.yaml", "--out", "out"],
    "tune": [PAPER, *SHORT, "--set", f"compensator={{type: {NAME}}}", "--parameter", "compensator.delay"],
    "compare": [PAPER, *SHORT, "--variant", f"compensator={{type: {NAME}}} seed=2", "--set", "seed=3"],
    "scoreboard": [PAPER, *SHORT, "--laws", f"none,{NAME}", "--out", "out"],
}


@pytest.mark.usefixtures("private_cache")
@pytest.mark.parametrize("command", MANY)
def test_missing_kernel_is_reported_once_for_many_runs(command: str, tmp_path: Path, rths: Rths) -> None:
    package = tmp_path / "site" / NAME
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "component.py").write_text(PLAIN, encoding="utf-8")
    write_entry_point(tmp_path / "site", "compensator")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    jobs = [] if command == "compare" else ["--jobs", "1"]
    result = rths(command, *MANY[command], *jobs, "--engine", "compiled")
    assert result.returncode in (0, 3), result.stderr
    reasons = [line for line in result.stderr.splitlines() if "engine python" in line]
    assert len(reasons) == 1, result.stderr
    assert mentions(reasons[0], "compensator.type", f"'{NAME}'", "kernel")


# Ports with a real socket to their rig

REQUEST, ANSWER = struct.Struct("<Id"), struct.Struct("<Idd")
STIFFNESS = 1e6
PORTS = '''
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


class Half:
    Params = params(type("Params", (Bench.Params,), {}))

    def __init__(self, *arguments): ...


class Broken(Bench):
    Params = params(type("Params", (Bench.Params,), {}))

    def __init__(self, *arguments):
        raise KeyError("axis table")
'''


@pytest.fixture
def laboratories(tmp_path: Path) -> None:
    """Installs ``some_laboratory``, whose rig is simulated, and ``real_laboratory``."""
    site = tmp_path / "site"
    for name, simulated, ports in (
        ("some_laboratory", "True", {"bench": "Bench", "half": "Half", "broken": "Broken"}),
        ("real_laboratory", "False", {"real_bench": "Bench"}),
    ):
        lines = "".join(f"{port} = {name}:{cls}\n" for port, cls in ports.items())
        write_metadata(site, name, f"[rths_nodes.port]\n{lines}")
        (site / f"{name}.py").write_text(PORTS.replace("SIMULATED", simulated))


class Bench:
    """The rig: a spring without delay, which closes the connection after ``lives`` answers."""

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
def bench(laboratories: None) -> Iterator[Callable[..., Bench]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(Bench(**options)))


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., str]:
    """Writes a scenario for a rig at a TCP port, without simulated actuators or specimens."""

    def scenario(port: int, kind: str = "bench", name: str = "predefined_sine") -> str:
        data = files.load(name, ["duration=0.5"]).data() | {"port": {"type": kind, "port": port}}
        data.pop("cases", None)
        for axis in data["axes"].values():
            del axis["actuator"], axis["specimen"]
        path = tmp_path / "mine.yaml"
        path.write_text(yaml_text.dump(data))
        return str(path)

    return scenario


on_all_hosts = pytest.mark.parametrize(
    "host",
    [
        "embedded",
        pytest.param("composed", marks=[pytest.mark.nodes, pytest.mark.soak]),
        pytest.param("processes", marks=pytest.mark.nodes),
    ],
)


@on_all_hosts
def test_run_without_simulated_actuators_finishes(
    rths: Rths, bench: Any, scenario: Any, host: str, tmp_path: Path
) -> None:
    rig = bench()
    path = scenario(rig.port)
    check = rths("check", path)
    assert (check.returncode, check.stderr) == (0, "")
    assert "fits together" in check.stdout
    assert rig.answered == 0
    run = rths("run", path, "--host", host, "--record", "run")
    assert run.returncode == 0, run.stderr
    assert "finished after 512 samples" in run.stdout
    assert not mentions(run.stdout + run.stderr, "complete"), "the port has no true states"
    assert rig.answered == 513
    assert np.isnan(rths_nodes.read(tmp_path / "run").true_displacement).all()


@on_all_hosts
@pytest.mark.usefixtures("laboratories")
def test_missing_rig_is_refused_with_port_and_address(rths: Rths, scenario: Any, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    run = rths("run", scenario(port), "--host", host, "--no-record")
    assert run.returncode == 2
    assert mentions(run.stdout + run.stderr, "bench", "127.0.0.1", port)
    assert "Traceback" not in run.stdout + run.stderr


@on_all_hosts
def test_lost_rig_fails_with_port_and_address(rths: Rths, bench: Any, scenario: Any, host: str) -> None:
    rig = bench(lives=100)
    run = rths("run", scenario(rig.port), "--host", host, "--no-record")
    assert run.returncode == 1
    text = run.stdout + run.stderr
    assert f"port 'bench' at 127.0.0.1:{rig.port}: " in text
    assert mentions(text, "bench", "connection") or mentions(text, "Connection", "reset")
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("real_bench", ("port.type", "real_bench")),
        ("half", ("port.type", "half", "arm_watchdog", "auxiliary_inputs", "auxiliary_names")),
        ("broken", ("port.type", "broken", "KeyError", "axis table")),
    ],
)
def test_check_and_run_refuse_a_port_with_equal_messages(
    rths: Rths, bench: Any, scenario: Any, kind: str, words: tuple[str, ...]
) -> None:
    rig = bench()
    path = scenario(rig.port, kind)
    check, run = rths("check", path), rths("run", path)
    assert (check.returncode, run.returncode) == (2, 2)
    assert check.stderr == run.stderr
    assert mentions(check.stderr, "rths", *words)
    assert rig.answered == 0


def test_stability_requires_a_model_of_the_specimen(rths: Rths, bench: Any, scenario: Any) -> None:
    result = rths("stability", scenario(bench().port, name=PAPER))
    assert result.returncode == 2
    assert mentions(result.stderr, "rths", "axes.story_1.specimen", "missing")


def test_simulator_requires_an_actuator() -> None:
    data = files.load("predefined_sine").data()
    del data["axes"]["axis_1"]["actuator"]
    with pytest.raises(ValueError, match=naming("axes.axis_1.actuator", "missing", "rig")):
        files.from_text(yaml_text.dump(data), "mine")
