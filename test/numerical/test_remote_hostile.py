# SPDX-License-Identifier: Apache-2.0
"""Whatever a client of the rig does, there is a clear end, and no movement beyond the limits."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import LENGTH, GenericClient, beside, connected, free_port, greeting, vector
from messages import mentions, naming
from remote_rig import STROKE, driven, scenario, server, welcome

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.numerical.integrators.remote import integrator


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


# A client that does not do what was agreed upon: before the test it is refused


def static(steps: int = 2) -> list[bytes]:
    """The beginning of a good client: greeting, and a static stage without load."""
    return [greeting(), *[vector(3, 0.0, 0.0, 0.0, 0.5 * step) + vector(5) for step in range(steps)]]


AGREED = {"static_steps": 2}


@pytest.mark.parametrize(
    ("words", "parts"),
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
        (
            ("velocities", "1", "2", "analysis"),
            [greeting(), vector(3, 0, 1e-9, 0, 0)],
        ),
        (("ended", "analysis", "static", "1", "2"), [greeting(), vector(99)]),
        (
            ("0 s", "0.02 s", "0.01 s"),
            [*static(), vector(3, 0, 0, 0, 0.02), vector(10)],
        ),
        (("0 s", "-1 s"), [*static(), vector(3, 0, 0, 0, -1.0), vector(10)]),
        (("10000", "requests"), [greeting(), vector(3) * 10_001]),
    ],
)
def test_it_is_refused_with_the_reason(words: tuple[str, ...], parts: list[bytes]) -> None:
    found = refusal(sending(*parts), AGREED)
    assert mentions(found, *words), found
    assert mentions(found, "integrator.type", "remote")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("sent nothing", "1 s"), []),
        (("sent nothing", "1 s"), static()),
        (("2048 bytes", "message"), [greeting(), vector(3)[:1000]]),
    ],
)
def test_silence_has_an_end(words: tuple[str, ...], parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrator, "WHOLE_S", 0.2)
    assert mentions(refusal(sending(*parts, stay=2.0), AGREED), *words)


def test_a_slow_drip_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrator, "WHOLE_S", 0.2)

    def drip(port: int) -> None:
        with connected(port) as client:
            client.sendall(greeting())
            for _ in range(100):
                client.sendall(b"\0")
                time.sleep(0.01)

    assert mentions(refusal(drip, AGREED), "bytes", "0.2 s")


def test_a_client_that_does_not_come_is_missed() -> None:
    remote, _ = server({"connect_within": 0.1})
    with pytest.raises(ConfigError, match=naming("127.0.0.1", "0.1 s")):
        welcome(remote)


def test_a_port_in_use_is_refused() -> None:
    remote, port = server()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ConfigError, match=naming("integrator.port", port)),
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


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("structure", "{type: sdof, mass: 1.0, frequency: 1.0}"),
        ("ground_motion", "{type: sine, frequency: 1.0, amplitude: 1.0}"),
    ],
)
def test_what_the_client_has_is_refused_beside_it(name: str, given: str) -> None:
    with pytest.raises(ConfigError, match=naming("integrator.type", "remote", name)):
        hosts.run(scenario(8090, f"{name}={given}"))


def test_matrices_must_fit_the_interface() -> None:
    for given in ("[[1.0, 0.0], [0.0, 1.0]]", "[[1.0, 2.0]]"):
        with pytest.raises(ConfigError, match=naming("integrator.experimental_stiffness", "symmetric", "1 x 1")):
            hosts.run(scenario(8090, f"integrator.experimental_stiffness={given}"))


# In the test the rig stops


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


ENDS: dict[str, tuple[Callable[[GenericClient, float], Any], str, tuple[str, ...]]] = {
    "die": (lambda client, _: client.die(), "tripped", ("client", "ended", "10 of 100 steps")),
    "gone between two steps": (lambda *_: None, "tripped", ("connection", "10 of 100 steps")),
    "gone in a step": (
        lambda client, t: client.trial(0.01, 0.0, 0.0, t + 0.01),
        "failed",
        ("connection", "10 of 100 steps"),
    ),
    "half a message": (lambda client, _: client.socket.sendall(b"12345"), "failed", ("within a message",)),
    "another step": (asks_at(0.01, 0.02), "failed", ("step", "0.01 s")),
    "a shorter step": (asks_at(0.01, 0.0099), "failed", ("step", "0.01 s")),
    "iterations": (iterates, "failed", ("displacement", "time step")),
    "nan": (asks_at(float("nan"), 0.01), "failed", ("trial response", "nan")),
    "garbage": (lambda client, _: client.ask(17), "failed", ("action", "17")),
    "silence": (falls_silent, "failed", ("client", "0.3 s")),
    "far away": (asks_at(1.0, 0.01), "tripped", ("axes.story_1.limits.stroke",)),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_rig_stops_with_the_reason(name: str, tmp_path: Path) -> None:
    then, outcome, words = ENDS[name]
    port = free_port()
    within = ["integrator.answer_within=0.3"] if name == "silence" else []
    with beside(driven(10, then), port):
        result = hosts.run(scenario(port, *within), record=tmp_path / "run")
    assert (result.outcome, mentions(result.reason, *words)) == (outcome, True), result.reason
    assert result.exit_code == {"failed": 1, "tripped": 3}[outcome]
    run = result.read()
    assert np.nanmax(np.abs(run.displacement)) <= STROKE
    assert len(run.displacement) > 100, "the recording is whole"


@pytest.mark.nodes
@pytest.mark.parametrize("name", ["die", "gone in a step", "another step"])
def test_so_it_does_with_nodes(name: str) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    then, outcome, words = ENDS[name]
    port = free_port()
    with beside(driven(10, then), port):
        result = hosts.run(scenario(port), host="composed")
    assert (result.outcome, mentions(result.reason, *words)) == (outcome, True), result.reason


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
