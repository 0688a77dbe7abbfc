# SPDX-License-Identifier: Apache-2.0
"""Stops by the page: ``POST /stop`` with ``{"kind": "stop" or "emergency_stop"}``, answered once confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from rths_nodes.app.page import guard
from rths_nodes.app.page.answers import fields
from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.names import STOPS

PATH = "/stop"

Stop = Callable[[str, str], str]
"""Stops, by a kind and for a reason, and returns the answer; raises ConfigError where nobody has confirmed it."""


def add_stop(application: web.Application, stop: Stop, address: str, open_to_others: bool = False) -> None:
    """Let the server at ``address`` stop by ``stop``, which waits in a thread.

    ``open_to_others``: who asks from another machine may stop, too.
    """

    async def answer(request: web.Request) -> web.Response:
        if why := guard.why_not(request.headers, request.remote or "", address, open_to_others):
            return _unconfirmed(403, why)
        given = await fields(request, "kind")
        if given is None:
            return _unconfirmed(400, "no JSON with a kind")
        if (kind := given["kind"]) not in STOPS:
            return _unconfirmed(400, f"kind: one of {', '.join(STOPS)}")
        try:
            words = await asyncio.get_running_loop().run_in_executor(None, stop, kind, f"page at {request.remote}")
        except ConfigError as error:
            return _unconfirmed(503, str(error))
        return web.json_response({"confirmed": True, "words": words})

    application.router.add_post(PATH, answer)


def _unconfirmed(status: int, why: str) -> web.Response:
    return web.json_response({"confirmed": False, "why": why}, status=status)
