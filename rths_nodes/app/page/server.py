# SPDX-License-Identifier: Apache-2.0
"""Server of the page: files, recordings, the situation as JSON, live curves over a WebSocket, acts.

GET  /           the page; /card: the operator's card, to be printed
GET  /situation  the situation, as JSON
GET  /live       a WebSocket: ten times a second, the situation as text and the curves as bytes
GET  /recordings the recordings in the folder, as JSON; /report/NAME: a report
POST /code       the terminal shows a code; POST /lead {"code", "name"}: ``name`` leads the procedure
POST /act        {"act", "arguments"} of the leader; the response is sent when the act ends
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from rths_nodes.app.page import connections
from rths_nodes.app.page.connections import LARGEST_BODY, fields, guarded_application, refused
from rths_nodes.app.page.operator import Operating, TooManyCodes
from rths_nodes.app.page.process import user_name
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError

MOST = 50
"""Maximum number of listed recordings."""
LARGEST_REPORT = 64 << 20


def recordings(folder: Path) -> dict[str, object]:
    """Return a list of the newest recordings in ``folder``. Symbolic links are ignored."""
    entries = [
        {"name": name, "time": time, "report": _report_of(folder, name) is not None}
        for time, name in _recorded(folder)
    ]
    return {"folder": str(folder), "recordings": entries}


def report(folder: Path, name: str) -> bytes | None:
    if name not in {listed for _, listed in _recorded(folder)} or (path := _report_of(folder, name)) is None:
        return None
    with suppress(OSError):
        return _read(path)
    return None


def _recorded(folder: Path) -> list[tuple[float, str]]:
    rows = []
    try:
        children = list(folder.iterdir())
    except OSError:
        return []
    for child in children:
        marks = (child / "metadata.yaml", child / "procedure.yaml")
        if not child.name.startswith(".") and not child.is_symlink() and any(map(_is_file, marks)):
            rows.append((child.stat().st_mtime, child.name))
    return sorted(rows, reverse=True)[:MOST]


def _report_of(folder: Path, name: str) -> Path | None:
    return next(filter(_is_file, (folder / f"{name}.html", folder / name / "report.html")), None)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    """Return a report, or None if it is too large or not a file. Raises OSError for a symbolic link."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        number = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    with open(number, "rb") as file:
        about = os.fstat(number)
        return file.read() if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_REPORT else None


INTERVAL_S = 0.1
"""Interval between messages to a client, s."""
ASK_S = 0.4
"""Interval at which the possible acts of the procedure are queried, s."""
LOST_S = 0.2
"""Interval at which the loss of the leading page is checked, s."""
SLOW_S = 5.0
"""Time after which a client that does not receive is disconnected, s."""
MOST_WATCHERS, KEPT = 200, 20
"""``MOST_WATCHERS``: maximum number of clients. ``KEPT``: number of these reserved for clients on this machine."""
THREADS = 64
LONGEST_NAME = 64
FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/card": ("card.html", "text/html"),
    "/card.css": ("card.css", "text/css"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css"),
}
HEAD = struct.Struct("<II")
"""Header of a message with curves: number of the first sample, and number of samples per column."""
TOKEN = "X-Rths-Operator"
"""HTTP header with the token of the leading page."""


Since = Callable[[int], tuple[dict[str, object], int, list[tuple[int, int, bytes]]]]
"""Function that takes a message number. Returns the situation, the next number, and the new curves."""


class PageServer:
    """Serves, at ``address``, the situation and the curves that ``since`` returns.

    ``stop_from_anywhere`` permits clients on other machines to stop the rig. ``operating`` performs the leader's
    acts. ``folder`` contains recordings and is read at each request.
    """

    def __init__(
        self,
        since: Since,
        address: str,
        stop_from_anywhere: bool = False,
        operating: Operating | None = None,
        folder: Path | None = None,
    ) -> None:
        self._since, self._address, self._open = since, address, stop_from_anywhere
        self._operating, self._folder = operating, folder and folder.resolve()
        self._procedure: dict[str, object] | None = None
        self._watchers = 0
        self._sent: dict[str, deque[float]] = {}
        self._user = user_name(os.getuid())
        self._text: tuple[object, float, str] = "", 0.0, ""
        self._files = {
            path: ((files(__package__) / "static" / name).read_bytes(), kind)
            for path, (name, kind) in FILES.items()
        }

    def application(self) -> web.Application:
        made = guarded_application(self._address, self._limited)
        for path in FILES:
            made.router.add_get(path, self._file)
        made.router.add_get("/situation", self._situation)
        made.router.add_get("/live", self._live)
        if self._folder is not None:
            made.router.add_get("/recordings", partial(self._recordings, self._folder))
            made.router.add_get("/report/{name}", partial(self._report, self._folder))
        if self._operating is not None:
            made.router.add_post("/code", partial(self._offer, self._operating))
            made.router.add_post("/lead", partial(self._lead, self._operating))
            made.router.add_post("/act", partial(self._act, self._operating))
            made.cleanup_ctx.append(partial(self._asking, self._operating))
        return made

    @web.middleware  # type: ignore[untyped-decorator]
    async def _limited(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Limit the rate of GET requests per address. Accept POST requests only from the page on this machine."""
        remote = request.remote or ""
        if request.method == "POST":
            if why := connections.why_not(request.headers, remote, self._address, open_to_others=False):
                return refused(403, why)
        elif not connections.admits(self._sent, remote, time.monotonic()):
            return refused(429, connections.TOO_MANY)
        return await handler(request)

    async def _file(self, request: web.Request) -> web.Response:
        body, kind = self._files[request.path]
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def _recordings(self, folder: Path, _: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(recordings, folder))

    async def _report(self, folder: Path, request: web.Request) -> web.Response:
        body = await asyncio.to_thread(report, folder, request.match_info["name"])
        if body is None:
            return refused(404, "unknown report")
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=connections.OF_REPORTS)

    async def _situation(self, request: web.Request) -> web.Response:
        return web.json_response(self._since(-1)[0] | self._more(request))

    def _more(self, request: web.Request) -> dict[str, object]:
        here = connections.is_loopback(request.remote or "")
        return {"may_stop": here or self._open, "may_lead": here, "acts": self._procedure, "user": self._user}

    async def _live(self, request: web.Request) -> web.StreamResponse:
        kept = 0 if connections.is_loopback(request.remote or "") else KEPT
        if self._watchers >= MOST_WATCHERS - kept:
            return refused(503, "too many watchers")
        socket = web.WebSocketResponse(max_msg_size=LARGEST_BODY, heartbeat=20.0)
        await socket.prepare(request)
        self._watchers += 1
        listening = asyncio.ensure_future(self._receive(socket))
        try:
            number = -1
            while not socket.closed and not listening.done():
                state, number, columns = self._since(number)
                text = self._packed(state)[:-1] + ", " + json.dumps(self._more(request))[1:]
                await asyncio.wait_for(_send(socket, text, columns), SLOW_S)
                await asyncio.sleep(INTERVAL_S)
        except (TimeoutError, ConnectionError, RuntimeError):
            pass  # the client has left or is too slow
        finally:
            self._watchers -= 1
            listening.cancel()
            with suppress(Exception):
                await socket.close()
        return socket

    def _packed(self, data: Data) -> str:
        run, now = data.get("curves", {}).get("run"), time.monotonic()
        before, since, text = self._text
        if run != before or now - since > 0.5 * INTERVAL_S:
            text = json.dumps(data)
            self._text = run, now, text
        return text

    async def _receive(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type in (WSMsgType.CLOSE, WSMsgType.ERROR):
                return
            if self._operating is not None and message.type is WSMsgType.TEXT:
                self._operating.alive(message.data)

    async def _asking(self, operating: Operating, _: web.Application) -> AsyncIterator[None]:
        async def ask() -> None:
            while True:
                self._procedure = await asyncio.to_thread(operating.situation)
                await asyncio.sleep(ASK_S)

        async def watch_leader() -> None:
            while True:
                await asyncio.to_thread(operating.disarm_if_lost)
                await asyncio.sleep(LOST_S)

        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "page"))
        tasks = [loop.create_task(ask()), loop.create_task(watch_leader())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        operating.close()

    async def _offer(self, operating: Operating, _: web.Request) -> web.Response:
        await asyncio.to_thread(operating.offer)
        return web.json_response({})

    async def _lead(self, operating: Operating, request: web.Request) -> web.Response:
        form = await fields(request, "code", "name")
        if form is None:
            return refused(400, "the request must be a JSON object with the keys code and name")
        code, name = str(form["code"])[:LONGEST_NAME], str(form["name"])
        try:
            token = await asyncio.to_thread(operating.lead, code, name)
        except TooManyCodes as error:
            return refused(429, str(error))
        except ConfigError as error:
            return refused(403, str(error))
        return web.json_response({"token": token})

    async def _act(self, operating: Operating, request: web.Request) -> web.Response:
        form = await fields(request, "act", "arguments")
        if form is None or not isinstance(form["arguments"], dict):
            return refused(400, "the request must be a JSON object with the key act and a mapping of arguments")
        token, act = request.headers.get(TOKEN, ""), str(form["act"])[:LONGEST_NAME]
        sent = form.get("seen")
        seen = sent if isinstance(sent, dict) else None
        try:
            result = await asyncio.to_thread(operating.act, token, act, form["arguments"], seen)
        except ConfigError as error:
            return refused(403, str(error))
        return web.json_response({"done": result.done, "result": result.result, "reason": result.reason})


async def _send(socket: web.WebSocketResponse, state: str, columns: list[tuple[int, int, bytes]]) -> None:
    await socket.send_str(state)
    for first, samples, values in columns:
        await socket.send_bytes(HEAD.pack(first, samples) + values)
