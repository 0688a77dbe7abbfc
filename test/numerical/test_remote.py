"""A client at the other end of the wire drives the rig; whatever it does, there is a clear end."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import (
    LENGTH,
    STORIES,
    GenericClient,
    analysis,
    beside,
    connected,
    free_port,
    greeting,
    newmark,
    vector,
)

from rths_nodes.analysis.what_if import reproduced
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.strict import build
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.numerical.integrators.remote import connection
from rths_nodes.recording.reading import read_run

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
    """The integrator alone, and the port on which it will listen."""
    cls = registry.load("integrator", "remote")
    port = free_port()
    given = {"port": port, "experimental_stiffness": np.eye(n).tolist(), "connect_within": 1.0} | (more or {})
    return cls(build(cls.Params, given, "integrator"), None, np.zeros((100, n)), dt), port


def welcome(remote: Any) -> None:
    """As a host does: until the first displacement is known."""
    remote.open()
    while remote.missing():
        time.sleep(0.001)


def refusal(client: Callable[[int], Any], more: dict[str, Any] | None = None) -> str:
    """The words in which a server that has met ``client`` refuses the test."""
    remote, port = server(more)
    with beside(client, port), pytest.raises(ConfigError) as caught:
        welcome(remote)
    return str(caught.value)


def sending(*parts: bytes, stay: float = 0.0) -> Callable[[int], Any]:
    """A client that sends this, and goes ``stay`` s later."""

    def run(port: int) -> None:
        with connected(port) as client:
            for part in parts:
                client.sendall(part)
            time.sleep(stay)

    return run


def test_the_frame_is_the_unsplit_one() -> None:
    port = free_port()
    with beside(analysis, port, 100) as found:
        result = hosts.run(scenario(port))
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    whole = newmark(100, 0.01, 3000.0, lambda *_: 0.0, STORIES[0])
    assert np.abs(found[0] - whole).max() < 1e-12 * np.abs(whole).max()
    run = result.read()
    offset = 9000.0 / STORIES[0]
    np.testing.assert_allclose(run.dof_displacement[1:, 0], whole[:, 0] - offset, rtol=0.0, atol=1e-15)
    assert np.isnan(result.metrics["hsem_percent"]), "nobody knows the work of the ground here"


def test_velocity_and_acceleration_are_those_of_the_displacements() -> None:
    port = free_port()
    with beside(analysis, port, 100):
        run = hosts.run(scenario(port)).read()
    x, dt = run.dof_displacement[:, 0], 0.01
    curvature = np.diff(x, 2) / dt**2
    np.testing.assert_allclose(run.dof_velocity[2:, 0], np.diff(x)[1:] / dt + 0.5 * dt * curvature, atol=1e-12)
    np.testing.assert_allclose(run.exact_acceleration[1:, 0], curvature, atol=1e-9)


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_every_host_gives_the_same_to_the_bit(host: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    histories = []
    for each in ("embedded", host):
        port = free_port()
        with beside(analysis, port, 100) as found:
            result = hosts.run(scenario(port), host=each, record=tmp_path / each)
        assert result.outcome == "finished", result.reason
        run = result.read()
        histories.append((found[0], run.dof_displacement, run.force, run.command))
    for one, other in zip(*histories, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_the_client_did_is_not_computed_again(tmp_path: Path) -> None:
    port, record = free_port(), tmp_path / "run"
    with beside(analysis, port, 100):
        hosts.run(scenario(port), record=record)
    with pytest.raises(ConfigError, match=rf"integrator: needs a client on 127\.0\.0\.1 port {port}: its part"):
        reproduced(read_run(record))


def test_a_report_says_that_the_external_force_is_unknown(tmp_path: Path) -> None:
    port, record = free_port(), tmp_path / "run"
    with beside(analysis, port, 100):
        hosts.run(scenario(port), record=record)
    assert main(["report", str(record), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "that of the client, which is not known here: there is no input energy" in page


# A client that does not do what was agreed upon: before the test it is refused


def static(steps: int = 2) -> list[bytes]:
    """The beginning of a good client: greeting, and a static stage without load."""
    return [greeting(), *[vector(3, 0.0, 0.0, 0.0, 0.5 * step) + vector(5) for step in range(steps)]]


AGREED = {"static_steps": 2}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (r"sizes .* \[2, 2, 2, 0, 1\] .*: must be \[1, 1, 1, 0, 1\] and \[0, 0, 0, 1, 0\]", [greeting(2)]),
        ("vectors of 2147483647 doubles", [greeting(1, 2**31 - 1)]),
        ("vectors of -1 doubles", [greeting(1, -1)]),
        ("vectors of 4 doubles .* must be >= 5", [greeting(1, 4)]),
        ("closed the connection within a message", [greeting()[:20]]),
        ("closed the connection in static step 1 of 2", [greeting()]),
        ("the action nan", [greeting(), vector(np.nan)]),
        ("the action 4; known: 3 setTrialResponse, 5 commitState", [greeting(), vector(4.0)]),
        ("the action 3.5", [greeting(), vector(3.5)]),
        ("the trial response nan", [greeting(), vector(3, np.nan, 0.0, 0.0, 0.0)]),
        (r"the trial response 1e\+300", [greeting(), vector(3, 1e300, 0.0, 0.0, 0.0)]),
        (
            "has velocities in static step 1 of 2: must be a static analysis",
            [greeting(), vector(3, 0, 1e-9, 0, 0)],
        ),
        ("ended its analysis in static step 1 of 2", [greeting(), vector(99)]),
        (
            "goes from time 0 s to 0.02 s: its step must be 0.01 s",
            [*static(), vector(3, 0, 0, 0, 0.02), vector(10)],
        ),
        ("goes from time 0 s to -1 s", [*static(), vector(3, 0, 0, 0, -1.0), vector(10)]),
        ("made 10000 requests without commitState", [greeting(), vector(3) * 10_001]),
    ],
)
def test_it_is_refused_with_the_reason(words: str, parts: list[bytes]) -> None:
    found = refusal(sending(*parts), AGREED)
    assert re.search(words, found), found
    assert found.startswith("integrator.type = 'remote': the client")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("said nothing for 0.3 s", []),
        ("said nothing for 0.3 s", static()),
        ("of 2048 bytes of a message", [greeting(), vector(3)[:1000]]),
    ],
)
def test_silence_has_an_end(words: str, parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WHOLE_S", 0.2)
    assert words in refusal(sending(*parts, stay=1.5), AGREED | {"connect_within": 0.3})


def test_a_slow_drip_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WHOLE_S", 0.2)

    def drip(port: int) -> None:
        with connected(port) as client:
            client.sendall(greeting())
            for _ in range(100):
                client.sendall(b"\0")
                time.sleep(0.01)

    assert "bytes of a message in 0.2 s" in refusal(drip, AGREED)


def test_a_client_that_does_not_come_is_missed() -> None:
    remote, _ = server({"connect_within": 0.1})
    with pytest.raises(ConfigError, match=r"no client came to 127\.0\.0\.1 port \d+ in 0\.1 s"):
        welcome(remote)


def test_a_port_in_use_is_refused() -> None:
    remote, port = server()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ConfigError, match=rf"integrator.port = {port}: cannot listen there \(.*in use"),
    ):
        welcome(remote)


def test_a_second_client_is_turned_away() -> None:
    remote, port = server(AGREED)

    def two(port: int) -> str:
        with connected(port) as first:
            for part in (*static(), vector(3, 0, 0, 0, 0.01), vector(10)):
                first.sendall(part)
            until = time.monotonic() + 10.0
            while time.monotonic() < until:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as second:
                        if second.recv(1) == b"":
                            return "closed"
                except (ConnectionRefusedError, ConnectionResetError):
                    return "refused"
        return "taken"

    with beside(two, port) as found:
        welcome(remote)
    remote.close()
    assert found[0] in ("refused", "closed")


def test_a_structure_beside_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"integrator.type = 'remote': structure must be left out"):
        hosts.run(scenario(8090, "structure={type: sdof, mass: 1.0, frequency: 1.0}"))


def test_matrices_must_fit_the_interface() -> None:
    for given in ("[[1.0, 0.0], [0.0, 1.0]]", "[[1.0, 2.0]]"):
        with pytest.raises(ConfigError, match=r"integrator.experimental_stiffness: must be symmetric, 1 rows"):
            hosts.run(scenario(8090, f"integrator.experimental_stiffness={given}"))


def test_matrices_are_told_column_by_column() -> None:
    k = [[3.0, -1.0, 0.0], [-1.0, 2.0, 7.0], [0.0, 7.0, 4.0]]
    remote, port = server({"experimental_stiffness": k}, n=3)

    def ask(port: int) -> Any:
        with connected(port) as client:
            client.sendall(greeting(3))
            client.sendall(vector(12))
            found = b""
            while len(found) < 8 * LENGTH:
                found += client.recv(8 * LENGTH)
            client.sendall(vector(3, *np.zeros(9), 0.01) + vector(10))
            return np.frombuffer(found)[:9].reshape((3, 3), order="F")

    with beside(ask, port) as found:
        welcome(remote)
    remote.close()
    np.testing.assert_array_equal(found[0], k)


# In the test the rig stops


def driven(steps: int, then: Callable[[GenericClient, float], Any]) -> Callable[[int], Any]:
    """A client that moves evenly for ``steps`` steps and does ``then(client, time)``."""

    def run(port: int) -> None:
        client = GenericClient(port)
        for _ in range(2):
            client.trial(0.0, 0.0, 0.0, 0.0)
            client.commit()
        for step in range(1, steps + 1):
            client.trial(1e-4 * step**2, 0.0, 0.0, 0.01 * step)
            client.ask(10)
            client.commit()
        with contextlib.suppress(ConnectionError):  # that is how it learns of its end
            then(client, 0.01 * steps)
        client.socket.close()

    return run


def asks_at(x: float, dt: float) -> Callable[[GenericClient, float], Any]:
    def run(client: GenericClient, t: float) -> None:
        client.trial(x, 0.0, 0.0, t + dt)
        client.ask(10)

    return run


def iterates(client: GenericClient, t: float) -> None:
    for x in range(50):
        client.trial(0.01 + 1e-5 * x, 0.0, 0.0, t + 0.01)
        client.ask(10)


def falls_silent(client: GenericClient, t: float) -> None:
    client.trial(0.01, 0.0, 0.0, t + 0.01)
    time.sleep(1.0)


ENDS: dict[str, tuple[Callable[[GenericClient, float], Any], str, str]] = {
    "die": (lambda client, _: client.die(), "tripped", "the client has ended its analysis after 10 steps"),
    "gone between two steps": (lambda *_: None, "tripped", "closed the connection after 10 steps"),
    "gone in a step": (
        lambda client, t: client.trial(0.01, 0.0, 0.0, t + 0.01),
        "failed",
        "closed the connection after 10 steps",
    ),
    "half a message": (lambda client, _: client.socket.sendall(b"12345"), "failed", "within a message"),
    "another step": (asks_at(0.01, 0.02), "failed", "its step must be 0.01 s"),
    "a shorter step": (asks_at(0.01, 0.0099), "failed", "its step must be 0.01 s"),
    "iterations": (iterates, "failed", "another displacement in the same time step"),
    "nan": (asks_at(float("nan"), 0.01), "failed", "the trial response nan"),
    "garbage": (lambda client, _: client.ask(17), "failed", "the action 17"),
    "silence": (falls_silent, "failed", "the client has said nothing for 0.3 s"),
    "far away": (asks_at(1.0, 0.01), "tripped", "story_1"),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_rig_stops_with_the_reason(name: str, tmp_path: Path) -> None:
    then, outcome, words = ENDS[name]
    port = free_port()
    with beside(driven(10, then), port):
        result = hosts.run(scenario(port, "integrator.answer_within=0.3"), record=tmp_path / "run")
    assert (result.outcome, words in result.reason) == (outcome, True), result.reason
    assert result.exit_code == {"failed": 1, "tripped": 3}[outcome]
    run = result.read()
    assert np.nanmax(np.abs(run.displacement)) <= STROKE
    assert len(run.displacement) > 100, "the recording is whole"


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_in_real_time_late_answers_are_bridged(host: str) -> None:
    """An answer takes longer than a step now and then, and nothing else waits for it."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    port = free_port()

    def late(client: GenericClient, t: float) -> None:
        for step in range(1, 30):
            time.sleep(0.015 if step % 5 == 0 else 0.0)
            client.trial(1e-2, 0.0, 0.0, t + 0.01 * step)
            client.ask(10)
            client.commit()

    patient = ["bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5"]
    with beside(driven(10, late), port):
        result = hosts.run(scenario(port, "duration=0.39", *patient), host=host, pace="realtime")
    assert result.outcome == "finished", result.reason
    assert result.timing["bridged"] > 20


@pytest.mark.nodes
@pytest.mark.parametrize("name", ["die", "gone in a step", "another step"])
def test_so_it_does_with_nodes(name: str) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    then, outcome, words = ENDS[name]
    port = free_port()
    with beside(driven(10, then), port):
        result = hosts.run(scenario(port), host="composed")
    assert (result.outcome, words in result.reason) == (outcome, True), result.reason


# A stranger


def stranger(rng: np.random.Generator) -> bytes:
    """Bytes that a program which is no good client may send."""

    def trial() -> bytes:
        x, v = rng.choice([0.0, 1e-3, 0.2, 1e9, np.nan, -np.inf]), rng.choice([0.0, 0.0, 1.0])
        return vector(3, x, v, 0.0, rng.choice([0.0, 0.005, 0.01, 0.02, 0.03, -1.0, np.nan]))

    def said() -> bytes:
        return vector(float(rng.choice([5, 10, 12, 13, 14, 15, 99, 0, 4, -3, np.nan, 1e300])))

    kind = rng.integers(6)
    if kind == 0:
        return rng.bytes(int(rng.integers(3000)))
    if kind == 1:
        sizes = list(struct.unpack("<11i", greeting()))
        sizes[rng.integers(11)] = int(rng.integers(-(2**31), 2**31))
        return struct.pack("<11i", *sizes) + rng.bytes(int(rng.integers(3000)))
    if kind == 2:
        return greeting() + rng.bytes(int(rng.integers(3 * 8 * LENGTH)))
    if kind == 3:
        return b"GET / HTTP/1.1\r\n\r\n" * int(rng.integers(1, 99))
    talk = b"".join([trial() if rng.random() < 0.5 else said() for _ in range(rng.integers(1, 12))])
    return (greeting() if kind == 4 else b"".join(static())) + talk[: int(rng.integers(1, len(talk) + 1))]


def test_a_stranger_always_comes_to_an_end() -> None:
    rng = np.random.default_rng(1)
    ends, open_files = {"opened": 0, "refused": 0}, 0
    for count in range(800):
        if count == 50:
            open_files = len(os.listdir("/proc/self/fd"))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        remote, port = server(AGREED)
        with beside(sending(stranger(rng)), port):
            try:
                welcome(remote)
                ends["opened"] += 1
            except ConfigError as error:
                ends["refused"] += str(error).startswith("integrator.type = 'remote': the c")
            remote.close()
    assert sum(ends.values()) == 800
    assert ends["refused"] > 600
    assert len(os.listdir("/proc/self/fd")) <= open_files
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "kB"


def test_a_client_that_goes_mad_moves_nothing_beyond_the_limits() -> None:
    rng = np.random.default_rng(2)
    outcomes = set()
    for _ in range(200):
        head = len(greeting()) if rng.random() < 0.5 else 0
        raw = stranger(rng)[head:]

        def mad(client: GenericClient, _: float, raw: bytes = raw) -> None:
            client.socket.sendall(raw)

        port = free_port()
        with beside(driven(int(rng.integers(1, 8)), mad), port):
            result = hosts.run(scenario(port, "duration=0.1"))
        outcomes.add(result.outcome)
        assert result.outcome in ("tripped", "failed", "finished"), result.reason
        assert result.reason or result.outcome == "finished"
        assert np.nanmax(np.abs(result.read().command)) <= STROKE
    assert {"tripped", "failed"} <= outcomes
