# SPDX-License-Identifier: Apache-2.0
"""Tests of the front process of a page, which answers stops and passes other connections on unread."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, active_count
from types import SimpleNamespace
from typing import TypeVar
from unittest.mock import MagicMock

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from page_of_test import asked_until, flood, get, page_and_terminal, post, standing_rig, test_beside, until

from rths_nodes.app.commands import page as page_command
from rths_nodes.app.page import connections, process
from rths_nodes.app.page.connections import Front, Stop
from rths_nodes.core.errors import ComponentError, ConfigError

STOP = json.dumps({"kind": "stop"}).encode()
REQUEST = b"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rths-Page: 1\r\nContent-Length: 16\r\n\r\n" + STOP
Result = TypeVar("Result")


def child_of(process: int) -> int:
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


@pytest.mark.nodes
@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.timeout(240)
def test_stop_works_while_page_process_hangs_or_restarts(tmp_path: Path) -> None:
    with (
        page_and_terminal() as (address, line, front),
        test_beside(tmp_path / "run", "--set", "duration=60") as running,
    ):
        until(address, "RUNNING")
        first = child_of(front)
        os.kill(first, signal.SIGSTOP)
        status, answer = post(address, STOP)
        assert (status, answer["confirmed"]) == (200, True)
        running.communicate(timeout=60.0)
        os.kill(first, signal.SIGKILL)
        assert "is restarted" in line()
        assert get(address)["namespace"] == "rths"
        assert child_of(front) != first


def with_front(use: Callable[[int, list[bytes]], Awaitable[Result]], stop: Stop) -> Result:
    """Run ``use(port, passed_on)`` with a front at the port; ``passed_on`` has data of connections passed on."""

    async def serve() -> Result:
        passed_on: list[bytes] = []

        def hand_on(connection: socket.socket) -> None:
            with connection:
                passed_on.append(connection.recv(1000))

        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            serving = asyncio.ensure_future(Front(listening, hand_on, stop, lambda: True, "127.0.0.1").serve())
            result = await use(listening.getsockname()[1], passed_on)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            return result

    return asyncio.run(serve())


async def request(port: int, *parts: bytes) -> bytes:
    """Send a request in parts and return the complete answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        return await asyncio.wait_for(reader.read(), 10.0)


async def confirm(kind: str, reason: str) -> str:
    return f"{kind}: {reason}"


async def refuse(kind: str, reason: str) -> str:
    raise ConfigError("no node is there")


def answer_of_front(stop: Stop, *parts: bytes) -> bytes:
    """Return the answer to one request, which the front does not pass on."""

    async def use(port: int, passed_on: list[bytes]) -> bytes:
        answer = await request(port, *parts)
        assert not passed_on
        return answer

    return with_front(use, stop)


@pytest.mark.parametrize("cut", [1, 4, 8, 11, 12, 40, len(REQUEST) - 3])
def test_stop_in_two_packets_is_confirmed(cut: int) -> None:
    answer = answer_of_front(confirm, REQUEST[:cut], REQUEST[cut:])
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"confirmed": True, "words": "stop: page at 127.0.0.1"}


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\n\r\n", b"POST /stops HTTP/1.1\r\n\r\n", b"\x00\xff"])
def test_other_requests_are_passed_on_unread(request_: bytes) -> None:
    async def use(port: int, passed_on: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            writer.write(request_)
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 10.0) == b""
        assert passed_on == [request_]

    with_front(use, confirm)


def test_connection_gets_one_answer() -> None:
    answer = answer_of_front(confirm, REQUEST + b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_failed_stop_is_reported() -> None:
    answer = answer_of_front(refuse, REQUEST)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"no node is there" in answer


def test_idle_connections_do_not_block_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAITING", 5)

    async def use(port: int, passed_on: list[bytes]) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in silent[::2]:
            writer.write(REQUEST[:30])
        assert (await request(port, REQUEST)).startswith(b"HTTP/1.1 200")
        assert await asyncio.wait_for(silent[0][0].read(), 10.0) == b""  # the oldest was closed
        for _, writer in silent:
            writer.close()

    with_front(use, confirm)


def test_refused_requests_do_not_limit_valid_stops() -> None:
    """Issue 61, A1: a limiter counted both, and 50 stops of the operator were answered with 429."""
    hostile = (
        REQUEST.replace(b"X-Rths-Page", b"X-Other"),
        REQUEST.replace(b"Host: 127", b"Host: evil.example\r\nX: 127"),
    )

    async def use(port: int, passed_on: list[bytes]) -> None:
        answers = await asyncio.gather(*(request(port, data) for data in hostile * 100))
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 403"}
        answers = await asyncio.gather(*(request(port, REQUEST) for _ in range(150)))
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}

    with_front(use, confirm)


def test_stops_are_answered_concurrently() -> None:
    started: list[str] = []
    all_started = asyncio.Event()

    async def stop(kind: str, reason: str) -> str:
        started.append(reason)
        if len(started) == 100:
            all_started.set()
        await all_started.wait()
        return "together"

    async def use(port: int, passed_on: list[bytes]) -> None:
        answers = await asyncio.gather(*(request(port, REQUEST) for _ in range(100)))
        assert all(b"together" in answer for answer in answers)

    with_front(use, stop)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /stop HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b'{"reaches": true}'),
        (b"GET /stop HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"a host other than"),
        (REQUEST.replace(b"16", b"5000"), b"body of the request is larger than 4096 bytes"),
        (REQUEST.replace(b"16", b"5" + b"0" * 5000), b"body of the request is larger than 4096 bytes"),
        (
            REQUEST.replace(b"Page: 1", b"Page: 1\r\nX: " + b"y" * 9000),
            b"head of the request is larger than 8192 bytes",
        ),
        (b"POST /stop HTTP/1.1\r\nX: " + b"y" * 9000, b"header X-Rths-Page is missing"),
        (REQUEST.replace(b'stop"}', b'fly!"}'), b"kind: must be stop"),
    ],
    ids=["heartbeat", "other name", "large", "endless length", "large head", "long head", "unknown"],
)
def test_invalid_stop_request_is_answered_with_the_reason(request_: bytes, answer: bytes) -> None:
    assert answer in answer_of_front(refuse, request_, b"x" * 5000 if b"5000" in request_ else b"")


def test_blocked_terminal_does_not_delay_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that answers stops waited for a terminal that did not read, and each restart kept a thread."""
    released, turns, end, threads = Event(), [], time.monotonic() + 1.5, active_count()
    monkeypatch.setattr("builtins.print", lambda *_, **__: released.wait(20.0))

    async def serve() -> None:
        while True:
            turns.append(await asyncio.sleep(0.01))

    async def serves() -> bool:
        return True

    behind = SimpleNamespace(serves=serves, reaches=lambda _: None, ended=lambda: 1, restart=lambda: None)
    going_on = lambda: time.monotonic() < end  # noqa: E731
    asyncio.run(page_command._serve_front(SimpleNamespace(serve=serve), behind, "here", lambda: True, going_on))
    threads = active_count() - threads
    released.set()
    assert len(turns) > 30
    assert threads == 1


def test_blocked_terminal_holds_no_thread_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code that a blocked terminal did not show held a thread that the disarming also needs."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    released, servers = Event(), []
    monkeypatch.setattr("builtins.print", lambda *_, **__: released.wait(5.0))
    monkeypatch.setattr(page_command.os, "nice", lambda _: 0)
    monkeypatch.setattr("rths_nodes.ros.hosting.listener.RigListener", MagicMock())
    monkeypatch.setattr(
        "rths_nodes.app.page.server.PageServer", lambda *parts: servers.append(parts) or MagicMock()
    )

    async def serve(*_: object) -> None:
        servers[0][3].offer()

    monkeypatch.setattr(connections, "serve_behind", serve)
    began = time.monotonic()
    page_command._behind(MagicMock(namespace="silent", recordings="runs", restarted=False))
    released.set()
    assert time.monotonic() - began < 4.0


def test_page_process_that_hung_receives_whether_a_stop_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.subprocess, "Popen", MagicMock())
    behind = connections.Behind([])
    behind._end, page = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (behind._end, page):
        end.setblocking(False)
    with suppress(BlockingIOError):  # connections fill the queue
        while behind._end.send(b"connection"):
            behind.reaches(False)
    behind.reaches(True)
    with suppress(BlockingIOError):
        while page.recv(100):
            pass
    behind.reaches(True)
    assert json.loads(page.recv(100)) == {"reaches": True}
    behind._end.close()  # the front ends before the page process is ready
    asyncio.run(connections.serve_behind(connections.guarded_application("127.0.0.1"), page.detach(), print))


def test_page_process_ends_without_error_if_its_message_was_not_read() -> None:
    """The front reads READY only from the first process: each later one printed a traceback at its end."""
    front, page = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page.send(b"unread")
    front.close()
    errors: list[object] = []

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await connections.serve_behind(connections.guarded_application("127.0.0.1"), page.detach(), print)

    asyncio.run(serve())
    assert not errors


def test_suspended_page_process_is_killed_while_the_test_waits_for_its_page() -> None:
    """If both times were equal, the test killed the front first, and a suspended page process remained."""
    assert connections.PATIENCE_S < 0.5 * process.PATIENCE_S


def test_killed_page_process_is_reported() -> None:
    async def serves() -> bool:
        return False

    behind = SimpleNamespace(serves=serves, close=lambda: -signal.SIGKILL)
    with pytest.raises(ComponentError, match="SIGKILL"):
        asyncio.run(page_command._serve_front(None, behind, "here", lambda: True, lambda: True))


@pytest.mark.nodes
@pytest.mark.timeout(240)
def test_stops_reach_the_rig_during_a_flood() -> None:
    """16 threads of another process, a new connection each (`python benchmarks/page.py --flood` has the times)."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    with standing_rig("flooded") as accepted, page_and_terminal("--namespace", "flooded") as (address, *_):
        asked_until(address, lambda situation: bool(situation.get("stop_reaches")))
        with flood(address):
            statuses = [post(address, STOP)[0] for _ in range(50)]
    assert statuses == [200] * 50
    assert len(accepted) == 50
