# SPDX-License-Identifier: Apache-2.0
"""Stop requests of the page, and their responses, as bytes without a web server.

    POST /stop  {"kind": "stop" or "trip"}; the response follows once the rig has confirmed the stop
    GET  /stop  ``reaches``: whether a stop reaches a rig

The right to stop is checked first. Stops are not limited in number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from rths_nodes.app.page import access
from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.names import STOPS

BEGINNINGS = (b"POST /stop ", b"GET /stop ")
LARGEST_HEAD, LARGEST_BODY = 8192, 4096
"""Maximum sizes of head and body of a request, bytes."""
KINDS = {"stop": STOPS[0], "trip": STOPS[1], "emergency_stop": STOPS[1]}
"""Service of each kind of stop; the last name is from version 0.9."""
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)

Stop = Callable[[str, str], Awaitable[str]]
"""Function that stops by kind and reason, and returns the response. Raises ConfigError without a confirmation."""


def is_other(received: bytes) -> bool:
    return not any(begin.startswith(received[: len(begin)]) for begin in BEGINNINGS)


def is_complete(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return len(received) > LARGEST_HEAD
    length = _LENGTH.search(head)
    return len(body) >= min(int(length[1]) if length else 0, LARGEST_BODY + 1)


@dataclass(frozen=True)
class StopServer:
    """Handles requests for ``address`` with ``stop`` and ``reaches``. If ``open_to_others``, any computer may stop
    the rig.
    """

    stop: Stop
    reaches: Callable[[], bool]
    address: str
    open_to_others: bool = False

    def at_once(self, received: bytes, remote: str) -> bytes | str:
        """Return the response to a complete request or, for a valid stop, the name of its service."""
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        if first.startswith("GET"):
            if not access.known_host(headers.get("Host", ""), self.address):
                return _unconfirmed(403, access.OTHER_NAME)
            return _answer(200, {"reaches": self.reaches()})
        if why := access.why_not(headers, remote, self.address, self.open_to_others):
            return _unconfirmed(403, why)
        if len(body) > LARGEST_BODY or len(head) > LARGEST_HEAD:
            return _unconfirmed(413, f"the request is larger than {LARGEST_BODY} bytes")
        try:
            kind = json.loads(body)["kind"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return _unconfirmed(400, "the request must be JSON with a kind")
        if not isinstance(kind, str) or kind not in KINDS:
            return _unconfirmed(400, "kind: must be stop or trip")
        return KINDS[kind]

    async def confirmed(self, service: str, remote: str) -> bytes:
        try:
            result = await self.stop(service, f"page at {remote}")
        except ConfigError as error:
            return _unconfirmed(503, str(error))
        return _answer(200, {"confirmed": True, "words": result})


def _unconfirmed(status: int, why: str) -> bytes:
    return _answer(status, {"confirmed": False, "why": why})


def _answer(status: int, fields: dict[str, object]) -> bytes:
    body = json.dumps(fields).encode()
    headers = access.HEADERS | {
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode() + body
