# SPDX-License-Identifier: Apache-2.0
"""A page and a test as real processes, and a browser that is controlled by its debugging protocol."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from programs import RTHS, begun

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
MARK = {"X-Rths-Page": "1", "Content-Type": "application/json"}


@contextmanager
def page(*words: str) -> Iterator[str]:
    """Run ``rths page`` at a free port; yield its address."""
    with page_and_terminal(*words) as (address, _, _):
        yield address


@contextmanager
def page_and_terminal(*words: str) -> Iterator[tuple[str, Callable[[], str], int]]:
    """Run ``rths page``; yield its address, a function that reads a line of its output, and its process id."""
    serving = subprocess.Popen([*RTHS, "page", "--port", "0", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        address = re.search(r"http://\S+", line)
        assert address, line
        yield address[0], serving.stdout.readline, serving.pid
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30.0) == 0


@contextmanager
def page_of_recording(folder: Path) -> Iterator[tuple[str, int]]:
    """Run ``rths replay --page`` at a free port; yield its address and process id."""
    command = [*RTHS, "replay", str(folder), "--page", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        line = serving.stdout.readline()
        try:
            address = re.search(r"http://\S+", line)
            assert address, line
            yield address[0], serving.pid
        finally:
            serving.send_signal(signal.SIGINT)
            _, complaints = serving.communicate(timeout=30.0)
        assert serving.returncode == 0
        assert "Traceback" not in complaints, complaints


@contextmanager
def procedure_beside(
    folder: Path, rungs: str, *words: str, rig: str = "bench_simulated"
) -> Iterator[subprocess.Popen[str]]:
    """Run ``rths test --socket`` of the ``rungs`` on a bench, in ``folder``."""
    answers = {"operator": "A. Tester", "specimen": "D-17", "test_id": "first", "rungs": list(rungs), "level": 0.2}
    (folder / "answers.yaml").write_text(json.dumps(answers))
    how = ("--rig", rig, "--socket")
    with _beside(folder, "test", "chen_ricles_2010", *how, "--answers", "answers.yaml", *words) as testing:
        yield testing


@contextmanager
def test_beside(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``rths run`` in real time with composed nodes, recorded into ``folder``."""
    how = ("--host", "composed", "--pace", "realtime", "--record", str(folder))
    with _beside(folder.parent, "run", "chen_ricles_2010", *how, *words) as running:
        yield running


@contextmanager
def _beside(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``rths`` with ``arguments`` in ``folder``; interrupt it at the end."""
    running = begun([*RTHS, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        running.communicate(timeout=60.0)


test_beside.__test__ = False  # type: ignore[attr-defined]


def viewer(address: str, received: int = 65536) -> socket.socket:
    """Open the live data of a page without reading them; ``received`` is the size of the buffer, bytes."""
    host, port = urlparse(address).hostname, urlparse(address).port
    client = socket.create_connection((host, port), timeout=10.0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    head = f"GET /live HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    client.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode())
    return client


def get(address: str) -> dict[str, Any]:
    """Return the situation that the page publishes."""
    with urllib.request.urlopen(f"{address}situation", timeout=10.0) as answer:
        situation: dict[str, Any] = json.load(answer)
    return situation


def asked_until(address: str, holds: Callable[[dict[str, Any]], bool], patience: float = 60.0) -> dict[str, Any]:
    """Wait until the situation satisfies ``holds`` and return it."""
    end = time.monotonic() + patience
    while not holds(situation := get(address)):
        assert time.monotonic() < end, situation
        time.sleep(0.05)
    return situation


def post(address: str, data: bytes, headers: dict[str, str] = MARK) -> tuple[int, dict[str, Any]]:
    """Return status and answer of a POST /stop."""
    request = urllib.request.Request(f"{address}stop", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read() or b"{}")


def until(address: str, state: str, patience: float = 60.0) -> dict[str, Any]:
    """Wait until the run is in ``state`` and its curves are published; return the situation."""

    def complete(situation: dict[str, Any]) -> bool:
        return situation.get("run", {}).get("state") == state and situation.keys() >= {"curves", "port"}

    return asked_until(address, complete, patience)


FLOOD = """
import socket, sys, threading
port = int(sys.argv[1])
asked = b"POST /stop HTTP/1.1", b"GET /situation HTTP/1.1", b"POST /code HTTP/1.1"
def flood(request):
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10.0) as one:
                one.sendall(request + b"\\r\\nHost: 127.0.0.1\\r\\nContent-Length: 0\\r\\n\\r\\n")
                print(one.recv(12), flush=True)
        except OSError:
            pass
for number in range(16):
    threading.Thread(target=flood, args=(asked[number % 3],)).start()
"""


@contextmanager
def flood(address: str) -> Iterator[None]:
    """Send unauthorised requests from 16 threads of another process, each over a new connection."""
    port = str(urlparse(address).port)
    with subprocess.Popen([sys.executable, "-c", FLOOD, port], stdout=subprocess.PIPE, text=True) as flooding:
        assert flooding.stdout is not None
        flooding.stdout.readline()
        threading.Thread(target=flooding.stdout.read, daemon=True).start()
        try:
            yield
        finally:
            flooding.kill()


@contextmanager
def standing_rig(namespace: str) -> Iterator[list[int]]:
    """Run a node that accepts stops; yield their times, ns."""
    from std_srvs.srv import Trigger

    from rths_nodes.ros.transport.middleware import ThreadedNode

    accepted: list[int] = []

    def accept(_: Trigger.Request, answer: Trigger.Response) -> Trigger.Response:
        accepted.append(time.time_ns())
        answer.success, answer.message = True, "stopped"
        return answer

    rig = ThreadedNode("actuator", namespace, 1)
    rig._node.create_service(Trigger, "actuator/stop", accept)
    rig.start()
    try:
        yield accepted
    finally:
        rig.close()


class Browser:
    """Headless Chromium at the page ``address``; used with ``async with``."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address, self._folder, self._number = address, folder, 0
        self.complaints: list[str] = []

    async def __aenter__(self) -> Browser:
        import aiohttp

        assert CHROMIUM is not None
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
        self._process = subprocess.Popen(
            [CHROMIUM, *options, f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        port_file = self._folder / "DevToolsActivePort"
        while not (port_file.is_file() and port_file.read_text().count("\n")):
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        while True:
            async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [page for page in await answer.json() if page["type"] == "page"]
            if pages:
                break
            await asyncio.sleep(0.1)
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Log", "Runtime", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(Exception):
            await self._session.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30.0)

    async def call(self, method: str, **params: Any) -> Any:
        """Call a ``method`` of the debugging protocol and return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=60.0)
            if message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(message["params"]))
            if message.get("id") == self._number:
                return message.get("result", message)

    async def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        options = {"awaitPromise": True, "returnByValue": True}
        return (await self.call("Runtime.evaluate", expression=expression, **options))["result"].get("value")

    async def until(self, expression: str, patience: float = 30.0) -> Any:
        """Wait until an expression in the page is true, and return its value."""
        end = time.monotonic() + patience
        while not (value := await self.value(expression)):
            assert time.monotonic() < end, expression
            await asyncio.sleep(0.05)
        return value

    async def click(self, name: str) -> None:
        """Click the element with an id once it is enabled."""
        await self.until(f'document.getElementById("{name}") && !document.getElementById("{name}").disabled')
        await self.value(f'document.getElementById("{name}").click()')

    async def move(self, act: str) -> None:
        """Begin an act that moves the rig: read its motion, type CLEAR and click."""
        await self.click(f"act_{act}")
        form = 'document.querySelector("#needs button")'
        await self.until(f'{form} && {form}.textContent === "{act}"')
        await self.value('document.querySelector("#needs input").value = "CLEAR"')
        await self.value(f"{form}.click()")

    async def press(self, key: str) -> None:
        """Press a key, as a person does."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
