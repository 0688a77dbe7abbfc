# SPDX-License-Identifier: Apache-2.0
"""The front of a page: stops are answered whatever the page behind it does, and the rest goes on unread."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from page_of_test import asked_until, flood, get, page_and_terminal, post, standing_rig, test_beside, until

from rths_nodes.app.page import connections as module
from rths_nodes.app.page.connections import Front, Stop, StopServer
from rths_nodes.core.errors import ConfigError

STOP = json.dumps({"kind": "stop"}).encode()
REQUEST = b"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rths-Page: 1\r\nContent-Length: 16\r\n\r\n" + STOP


def behind(front: int) -> int:
    """The process behind the front, by its number."""
    (child,) = (int(each) for each in Path(f"/proc/{front}/task/{front}/children").read_text().split())
    return child


@pytest.mark.nodes
@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.timeout(240)
def test_a_page_that_hangs_or_dies_does_not_keep_the_stop(tmp_path: Path) -> None:
    with (
        page_and_terminal() as (address, line, front),
        test_beside(tmp_path / "run", "--set", "duration=60") as running,
    ):
        until(address, "RUNNING")
        first = behind(front)
        os.kill(first, signal.SIGSTOP)
        status, answer = post(address, STOP)
        assert (status, answer["confirmed"]) == (200, True)
        running.communicate(timeout=60.0)
        os.kill(first, signal.SIGKILL)
        assert "starts again" in line()
        assert get(address)["namespace"] == "rths"
        assert behind(front) != first


def served(use: Callable[[int, list[bytes]], Awaitable[None]], stop: Stop) -> None:
    """Use a front at a port; connections that it hands on are kept by what was sent over them."""

    async def serve() -> None:
        handed: list[bytes] = []

        def hand_on(connection: socket.socket) -> None:
            with connection:
                handed.append(connection.recv(1000))

        stops = StopServer(stop, lambda: True, "127.0.0.1")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            serving = asyncio.ensure_future(Front(listening, stops, hand_on).serve())
            await use(listening.getsockname()[1], handed)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(serve())


async def asked(port: int, *parts: bytes) -> bytes:
    """Whole answer to a request that comes in parts."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        return await asyncio.wait_for(reader.read(), 10.0)


async def stopped(kind: str, reason: str) -> str:
    return f"{kind}: {reason}"


async def refused(kind: str, reason: str) -> str:
    raise ConfigError("no node is there")


@pytest.mark.parametrize("cut", [1, 4, 8, 11, 12, 40, len(REQUEST) - 3])
def test_a_stop_that_comes_in_pieces_is_one(cut: int) -> None:
    async def use(port: int, handed: list[bytes]) -> None:
        answer = await asked(port, REQUEST[:cut], REQUEST[cut:])
        assert answer.startswith(b"HTTP/1.1 200")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
            "confirmed": True,
            "words": "stop: page at 127.0.0.1",
        }
        assert not handed

    served(use, stopped)


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\n\r\n", b"POST /stops HTTP/1.1\r\n\r\n", b"\x00\xff"])
def test_anything_else_goes_on_unread(request_: bytes) -> None:

    async def use(port: int, handed: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            writer.write(request_)
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 10.0) == b""
        assert handed == [request_]

    served(use, stopped)


def test_one_connection_gets_one_answer() -> None:
    async def use(port: int, handed: list[bytes]) -> None:
        answer = await asked(port, REQUEST + b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert not handed

    served(use, stopped)


def test_a_stop_that_is_not_confirmed_is_told() -> None:
    async def use(port: int, handed: list[bytes]) -> None:
        answer = await asked(port, REQUEST)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"no node is there" in answer

    served(use, refused)


def test_who_asks_for_nothing_does_not_keep_others_from_their_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 5)

    async def use(port: int, handed: list[bytes]) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in silent[::2]:
            writer.write(REQUEST[:30])
        assert (await asked(port, REQUEST)).startswith(b"HTTP/1.1 200")
        assert await asyncio.wait_for(silent[0][0].read(), 10.0) == b""  # the oldest was closed
        for _, writer in silent:
            writer.close()

    served(use, stopped)


def test_refused_requests_take_nothing_of_a_valid_stop() -> None:
    """Issue 61, A1: a limiter counted them together, and 50 stops of the operator were answered with 429."""
    hostile = (
        REQUEST.replace(b"X-Rths-Page", b"X-Other"),
        REQUEST.replace(b"Host: 127", b"Host: evil.example\r\nX: 127"),
    )

    async def use(port: int, handed: list[bytes]) -> None:
        answers = await asyncio.gather(*(asked(port, request) for request in hostile * 100))
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 403"}
        answers = await asyncio.gather(*(asked(port, REQUEST) for _ in range(150)))
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}

    served(use, stopped)


def test_a_stop_waits_for_no_other_one() -> None:
    async def use(port: int, handed: list[bytes]) -> None:
        begun = 0
        enough = asyncio.Event()

        async def stop(kind: str, reason: str) -> str:
            nonlocal begun
            begun += 1
            if begun == 100:
                enough.set()
            await enough.wait()
            return "together"

        stopping.append(stop)
        answers = await asyncio.gather(*(asked(port, REQUEST) for _ in range(100)))
        assert all(b"together" in answer for answer in answers)

    stopping: list[Stop] = []
    served(use, lambda kind, reason: stopping[0](kind, reason))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /stop HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b'{"reaches": true}'),
        (b"GET /stop HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"a host other than"),
        (REQUEST.replace(b"16", b"5000"), b"body of the request is larger than 4096 bytes"),
        (
            REQUEST.replace(b"Page: 1", b"Page: 1\r\nX: " + b"y" * 9000),
            b"head of the request is larger than 8192 bytes",
        ),
        (b"POST /stop HTTP/1.1\r\nX: " + b"y" * 9000, b"header X-Rths-Page is missing"),
        (REQUEST.replace(b'stop"}', b'fly!"}'), b"kind: must be stop"),
    ],
    ids=["heartbeat", "other name", "large", "large head", "long head", "unknown"],
)
def test_what_is_no_stop_is_answered_in_a_line(request_: bytes, answer: bytes) -> None:
    async def use(port: int, handed: list[bytes]) -> None:
        assert answer in await asked(port, request_, b"x" * 5000 if b"5000" in request_ else b"")
        assert not handed

    served(use, refused)


@pytest.mark.nodes
@pytest.mark.timeout(240)
def test_under_a_flood_every_stop_of_the_page_reaches_the_rig() -> None:
    """16 threads of another process, a new connection each (`python benchmarks/page.py --flood` has the times)."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    with standing_rig("flooded") as accepted, page_and_terminal("--namespace", "flooded") as (address, *_):
        asked_until(address, lambda told: bool(told.get("stop_reaches")))
        with flood(address):
            statuses = [post(address, STOP)[0] for _ in range(50)]
    assert statuses == [200] * 50
    assert len(accepted) == 50
