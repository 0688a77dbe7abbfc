# SPDX-License-Identifier: Apache-2.0
"""Many, slow and hostile watchers of a page: it stays up, small and quick, and says nothing but what it must."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

import aiohttp
import aiohttp.web
from page_of_test import RTHS, get

import rths_nodes
from rths_nodes.app.page import server
from rths_nodes.app.page.access import quiet_runner
from rths_nodes.app.page.server import MOST_WATCHERS, SLOW_S

GROWTH_MB = 150.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The page of a recording: its address and process. It has the server of every page."""
    folder = tmp_path_factory.mktemp("load") / "run"
    rths_nodes.run("chen_ricles_2010", ["duration=20"], record=folder)
    words = [*RTHS, "replay", str(folder), "--page", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as showing:
        assert showing.stdout is not None
        found = re.search(r"http://\S+", showing.stdout.readline())
        assert found
        yield found[0], showing.pid
        showing.send_signal(signal.SIGINT)
        _, complaints = showing.communicate(timeout=30.0)
        assert showing.returncode == 0
        assert "Traceback" not in complaints, complaints


def resident_mb(process: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) / 1024.0


def test_two_hundred_look_on_and_no_more(served: tuple[str, int]) -> None:
    address, process = served
    before = resident_mb(process)

    async def crowd() -> list[int]:
        """Status of each that asks; those who are let in hear for a second what there is."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            statuses, sockets = [], []
            for number in range(MOST_WATCHERS + 5):
                if number % 50 == 49:
                    await asyncio.sleep(1.0)  # no more than the page answers in a second
                try:
                    sockets.append(await session.ws_connect(address.replace("http", "ws") + "live"))
                    statuses.append(101)
                except aiohttp.WSServerHandshakeError as refused:
                    statuses.append(refused.status)
            told = [json.loads((await each.receive()).data) for each in sockets]
            assert all(each["run"]["state"] == "FINISHED" for each in told)
            began = time.monotonic()
            async with session.get(f"{address}situation") as answer:
                assert (await answer.json())["run"]["scenario"] == "chen_ricles_2010"
            assert time.monotonic() - began < 5.0
            for each in sockets:
                await each.close()
            return statuses

    statuses = asyncio.run(crowd())
    assert statuses == [101] * MOST_WATCHERS + [503] * 5
    assert resident_mb(process) - before < GROWTH_MB
    time.sleep(1.1)
    assert get(address)["run"]["state"] == "FINISHED"


def own_address() -> str:
    """An address of this computer that is no loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this computer has no other address than the loopback")
        return str(one.getsockname()[0])


def test_watchers_of_other_computers_leave_places_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_WATCHERS", 5)
    monkeypatch.setattr(server, "KEPT", 2)

    class Nothing:
        def situation(self) -> dict[str, object]:
            return {}

        def since(self, number: int) -> tuple[dict[str, object], int, list[tuple[int, int, bytes]]]:
            return {}, 0, []

    async def crowd() -> list[int]:
        runner = quiet_runner(server.PageServer(Nothing(), "0.0.0.0").application())
        await runner.setup()
        site = aiohttp.web.TCPSite(runner, "0.0.0.0", 0)
        await site.start()
        port = runner.addresses[0][1]
        statuses = []
        async with aiohttp.ClientSession() as session:
            for host in [own_address()] * 4 + ["127.0.0.1"] * 3:
                try:
                    await session.ws_connect(f"ws://{host}:{port}/live")
                    statuses.append(101)
                except aiohttp.WSServerHandshakeError as refused:
                    statuses.append(refused.status)
        await runner.cleanup()
        return statuses

    assert asyncio.run(crowd()) == [101] * 3 + [503] + [101] * 2 + [503]


def test_who_never_reads_is_hung_up_and_holds_nobody(served: tuple[str, int]) -> None:
    address, process = served
    host, port = address.removeprefix("http://").strip("/").split(":")
    before = resident_mb(process)
    stuck = []
    for _ in range(20):
        one = socket.create_connection((host, int(port)), timeout=10.0)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        head = f"GET /live HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        one.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode())
        stuck.append(one)
    for _ in range(20):  # half a request, and then nothing
        one = socket.create_connection((host, int(port)), timeout=10.0)
        one.sendall(b"GET /situation HTTP/1.1\r\nHost: ")
        stuck.append(one)
    began = time.monotonic()
    assert get(address)["run"]["state"] == "FINISHED"
    assert time.monotonic() - began < 2.0
    time.sleep(SLOW_S + 1.0)
    assert resident_mb(process) - before < GROWTH_MB
    for one in stuck:
        one.close()
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
    host, port = address.removeprefix("http://").strip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=10.0) as one:
        try:
            one.sendall(data.replace(b"{}", f"{host}:{port}".encode(), 1))
            one.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: one.recv(65536), b""))
        except ConnectionError:
            answer = b""
    assert len(answer) < 10_000
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b"Traceback" not in answer
    assert get(address)["run"]["state"] == "FINISHED"
