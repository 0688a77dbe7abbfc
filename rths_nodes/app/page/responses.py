# SPDX-License-Identifier: Apache-2.0
"""Responses of the page's servers: checks before handlers, headers, and fields of requests."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rths_nodes.app.page import access

LARGEST_BODY = 4096
"""Bytes."""


def guarded_application(address: str, *middlewares: Middleware) -> web.Application:
    """Return an application without routes for the server at ``address``.

    One response per connection. Requests for another host or from another origin are refused before
    ``middlewares`` and handlers, so that they do not count against other callers.
    """

    @web.middleware  # type: ignore[untyped-decorator]
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not access.known_host(request.headers.get("Host", ""), address):
            return refused(403, access.OTHER_NAME)
        if access.other_origin(request.headers):
            return refused(403, access.OTHER_ORIGIN)
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPException as refusal:
            answer = refused(refusal.status, refusal.reason)
        if not answer.prepared:
            answer.headers.update(access.HEADERS | dict(answer.headers))
            answer.force_close()
        return answer

    return web.Application(client_max_size=LARGEST_BODY, middlewares=[guarded, *middlewares])


def quiet_runner(application: web.Application) -> web.AppRunner:
    """Return a runner that logs nothing of what clients send."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    return web.AppRunner(application, access_log=None)


async def fields(request: web.Request, *names: str) -> dict[str, object] | None:
    """Return the JSON object of a request if it has all fields ``names``, else None."""
    try:
        values = await request.json()
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not all(name in values for name in names):
        return None
    return values


def refused(status: int, why: str) -> web.Response:
    """Return a refusal as JSON (``error``)."""
    answer = web.json_response({"error": why}, status=status, headers=access.HEADERS)
    answer.force_close()
    return answer
