# SPDX-License-Identifier: Apache-2.0
"""Answers of the page's servers: who is answered at all, by which headers, and what is read of a request."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from rths_nodes.app.page import guard

LARGEST_BODY = 4096


def guarded_application(address: str) -> web.Application:
    """Return an application, without routes yet, that answers who asks for ``address`` by a name of it.

    One connection gets one answer. What comes too often, or by another name of this server, is refused.
    """
    rate = guard.Rate()

    @web.middleware  # type: ignore[untyped-decorator]
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not rate.admits(request.remote or ""):
            return refused(429, guard.TOO_MANY)
        if not guard.known_host(request.headers.get("Host", ""), address):
            return refused(403, "this server has another name")
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPException as refusal:
            answer = refused(refusal.status, refusal.reason)
        if not answer.prepared:
            answer.headers.update(guard.HEADERS | dict(answer.headers))
            answer.force_close()
        return answer

    return web.Application(client_max_size=LARGEST_BODY, middlewares=[guarded])


def quiet_runner(application: web.Application) -> web.AppRunner:
    """Return what runs an application and logs nothing of what strangers send."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    return web.AppRunner(application, access_log=None)


async def fields(request: web.Request, *names: str) -> dict[str, object] | None:
    """Return the JSON of a request, which has fields of these ``names``; None where it has not."""
    try:
        given = await request.json()
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not all(name in given for name in names):
        return None
    return given


def refused(status: int, why: str) -> web.Response:
    """Return the refusal, as JSON: ``error``."""
    answer = web.json_response({"error": why}, status=status, headers=guard.HEADERS)
    answer.force_close()
    return answer
