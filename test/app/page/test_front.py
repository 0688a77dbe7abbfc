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

from page_of_test import get, page_and_terminal, post, test_beside, until

from rths_nodes.app.page import front as module
from rths_nodes.app.page.answers import guarded_application
from rths_nodes.app.page.front import Front
from rths_nodes.app.page.stops import add_stop
from rths_nodes.core.errors import ConfigError

STOP = json.dumps({"kind": "stop"}).encode()
REQUEST = b"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rths-Page: 1\r\nContent-Length: 16\r\n\r\n" + STOP


def behind(front: int) -> int:
    """The process behind the front, by its number."""
    (child,) = (int(each) for each in Path(f"/proc/{front}/task/{front}/children").read_text().split())
    return child


@pytest.mark.nodes
@pytest.mark.anew
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


def served(use: Callable[[int, list[bytes]], Awaitable[None]], stop: Callable[[str, str], str]) -> None:
    """Use a front at a port; connections that it hands on are kept by what was sent over them."""

    async def serve() -> None:
        handed: list[bytes] = []

        def hand_on(connection: socket.socket) -> None:
            with connection:
                handed.append(connection.recv(1000))

        stops = guarded_application("127.0.0.1")
        add_stop(stops, stop, "127.0.0.1")
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


def stopped(kind: str, reason: str) -> str:
    return f"{kind}: {reason}"


def refused(kind: str, reason: str) -> str:
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


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\n\r\n", b"POST /stops HTTP/1.1\r\n\r\n", b"P", b"\x00\xff"]
)
def test_anything_else_goes_on_unread(request_: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS", 10)

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
        assert (await asked(port, REQUEST)).startswith(b"HTTP/1.1 200")
        assert await asyncio.wait_for(silent[0][0].read(), 10.0) == b""  # the oldest was closed
        for _, writer in silent:
            writer.close()

    served(use, stopped)
