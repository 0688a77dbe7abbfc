# SPDX-License-Identifier: Apache-2.0
"""Tests of a page with many, slow and hostile clients: it stays available, small and fast."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

import aiohttp
import aiohttp.web
from page_of_test import get, page_of_recording, viewer

import rths_nodes
from rths_nodes.app.page import server
from rths_nodes.app.page.connections import quiet_runner
from rths_nodes.app.page.server import MOST_WATCHERS, SLOW_S

GROWTH_MB = 150.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address and process of the page of a recording, which has the server of every page."""
    folder = tmp_path_factory.mktemp("load") / "run"
    rths_nodes.run("chen_ricles_2010", ["duration=20"], record=folder)
    with page_of_recording(folder) as address_and_process:
        yield address_and_process


def resident_mb(process: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[1]) / 1024.0


def host_and_port(address: str) -> tuple[str, int]:
    host, port = address.removeprefix("http://").strip("/").split(":")
    return host, int(port)


def test_200_watchers_are_served_and_more_refused(served: tuple[str, int]) -> None:
    address, process = served
    before = resident_mb(process)

    async def crowd() -> list[int]:
        """Return the status of each client; each admitted one receives a situation."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            statuses, sockets = [], []
            for number in range(MOST_WATCHERS + 5):
                if number % 50 == 49:
                    await asyncio.sleep(1.0)  # stay below the limit on requests per second
                try:
                    sockets.append(await session.ws_connect(address.replace("http", "ws") + "live"))
                    statuses.append(101)
                except aiohttp.WSServerHandshakeError as refused:
                    statuses.append(refused.status)
            situations = [json.loads((await watcher.receive()).data) for watcher in sockets]
            assert all(situation["run"]["state"] == "FINISHED" for situation in situations)
            start = time.monotonic()
            async with session.get(f"{address}situation") as answer:
                assert (await answer.json())["run"]["scenario"] == "chen_ricles_2010"
            assert time.monotonic() - start < 5.0
            for watcher in sockets:
                await watcher.close()
            return statuses

    assert asyncio.run(crowd()) == [101] * MOST_WATCHERS + [503] * 5
    assert resident_mb(process) - before < GROWTH_MB
    time.sleep(1.1)
    assert get(address)["run"]["state"] == "FINISHED"


def address_beyond_loopback() -> str:
    """Return an address of this computer that is no loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            connection.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this computer has no other address than the loopback")
        return str(connection.getsockname()[0])


def test_connections_are_reserved_for_local_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_WATCHERS", 5)
    monkeypatch.setattr(server, "KEPT", 2)

    async def crowd() -> list[int]:
        runner = quiet_runner(server.PageServer(lambda _: ({}, 0, []), "0.0.0.0").application())
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "0.0.0.0", 0).start()
        port = runner.addresses[0][1]
        statuses = []
        async with aiohttp.ClientSession() as session:
            for host in [address_beyond_loopback()] * 4 + ["127.0.0.1"] * 3:
                try:
                    await session.ws_connect(f"ws://{host}:{port}/live")
                    statuses.append(101)
                except aiohttp.WSServerHandshakeError as refused:
                    statuses.append(refused.status)
        await runner.cleanup()
        return statuses

    assert asyncio.run(crowd()) == [101] * 3 + [503] + [101] * 2 + [503]


def test_clients_that_never_read_are_disconnected(served: tuple[str, int]) -> None:
    address, process = served
    host, port = host_and_port(address)
    before = resident_mb(process)
    stuck = []
    for _ in range(20):
        stuck.append(viewer(address, received=1024))
    for _ in range(20):  # half a request, and then nothing
        client = socket.create_connection((host, port), timeout=10.0)
        client.sendall(b"GET /situation HTTP/1.1\r\nHost: ")
        stuck.append(client)
    start = time.monotonic()
    assert get(address)["run"]["state"] == "FINISHED"
    assert time.monotonic() - start < 2.0
    time.sleep(SLOW_S + 1.0)
    assert resident_mb(process) - before < GROWTH_MB
    for client in stuck:
        client.close()
    assert get(address)["run"]["state"] == "FINISHED"


@pytest.mark.parametrize(
    "data",
    [
        b"POST /stop HTTP/1.1\r\nHost: {}\r\nX-Rths-Page: 1\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
        b"POST /stop HTTP/1.1\r\nHost: {}\r\nX-Rths-Page: 1\r\nContent-Length: 9\r\n\r\n[[[[[[[[[",
        b"POST /act HTTP/1.1\r\nHost: {}\r\nX-Rths-Page: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: {}\r\n\r\n",
        b"\x00\xff" * 500,
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=["large", "malformed", "no page of a procedure", "another file", "noise", "long header"],
)
def test_hostile_requests_get_a_short_answer_or_none(served: tuple[str, int], data: bytes) -> None:
    address, _ = served
    host, port = host_and_port(address)
    with socket.create_connection((host, port), timeout=10.0) as client:
        try:
            client.sendall(data.replace(b"{}", f"{host}:{port}".encode(), 1))
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        except ConnectionError:
            answer = b""
    assert len(answer) < 10_000
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b"Traceback" not in answer
    assert get(address)["run"]["state"] == "FINISHED"
