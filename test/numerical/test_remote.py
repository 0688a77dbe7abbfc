# SPDX-License-Identifier: Apache-2.0
"""Tests of rigs driven by a remote client, including hostile and broken clients."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import (
    LENGTH,
    SCENARIO,
    STORIES,
    STROKE,
    GenericClient,
    analysis,
    beside,
    connected,
    driven,
    free_port,
    greeting,
    newmark,
    scenario,
    server,
    vector,
    welcome,
)
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.studies.prediction import reproduced
from rths_nodes.core.errors import ConfigError
from rths_nodes.numerical.integrators.remote import integrator
from rths_nodes.recording.reading import read_run


def answer(wire: socket.socket) -> Any:
    """Numbers of one message."""
    message = b""
    while len(message) < 8 * LENGTH:
        message += wire.recv(8 * LENGTH - len(message))
    return np.frombuffer(message)


def test_split_frame_matches_whole_frame() -> None:
    port = free_port()
    with beside(analysis, port, 100) as displacements:
        result = hosts.run(scenario(port))
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    reference = newmark(100, 0.01, 3000.0, lambda *_: 0.0, STORIES[0])
    assert np.abs(displacements[0] - reference).max() < 1e-12 * np.abs(reference).max()
    run = result.read()
    x, dt = run.dof_displacement[:, 0], 0.01
    np.testing.assert_allclose(x[1:], reference[:, 0] - 9000.0 / STORIES[0], rtol=0.0, atol=1e-15)
    assert np.isnan(result.metrics["hsem_percent"]), "the work of the ground is unknown"
    curvature = np.diff(x, 2) / dt**2
    np.testing.assert_allclose(run.dof_velocity[2:, 0], np.diff(x)[1:] / dt + 0.5 * dt * curvature, atol=1e-12)
    np.testing.assert_allclose(run.exact_acceleration[1:, 0], curvature, atol=1e-9)


def test_observed_degrees_of_freedom_receive_no_force() -> None:
    port, forces = free_port(), []

    def client(port: int) -> None:
        with connected(port) as wire:
            wire.sendall(greeting(3))
            for step in range(1, 31):
                x = [1e-4 * step, 3e-4 * step, -2e-4 * step]
                wire.sendall(vector(3, *x, *np.zeros(6), 0.01 * step) + vector(10))
                forces.append(answer(wire)[:4])
                wire.sendall(vector(5))
            wire.sendall(vector(99))

    with beside(client, port):
        overrides = ("integrator.static_steps=0", "duration=0.3", "observed=[roof, floor_2]")
        result = hosts.run(scenario(port, *overrides), keep=True)
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert run.dof_names == ("story_1", "roof", "floor_2")
    steps = np.arange(31.0)[:, None]
    np.testing.assert_allclose(run.dof_displacement, steps * [1e-4, 3e-4, -2e-4], rtol=0.0, atol=1e-15)
    np.testing.assert_allclose(np.array(forces), 1e6 * 1e-4 * steps[1:] * [1.0, 0.0, 0.0, 0.0], rtol=1e-9)
    assert result.metrics["max_displacement_m"] == pytest.approx(30 * 3e-4)
    port = free_port()
    with beside(driven(30, lambda client, _: client.die()), port):
        assert set(result.metrics) == set(hosts.run(scenario(port, "duration=0.3")).metrics)


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_agree_bit_for_bit(host: str, tmp_path: Path) -> None:
    histories = []
    for name in ("embedded", host):
        port = free_port()
        with beside(analysis, port, 100) as displacements:
            result = hosts.run(scenario(port), host=name, record=tmp_path / name)
        assert result.outcome == "finished", result.reason
        run = result.read()
        assert run.integrator["client_steps"] == 100
        assert run.integrator["static_stage"] == {"displacement": [0.009], "force": [9000.0]}
        histories.append((displacements[0], run.dof_displacement, run.force, run.command))
    for embedded, other in zip(*histories, strict=True):
        np.testing.assert_array_equal(embedded, other)


def test_recording_of_client_run_is_reported_but_not_reproduced(tmp_path: Path) -> None:
    port, record = free_port(), tmp_path / "run"
    with beside(analysis, port, 100):
        hosts.run(scenario(port), record=record)
    assert main(["report", str(record), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "story_1 9 mm, 9000 N" in page
    assert mentions(page, "client", "input")
    with pytest.raises(ConfigError, match=naming("integrator", "127.0.0.1", port)):
        reproduced(read_run(record))


def test_matrices_are_sent_column_by_column() -> None:
    k = [[3.0, -1.0, 0.0], [-1.0, 2.0, 7.0], [0.0, 7.0, 4.0]]
    remote, port = server({"experimental_stiffness": k}, n=3)

    def ask(port: int) -> Any:
        with connected(port) as client:
            client.sendall(greeting(3))
            client.sendall(vector(12))
            matrix = answer(client)[:9].reshape((3, 3), order="F")
            client.sendall(vector(3, *np.zeros(9), 0.01) + vector(10))
            return matrix

    with beside(ask, port) as matrices:
        welcome(remote)
    remote.close()
    np.testing.assert_array_equal(matrices[0], k)


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_late_answers_are_bridged_in_real_time(host: str) -> None:
    """The motion is slow enough that long bridges stay within the limits."""
    port = free_port()

    def late(client: GenericClient, t: float) -> None:
        for step in range(1, 40):
            time.sleep(0.015 if step % 5 == 0 else 0.0)
            client.trial(1e-6 * step, 0.0, 0.0, t + 0.01 * step)
            client.ask(10)
            client.commit()

    patient = ["bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5"]
    with beside(driven(0, late), port):
        result = hosts.run(scenario(port, "duration=0.39", *patient), host=host, pace="realtime")
    assert result.outcome == "finished", result.reason
    assert result.timing["bridged"] > 20


def test_command_reports_missing_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port, file = free_port(), tmp_path / "remote.yaml"
    file.write_text(SCENARIO.format(port=port, more="connect_within: 0.1", stroke=STROKE))
    assert main(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert mentions(error, "rths", "127.0.0.1", port, "0.1 s")


# Refusals before the test


def refusal(client: Callable[[int], Any], more: dict[str, Any] | None = None) -> str:
    """Message with which the server refuses ``client``."""
    remote, port = server(more)
    with beside(client, port), pytest.raises(ConfigError) as caught:
        welcome(remote)
    return str(caught.value)


def sending(*parts: bytes, stay: float = 0.0) -> Callable[[int], Any]:
    """Client that sends ``parts`` and disconnects after ``stay`` s."""

    def run(port: int) -> None:
        with connected(port) as client:
            for part in parts:
                client.sendall(part)
            time.sleep(stay)

    return run


def static(steps: int = 2) -> list[bytes]:
    """First messages of a valid client: greeting and static stage without load."""
    return [greeting(), *[vector(3, 0.0, 0.0, 0.0, 0.5 * step) + vector(5) for step in range(steps)]]


AGREED = {"static_steps": 2}


@pytest.mark.parametrize(
    ("expected", "parts"),
    [
        (("[2, 2, 2, 0, 1]", "[1, 1, 1, 0, 1]", "[0, 0, 0, 1, 0]"), [greeting(2)]),
        (("vectors", "2147483647"), [greeting(1, 2**31 - 1)]),
        (("vectors", "-1"), [greeting(1, -1)]),
        (("vectors", "4", ">= 5"), [greeting(1, 4)]),
        (("connection", "message"), [greeting()[:20]]),
        (("connection", "static", "1", "2"), [greeting()]),
        (("action", "nan"), [greeting(), vector(np.nan)]),
        (("action", "4", "known", "3", "5"), [greeting(), vector(4.0)]),
        (("action", "3.5"), [greeting(), vector(3.5)]),
        (("trial", "response", "nan"), [greeting(), vector(3, np.nan, 0.0, 0.0, 0.0)]),
        (("trial", "1e+300"), [greeting(), vector(3, 1e300, 0.0, 0.0, 0.0)]),
        (("velocities", "1", "2", "analysis"), [greeting(), vector(3, 0, 1e-9, 0, 0)]),
        (("ended", "analysis", "static", "1", "2"), [greeting(), vector(99)]),
        (("0 s", "0.02 s", "0.01 s"), [*static(), vector(3, 0, 0, 0, 0.02), vector(10)]),
        (("0 s", "-1 s"), [*static(), vector(3, 0, 0, 0, -1.0), vector(10)]),
        (("10000", "requests"), [greeting(), vector(3) * 10_001]),
        (("10000", "requests"), [*static(), vector(5) * 10_010]),
    ],
)
def test_protocol_violations_are_refused(expected: tuple[str, ...], parts: list[bytes]) -> None:
    message = refusal(sending(*parts), AGREED)
    assert mentions(message, *expected), message
    assert mentions(message, "integrator.type", "remote")


@pytest.mark.parametrize(
    ("expected", "parts"),
    [
        (("sent nothing", "1 s"), []),
        (("sent nothing", "1 s"), static()),
        (("2048 bytes", "message"), [greeting(), vector(3)[:1000]]),
    ],
)
def test_silence_times_out(expected: tuple[str, ...], parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrator, "WHOLE_S", 0.2)
    assert mentions(refusal(sending(*parts, stay=2.0), AGREED), *expected)


def test_slow_bytes_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrator, "WHOLE_S", 0.2)

    def drip(port: int) -> None:
        with connected(port) as client:
            client.sendall(greeting())
            for _ in range(100):
                client.sendall(b"\0")
                time.sleep(0.01)

    assert mentions(refusal(drip, AGREED), "bytes", "0.2 s")


def test_missing_client_times_out() -> None:
    remote, _ = server({"connect_within": 0.1})
    with pytest.raises(ConfigError, match=naming("127.0.0.1", "0.1 s")):
        welcome(remote)


def test_port_in_use_is_refused() -> None:
    remote, port = server()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ConfigError, match=naming("integrator.port", port)),
    ):
        welcome(remote)


def test_second_client_is_turned_away() -> None:
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

    with beside(two, port) as outcomes:
        welcome(remote)
    remote.close()
    assert outcomes[0] in ("refused", "closed")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("structure", "{type: sdof, mass: 1.0, frequency: 1.0}"),
        ("ground_motion", "{type: sine, frequency: 1.0, amplitude: 1.0}"),
    ],
)
def test_structure_and_ground_motion_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=naming("integrator.type", "remote", name)):
        hosts.run(scenario(8090, f"{name}={value}"))


def test_matrix_of_wrong_size_is_refused() -> None:
    for matrix in ("[[1.0, 0.0], [0.0, 1.0]]", "[[1.0, 2.0]]"):
        with pytest.raises(ConfigError, match=naming("integrator.experimental_stiffness", "symmetric", "1 x 1")):
            hosts.run(scenario(8090, f"integrator.experimental_stiffness={matrix}"))


def asks_at(x: float, dt: float) -> Callable[[GenericClient, float], Any]:
    def run(client: GenericClient, t: float) -> None:
        client.trial(x, 0.0, 0.0, t + dt)
        client.ask(10)

    return run


def iterates(client: GenericClient, t: float) -> None:
    for x in range(50):
        client.trial(0.01 + 1e-5 * x, 0.0, 0.0, t + 0.01)
        client.ask(10)


def commits_for_ever(client: GenericClient, t: float) -> None:
    with suppress(OSError):  # the server has closed the connection
        while True:
            client.socket.sendall(100 * vector(5))


def falls_silent(client: GenericClient, t: float) -> None:
    client.trial(0.01, 0.0, 0.0, t + 0.01)
    time.sleep(1.0)


ENDS_WITH_NODES = ("die", "gone in a step", "another step")
GONE = ("connection", "10 of 100 steps")
ENDS: dict[str, tuple[Callable[[GenericClient, float], Any], str, tuple[str, ...]]] = {
    "die": (lambda client, _: client.die(), "tripped", ("client", "ended", "10 of 100 steps")),
    "gone between two steps": (lambda *_: None, "tripped", GONE),
    "gone in a step": (lambda client, t: client.trial(0.01, 0.0, 0.0, t + 0.01), "failed", GONE),
    "half a message": (lambda client, _: client.socket.sendall(b"12345"), "failed", ("within a message",)),
    "another step": (asks_at(0.01, 0.02), "failed", ("step", "0.01 s")),
    "a shorter step": (asks_at(0.01, 0.0099), "failed", ("step", "0.01 s")),
    "iterations": (iterates, "failed", ("displacement", "time step")),
    "nan": (asks_at(float("nan"), 0.01), "failed", ("trial response", "nan")),
    "garbage": (lambda client, _: client.ask(17), "failed", ("action", "17")),
    "commits": (commits_for_ever, "failed", ("10000 requests", "displacement")),
    "silence": (falls_silent, "failed", ("client", "0.3 s")),
    "far away": (asks_at(1.0, 0.01), "tripped", ("axes.story_1.limits.stroke",)),
}


@pytest.mark.parametrize("name", ENDS)
def test_client_failure_stops_rig_with_reason(name: str, tmp_path: Path) -> None:
    then, outcome, parts = ENDS[name]
    port = free_port()
    overrides = ["integrator.answer_within=0.3"] if name == "silence" else []
    with beside(driven(10, then), port):
        result = hosts.run(scenario(port, *overrides), record=tmp_path / "run")
    assert (result.outcome, mentions(result.reason, *parts)) == (outcome, True), result.reason
    assert result.exit_code == {"failed": 1, "tripped": 3}[outcome]
    run = result.read()
    assert np.nanmax(np.abs(run.displacement)) <= STROKE
    assert len(run.displacement) > 100


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("name", ENDS_WITH_NODES)
def test_client_failure_stops_nodes_with_reason(name: str) -> None:
    then, outcome, parts = ENDS[name]
    port = free_port()
    with beside(driven(10, then), port):
        result = hosts.run(scenario(port), host="composed")
    assert (result.outcome, mentions(result.reason, *parts)) == (outcome, True), result.reason


def random_bytes(rng: np.random.Generator) -> bytes:
    """Bytes that an invalid client may send."""

    def trial() -> bytes:
        x, v = rng.choice([0.0, 1e-3, 0.2, 1e9, np.nan, -np.inf]), rng.choice([0.0, 0.0, 1.0])
        return vector(3, x, v, 0.0, rng.choice([0.0, 0.005, 0.01, 0.02, 0.03, -1.0, np.nan]))

    def action() -> bytes:
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
    talk = b"".join([trial() if rng.random() < 0.5 else action() for _ in range(rng.integers(1, 12))])
    return (greeting() if kind == 4 else b"".join(static())) + talk[: int(rng.integers(1, len(talk) + 1))]


def test_random_bytes_are_bounded_and_closed() -> None:
    rng = np.random.default_rng(1)
    ends, open_files = {"opened": 0, "refused": 0}, 0
    for count in range(800):
        if count == 50:
            open_files = len(os.listdir("/proc/self/fd"))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        remote, port = server(AGREED)
        with beside(sending(random_bytes(rng)), port):
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


def test_random_bytes_during_test_stay_within_limits() -> None:
    rng = np.random.default_rng(2)
    outcomes = set()
    for _ in range(200):
        head = len(greeting()) if rng.random() < 0.5 else 0
        raw = random_bytes(rng)[head:]

        def misbehave(client: GenericClient, _: float, raw: bytes = raw) -> None:
            client.socket.sendall(raw)

        port = free_port()
        with beside(driven(int(rng.integers(1, 8)), misbehave), port):
            result = hosts.run(scenario(port, "duration=0.1"))
        outcomes.add(result.outcome)
        assert result.outcome in ("tripped", "failed", "finished"), result.reason
        assert result.reason or result.outcome == "finished"
        assert np.nanmax(np.abs(result.read().command)) <= STROKE
    assert {"tripped", "failed"} <= outcomes
