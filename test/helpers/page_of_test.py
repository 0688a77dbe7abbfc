# SPDX-License-Identifier: Apache-2.0
"""A page and a test beside it, as real processes, and a browser that is led by its debugging protocol."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
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

RTHS = (sys.executable, "-m", "rths_nodes.app.cli")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MARK = {"X-Rths-Page": "1", "Content-Type": "application/json"}


@contextmanager
def page(*words: str) -> Iterator[str]:
    """``rths page`` at any port; its address."""
    with page_and_terminal(*words) as (address, _, _):
        yield address


@contextmanager
def page_and_terminal(*words: str) -> Iterator[tuple[str, Callable[[], str], int]]:
    """The same, with what gives the next line of its terminal, and its process."""
    serving = subprocess.Popen([*RTHS, "page", "--port", "0", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found[0], serving.stdout.readline, serving.pid
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30.0) == 0


@contextmanager
def procedure_beside(
    folder: Path, rungs: str, *words: str, rig: str = "bench_simulated"
) -> Iterator[subprocess.Popen[str]]:
    """``rths test --socket`` of the ``rungs`` on a bench, in ``folder``."""
    answers = {"operator": "A. Tester", "specimen": "D-17", "test_id": "first", "rungs": list(rungs), "level": 0.2}
    (folder / "answers.yaml").write_text(json.dumps(answers))
    how = ("--rig", rig, "--socket")
    with _beside(folder, "test", "chen_ricles_2010", *how, "--answers", "answers.yaml", *words) as testing:
        yield testing


@contextmanager
def test_beside(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """``rths run`` in real time, composed, recorded into ``folder``."""
    how = ("--host", "composed", "--pace", "realtime", "--record", str(folder))
    with _beside(folder.parent, "run", "chen_ricles_2010", *how, *words) as running:
        yield running


@contextmanager
def _beside(place: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """``rths`` with these words, in the folder ``place``, stopped where it still runs in the end."""
    running = subprocess.Popen(
        [*RTHS, *words],
        cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        running.communicate(timeout=60.0)


test_beside.__test__ = False  # type: ignore[attr-defined]


def get(address: str) -> dict[str, Any]:
    """The situation that the page tells."""
    with urllib.request.urlopen(f"{address}situation", timeout=10.0) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def asked_until(address: str, holds: Callable[[dict[str, Any]], bool], patience: float = 60.0) -> dict[str, Any]:
    """The situation, once something ``holds`` of it."""
    end = time.monotonic() + patience
    while not holds(told := get(address)):
        assert time.monotonic() < end, told
        time.sleep(0.05)
    return told


def post(address: str, data: bytes, headers: dict[str, str] = MARK) -> tuple[int, dict[str, Any]]:
    """Status and answer of a POST /stop."""
    request = urllib.request.Request(f"{address}stop", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read() or b"{}")


def until(address: str, state: str, patience: float = 60.0) -> dict[str, Any]:
    """The situation, once the run is in ``state`` and its curves have come."""
    return asked_until(
        address,
        lambda told: told.get("run", {}).get("state") == state and told.keys() >= {"curves", "port"},
        patience,
    )


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
    """16 threads of another process that ask without a right, a new connection each."""
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
    """A node that accepts stops, and the times of those that it has accepted, ns."""
    from std_srvs.srv import Trigger

    from rths_nodes.ros.transport.threaded_node import ThreadedNode

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
    """Chromium without a window, at the page ``address``; used within ``async with``."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address, self._folder, self._number = address, folder, 0
        self.complaints: list[str] = []

    async def __aenter__(self) -> Browser:
        import aiohttp

        assert CHROMIUM is not None
        words = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
        self._process = subprocess.Popen(
            [CHROMIUM, *words, f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        place = self._folder / "DevToolsActivePort"
        while not (place.is_file() and place.read_text().count("\n")):
            await asyncio.sleep(0.1)
        port = place.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        while True:
            async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [each for each in await answer.json() if each["type"] == "page"]
            if pages:
                break
            await asyncio.sleep(0.1)
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        await self.call("Log.enable")
        await self.call("Runtime.enable")
        await self.call("Page.enable")
        await self.call("Page.navigate", url=self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(Exception):
            await self._session.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30.0)

    async def call(self, method: str, **params: Any) -> Any:
        """Result of a ``method`` of the debugging protocol."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            told = await self._socket.receive_json(timeout=60.0)
            if told.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(told["params"]))
            if told.get("id") == self._number:
                return told.get("result", told)

    async def value(self, expression: str) -> Any:
        """Value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return found["result"].get("value")

    async def until(self, expression: str, patience: float = 30.0) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + patience
        while not await self.value(expression):
            assert time.monotonic() < end, expression
            await asyncio.sleep(0.05)

    async def click(self, name: str) -> None:
        """Click what has this id, once it can be clicked."""
        await self.until(f'document.getElementById("{name}") && !document.getElementById("{name}").disabled')
        await self.value(f'document.getElementById("{name}").click()')

    async def move(self, act: str) -> None:
        """Begin an act that moves the rig: read its motion, type CLEAR, and click."""
        await self.click(f"act_{act}")
        form = 'document.querySelector("#needs button")'
        await self.until(f'{form} && {form}.textContent === "{act}"')
        await self.value('document.querySelector("#needs input").value = "CLEAR"')
        await self.value(f"{form}.click()")

    async def press(self, key: str) -> None:
        """Press a key, as a person does."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
