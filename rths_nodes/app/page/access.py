# SPDX-License-Identifier: Apache-2.0
"""Access rights of the clients of a page: checks of address, host, origin and request rate."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

LARGEST_BODY = 4096
"""Maximum size of the body of a request, bytes."""
CLOSE_S = 0.2
"""Time for open requests to end when the server closes, s."""


def guarded_application(address: str, *middlewares: Middleware) -> web.Application:
    """Return an application without routes for the server at ``address``. A connection has one response.

    Requests for another host or from another origin are refused before any limit counts them.
    """

    @web.middleware  # type: ignore[untyped-decorator]
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not known_host(request.headers.get("Host", ""), address):
            return refused(403, OTHER_NAME)
        if other_origin(request.headers):
            return refused(403, OTHER_ORIGIN)
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPException as refusal:
            answer = refused(refusal.status, refusal.reason)
        if not answer.prepared:
            answer.headers.update(HEADERS | dict(answer.headers))
            answer.force_close()
        return answer

    return web.Application(client_max_size=LARGEST_BODY, middlewares=[guarded, *middlewares])


def quiet_runner(application: web.Application) -> web.AppRunner:
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    return web.AppRunner(application, access_log=None)


async def end(runner: web.AppRunner) -> None:
    """Close all connections, and clean up."""
    assert runner.server is not None
    await runner.server.shutdown(CLOSE_S)  # cleanup alone waits a minute for open pages
    await runner.cleanup()


async def fields(request: web.Request, *names: str) -> dict[str, object] | None:
    try:
        values = await request.json()
    except (ValueError, LookupError, RecursionError):  # LookupError: unknown charset
        return None
    if not isinstance(values, dict) or not all(name in values for name in names):
        return None
    return values


def refused(status: int, why: str) -> web.Response:
    answer = web.json_response({"error": why}, status=status, headers=HEADERS)
    answer.force_close()
    return answer


MARK = "X-Rths-Page"
"""Header of every POST. Another origin could send it only after a preflight request, which is refused."""
PER_SECOND = 100
"""Maximum number of requests per second from each address."""
TOO_MANY = "too many requests"
OTHER_NAME = "the request is for a host other than this server"
OTHER_ORIGIN = "the request is from a page of another origin"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every response. They forbid external content and embedding in a frame."""
OF_REPORTS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
}
"""Headers of a report, which contains style and pictures but no script."""


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def host_of(address: str) -> str:
    name = address.rpartition("//")[2]
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def other_origin(headers: Mapping[str, str]) -> bool:
    origin = headers.get("Origin", "")
    return bool(origin) and origin.rpartition("//")[2] != headers.get("Host", "")


def why_not(headers: Mapping[str, str], remote: str, host: str, open_to_others: bool) -> str:
    """Return the reason why ``remote`` must not stop the rig of the server at ``host``; empty if it may."""
    if headers.get(MARK) != "1":
        return f"the header {MARK} is missing, so the request is not from the page"
    if not known_host(headers.get("Host", ""), host):
        return OTHER_NAME
    if other_origin(headers):
        return OTHER_ORIGIN
    if not is_loopback(remote) and not open_to_others:
        return (
            "another computer may watch but not stop the rig, unless the page was started with "
            "--stop-from-anywhere"
        )
    return ""


def known_host(header: str, served: str) -> bool:
    """Return true if the Host ``header`` is ``served``, ``localhost`` or a loopback address.

    If ``served`` is a wildcard address, every IP address is accepted. Accepting other names would permit DNS
    rebinding.
    """
    host = host_of(header)
    if host == "localhost" or host == served:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or served in ("0.0.0.0", "::")


class Rate:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=PER_SECOND))

    def admits(self, remote: str) -> bool:
        now, asked = self._clock(), self._asked[remote]
        if len(asked) == PER_SECOND and now - asked[0] < 1.0:
            return False
        asked.append(now)
        if len(self._asked) > PER_SECOND:  # forget addresses that sent no request for a second
            for client in [name for name, times in self._asked.items() if now - times[-1] > 1.0]:
                del self._asked[client]
        return True
